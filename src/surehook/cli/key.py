"""`surehook key …`: API keys, directly on the database: a first one needs no running API.

Reads   api_keys without hashes     Writes  api_keys, under the login `keys`
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from surehook.actions.keys import Keys, Scope
from surehook.cli import InOrder, Invocation
from surehook.cli.arguments import TENANT, id_argument, tenant_option
from surehook.cli.declared import columns, table_of
from surehook.cli.output import as_json_option, as_lines_option, done, facts, note, write_json
from surehook.model.resources.key import Key

T = TypeVar("T")


@click.group(cls=InOrder, help="API keys: what applications and people show to be let in.")
def key() -> None:
    pass


@key.command(help="Create a key. It is shown this once; only its hash is stored.")
@click.option("--name", required=True, help="What it is for, such as shop-backend.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What it allows; may be repeated. admin implies the others.",
)
@tenant_option(
    f"{TENANT}. A key bound to one sees and writes only what is that tenant's; without this it "
    "sees and writes everything."
)
@as_json_option
@click.pass_obj
def create(
    invocation: Invocation, name: str, scopes: tuple[str, ...], tenant: str | None, as_json: bool
) -> None:
    made = _with_keys(invocation, lambda keys: keys.create(name, scopes, tenant))
    if as_json:
        write_json(made, key=made.key)
        return
    done(f"key {made.id} created; it is valid from now on")
    facts([("key", made.key), *_facts(made)])
    note("Keep it now: it is not shown again.")


@key.command("list", help="List the keys, newest first.")
@tenant_option("Only those bound to this tenant.")
@as_lines_option
@click.pass_obj
def list_keys(invocation: Invocation, tenant: str | None, as_json: bool) -> None:
    found = _with_keys(invocation, lambda keys: keys.list(tenant))
    if as_json:
        for one in found:
            write_json(one)
        return
    empty = "There is no key yet; `surehook key create` makes one."
    table_of(columns(Key, tenant=_tenant), found, empty)


@key.command(help="Revoke a key; takes effect within 2 seconds. Safe to repeat.")
@id_argument("key_id")
@as_json_option
@click.pass_obj
def revoke(invocation: Invocation, key_id: int, as_json: bool) -> None:
    revoked = _with_keys(invocation, lambda keys: keys.revoke(key_id))
    if as_json:
        write_json(revoked)
    else:
        done(f"key {revoked.id} ({revoked.name}) is revoked")


def _facts(made: Key) -> list[tuple[str, object]]:
    return [("name", made.name), ("scopes", made.scopes), ("tenant", _tenant(made))]


def _tenant(one: Key) -> str:
    """Not empty: elsewhere that means "without a tenant"."""
    return "all" if one.tenant is None else one.tenant


def _with_keys(invocation: Invocation, work: Callable[[Keys], Awaitable[T]]) -> T:
    """Do it under the login `keys`; our own server runs for as long as it takes."""
    from surehook.cli.database import as_login
    from surehook.store import store_of
    from surehook.store.keys import KeyStore

    return as_login(invocation, "keys", lambda database: work(Keys(store_of(KeyStore, database))))
