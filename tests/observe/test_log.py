"""The log: coloured at a terminal, plain elsewhere; what libraries say stands in it too."""

from __future__ import annotations

import io
import json
import logging

from surehook import observe
from surehook.observe.facts import Level
from surehook.observe.log import FromLibraries, Log


def test_a_librarys_warning_with_a_traceback_is_one_line_of_json() -> None:
    stream = io.BytesIO()
    observe.listen(Log(stream, as_text=False))
    library = logging.Logger("some.library")
    library.addHandler(FromLibraries())
    try:
        try:
            raise ConnectionError("refused\nby everybody")
        except ConnectionError:
            library.warning("no connection to %s", "there", exc_info=True)
    finally:
        observe.silence()
    (line,) = stream.getvalue().splitlines()
    fact = json.loads(line)
    assert (fact["event"], fact["level"]) == ("library.warned", "warning")
    assert fact["library"] == "some.library"
    assert fact["reason"] == "no connection to there (ConnectionError: refused by everybody)"


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
