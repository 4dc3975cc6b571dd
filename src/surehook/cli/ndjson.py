"""`surehook publish --ndjson`: many events, one per line, in batches.

Reads   a file or standard input        Writes  events, by way of the API

A wrong line ends it before its batch is sent; what was sent before is stored, and --skip goes on
behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import click
import msgspec

from surehook.cli.arguments import STANDARD_INPUT, opened, readable
from surehook.cli.connection import Api
from surehook.cli.output import done, note, progress, safe, write_json
from surehook.client import Client
from surehook.client.calls import NewEvent
from surehook.client.errors import ClientError, InvalidRequest
from surehook.client.results import BatchItem
from surehook.errors import Declined, UsageError
from surehook.model import payload as payloads
from surehook.model import rules
from surehook.model.wording import counted

BATCH_EVENTS = 1000
BATCH_BYTES = 2 * 2**20  # well below the API's limit, whatever the envelopes add
BATCH_SECONDS = 30.0
BATCH_TRIES = 8
LINE_BYTES_MAX = 64 * 2**20
REFUSED_SHOWN = 10


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line that is a whole event."""

    event_type: str
    payload: msgspec.Raw
    tenant: str | None = None
    external_id: str | None = None


_decode = msgspec.json.Decoder(_Line).decode


@dataclass
class Batch:
    """What is sent at once; `lines` are the events' line numbers."""

    events: list[NewEvent] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    size: int = 0

    def full(self, more: int) -> bool:
        return len(self.events) == BATCH_EVENTS or bool(
            self.events and self.size + more > BATCH_BYTES
        )


@dataclass(frozen=True)
class Lines:
    """Where the events stand, and what they have in common."""

    source: Path
    event_type: str | None
    tenant: str | None
    skip: int

    @property
    def size(self) -> int | None:
        return None if self.source == STANDARD_INPUT else self.source.stat().st_size

    def batches(self, stream: IO[bytes]) -> Iterator[Batch]:
        batch = Batch()
        for number, line in enumerate(iter(lambda: self._line(stream), b""), 1):
            if number <= self.skip or not line.strip():
                continue
            if batch.full(len(line)):
                yield batch
                batch = Batch()
            batch.events.append(self._event(number, line))
            batch.lines.append(number)
            batch.size += len(line)
        if batch.events:
            yield batch

    def _line(self, stream: IO[bytes]) -> bytes:
        with readable(self.source):
            return stream.readline(LINE_BYTES_MAX)

    def _event(self, number: int, line: bytes) -> NewEvent:
        try:
            if self.event_type is not None:
                event = NewEvent(self.event_type, payloads.encode(line), self.tenant)
            else:
                rules.check_depth(line, around=1)
                said = _decode(line)
                tenant = self.tenant if said.tenant is None else said.tenant
                content = payloads.encode(said.payload)
                event = NewEvent(said.event_type, content, tenant, said.external_id)
            rules.check_names(event.event_type, event.tenant, event.external_id)
        except (ValueError, msgspec.DecodeError) as wrong:
            raise UsageError(f"Line {number}: {str(wrong).rstrip('.')}.") from None
        return event


@dataclass
class Tally:
    """What became of the lines so far."""

    as_json: bool
    through: int
    """Up to this line all is stored, or reported as refused."""
    stored: int = 0
    duplicates: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)

    def add(self, batch: Batch, results: list[BatchItem]) -> None:
        for line, item in zip(batch.lines, results, strict=True):
            if self.as_json:
                write_json(item, line=line)
            if item.error is not None:
                self.refused.append((line, item.error.detail or item.error.title))
            self.stored += item.stored and not item.duplicate
            self.duplicates += item.duplicate
        self.through = batch.lines[-1]

    def __str__(self) -> str:
        before = f", {self.duplicates} had been published before" if self.duplicates else ""
        return f"{counted(self.stored, 'event')} published{before}"

    def how_to_go_on(self) -> str:
        if not self.through:
            return "Nothing is stored."
        return f"All lines up to {self.through} are stored: go on with --skip {self.through}."

    def conclude(self) -> None:
        if not self.as_json:
            done(str(self))
        for line, reason in self.refused[:REFUSED_SHOWN]:
            click.echo(f"line {line}: {safe(reason)}", err=True)
        if self.refused:
            verb, whose = ("was", "its") if len(self.refused) == 1 else ("were", "their")
            raise Declined(
                f"{counted(len(self.refused), 'line')} {verb} not stored: {whose} external_id "
                "already belongs to another event, or an open transaction holds it."
            )


def publish_lines(api: Api, lines: Lines, as_json: bool) -> None:
    """Batch after batch; whatever stops it says how to go on."""
    tally = Tally(as_json, lines.skip)
    with opened(lines.source) as stream, api.client(BATCH_SECONDS, BATCH_TRIES) as client:
        try:
            with progress("publishing", lines.size) as step:
                for batch in lines.batches(stream):
                    tally.add(batch, _send(client, batch))
                    step(batch.size, counted(tally.stored + tally.duplicates, "event"))
        except (UsageError, ClientError) as error:
            error.advice = f"{error.advice} {tally.how_to_go_on()}".strip()
            raise
        except KeyboardInterrupt:
            note(f"Interrupted. {tally.how_to_go_on()}")
            raise
    tally.conclude()


def _send(client: Client, batch: Batch) -> list[BatchItem]:
    try:
        return client.publish_batch(batch.events)
    except InvalidRequest as error:
        part = (error.field or "").split("/")
        if len(part) < 2 or part[0] != "events" or not part[1].isdigit():
            raise
        line = batch.lines[int(part[1])]
        raise UsageError(f"Line {line}: {error.detail} ({'/'.join(part[2:])})") from None
