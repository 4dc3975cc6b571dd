"""Times as people and programs see them: always UTC, always with microseconds. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Moment(datetime):
    """A time that is written with its microseconds, also when they are 0."""

    __slots__ = ()

    @classmethod
    def of(cls, moment: datetime) -> Moment:
        return cls.combine(moment.date(), moment.timetz())


def rfc3339(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def _text(value: object) -> str:
    assert isinstance(value, datetime)  # msgspec asks for what it does not know: a Moment
    return rfc3339(value)


# JSON of anything that holds moments.
encode = msgspec.json.Encoder(enc_hook=_text).encode
