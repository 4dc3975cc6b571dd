"""The log for people: coloured at a terminal, plain elsewhere."""

from __future__ import annotations

import io

from surehook.observe import Level
from surehook.observe.log import Log


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def line_to(stream: io.BytesIO) -> bytes:
    Log(stream, as_text=True)("component.failed", Level.ERROR, {"reason": "no \x1b[31m colour"})
    return stream.getvalue()


def test_a_line_of_text_has_colours_at_a_terminal_only() -> None:
    assert b"\x1b[31mcomponent.failed" in line_to(Terminal())
    plain = line_to(io.BytesIO())
    assert b"component.failed     reason=no  colour\n" in plain and b"\x1b" not in plain
