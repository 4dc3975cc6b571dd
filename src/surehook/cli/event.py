"""`surehook event …`: what was published, and where it went. Reads by way of the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from surehook.cli import InOrder
from surehook.cli.arguments import id_argument, only_of_tenant, time_option
from surehook.cli.connection import Api, through_api
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

if TYPE_CHECKING:
    from surehook.client.results import Event


@click.group(cls=InOrder, help="Events: what was published, and where it went.")
def event() -> None:
    pass


@event.command("list", help="List events, newest first.")
@only_of_tenant
@click.option("--event-type", help="Only of this type.")
@click.option("--external-id", help="Only with this id of the sender's.")
@time_option("--created-from", "Created then or later; 1h is an hour ago.")
@time_option("--created-until", "Created before.")
@limit_option
@as_lines_option
@through_api
def list_events(api: Api, limit: int, as_json: bool, **filters: Any) -> None:
    columns: dict[str, Callable[[Event], object]] = {
        "id": lambda one: one.id,
        "event type": lambda one: one.event_type,
        "tenant": lambda one: one.tenant,
        "external id": lambda one: one.external_id,
        "created": lambda one: one.created_at,
    }
    with api.client() as client:
        empty = "No event fits; `surehook publish` makes one."
        listed(client.events.list, filters, limit, as_json, columns, empty)


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
    names = ("id", "event_type", "tenant", "external_id", "created_at")
    facts((name, getattr(found, name)) for name in names)
    heading("Payload")
    payload(bytes(found.payload))
    heading("Deliveries")
    rows = [[column(one) for column in DELIVERY_COLUMNS.values()] for one in found.deliveries]
    table(list(DELIVERY_COLUMNS), rows, "none: no subscription was eligible, or not routed yet")
