"""What a doctor says: one line per thing looked at. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    GOOD = "good"
    NOTE = "note"  # worth knowing; nothing has to be done
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    subject: str
    level: Level
    says: str
    advice: str = ""
