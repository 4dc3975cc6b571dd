"""`surehook publish`: one event, or many from lines of JSON.

Reads   the arguments, a file or standard input     Writes  events, by way of the API
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from surehook.cli.arguments import (
    STANDARD_INPUT,
    TENANT,
    payload_arguments,
    payload_of,
    tenant_option,
)
from surehook.cli.connection import Api, through_api, wrong_use
from surehook.cli.output import as_json_option, done, note, write_json
from surehook.errors import UsageError

if TYPE_CHECKING:
    from surehook.client import Client

LOOKED_AT = 200
SHOWN = 3
HELP = """Publish an event; it is durable when this returns.

PAYLOAD is JSON, kept byte for byte; - or --file reads it from elsewhere.

With --ndjson every line is an event: with EVENT_TYPE a payload of that type, without it an object
{"event_type": …, "payload": …, "tenant": …, "external_id": …}. Lines with an external_id can be
sent again without being stored twice.
"""


@click.command(help=HELP)
@click.argument("event_type", required=False)
@payload_arguments
@tenant_option(
    f"{TENANT}: the event goes only to subscriptions of the same tenant, and without one only to "
    "those without one."
)
@click.option("--external-id", help="Your own id of it: the same one again is stored once.")
@click.option("--ndjson", is_flag=True, help="Many events, one per line of --file or -.")
@click.option(
    "--skip", default=0, type=click.IntRange(0), metavar="N", help="Leave out the first N lines."
)
@as_json_option
@through_api
def publish(
    api: Api,
    event_type: str | None,
    payload: str | None,
    file: Path | None,
    tenant: str | None,
    external_id: str | None,
    ndjson: bool,
    skip: int,
    as_json: bool,
) -> None:
    if ndjson:
        if external_id is not None:
            raise UsageError("--external-id is one event's; with --ndjson lines have their own.")
        from surehook.cli.ndjson import Lines, publish_lines

        event_type, source = _source(event_type, payload, file)
        publish_lines(api, Lines(source, event_type, tenant, skip), as_json)
        return
    if skip:
        raise UsageError("--skip is for --ndjson.")
    content = payload_of(payload, file)
    if event_type is None or content is None:
        raise UsageError(
            "An event needs a type and a payload.", "surehook publish order.paid '{\"order\": 17}'"
        )
    with api.client() as client, wrong_use():
        made = client.publish(event_type, content, tenant=tenant, external_id=external_id)
        if as_json:
            write_json(made)
        elif made.duplicate:
            done(f"event {made.id} was published before, with the same external_id and content")
        else:
            done(f"event {made.id} published")
            _note_if_undeliverable(client, made.id)


def _note_if_undeliverable(client: Client, event_id: int) -> None:
    """A mistyped type is published like any other. The tenant is the event's: a key may set it."""
    from surehook.client.errors import ClientError

    try:
        event = client.events.get(event_id)
        ready: dict[str, Any] = {"event_type": event.event_type, "active": True, "verified": True}
        if next(client.subscriptions.list(**ready, tenant=event.tenant, limit=1), None):
            return
        # A key that is bound to a tenant sees no other's.
        others = {one.tenant for one in islice(client.subscriptions.list(**ready), LOOKED_AT)}
    except ClientError:
        return  # it is published; many a key may do nothing else
    of = f" of tenant {event.tenant}" if event.tenant else " without a tenant"
    note(
        f"No active, verified subscription{of if others else ''} matches {event.event_type}; the "
        "event will not be delivered."
    )
    if others:
        shown = [f"tenant {name}" if name else "no tenant" for name in sorted(others)[:SHOWN]]
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        how = "with --tenant" if any(others) else "without --tenant"
        if "" in others and any(others):
            how += ", or without it"
        note(f"Subscriptions to it exist under {', '.join(shown)}{more}: publish {how}.")


def _source(
    event_type: str | None, payload: str | None, file: Path | None
) -> tuple[str | None, Path]:
    """Of `publish --ndjson -` the dash is the source, not a type."""
    if payload is None and event_type == "-":
        event_type, payload = None, "-"
    if payload not in (None, "-") or (payload == "-") == (file is not None):
        raise UsageError("--ndjson reads the lines of --file FILE, or of standard input: -.")
    return event_type, file or STANDARD_INPUT
