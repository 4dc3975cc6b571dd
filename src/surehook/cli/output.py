"""What commands print: tables and facts for people, JSON for programs, notes and progress aside.

Reads   results of the client       Writes  standard output; notes and progress to standard error

At a terminal: colour, and times of this place. In a pipe: aligned text without decoration, times
in UTC. With --json: one object, or one object per line for lists, in the words of the API.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from msgspec import Struct
    from rich.progress import Progress

T = TypeVar("T")
Facts = Iterable[tuple[str, object]]

NOTHING = "-"
NARROWEST = 20  # a narrower terminal does the wrapping
REDRAW_SECONDS = 1.0
# Fields that an answer has only where they are due: absent is not the same as null.
SOMETIMES = frozenset({"secret", "public_key", "key", "payload", "error"})
# Columns that may take several lines where the terminal is too narrow.
LONG = frozenset(
    {"callback url", "description", "name", "scopes", "external id", "worker", "value", "from"}
)
GOOD, WAITING, BAD = "green", "yellow", "red"
_COLOURS = {
    "Completed": GOOD,
    "Pending": WAITING,
    "PendingRetry": WAITING,
    "InProgress": "cyan",
    "Leased": "cyan",
    "Failed": BAD,
    "DeadLettered": BAD,
    "yes": GOOD,
    "no": WAITING,
}

as_json_option = click.option("--json", "as_json", is_flag=True, help="As JSON.")
as_lines_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")


def limit_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--limit",
        type=click.IntRange(1, 2**31 - 1),
        default=50,
        show_default=True,
        metavar="N",
        help="How many at most, newest first.",
    )(command)


# ── For programs ──────────────────────────────────────────────────────────────────────────────


def write_json(result: Struct, **more: object) -> None:
    """One line; `more` are fields in front of the result's own."""
    import msgspec

    from surehook.model.moments import encode

    fields = {**more, **msgspec.structs.asdict(result)}
    absent = (None, msgspec.Raw(), msgspec.UNSET)
    kept = {name: v for name, v in fields.items() if name not in SOMETIMES or v not in absent}
    click.echo(encode(kept))


# ── For people ────────────────────────────────────────────────────────────────────────────────


def at_terminal() -> bool:
    return sys.stdout.isatty()


def shown(value: object) -> str:
    """A value in a cell. What others wrote cannot command the terminal."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value)) or NOTHING
    return safe(str(value))


def _time(moment: datetime) -> str:
    if at_terminal():
        return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def safe(text: str) -> str:
    """Without characters that move a cursor or change a colour."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str = "none") -> None:
    """A table with these headings; `empty` is noted if there is no row."""
    rows = list(rows)
    if not rows:
        note(empty)
    elif at_terminal():
        _rich_table(columns, [[_brief(value) for value in row] for row in rows])
    else:
        cells = [[shown(value) for value in row] for row in rows]
        _plain_table([[name.replace(" ", "_").upper() for name in columns], *cells])


def _plain_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def _brief(value: object) -> str:
    """As `shown`, but of today's times only the clock: a terminal is narrow."""
    if not isinstance(value, datetime):
        return shown(value)
    here = value.astimezone()
    today = here.date() == datetime.now().astimezone().date()
    return f"{here:%H:%M:%S}" if today else f"{here:%Y-%m-%d %H:%M}"


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False
    )
    # A column without any value only takes room from the others.
    kept = [number for number in range(len(columns)) if any(r[number] != NOTHING for r in rows)]
    for number in kept:
        numeric = all(row[number].isdigit() or row[number] == NOTHING for row in rows)
        grid.add_column(
            columns[number],
            justify="right" if numeric else "left",
            no_wrap=columns[number] not in LONG,
            overflow="fold",
        )
    for row in rows:
        grid.add_row(*(Text(row[number], style=_style(row[number])) for number in kept))
    Console(highlight=False).print(grid)


def _style(cell: str) -> str:
    return "dim" if cell == NOTHING else _COLOURS.get(cell, "")


def facts(pairs: Facts) -> None:
    """One thing's properties, one per line; at a terminal a long one goes on below itself."""
    lines = [(name, shown(value)) for name, value in pairs]
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        heading = click.style(f"{name:<{width}}", dim=True)
        colour = _COLOURS.get(value)
        value = wrapped(value, width + 2)
        click.echo(f"{heading}  {click.style(value, fg=colour) if colour else value}")


def wrapped(text: str, indent: int, stream: TextIO | None = None) -> str:
    """For a terminal: no longer than it is wide, between words, going on at `indent`.

    What has no spaces, such as a path or a URL, stays whole: it is there to be copied.
    """
    stream = stream or sys.stdout
    room = shutil.get_terminal_size().columns - indent
    if not stream.isatty() or len(text) <= room or room < NARROWEST:
        return text
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return ("\n" + " " * indent).join(lines)


def heading(text: str) -> None:
    click.echo()
    click.secho(text, bold=True)


def payload(content: bytes) -> None:
    """A payload as it was published; nothing in it can command the terminal."""
    text = content.decode("utf-8", "backslashreplace")
    click.echo("\n".join(safe(line) for line in text.split("\n")))


def done(text: str) -> None:
    """What was done, in one line."""
    click.echo(f"{click.style('✓', fg=GOOD)} {text}" if at_terminal() else text)


def note(text: str) -> None:
    """Something beside the result; standard error, which programs do not read."""
    click.secho(wrapped(safe(text), 0, sys.stderr), dim=True, err=True)


def say_which(system: object) -> None:
    """On which system a command acts: one line, beside its results."""
    note(f"system: {system}")


def status(word: str) -> str:
    """A state in its colour; click drops the colour in a pipe."""
    return click.style(word, fg=_COLOURS.get(word))


class Waiting:
    """What is being done, and for how long, on a terminal's last line; nothing in a pipe."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = time.monotonic()
        self._drawn = False
        self._lock = threading.Lock()

    def now(self, text: str) -> None:
        """It has come to this."""
        with self._lock:
            self._text, self._began = text, time.monotonic()
        self.draw()

    def echo(self, line: str, *, err: bool = False) -> None:
        """A line that stays."""
        with self._lock:
            self._clear()
            click.echo(line, err=err)

    def draw(self) -> None:
        with self._lock:
            seconds = time.monotonic() - self._began
            room = shutil.get_terminal_size().columns - 1
            click.echo(f"\r\x1b[K{f'{self._text} … {seconds:.0f} s'[:room]}", nl=False, err=True)
            self._drawn = True

    def clear(self) -> None:
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        if self._drawn:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._drawn = False


@contextmanager
def waiting(text: str) -> Iterator[Waiting]:
    """Around work that may take long."""
    line = Waiting(text)
    if not sys.stderr.isatty():
        line.draw = lambda: None  # type: ignore[method-assign]
        yield line
        return
    done = threading.Event()

    def tick() -> None:
        while not done.wait(REDRAW_SECONDS):
            line.draw()

    clock = threading.Thread(target=tick, daemon=True)
    clock.start()
    try:
        yield line
    finally:
        done.set()
        clock.join()
        line.clear()


@contextmanager
def progress(text: str, total: float | None) -> Iterator[Callable[[float, str], None]]:
    """step(amount, text): a bar on standard error while it is a terminal; else nothing."""
    if not sys.stderr.isatty():
        yield lambda _amount, _text: None
        return
    with _bar() as bar:
        task = bar.add_task(text, total=total)
        yield lambda amount, words: bar.update(task, advance=amount, description=words)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    return Progress(*columns, console=Console(stderr=True), transient=True)
