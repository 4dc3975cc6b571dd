"""surehook: webhook delivery that you run yourself.

For applications: `Client` and `AsyncClient` publish events, surehook.outbox does so in your own
transaction, surehook.receive checks what arrives. They are imported when they are used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's; importing typing would double the time that this takes
if TYPE_CHECKING:
    from surehook.client import AsyncClient, Client

__version__ = "0.1.0.dev0"
__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in ("AsyncClient", "Client"):
        return getattr(import_module("surehook.client"), name)
    if name in ("outbox", "receive", "testing"):  # `import surehook; surehook.outbox.publish(…)`
        return import_module(f"surehook.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
