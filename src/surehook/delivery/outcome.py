"""Outcomes: what one attempt came to, as a value.

Reads   status, headers and first bytes of a response
Writes  nothing

`ErrorCode` is the closed list that jobs, sagas and dead letters carry and that
docs/reference/errors.md is generated from. Everything here that comes from the endpoint is hostile
text: it is cut, decoded and cleaned before anyone sees it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

MAX_RETRY_AFTER_SECONDS = 30 * 86_400  # as long as retry.max_delay can be: that cuts it further
EXCERPT_BYTES = 512
EXCERPT_CHARACTERS = 256


class ErrorCode(StrEnum):
    """Why an attempt failed. `permanent`: trying again cannot help, so the saga dies at once."""

    permanent: bool
    cause: str
    advice: str

    def __new__(cls, value: str, permanent: bool, cause: str, advice: str) -> ErrorCode:
        member = str.__new__(cls, value)
        member._value_ = value
        member.permanent = permanent
        member.cause = cause
        member.advice = advice
        return member

    TIMEOUT = (
        "TIMEOUT",
        False,
        "The deadline passed before the whole answer had arrived. It covers everything: the name "
        "lookup, connecting, TLS, sending and the last byte of the answer. The endpoint may have "
        "received the request.",
        "Answer first and work afterwards: queue the event and return 200. If the endpoint needs "
        "longer, raise the subscription's request timeout.",
    )
    DNS_FAILED = (
        "DNS_FAILED",
        False,
        "The host's name has no address, or its name servers did not answer. Nothing was sent.",
        "Check the host's A and AAAA records and its name servers from the machine that runs the "
        "worker.",
    )
    CONNECT_FAILED = (
        "CONNECT_FAILED",
        False,
        "No connection could be made to any of the host's addresses, or the egress proxy refused. "
        "Nothing was sent.",
        "Check that the endpoint listens on that port and that no firewall drops the worker's "
        "connections.",
    )
    TLS_FAILED = (
        "TLS_FAILED",
        False,
        "The TLS handshake did not succeed: the certificate is expired, self-signed, for another "
        "host or of an unknown authority, the protocol is older than TLS 1.2, or the endpoint "
        "does not speak TLS. Nothing was sent.",
        "Renew or complete the certificate chain. For a private authority, give its certificate "
        "in SUREHOOK_CA_FILE.",
    )
    BLOCKED_ADDRESS = (
        "BLOCKED_ADDRESS",
        True,
        "Every address of the host is private, loopback, link-local or otherwise reserved, and "
        "the address guard refused to dial it. Nothing was sent.",
        "Use a public address. If the endpoint is meant to be internal, add its network to "
        "SUREHOOK_ALLOW_NETWORKS.",
    )
    INVALID_REQUEST = (
        "INVALID_REQUEST",
        True,
        "The stored callback URL or a custom header is not one that may be sent (the API refuses "
        "such values, so it was written another way). Nothing was sent.",
        "Correct the subscription's URL or headers and requeue its dead letters.",
    )
    PROTOCOL_ERROR = (
        "PROTOCOL_ERROR",
        False,
        "The answer was not valid HTTP/1.1, or it began before the request was complete, or the "
        "connection ended after the request was sent and before the whole answer had arrived. The "
        "endpoint may have received the request.",
        "Look at what stands in front of the endpoint (proxy, load balancer) and at its crashes. "
        "Receivers recognise a repeated delivery by its webhook-id.",
    )
    RESPONSE_TOO_LARGE = (
        "RESPONSE_TOO_LARGE",
        False,
        "The answer had more than 32 KiB of headers, more than 64 KiB of body, or too many "
        "interim answers. The endpoint received the request.",
        "Answer a webhook with a status and a short body, or none.",
    )
    HTTP_3XX = (
        "HTTP_3XX",
        False,
        "The endpoint answered with a redirect. Redirects are never followed.",
        "Register the final URL.",
    )
    HTTP_4XX = (
        "HTTP_4XX",
        False,
        "The endpoint refused the request; the status stands beside the code.",
        "Read the excerpt of the answer. 401 and 403: check the secret or custom headers. 404: "
        "check the path. 429: the endpoint asks for less; a Retry-After is respected.",
    )
    HTTP_5XX = (
        "HTTP_5XX",
        False,
        "The endpoint failed; the status stands beside the code.",
        "Look at the endpoint's own logs for this webhook-id. A Retry-After is respected.",
    )
    GONE = (
        "GONE",
        True,
        "The endpoint answered 410: it is gone for good and wants no further deliveries.",
        "Disable the subscription, or change its URL and requeue its dead letters.",
    )
    SUBSCRIPTION_INACTIVE = (
        "SUBSCRIPTION_INACTIVE",
        True,
        "When the delivery's turn came, its subscription was not active and verified. Nothing was "
        "sent.",
        "Activate and verify the subscription, then requeue its dead letters in one call.",
    )
    SECRET_UNAVAILABLE = (
        "SECRET_UNAVAILABLE",
        False,
        "The subscription has no live secret, or its secret does not open with this worker's "
        "encryption key. Nothing was sent, because it could not be signed.",
        "Give every worker the SUREHOOK_ENCRYPTION_KEY that the secret was stored with, or rotate "
        "the subscription's secret.",
    )
    LEASE_EXPIRED = (
        "LEASE_EXPIRED",
        False,
        "The worker that held the job disappeared six times without a result. It is unknown "
        "whether the endpoint received anything.",
        "Look for workers that crash or are killed while sending, often for lack of memory.",
    )
    INTERNAL_ERROR = (
        "INTERNAL_ERROR",
        False,
        "surehook itself failed while sending; this is a bug.",
        "Please report it with the worker's log line.",
    )


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
    return min(max(0, int(moment - reference)), MAX_RETRY_AFTER_SECONDS)


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
