"""`surehook event …`: what was published, and where it went. Reads by way of the API."""

from __future__ import annotations

from typing import Any

import click

from surehook.cli import InOrder
from surehook.cli.arguments import id_argument
from surehook.cli.connection import Api, through_api
from surehook.cli.declared import columns, facts_of, filter_options
from surehook.cli.delivery import DELIVERY_COLUMNS
from surehook.cli.output import (
    as_json_option,
    as_lines_option,
    facts,
    heading,
    limit_option,
    listed,
    payload,
    table,
    write_json,
)
from surehook.model.resources.event import Event, EventsQuery


@click.group(cls=InOrder, help="Events: what was published, and where it went.")
def event() -> None:
    pass


@event.command("list", help="List events, newest first.")
@filter_options(EventsQuery)
@limit_option
@as_lines_option
@through_api
def list_events(api: Api, limit: int, as_json: bool, **filters: Any) -> None:
    with api.client() as client:
        empty = "No event fits; `surehook publish` makes one."
        listed(client.events.list, filters, limit, as_json, columns(Event), empty)


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
    rows = [[column(one) for column in DELIVERY_COLUMNS.values()] for one in found.deliveries]
    table(list(DELIVERY_COLUMNS), rows, "none: no subscription was eligible, or not routed yet")
