"""What the scenarios about network, failover and disks are made of."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from faults.disks import CHUNK_BYTES, MIB, SmallDisk, can_mount
from faults.ledger import Arrival
from faults.publishers import Answer
from faults.scenarios import disk_full, network
from faults.scenarios.disk_full import DiskFull
from faults.scenarios.failover import Failover, FailoverAsync, Turn
from faults.world import World
from surehook.process.components import COMPONENTS


def test_a_seed_gives_the_same_faults_of_the_network_again() -> None:
    assert network.plan(random.Random(7), 20) == network.plan(random.Random(7), 20)
    assert network.plan(random.Random(7), 20) != network.plan(random.Random(8), 20)


def test_even_a_short_run_breaks_the_network_in_every_way_and_for_every_component() -> None:
    faults = network.plan(random.Random(1), network.SHORT_FAULTS)
    assert {fault.kind for fault in faults} == {"stall", "dark", "reset", "cut"}
    assert {fault.target for fault in faults} == {*COMPONENTS, network.EVERYTHING}


def test_a_machine_that_cannot_mount_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_full, "can_mount", lambda: False)
    assert DiskFull().missing() == "needs root, to mount a small file system"


@pytest.mark.skipif(not can_mount(), reason="only root mounts file systems")
def test_a_small_disk_is_full_to_the_last_byte_until_it_is_freed(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk", MIB)
    disk.mount()
    try:
        other = disk.path / "other"
        other.write_bytes(b"before")
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.path / "more").write_bytes(bytes(CHUNK_BYTES))
        assert other.read_bytes() == b"before"
        disk.free()
        other.write_bytes(bytes(CHUNK_BYTES))
    finally:
        disk.unmount()
    assert not list((tmp_path / "disk").iterdir())


# ── Failover ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World("postgresql", tmp_path, tmp_path, random.Random(1))


def acknowledged(world: World, **moments: float) -> None:
    for tag, moment in moments.items():
        world.ledger.offer(tag, ["a"])
        world.ledger.acknowledge(tag, moment)


# Behind from 10 to 14, when the primary died; promoted at 15.
TURN = Turn(behind_at=10.0, died_at=14.0, began=15.0, resumed=1.0)


def test_what_is_lost_counts_as_such_only_if_the_standby_could_not_have_it(world: World) -> None:
    acknowledged(world, before=9.0, behind=12.0, later=16.0)
    figures = FailoverAsync()._figures(world, [TURN])
    assert figures["acknowledged while the standby was behind"] == 1
    assert figures["lost that the standby had"] == 2
    for tag in ("before", "later"):
        world.ledger.arrive(Arrival(tag, "a", f"id-{tag}", at=17.0))
    assert FailoverAsync()._figures(world, [TURN])["lost that the standby had"] == 0


def test_an_id_that_two_events_had_is_found(world: World) -> None:
    for tag in ("one", "two"):
        world.ledger.arrive(Arrival(tag, "a", "the same", at=17.0))
    assert FailoverAsync()._figures(world, [TURN])["webhook-ids of two events"] == 1


def test_an_acknowledgement_that_the_standby_cannot_have_is_found(world: World) -> None:
    publisher = world.http(rate=1)
    publisher.answers += [Answer(9.9, 10.1, 202), Answer(12.0, 12.1, 503), Answer(14.5, 16.0, 202)]
    name = "acknowledged while the standby was behind"
    assert Failover()._figures(world, [TURN])[name] == 0
    publisher.answers.append(Answer(12.0, 12.1, 202))
    assert Failover()._figures(world, [TURN])[name] == 1
