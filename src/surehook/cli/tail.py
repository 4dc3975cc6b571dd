"""`surehook tail`: deliveries as they change. Reads by way of the API; writes standard output.

The API is asked in turns, and a turn has a bound: the newest page, further pages only while there
are deliveries that were not seen, and a few of the older ones that are not done yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from surehook.cli.arguments import COUNT_MAX, Finite
from surehook.cli.connection import Api, through_api
from surehook.cli.declared import filter_options
from surehook.cli.delivery import FILTERS_FIRST
from surehook.cli.output import as_lines_option, note, status, write_json
from surehook.model.resources.delivery import DeliveriesQuery

if TYPE_CHECKING:
    from surehook.client import Client
    from surehook.client.results import Delivery, DeliveryWithAttempts

PAGE = 200
PAGES_MAX = 5  # more new deliveries than that in one turn are not all shown
OLDER_PER_TURN = 10
KNOWN_MAX = 10 * PAGE
TRIES = 8


@click.command(help="Show deliveries as they change, until Ctrl-C.")
@filter_options(DeliveriesQuery, first=FILTERS_FIRST, without=("created_from", "created_until"))
@click.option(
    "-n",
    "--lines",
    default=10,
    show_default=True,
    type=click.IntRange(0, PAGE),
    help="Begin with so many of the newest.",
)
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    type=Finite(0.1, 3600),
    metavar="SECONDS",
    help="How often to look.",
)
@click.option("--count", type=click.IntRange(1, COUNT_MAX), metavar="N", help="End after N lines.")
@as_lines_option
@through_api
def tail(
    api: Api, lines: int, interval: float, count: int | None, as_json: bool, **filters: Any
) -> None:
    show = write_json if as_json else _show
    try:
        with api.client(tries=TRIES) as client:
            for change in islice(_changes(Watch(client, filters), lines, interval), count):
                show(change)
    except KeyboardInterrupt:  # how one ends it
        return


def _changes(watch: Watch, lines: int, interval: float) -> Iterator[Delivery]:
    first = watch.look()
    yield from first[max(0, len(first) - lines) :]
    while True:
        time.sleep(interval)
        yield from watch.look()


class Watch:
    """What is known of the deliveries; each look says what is new or has changed."""

    def __init__(self, client: Client, filters: dict[str, Any]) -> None:
        self._client = client
        self._filters = filters
        self._known: dict[int, tuple[str, int]] = {}
        self._newest = 0
        self._turn = 0

    def look(self) -> list[Delivery]:
        """The deliveries that are not as they were, oldest first."""
        page = self._page()
        seen = {one.id for one in page}
        found = [*self._older(seen), *reversed(page)]
        changed = [one for one in found if self._known.get(one.id) != _state(one)]
        self._known.update((one.id, _state(one)) for one in found)
        self._newest = max([self._newest, *seen])
        self._forget()
        return sorted(changed, key=lambda one: one.updated_at or one.created_at)

    def _page(self) -> list[Delivery]:
        """The newest page, and further ones while all on it are new."""
        found: list[Delivery] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = self._client.deliveries.page(limit=PAGE, cursor=cursor, **self._filters)
            found += page.items
            cursor = page.next
            all_new = len(page.items) == PAGE and page.items[-1].id > self._newest
            if cursor is None or not self._newest or not all_new:
                return found
        note(f"More than {len(found)} are new; the oldest of them are left out.")
        return found

    def _older(self, seen: set[int]) -> list[Delivery]:
        """Some of those that are not done and no longer among the newest, in turn."""
        from surehook.client.errors import NotFound
        from surehook.model.states import SAGA_TERMINAL

        if self._filters.get("status"):  # it would show them once they leave that state
            return []
        waiting = [
            one
            for one, (state, _) in self._known.items()
            if one not in seen and state not in SAGA_TERMINAL
        ]
        self._turn = (self._turn + OLDER_PER_TURN) % max(len(waiting), 1)
        chosen = (waiting[self._turn :] + waiting[: self._turn])[:OLDER_PER_TURN]
        found: list[Delivery] = []
        for number in chosen:
            try:
                found.append(_plain(self._client.deliveries.get(number)))
            except NotFound:
                del self._known[number]
        return found

    def _forget(self) -> None:
        """The oldest ids: a long look costs no more than a short one."""
        for number in sorted(self._known)[: max(0, len(self._known) - KNOWN_MAX)]:
            del self._known[number]


def _plain(one: DeliveryWithAttempts) -> Delivery:
    """As lists have it."""
    from surehook.client.results import Delivery

    return Delivery(**{name: getattr(one, name) for name in Delivery.__struct_fields__})


def _state(one: Delivery) -> tuple[str, int]:
    return one.status, one.attempt_count


def _show(one: Delivery) -> None:
    moment = (one.updated_at or one.created_at).astimezone()
    parts = [
        click.style(f"{moment:%H:%M:%S}", dim=True),
        status(f"{one.status}") + " " * (12 - len(one.status)),
        click.style("delivery", dim=True) + f" {one.id}",
        click.style("event", dim=True) + f" {one.event_id}",
        click.style("subscription", dim=True) + f" {one.subscription_id}",
    ]
    if one.attempt_count:
        parts.append(click.style("attempts", dim=True) + f" {one.attempt_count}")
    if one.final_error_code:
        parts.append(click.style(one.final_error_code, fg="red"))
    if one.status == "PendingRetry" and one.next_attempt_at is not None:
        parts.append(click.style(f"again at {one.next_attempt_at.astimezone():%H:%M:%S}", dim=True))
    click.echo("  ".join(parts))
