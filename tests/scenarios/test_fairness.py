"""Whatever hangs, whoever it belongs to: another tenant's events are delivered meanwhile.

Requests to the hanging endpoints do not end before the test lets them: what is delivered while they
are under way is delivered beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from support import Configure
from support.pipeline import DELIVERED, UNFINISHED, FakeSender, running
from support.rows import a_subscription
from support.waiting import until, until_row
from surehook.delivery import Outcome, Request
from surehook.model.error_codes import ErrorCode
from surehook.model.records import Lane
from surehook.pipeline.slots import most_at_once
from surehook.store.logins import DatabaseAccess

SLOTS = 32
SLOW_REQUESTS = 32
OPEN_JOBS = 400
FLAGS = {
    "worker.concurrency": SLOTS,
    "worker.slow_requests": SLOW_REQUESTS,
    "orchestrator.open_jobs": OPEN_JOBS,
    "limits.concurrency_cap": 64,
    # Nothing that hangs ends by itself during a test.
    "delivery.request_timeout": "500s",
    "worker.lease_duration": "600s",
}
OPEN = (
    "SELECT count(*) FROM webhook_delivery_jobs j JOIN subscriptions s ON s.id = j.subscription_id "
    "WHERE j.status IN ('Pending', 'Leased') AND s.tenant LIKE 'hog%'"
)
OF_TENANT = (
    "SELECT count(*) FROM webhook_delivery_sagas g JOIN subscriptions s ON s.id = g.subscription_id"
    " WHERE s.tenant = $1 AND g.status = 'Completed'"
)
ANSWERED = (
    "SELECT count(*) FROM webhook_delivery_sagas g JOIN subscriptions s ON s.id = g.subscription_id"
    " WHERE s.tenant LIKE 'hog%' AND g.status = 'Completed'"
)
RAMPING = (
    "SELECT count(*) FROM orchestrator_subscriptions o JOIN subscriptions s "
    "ON s.id = o.subscription_id WHERE s.tenant LIKE 'hog%' AND o.ramp <> 0"
)


class Hogs(FakeSender):
    """Endpoints under /hog hang once they are told to, until they are let go."""

    def __init__(self) -> None:
        super().__init__(self._answered)
        self.hang = asyncio.Event()
        self.let_go = asyncio.Event()
        self.hung: list[int] = []  # numbers of endpoints

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Whatever happens, nothing hangs any more in the end."""
        try:
            yield
        finally:
            self.let_go.set()

    async def _answered(self, request: Request) -> Outcome:
        if request.url.endswith("/hog") and self.hang.is_set():
            self.hung.append(int(request.url.split("/")[-2]))
            await self.let_go.wait()
        return DELIVERED


async def events_for(owner: Any, event_type: str, tenant: str, count: int) -> None:
    await owner.execute(
        "INSERT INTO events (event_type, tenant, payload) "
        "SELECT $1, $2, '{}' FROM generate_series(1, $3::integer)",
        event_type,
        tenant,
        count,
    )


async def delivered(owner: Any, tenant: str, count: int, so_far: int = 0) -> None:
    """So many events of this tenant, ten at a time as they would come."""
    for done in range(10, count + 1, 10):
        await events_for(owner, "quick", tenant, 10)
        await until_row(owner, OF_TENANT, tenant, wanted=so_far + done)


async def subscribe(owner: Any, hanging: int, tenants: int, cap: int | None) -> None:
    """Endpoint n belongs to tenant hog-(n modulo `tenants`)."""
    for tenant in ("known", "new"):
        await a_subscription(owner, event_type="quick", tenant=tenant)
    for number in range(hanging):
        await a_subscription(
            owner,
            event_type="slow",
            tenant=f"hog-{number % tenants}",
            callback_url=f"https://receiver.example/{number}/hog",
            concurrency_cap=cap,
        )


async def prove(owner: Any, hanging: int, tenants: int) -> None:
    """All of them answer, until they may have as many requests at once as they want."""
    for turn in (1, 2, 3):  # each makes their ramps grow
        for number in range(tenants):
            await events_for(owner, "slow", f"hog-{number}", 1)
        await until_row(owner, ANSWERED, wanted=hanging * turn)
    await until_row(owner, RAMPING, wanted=0)


ONE_HUGE, MANY_OF_ONE, MANY_OF_MANY = (1, 1, 100_000), (60, 1, None), (60, 20, 100_000)
CASES = [
    pytest.param(*ONE_HUGE, False, id="one with a huge cap, from the start"),
    pytest.param(*ONE_HUGE, True, id="one with a huge cap, after it answered"),
    pytest.param(*MANY_OF_ONE, False, id="many of one tenant, from the start"),
    pytest.param(*MANY_OF_ONE, True, id="many of one tenant, after they answered"),
    pytest.param(*MANY_OF_MANY, False, id="many of many tenants, from the start"),
    pytest.param(*MANY_OF_MANY, True, id="many of many tenants, after they answered"),
]


