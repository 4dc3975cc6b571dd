"""Health and figures of a group of processes, at one address.

Reads   each child's own, over loopback         Writes  nothing

Ready means that every process of the group is ready. Figures of the processes are put together
with a label `process`; sum or compare them as those of separate processes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from surehook.observe.listener import SECONDS_MAX, Page, Pages
from surehook.pipeline.vitals import METRICS_TYPE

ENDED = "It has ended and is being started again."
SILENT = "It does not answer."


class Member(Protocol):
    """The part of a child that is needed here."""

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def address(self) -> str | None: ...


class Members(Protocol):
    """The part of a group that is needed here."""

    @property
    def children(self) -> Sequence[Member]: ...

    @property
    def is_stopping(self) -> bool: ...


def pages_for(group: Members) -> Pages:
    """What the group serves."""

    async def healthz() -> Page:
        return Page(200, json.dumps({"status": "ok"}).encode())

    async def readyz() -> Page:
        found = await asyncio.gather(*(_readiness(child) for child in group.children))
        ready = all(one["ready"] for one in found) and not group.is_stopping
        body = {"ready": ready, "processes": found}
        return Page(200 if ready else 503, json.dumps(body).encode())

    async def metrics() -> Page:
        found = await asyncio.gather(*(_asked(child, "/metrics") for child in group.children))
        named = {
            child.name: answer.decode()
            for child, answer in zip(group.children, found, strict=True)
            if answer is not None
        }
        return Page(200, together(named).encode(), METRICS_TYPE)

    return {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}


async def _readiness(child: Member) -> dict[str, object]:
    answer = await _asked(child, "/readyz")
    if answer is not None:
        said: dict[str, object] = json.loads(answer)
    else:
        reason = SILENT if child.address else ENDED
        said = {"ready": False, "checks": {"process": reason}, "warnings": []}
    return {"process": child.name, "pid": child.pid, **said}


async def _asked(child: Member, path: str) -> bytes | None:
    """The body of the child's answer; None if there is none."""
    if child.address is None:
        return None
    host, _, port = child.address.rpartition(":")
    try:
        async with asyncio.timeout(SECONDS_MAX / 2):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nhost: {child.address}\r\n\r\n".encode())
                answer = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    head, _, body = answer.partition(b"\r\n\r\n")
    return body if head.startswith(b"HTTP/1.1 ") else None


def together(figures: Mapping[str, str]) -> str:
    """Figures of several processes in one text: each metric once, its samples labelled."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for process, text in figures.items():
        family = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                if family not in heads:
                    heads[family], samples[family] = [], []
            if line.startswith("# "):
                if line not in heads[family]:
                    heads[family].append(line)
            elif line:
                samples[family].append(_labelled(line, process))
    lines = [line for family in heads for line in (*heads[family], *samples[family])]
    return "\n".join(lines) + "\n"


def _labelled(sample: str, process: str) -> str:
    """name{a="b"} 1 → name{process="worker-2",a="b"} 1"""
    label = f'process="{process}"'
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f"{name}{{{label},{rest}"
    name, _, value = sample.partition(" ")
    return f"{name}{{{label}}} {value}"
