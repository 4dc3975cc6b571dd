"""What people see and decide, each declared once: the API, the client, the commands, the store and
the documentation all take it from here. Pure.
"""

from __future__ import annotations

from msgspec import Struct

from surehook.model.resources import dead_letter, delivery, event, key, subscription

# By the names that statements use.
DECLARED: dict[str, type[Struct]] = {
    name: one
    for module in (event, subscription, delivery, dead_letter, key)
    for name, one in vars(module).items()
    if isinstance(one, type) and issubclass(one, Struct)
}
