"""bench/peers: what it installs is pinned, and every peer that is named has its program."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

PEERS = Path(__file__).parents[2] / "bench" / "peers"


def test_the_packages_of_the_peers_are_pinned_and_name_no_host() -> None:
    lock = (PEERS / "requirements.lock").read_text(encoding="utf-8")
    pinned = re.findall(r"^[\w.-]+==", lock, re.MULTILINE)
    assert len(pinned) > 20 and lock.count("--hash=sha256:") >= len(pinned)
    assert "://" not in lock
    modules = json.loads((PEERS / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    others = {name: one for name, one in modules.items() if name}
    assert all("integrity" in one and "resolved" not in one for one in others.values())


def test_every_peer_has_its_program_and_says_its_settings() -> None:
    sys.path.insert(0, str(PEERS))
    try:
        from peers import PEERS as named  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(PEERS))
    assert {peer.name for peer in named} == {
        *("pgqueuer", "procrastinate", "celery", "dramatiq", "graphile-worker")
    }
    for peer in named:
        assert (PEERS / "tasks" / peer.program).is_file() and len(peer.settings) > 20