@pytest.mark.parametrize(("hanging", "tenants", "cap", "proven"), CASES)
async def test_another_tenant_is_served_while_everything_of_the_others_hangs(
    owner: Any,
    configure: Configure,
    access: DatabaseAccess,
    hanging: int,
    tenants: int,
    cap: int | None,
    proven: bool,
) -> None:
    await subscribe(owner, hanging, tenants, cap)
    per_tenant = hanging // tenants  # subscriptions, each of which gets each of its events
    sender = Hogs()
    async with running(configure(FLAGS), access, sender=sender), sender.released():
        await delivered(owner, "known", 20)
        if proven:
            await prove(owner, hanging, tenants)
        sender.hang.set()
        for number in range(tenants):
            await events_for(owner, "slow", f"hog-{number}", 600 // per_tenant // tenants + 3)
        await until_row(owner, f"SELECT ({OPEN}) > 0")
        # From the first moment on, and when it is known who hangs.
        await delivered(owner, "known", 50, so_far=20)
        await delivered(owner, "new", 30)
        assert len(sender.hung) == sender.under_way > 0  # none of them has ended
        assert await owner.fetchval(f"{OPEN} AND lane < {Lane.ASIDE}") < OPEN_JOBS
        assert sender.most_at_once <= most_at_once(SLOTS, SLOW_REQUESTS)
        sender.let_go.set()
        await until_row(owner, UNFINISHED, wanted=0)
    assert await owner.fetchval("SELECT max(attempt_count) FROM webhook_delivery_sagas") == 1


async def test_tenants_that_begin_to_hang_one_after_the_other_leave_room_for_the_next(
    owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    """None of them has hung before; there are more endpoints than EXPRESS has places in all."""
    hanging, tenants = 60, 20
    await subscribe(owner, hanging, tenants, None)
    sender = Hogs()
    async with running(configure(FLAGS), access, sender=sender), sender.released():
        await delivered(owner, "known", 20)
        await prove(owner, hanging, tenants)
        sender.hang.set()
        for tenant in range(tenants):
            await events_for(owner, "slow", f"hog-{tenant}", 13)
            own = set(range(tenant, hanging, tenants))
            await until(partial(own.intersection, sender.hung), what=partial(str, sender.hung))
        await delivered(owner, "known", 50, so_far=20)
        assert len(sender.hung) == sender.under_way  # none of them has ended
        sender.let_go.set()
        await until_row(owner, UNFINISHED, wanted=0)


async def test_a_tenant_with_little_is_served_though_a_backlog_of_others_hides_how_little_it_is(
    owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    """What it has comes among theirs: it waits where they wait, behind what hangs."""
    hanging, tenants = 60, 20
    await subscribe(owner, hanging, tenants, None)
    sender = Hogs()
    async with running(configure(FLAGS), access, sender=sender), sender.released():
        await delivered(owner, "known", 20)
        await prove(owner, hanging, tenants)
        sender.hang.set()
        await owner.execute(
            "INSERT INTO events (event_type, tenant, payload) "
            "SELECT CASE WHEN n % 25 = 0 THEN 'quick' ELSE 'slow' END, "
            "CASE WHEN n % 25 = 0 THEN 'known' ELSE CONCAT('hog-', n % 20) END, '{}' "
            "FROM generate_series(1, 250) AS n"
        )
        await until_row(owner, OF_TENANT, "known", wanted=30)
        assert len(sender.hung) == sender.under_way > 0  # none of them has ended
        sender.let_go.set()
        await until_row(owner, UNFINISHED, wanted=0)


async def test_endpoints_that_hang_are_tried_one_request_at_a_time_and_recover_by_themselves(
    owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    """They time out: each gets one request at a time, few in all, and full speed afterwards."""
    for number in range(9):
        await a_subscription(
            owner,
            event_type="slow",
            tenant=f"hog-{number % 3}",
            callback_url=f"https://receiver.example/{number}/hog",
        )
    flags = {**FLAGS, "delivery.request_timeout": "1200ms", "retry.base_delay": "100ms"}
    sender = TimingOut()
    async with running(configure(flags), access, sender=sender):
        for number in range(3):
            await events_for(owner, "slow", f"hog-{number}", 2)
        await until_row(
            owner,
            "SELECT count(*) FROM orchestrator_subscriptions WHERE slow AND ramp = 1",
            wanted=9,
        )
        open_by_lane = await owner.fetch(
            "SELECT lane, count(*) FROM webhook_delivery_jobs "
            "WHERE status IN ('Pending', 'Leased') GROUP BY lane"
        )
        counts = {row[0]: row[1] for row in open_by_lane}
        assert set(counts) <= {Lane.UNPROVEN, Lane.SLOW}
        assert counts.get(Lane.SLOW, 0) <= SLOW_REQUESTS // 2
        sender.healthy = True
        await until_row(owner, UNFINISHED, wanted=0)
        await until_row(
            owner, "SELECT count(*) FROM orchestrator_subscriptions WHERE slow", wanted=0
        )


class TimingOut(FakeSender):
    """Nothing is answered before its deadline, until all is well."""

    def __init__(self) -> None:
        super().__init__(self._answered)
        self.healthy = False

    async def _answered(self, request: Request) -> Outcome:
        if self.healthy:
            return DELIVERED
        await asyncio.sleep(request.deadline_seconds)
        return Outcome(None, ErrorCode.TIMEOUT)
