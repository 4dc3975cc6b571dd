"""Kinds of values that several commands take. Reads files and standard input where asked to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from surehook.cli import did_you_mean
from surehook.config.parsers import duration
from surehook.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

LONGEST_SECONDS = 100 * 365 * 86400
INPUT_BYTES_MAX = 64 * 2**20
STANDARD_INPUT = Path("-")
COUNT_MAX = 2**31 - 1


def moment(given: str) -> datetime:
    """2026-11-15T20:55:01Z, 2026-11-15 (this place's time), or 1h: an hour ago."""
    text = str(given).strip()
    try:
        if text[-1:].islower():
            ago = duration(0, LONGEST_SECONDS)(text)
            return datetime.now().astimezone() - timedelta(seconds=ago)
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.astimezone()
    except (ValueError, OverflowError):  # OverflowError: before the year 1 in another time zone
        raise click.BadParameter(
            f"{text[:40]!r} is not a valid time: 2026-11-15T20:55:01Z, or 1h for an hour ago."
        ) from None


class OneOf(click.ParamType[str]):
    """One of a closed list, in any case; what it is not is answered with what it can be."""

    def __init__(self, name: str, values: Iterable[str]) -> None:
        self.name = name
        self.values = tuple(map(str, values))

    def convert(
        self, given: str, _parameter: click.Parameter | None, _context: click.Context | None
    ) -> str:
        for value in self.values:
            if value.lower() == given.strip().lower():
                return value
        listed = (
            f"{given[:40]!r} is not a valid {self.name}: it is one of {', '.join(self.values)}."
        )
        advice = did_you_mean(given, self.values)
        raise click.BadParameter(" ".join(filter(None, [listed, advice])))

    def shell_complete(
        self, _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        fitting = [v for v in self.values if v.lower().startswith(incomplete.lower())]
        return [CompletionItem(value) for value in fitting]


class Finite(click.FloatRange):
    """A number in a range; "nan" and "inf" are refused."""

    def convert(
        self, given: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> float:
        found = float(super().convert(given, parameter, context))
        if not isfinite(found):
            self.fail(f"{str(given)[:40]!r} is not a valid number.", parameter, context)
        return found


def number(given: str) -> int:
    """An id."""
    text = str(given).strip()
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**63):
        raise click.BadParameter(f"{text[:40]!r} is not a valid id (positive integer).")
    return int(text)


TENANT = "A tenant is one of your customers, or another part of your system"


def tenant_option(meaning: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--tenant", metavar="NAME", help=meaning)


def id_argument(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.argument(name, type=number, metavar="ID")


def payload_arguments(command: Callable[..., None]) -> Callable[..., None]:
    """[PAYLOAD] and --file: payload_of() reads them."""
    with_file = click.option(
        "-f",
        "--file",
        type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
        metavar="FILE",
        help="Read it from a file; - is standard input.",
    )(command)
    return click.argument("payload", required=False, metavar="[PAYLOAD|-]")(with_file)


def payload_of(payload: str | None, file: Path | None) -> bytes | None:
    """The JSON text, byte for byte as it was given; None if there is none."""
    if payload is not None and file is not None:
        raise UsageError("There are two payloads: an argument and a file.", "Give one of them.")
    if payload is not None and payload != "-":
        return os.fsencode(payload)
    source = STANDARD_INPUT if payload == "-" else file
    if source is None:
        return None
    with opened(source) as stream, readable(source):
        content = stream.read(INPUT_BYTES_MAX + 1)
    if len(content) > INPUT_BYTES_MAX:
        raise UsageError(f"{source} has more than {INPUT_BYTES_MAX} bytes.")
    return content


def opened(source: Path) -> IO[bytes]:
    """The file, or standard input for -."""
    if source == STANDARD_INPUT:
        if sys.stdin.isatty():
            click.secho("Reading standard input; Ctrl-D ends it.", dim=True, err=True)
        return sys.stdin.buffer
    with readable(source):
        return source.open("rb")


@contextmanager
def readable(source: Path) -> Iterator[None]:
    """Around opening or reading it."""
    try:
        yield
    except OSError as error:
        shown = "standard input" if source == STANDARD_INPUT else str(source)[:200]
        raise UsageError(f"{shown} cannot be read: {error.strerror or error}.") from None


def secret_of(given: str | None) -> str | None:
    """A secret, or - for one line of standard input, which other users cannot see."""
    if given != "-":
        return given
    line = sys.stdin.readline().strip()
    if not line:
        raise UsageError("There is no secret on standard input.")
    return line
