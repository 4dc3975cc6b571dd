"""`surehook init`: an environment file for a new installation, with secrets made now.

Reads   nothing      Writes  standard output
"""

from __future__ import annotations

import secrets

import click

BYTES = 32
FILE = """\
# surehook: the settings of one installation as environment variables. `surehook config` lists all.
# Keep this file as you keep the database: without the two secrets its deliveries cannot be signed.

# The passwords of the components' logins are derived from this; the same on every machine.
SUREHOOK_ROLE_SECRET={role_secret}
# Encrypts the subscriptions' secrets in the database; the same on every machine.
SUREHOOK_ENCRYPTION_KEY={encryption_key}
# An API key with all scopes. `surehook key create` makes keys with fewer; then remove it.
SUREHOOK_ADMIN_KEY={admin_key}

# The database; without it surehook starts its own PostgreSQL.
#SUREHOOK_DATABASE_URL=postgresql://surehook@db.example.com/surehook

# For the compose files: the passwords of the database's owner and of Grafana's user admin.
DATABASE_PASSWORD={database_password}
GRAFANA_PASSWORD={grafana_password}
"""


@click.command(help="Print an environment file with newly made secrets; nothing is written.")
def init() -> None:
    click.echo(environment_file(), nl=False)


def environment_file() -> str:
    return FILE.format(
        role_secret=secrets.token_hex(BYTES),
        encryption_key=secrets.token_hex(BYTES),
        admin_key=f"shk_{secrets.token_hex(BYTES)}",
        database_password=secrets.token_hex(BYTES // 2),
        grafana_password=secrets.token_hex(BYTES // 2),
    )
