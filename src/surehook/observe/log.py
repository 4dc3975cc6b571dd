"""The log: one JSON line per fact, or one line for a person, coloured at a terminal.

Reads   facts       Writes  one stream

Lines are collected and written together when the loop comes round, so a batch of 500 facts
costs one write; anything worse than info is written at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import BinaryIO

import msgspec

from surehook import observe
from surehook.observe import emit, listen
from surehook.observe.facts import Level

_FLUSH_LINES = 1000
_COLOUR = re.compile(rb"\x1b\[\d+m")
_COLOURS = {Level.DEBUG: "2", Level.INFO: "32", Level.WARNING: "33", Level.ERROR: "31"}


class Log:
    """A listener that writes to `stream`."""

    def __init__(self, stream: BinaryIO, as_text: bool) -> None:
        self._stream = stream
        as_read = _coloured_line if stream.isatty() else _text_line
        self._line: Callable[[str, Level, dict[str, object]], bytes] = (
            as_read if as_text else _json_line
        )
        self._lines: list[bytes] = []
        self._scheduled = False

    def __call__(self, name: str, level: Level, fields: dict[str, object]) -> None:
        self._lines.append(self._line(name, level, fields))
        if level > Level.INFO or len(self._lines) >= _FLUSH_LINES:
            self.flush()
        elif not self._scheduled:
            try:
                asyncio.get_running_loop().call_soon(self.flush)
                self._scheduled = True
            except RuntimeError:  # no loop: a command, not a service
                self.flush()

    def flush(self) -> None:
        self._scheduled = False
        lines, self._lines = self._lines, []
        if lines:
            try:
                self._stream.write(b"".join(lines))
                self._stream.flush()
            except (BrokenPipeError, ValueError):
                pass  # the reader of our log has gone; deliveries go on


_encoder = msgspec.json.Encoder()


def _json_line(name: str, level: Level, fields: dict[str, object]) -> bytes:
    # Logs of several installations may come together in one place.
    whose = {"installation": observe.installation} if observe.installation else {}
    line = {
        "time": datetime.now(UTC),
        "level": level.name.lower(),
        "event": name,
        **whose,
        **fields,
    }
    return _encoder.encode(line) + b"\n"


def _text_line(name: str, level: Level, fields: dict[str, object]) -> bytes:
    return _COLOUR.sub(b"", _coloured_line(name, level, fields))


def _coloured_line(name: str, level: Level, fields: dict[str, object]) -> bytes:
    shown = " ".join(
        f"\x1b[2m{key}\x1b[0m={value}" for key, value in fields.items() if value is not None
    )
    time = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
    return f"\x1b[2m{time}\x1b[0m \x1b[{_COLOURS[level]}m{name:<20}\x1b[0m {shown}\n".encode()


class FromLibraries(logging.Handler):
    """What libraries report by themselves becomes a fact like ours: one line, searchable."""

    def emit(self, record: logging.LogRecord) -> None:
        reason = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            reason = f"{reason} ({type(error).__name__}: {error})"
        emit("library.warned", library=record.name, reason=" ".join(reason.split()))


def start(level: str, form: str, stream: BinaryIO | None = None) -> Log:
    """Begin to log to standard error, or to this stream."""
    logging.basicConfig(level=logging.WARNING, handlers=[FromLibraries()])
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    log = Log(stream or sys.stderr.buffer, as_text)
    listen(log, Level[level.upper()])
    return log
