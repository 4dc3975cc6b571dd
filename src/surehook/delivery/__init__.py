"""Delivery: one HTTPS attempt, from a request to an outcome.

Reads   nothing but what it is given
Writes  nothing; the sender writes to the network, to addresses that the guard lets through
Never   knows the database, decides about retries, or sends the same request twice

    url.py         what a callback URL may look like
    address.py     which addresses may be dialled
    trusted.py     which origins are the operator's own
    resolver.py    names to addresses, without blocking anyone
    signature.py   Standard Webhooks headers
    secrets.py     secrets sealed for storage
    compose.py     a signed request: of a delivery, a test, a challenge
    dialer.py      a checked address to a TLS connection
    tls.py         TLS over a socket, in bounded steps
    connection.py  one POST and its answer, within limits
    pool.py        connections kept for the next POST
    client.py      the sender: all of the above behind `send`
    outcome.py     what came of it

This module holds the interface alone: importing it costs nothing.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from surehook.delivery.outcome import Outcome
from surehook.model.error_codes import ErrorCode

__all__ = ["ErrorCode", "Outcome", "Request", "Sender"]


class Request(msgspec.Struct, frozen=True):
    """One POST: the sender adds `host`, `content-length` and what belongs to the connection."""

    url: str
    body: bytes
    headers: tuple[tuple[str, str], ...]
    deadline_seconds: float
    made_at: float | None = None
    """The database's time when it was made, in Unix seconds: the only clock that an endpoint's
    Retry-After date may be measured by, if the endpoint does not send its own."""


class Sender(Protocol):
    """What the worker needs of a client."""

    opened: int
    """How many attempts had to open a connection."""
    reused: int
    """How many had one that was kept."""

    async def start(self) -> None:
        """Make ready; call once, inside the running loop."""

    async def send(self, request: Request) -> Outcome:
        """POST once. Raises nothing but CancelledError; holds nothing after the deadline."""
        ...

    async def close(self) -> None:
        """Close every connection; attempts under way end at once."""
