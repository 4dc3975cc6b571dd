"""`surehook serve --processes N`: children that are killed, drained, started again, given up."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.clock import Clock
from support.http import Client
from support.processes import Child, children, environment
from support.receiver import Answer, Receiver
from support.rows import a_subscription, an_event
from support.waiting import LEASE_SECONDS, until
from surehook.config import load
from surehook.errors import SurehookError, Unreachable
from surehook.process import group as group_module
from surehook.process.child import WholeLines, order_for
from surehook.process.components import COMPONENTS
from surehook.process.group import SHORT_LIVES_MAX, ProcessGroup, layout
from surehook.process.group import Child as Member
from surehook.process.group_health import together
from surehook.store.logins import DatabaseAccess

ALL = tuple(COMPONENTS)
KEY = "shk_a-key-for-the-tests-of-groups-only"


# ── Which components run where ────────────────────────────────────────────────────────────────


FRONT = ("api", "verifier")
BACK = ("router", "orchestrator", "cleaner", "deadletters")


def test_the_api_is_set_apart_first_then_the_worker_then_there_are_more_workers() -> None:
    worker = ("worker",)
    assert layout(ALL, 1) == [ALL]
    assert layout(ALL, 2) == [FRONT, tuple(name for name in ALL if name not in FRONT)]
    assert layout(ALL, 3) == [FRONT, BACK, worker]
    assert layout(ALL, 5) == [FRONT, BACK, worker, worker, worker]


def test_what_cannot_be_split_stays_in_one_process() -> None:
    assert layout(["router", "worker"], 2) == [("router",), ("worker",)]
    assert layout(["router", "cleaner"], 3) == [("router", "cleaner")]
    assert layout(["api", "verifier"], 2) == [("api", "verifier")]
    assert layout(["worker"], 1) == [("worker",)]
    assert layout(["worker"], 3) == [("worker",)] * 3


# ── Real processes ────────────────────────────────────────────────────────────────────────────


class Group:
    """A `surehook serve` of several processes, from outside."""

    def __init__(self, child: Child) -> None:
        self.child = child

    async def ready(self) -> str:
        """The address of its health, when every process has begun."""
        await until(lambda: self.child.ended or self.child.facts("process.ready"))
        assert not self.child.ended, self.child.text()
        return str(self.child.facts("process.ready")[0]["listen"])

    def pids(self) -> list[int]:
        pid = self.child.process.pid
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(one) for one in below]

    async def member(self, name: str) -> int:
        """The pid of the process of this name, from the group's own health page."""
        shown = (await Client(await self.ready()).get("/readyz")).json()
        return next(int(one["pid"]) for one in shown["processes"] if one["process"] == name)

    async def restarted(self, times: int = 1) -> None:
        await until(lambda: len(self.child.facts("process.restarted")) >= times)


@pytest.fixture
def start(access: DatabaseAccess, tmp_path: Path) -> Iterator[Any]:
    """start("--processes", "2", setting=value) → Group"""
    with children() as starting:

        def started(*arguments: str, **settings: object) -> Group:
            env = environment(
                access,
                database_allow_unsafe="on",
                listen="127.0.0.1:0",
                admin_key=KEY,
                retry_base_delay="50ms",
                **settings,
            )
            env["XDG_STATE_HOME"] = str(tmp_path)
            return Group(starting(["serve", *arguments], env, "surehook"))

        yield started


async def test_a_worker_that_is_killed_is_started_again_and_nothing_is_lost(
    start: Any, owner: Any, clock: Clock
) -> None:
    group = start("--processes", "3")
    await group.ready()
    async with Receiver() as receiver:
        receiver.script("/", Answer(hang=True), Answer())
        await a_subscription(owner, callback_url=f"{receiver.url}/")
        await an_event(owner)
        await receiver.received(1)
        os.kill(await group.member("worker-3"), signal.SIGKILL)
        await group.restarted()
        assert group.child.facts("process.ended")[0]["reason"] == "killed by SIGKILL"
        await clock.shift(LEASE_SECONDS)  # what the dead worker held is taken back
        await receiver.received(2)
        await until(
            lambda: owner.fetchval(
                "SELECT EXISTS (SELECT 1 FROM webhook_delivery_sagas WHERE status = 'Completed')"
            )
        )
    await group.child.stop()


async def test_a_signal_drains_every_process(start: Any, owner: Any) -> None:
    group = start("--processes", "4")
    await group.ready()
    answered = asyncio.Event()
    async with Receiver() as receiver:
        receiver.script("/", Answer(after=answered))
        await a_subscription(owner, callback_url=f"{receiver.url}/")
        await an_event(owner)
        await receiver.received(1)
        pids = group.pids()
        group.child.tell(signal.SIGTERM)
        await until(lambda: group.child.facts("component.draining"))
        answered.set()  # what is under way is finished, and its result written
        assert await group.child.exit() == 0
        assert await owner.fetchval("SELECT status FROM webhook_delivery_jobs") == "Completed"
    assert len(group.child.facts("component.stopped")) == len(ALL) + 1  # two workers
    assert not any(map(_runs, pids))


async def test_a_process_that_ends_again_and_again_ends_the_group_with_one_line(
    start: Any,
) -> None:
    group = start("--processes", "3")
    worker = await group.member("worker-3")
    for times in range(1, SHORT_LIVES_MAX + 1):
        os.kill(worker, signal.SIGKILL)
        if times < SHORT_LIVES_MAX:
            await group.restarted(times)
            worker = group.child.facts("process.restarted")[-1]["pid"]
    await group.child.exit()
    assert group.child.process.returncode == Unreachable.exit_code
    last = group.child.text().splitlines()[-1]
    assert last.startswith("surehook: The process worker-3 (worker) ended 5 times in a row")
    assert "killed by SIGKILL" in last and "--processes 1" in last


