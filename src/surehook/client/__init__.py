"""The client: what an application uses to publish events and to look after its deliveries.

Reads   SUREHOOK_URL and SUREHOOK_API_KEY where an argument is left out
Writes  nothing; talks to the HTTP API alone

    asynchronous.py  AsyncClient, and the calls that are more than a request and its answer
    calls.py         a call: its request, and how its answer is read
    results.py       what comes back; behaviour.py: what that can do
    generated/       from the API's routes: results and calls; from AsyncClient: Client
    streams.py       AsyncClient's connections: asyncio
    sockets.py       Client's connections: sockets and threads
    errors.py        what can go wrong
    tries.py         what is tried again, and when
    wire.py          HTTP/1.1 without input or output: request to bytes, bytes to answer
    settings.py      what both are made with

Importing this package imports none of them: `from surehook import Client` takes what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surehook.client.asynchronous import AsyncClient
    from surehook.client.calls import NewEvent
    from surehook.client.errors import (
        ClientError,
        Conflict,
        InvalidRequest,
        NotAuthenticated,
        NotFound,
        NotPermitted,
        NotUnderstood,
        RateLimited,
        Refused,
        ServiceUnavailable,
        ServiceUnreachable,
        Stale,
    )
    from surehook.client.generated.blocking import Client
    from surehook.client.tries import Retry

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "Conflict",
    "InvalidRequest",
    "NewEvent",
    "NotAuthenticated",
    "NotFound",
    "NotPermitted",
    "NotUnderstood",
    "RateLimited",
    "Refused",
    "Retry",
    "ServiceUnavailable",
    "ServiceUnreachable",
    "Stale",
]

_PLACES = {
    "AsyncClient": "asynchronous",
    "Client": "generated.blocking",
    "NewEvent": "calls",
    "Retry": "tries",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES.get(name, 'errors')}"), name)
