"""The pytest fixture `surehook_receiver`. pytest loads this at its start, so it imports nothing.

Reads and writes what surehook.testing.Receiver does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from surehook.testing import Receiver


@pytest.fixture
def surehook_receiver() -> Iterator[Receiver]:
    """A local HTTPS endpoint that checks, records and answers webhooks (docs/testing.md)."""
    from surehook.testing import Receiver

    with Receiver() as receiver:
        yield receiver