async def test_no_process_outlives_a_group_that_was_killed(start: Any) -> None:
    group = start("--processes", "3")
    await group.ready()
    pids = group.pids()
    assert len(pids) == 3
    await group.child.kill()
    await until(lambda: not any(_runs(pid) for pid in pids))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_callers_wait_while_the_process_with_the_api_is_started_again(
    start: Any, owner: Any
) -> None:
    group = start("--processes", "2")
    await group.ready()
    address = await until(lambda: _api_of(group))
    os.kill(await group.member("api-1"), signal.SIGKILL)
    reply = await Client(address, KEY).post("/v1/events", {"event_type": "a", "payload": {}})
    assert reply.status == 202
    assert await owner.fetchval("SELECT count(*) FROM events") == 1
    await group.child.stop()


def _api_of(group: Group) -> str:
    started = group.child.facts("component.started")
    return next((str(one["listen"]) for one in started if one["component"] == "api"), "")


async def test_the_group_is_ready_when_all_are_and_shows_the_figures_of_all(start: Any) -> None:
    group = start("--processes", "2")
    health = Client(await group.ready())
    await until(lambda: _is_ready(health))
    shown = (await health.get("/readyz")).json()
    assert [one["process"] for one in shown["processes"]] == ["api-1", "pipeline-2"]
    figures = (await health.get("/metrics")).body.decode()
    for name in ("api-1", "pipeline-2"):
        assert f'surehook_facts_total{{process="{name}",fact="component.started"}}' in figures
    assert figures.count("# TYPE surehook_facts_total") == 1
    os.kill(await group.member("pipeline-2"), signal.SIGSTOP)
    stopped = await health.get("/readyz")
    os.kill(int(stopped.json()["processes"][1]["pid"]), signal.SIGCONT)
    assert stopped.status == 503
    assert stopped.json()["processes"][1]["checks"] == {"process": "It does not answer."}
    await group.child.stop()


async def _is_ready(health: Client) -> bool:
    return (await health.get("/readyz")).status == 200


async def test_what_keeps_a_process_from_beginning_is_the_answer_of_the_group(
    start: Any, owner: Any
) -> None:
    """A worker without the key of the subscriptions' secrets refuses to begin."""
    await a_subscription(owner)
    group = start("--processes", "2", encryption_key="")
    assert await group.child.exit() == 2
    last = group.child.text().splitlines()[-1]
    assert last.startswith("surehook: SUREHOOK_ENCRYPTION_KEY is not set")


# ── Without processes ─────────────────────────────────────────────────────────────────────────


class Unwilling(Member):
    """Cannot reach what it needs, for a while."""

    failures = SHORT_LIVES_MAX + 2

    async def start(self) -> None:
        if self.failures:
            self.failures -= 1
            raise _with_code(Unreachable.exit_code)


def _with_code(code: int) -> SurehookError:
    error = SurehookError("The database does not answer.")
    error.exit_code = code
    return error


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Unwilling:
    monkeypatch.setattr(group_module, "RESTART_MAX_SECONDS", 0.0)
    config = load(Path(os.devnull), {})
    access = DatabaseAccess("postgresql://nowhere/nothing", None)
    return Unwilling("worker-2", order_for(("worker",), config, access, None))


async def test_a_process_that_cannot_reach_its_database_is_started_until_it_can(
    member: Unwilling,
) -> None:
    group = ProcessGroup(member.order.config, member.order.access, 2)
    assert await group._begun_again(member)
    assert member.failures == 0


async def test_a_process_that_is_refused_at_its_restart_ends_the_group(
    member: Unwilling, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = ProcessGroup(member.order.config, member.order.access, 2)

    async def refused() -> None:
        raise _with_code(2)

    monkeypatch.setattr(member, "start", refused)
    with pytest.raises(SurehookError, match="does not answer"):
        await group._begun_again(member)


def test_figures_of_several_processes_are_one_text_with_each_metric_once() -> None:
    text = '# HELP a_total What.\n# TYPE a_total counter\na_total{x="y z"} 1.0\n'
    more = "# HELP b What.\n# TYPE b gauge\nb 2.0\n"
    assert together({"rest-1": text, "worker-2": text + more}) == (
        "# HELP a_total What.\n# TYPE a_total counter\n"
        'a_total{process="rest-1",x="y z"} 1.0\n'
        'a_total{process="worker-2",x="y z"} 1.0\n'
        '# HELP b What.\n# TYPE b gauge\nb{process="worker-2"} 2.0\n'
    )


def test_an_order_carries_every_setting_and_shows_no_secret() -> None:
    config = load(
        Path(os.devnull), {"SUREHOOK_ADMIN_KEY": KEY, "SUREHOOK_WORKER_MEMORY": "2097152"}
    )
    access = DatabaseAccess(
        "postgresql://owner:sesame@db/x", "a role secret of the test", "5e" * 32
    )
    order = order_for(("worker",), config, access, None)
    assert order.config == config
    assert KEY not in repr(order) and "sesame" not in repr(order)


def test_lines_of_several_processes_are_not_torn_by_the_pipe_that_they_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[bytes] = []

    def write(_descriptor: int, data: bytes) -> int:
        written.append(data)
        return len(data)

    monkeypatch.setattr(os, "write", write)
    short, long = b"x" * 99 + b"\n", b"y" * 9000 + b"\n"
    for data in (short * 500, short + long + short, short * 3, b"no end"):
        written.clear()
        assert WholeLines().write(data) == len(data)
        assert b"".join(written) == data
        assert all(len(one) <= select.PIPE_BUF or one == long for one in written)
        assert all(one.endswith(b"\n") for one in written[:-1])
