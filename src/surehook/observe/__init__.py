"""Observation: components report facts, listeners make log lines (and figures) of them.

Reads   nothing      Writes  what its listeners write

    observe.emit("saga.created", correlation_id=…, saga_id=…, delivery_status=…)

The names are a closed list (facts.py). No fact carries a payload, a signature or a secret.
"""

from __future__ import annotations

from collections.abc import Callable

from surehook.observe.facts import FACTS, Level

# Which installation this process works for; empty until it has opened a database.
installation = ""

Listener = Callable[[str, Level, dict[str, object]], None]

_listeners: list[tuple[Level, Listener]] = []
_threshold: Level = Level.INFO  # the least that anyone wants


def emit(name: str, **fields: object) -> None:
    """Report one fact to every listener."""
    level = FACTS[name]
    if level >= _threshold:
        for least, listener in _listeners:
            if level >= least:
                listener(name, level, fields)


def identify(name: str) -> None:
    """Say which installation this process works for."""
    global installation
    installation = name


def wanted(name: str) -> bool:
    """Whether any listener wants this fact: saves building thousands of them for none."""
    return bool(_listeners) and FACTS[name] >= _threshold


def listen(listener: Listener, threshold: Level = Level.INFO) -> None:
    """Let a listener hear every fact from this level on."""
    global _threshold
    _listeners.append((threshold, listener))
    _threshold = min(least for least, _ in _listeners)


def forget(listener: Listener) -> None:
    """Let a listener hear nothing any more."""
    global _threshold
    _listeners[:] = [pair for pair in _listeners if pair[1] is not listener]
    _threshold = min((least for least, _ in _listeners), default=Level.INFO)


def silence() -> None:
    """Forget every listener."""
    _listeners.clear()
