"""`surehook health`: whether the process that runs here with this configuration is ready.

Reads   /readyz at observe.listen, or where that is no address at api.listen      Writes  nothing

For health checks of containers, which have no curl. It needs neither the database nor a secret.
"""

from __future__ import annotations

import http.client
import json
import sys

import click

from surehook.cli import Invocation
from surehook.cli.arguments import Finite
from surehook.cli.output import safe
from surehook.config import Config, parsers
from surehook.errors import Declined, Unreachable, UsageError
from surehook.process.running import local_address

ANSWER_MAX = 64 * 1024


@click.command(
    help="Ask the process that runs here whether it is ready: exit 0 if it is, 1 if not, 3 if "
    "nothing answers."
)
@click.option("--address", metavar="HOST:PORT", help="Ask there instead.")
@click.option(
    "--timeout",
    type=Finite(0.1, 60),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the answer.",
)
@click.pass_obj
def health(invocation: Invocation, address: str | None, timeout: float) -> None:
    # Only the addresses are of interest; the rest may be incomplete here.
    asked = _served_at(invocation.config({"database.roles": False}))
    if address is not None:
        asked = _checked(address)
    checks, warnings, ready = _ask(asked, timeout)
    for name, value in checks.items():
        if value != "ok":
            click.echo(f"{name}: {safe(value)}")
    for warning in warnings:
        click.echo(f"warning: {safe(warning)}")
    click.echo("ready" if ready else "not ready")
    if not ready:
        sys.exit(Declined.exit_code)


def _checked(address: str) -> str:
    try:
        return parsers.address(address)
    except ValueError as wrong:
        raise UsageError(f"--address is not {wrong}.") from None


def _served_at(config: Config) -> str:
    own = config.text("observe.listen")
    return local_address(config.text("api.listen") if own in ("auto", "off") else own)


def _ask(address: str, seconds: float) -> tuple[dict[str, str], list[str], bool]:
    connection = http.client.HTTPConnection(address, timeout=seconds)
    try:
        connection.request("GET", "/readyz", headers={"connection": "close"})
        answer = json.loads(connection.getresponse().read(ANSWER_MAX))
        return dict(answer["checks"]), list(answer["warnings"]), bool(answer["ready"])
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise Unreachable(f"Nothing answers at {address} ({reason}).", _ADVICE) from None
    except (ValueError, KeyError, TypeError):
        raise Unreachable(f"What answers at {address} is not surehook.", _ADVICE) from None
    finally:
        connection.close()


_ADVICE = "Give this command the same SUREHOOK_OBSERVE_LISTEN or SUREHOOK_LISTEN, or --address."
