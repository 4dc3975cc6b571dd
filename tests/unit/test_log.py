"""The log: what libraries say stands in it like everything else."""

from __future__ import annotations

import io
import json
import logging

from surehook import observe
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
