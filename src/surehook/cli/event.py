"""`surehook event …`: what was published, and where it went. Reads by way of the API."""

from __future__ import annotations

import click

from surehook.cli import InOrder
from surehook.cli.arguments import id_argument
from surehook.cli.connection import Api, through_api
from surehook.cli.declared import columns, facts_of, list_command, table_of
from surehook.cli.delivery import DELIVERY_COLUMNS
from surehook.cli.output import as_json_option, facts, heading, payload, write_json
from surehook.model.resources.event import Event, EventsQuery


@click.group(cls=InOrder, help="Events: what was published, and where it went.")
def event() -> None:
    pass


list_command(
    event, "events", EventsQuery, columns(Event), "No event fits; `surehook publish` makes one."
)


@event.command(help="Show one event, its payload and its deliveries.")
@id_argument("event_id")
@as_json_option
@through_api
def show(api: Api, event_id: int, as_json: bool) -> None:
    with api.client() as client:
        found = client.events.get(event_id)
    if as_json:
        write_json(found)
        return
    facts(facts_of(Event, found))
    heading("Payload")
    payload(bytes(found.payload))
    heading("Deliveries")
    empty = "none: no subscription was eligible, or not routed yet"
    table_of(DELIVERY_COLUMNS, found.deliveries, empty)
