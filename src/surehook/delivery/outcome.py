"""Outcomes: what one attempt came to, as a value.

Reads   status, headers and first bytes of a response
Writes  nothing

Everything here that comes from the endpoint is hostile text: it is cut, decoded and cleaned before
anyone sees it.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

import msgspec

from surehook.model.error_codes import ErrorCode

MAX_RETRY_AFTER_SECONDS = 30 * 86_400  # as long as retry.max_delay can be: that cuts it further
EXCERPT_BYTES = 512
EXCERPT_CHARACTERS = 256


class Outcome(msgspec.Struct, frozen=True):
    """What came of one attempt.

    `response_status` is set whenever a final status line was read, also beside an error such as
    RESPONSE_TOO_LARGE. `sent` is False only when provably no byte of the request left; the
    endpoint then cannot have seen it. Two texts for people, neither a secret: `response_excerpt` is
    what the endpoint answered, `failure_detail` what went wrong in our own words.
    """

    response_status: int | None
    error_code: ErrorCode | None
    retry_after_seconds: int | None = None
    response_excerpt: str | None = None
    failure_detail: str | None = None
    sent: bool = True

    @property
    def delivered(self) -> bool:
        """2xx, completely read, and nothing else."""
        return self.error_code is None

    @property
    def kept_detail(self) -> str | None:
        """`failure_detail` as it may be stored and shown: one clean line."""
        if self.failure_detail is None:
            return None
        if self.error_code is ErrorCode.INTERNAL_ERROR:
            # An unforeseen message may quote what was to be sent; its kind cannot.
            return safe_text(self.failure_detail.partition(":")[0])
        return safe_text(self.failure_detail)


def error_of_status(status: int) -> ErrorCode | None:
    """None for 2xx."""
    if 200 <= status <= 299:
        return None
    if status == 410:
        return ErrorCode.GONE
    if 300 <= status <= 399:
        return ErrorCode.HTTP_3XX
    if 400 <= status <= 499:
        return ErrorCode.HTTP_4XX
    if 500 <= status <= 599:
        return ErrorCode.HTTP_5XX
    return ErrorCode.PROTOCOL_ERROR


# --- Retry-After ---------------------------------------------------------------------------------

_SECONDS = re.compile(r"0*([0-9]+)", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        rf"[A-Z][a-z]{{2}}, (?P<day>\d\d) (?P<month>[A-Z][a-z]{{2}}) (?P<year>\d{{4}}) {_TIME} GMT",
        rf"[A-Z][a-z]{{5,8}}, (?P<day>\d\d)-(?P<month>[A-Z][a-z]{{2}})-(?P<year>\d\d) {_TIME} GMT",
        rf"[A-Z][a-z]{{2}} (?P<month>[A-Z][a-z]{{2}}) (?P<day>[ \d]\d) {_TIME} (?P<year>\d{{4}})",
    )
)


def parse_retry_after(value: str, date: str | None, now: float | None) -> int | None:
    """Seconds to wait, 0 to MAX_RETRY_AFTER_SECONDS; None for what is not a valid Retry-After.

    A date is measured against the endpoint's own `Date` header where there is one: its clock need
    not be right; else against `now`, the database's time. With neither it is ignored.
    """
    value = value.strip(" \t")
    if match := _SECONDS.fullmatch(value):
        # No number of digits is too many: int() refuses thousands of them.
        return min(int(match[1][:10]), MAX_RETRY_AFTER_SECONDS)
    moment = _parse_date(value, now)
    reference = None if date is None else _parse_date(date.strip(" \t"), now)
    if reference is None:
        reference = now
    if moment is None or reference is None:
        return None
    # Rounded up: a second attempt before the date is what the endpoint asked us not to make.
    return min(max(0, math.ceil(moment - reference)), MAX_RETRY_AFTER_SECONDS)


def _parse_date(text: str, now: float | None) -> float | None:
    """The three forms of an HTTP date (RFC 9110, 5.6.7) as a Unix time."""
    for form in _DATES:
        if match := form.fullmatch(text):
            part = match.groupdict()
            break
    else:
        return None
    if part["month"] not in _MONTHS:
        return None
    year = int(part["year"])
    if len(part["year"]) == 2:  # RFC 850: a year that seems over 50 years ahead is a past one
        if now is None:
            return None
        this_year = datetime.fromtimestamp(now, UTC).year
        year += this_year // 100 * 100
        if year > this_year + 50:
            year -= 100
    try:
        return datetime(
            year,
            _MONTHS.index(part["month"]) + 1,
            int(part["day"]),
            int(part["hour"]),
            int(part["minute"]),
            min(int(part["second"]), 59),  # a leap second is allowed and harmless
            tzinfo=UTC,
        ).timestamp()
    except ValueError:
        return None


# --- Text for people -----------------------------------------------------------------------------

_BLANKS = re.compile(r"[ \t\r\n\f\v]+")


def safe_text(text: str, limit: int = EXCERPT_CHARACTERS) -> str:
    """One line of printable characters.

    Others can drive a terminal, turn a line around (bidi), break a log line or a database's text
    type; each becomes "·", and runs of white space become one blank.
    """
    line = _BLANKS.sub(" ", text[: limit * 4]).strip(" ")
    if not line.isprintable():
        line = "".join(char if char.isprintable() else "·" for char in line)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def safe_excerpt(body: bytes) -> str | None:
    """The first bytes of a response body as one safe line; None when there is nothing to show."""
    if not body:
        return None
    # An escape that was cut in half must not look like damage in what the endpoint sent.
    text = body[:EXCERPT_BYTES].decode("utf-8", errors="replace")
    if len(body) >= EXCERPT_BYTES:
        text = text.rstrip("\ufffd")
    return safe_text(text) or None
