"""`surehook delivery …`, `dead-letter …`, `tail`: what became of events, and their second life."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from support.commands import Command
from support.pipeline import ALL
from support.rows import (
    a_dead_letter,
    a_job,
    a_saga,
    a_subscription,
    an_event,
    many_deliveries,
    move_saga,
)
from support.waiting import PATIENCE, until
from surehook.cli.delivery import _why
from surehook.cli.tail import OLDER_PER_TURN, PAGE, PAGES_MAX, Watch
from surehook.client.results import Attempt, Delivery, DeliveryWithAttempts, Page
from surehook.model.error_codes import ErrorCode
from surehook.model.states import SagaStatus


async def test_a_delivery_is_shown_with_its_attempts(command: Command, owner: Any) -> None:
    saga = await a_saga(owner, status=SagaStatus.PENDING_RETRY)
    done = await command("delivery", "show", str(saga))
    assert done.code == 0 and done.facts()["status"] == "PendingRetry"
    table = done.out.partition("\nAttempts\n")[2]
    heading, attempt = table.splitlines()[:2]
    assert heading.split()[:4] == ["NO", "STATUS", "BEGAN", "TOOK_MS"]
    assert attempt.split()[:2] == ["1", "Failed"]
    shown = (await command("delivery", "show", str(saga), "--json")).json()
    assert [one["status"] for one in shown["attempts"]] == ["Failed"]


@pytest.mark.parametrize("components", [ALL], ids=["all"])
async def test_a_failed_delivery_says_why_and_what_to_do(command: Command, owner: Any) -> None:
    nobody = "https://127.0.0.1:1/hook"
    await a_subscription(owner, callback_url=nobody, max_attempts=1)
    await an_event(owner)
    letter = await until(lambda: owner.fetchval("SELECT max(id) FROM dead_letters"))
    saga = await owner.fetchval("SELECT id FROM webhook_delivery_sagas")
    shown = await command("delivery", "show", str(saga))
    assert shown.facts()["dead_letter"] == f"{letter}: surehook dead-letter requeue {letter}"
    assert shown.facts()["last_error"] == "CONNECT_FAILED"
    also = await command("dead-letter", "show", str(letter))
    assert (also.facts()["delivery_id"], also.facts()["last_error"]) == (
        str(saga),
        "CONNECT_FAILED",
    )
    for done in (shown, also):
        assert "attempt 1 failed  127.0.0.1: Connection refused\n" in done.out
        assert done.facts()["CONNECT_FAILED"] == ErrorCode.CONNECT_FAILED.advice


async def test_deliveries_are_listed_by_filter(command: Command, owner: Any) -> None:
    subscription = await a_subscription(owner)
    waiting = await a_saga(owner, subscription_id=subscription)
    dead = await a_saga(owner, status=SagaStatus.DEAD_LETTERED)
    rows = (await command("delivery", "list")).rows()
    assert [row[:2] for row in rows] == [[str(dead), "DeadLettered"], [str(waiting), "Pending"]]
    for filters, wanted in (
        (["--status", "deadlettered"], [dead]),
        (["--subscription-id", str(subscription)], [waiting]),
        (["--tenant", "nobody"], []),
        (["--created-from", "1h"], [dead, waiting]),
    ):
        found = (await command("delivery", "list", *filters, "--json")).lines()
        assert [one["id"] for one in found] == wanted
    lost = await command("delivery", "list", "--status", "Faild")
    assert lost.code == 2 and f"it is one of {', '.join(SagaStatus)}." in lost.err


async def test_an_answer_without_a_body_is_shown_by_its_status(
    command: Command, owner: Any
) -> None:
    letter = await a_dead_letter(owner)
    shown = await command("dead-letter", "show", str(letter))
    assert shown.facts()["attempts"] == str(
        await owner.fetchval("SELECT count(*) FROM webhook_delivery_jobs")
    )
    assert "last_answer" in shown.facts()


def why(**fields: Any) -> list[tuple[str, str]]:
    return _why(Attempt(id=1, status="Failed", attempt_at=datetime.now(UTC), **fields))


def test_a_failure_without_words_of_its_own_says_its_status_or_its_cause() -> None:
    assert why(error_code="HTTP_5XX", response_status=503) == [("answered", "503, without a body")]
    assert why(error_code="LEASE_EXPIRED") == [("failed", ErrorCode.LEASE_EXPIRED.cause)]
    assert why(error_code="OF_A_NEWER_API") == [("failed", "OF_A_NEWER_API")]
    assert why() == []


def test_what_was_answered_and_what_went_wrong_are_both_said() -> None:
    texts = {"response_excerpt": "so much", "failure_detail": "the answer is too large"}
    failed = why(error_code="RESPONSE_TOO_LARGE", response_status=200, **texts)
    assert failed == [("answered", "so much"), ("failed", "the answer is too large")]
    assert why(response_status=200, response_excerpt="thanks") == [("answered", "thanks")]


# ── Dead letters ──────────────────────────────────────────────────────────────────────────────


async def test_a_dead_letter_is_listed_shown_and_requeued_once(
    command: Command, owner: Any
) -> None:
    number = str(await a_dead_letter(owner))
    assert [row[0] for row in (await command("dead-letter", "list")).rows()] == [number]
    shown = await command("dead-letter", "show", number)
    assert shown.out.endswith('Payload\n{"order": 1}\n')
    assert (await command("dead-letter", "show", number, "--json")).json()["payload"] == {
        "order": 1
    }

    first = (await command("dead-letter", "requeue", number, "--json")).json()
    assert (first["dead_letter_id"], first["created"]) == (int(number), True)
    again = await command("dead-letter", "requeue", number)
    assert again.code == 0 and again.out.endswith("was requeued before\n")
    listed = (await command("dead-letter", "list", "--requeued", "--json")).json()
    assert listed["requeued_as"] == first["delivery_id"] and "payload" not in listed
    assert (await command("dead-letter", "list", "--not-requeued")).out == ""


async def test_one_that_cannot_be_requeued_does_not_stop_the_others(
    command: Command, owner: Any
) -> None:
    good = await a_dead_letter(owner)
    off = await a_subscription(owner)
    saga = await a_saga(owner, subscription_id=off, status=SagaStatus.DEAD_LETTERED)
    bad = await a_dead_letter(owner, saga_id=saga)
    await owner.execute("UPDATE subscriptions SET active = false WHERE id = $1", off)
    done = await command("dead-letter", "requeue", str(bad), str(good), "999", "--json")
    assert done.code == 1 and done.json()["dead_letter_id"] == good
    assert f"dead letter {bad}: 409 " in done.err and "dead letter 999: 404 " in done.err
    assert "2 of 3 dead letters were not requeued." in done.err
    skipped = await command("dead-letter", "requeue", "--all", "--yes", "--json")
    assert skipped.code == 1 and skipped.json()["skipped"] == [bad]


async def test_requeue_by_filter_asks_first_and_can_only_tell(command: Command, owner: Any) -> None:
    numbers = [await a_dead_letter(owner) for _ in range(3)]
    dry = await command("dead-letter", "requeue", "--all", "--limit", "2", "--dry-run", "--json")
    assert dry.json()["dead_letter_ids"] == numbers[:2] and dry.json()["count"] == 2
    asked = await command("dead-letter", "requeue", "--all")
    assert asked.code == 2 and "3 dead letters fit. Say --yes to requeue them." in asked.err
    assert (await command("dead-letter", "list", "--requeued")).out == ""

    some = await command("dead-letter", "requeue", "--failed-from", "1h", "--limit", "2", "--yes")
    assert some.code == 0 and some.out.startswith("2 dead letters requeued\n")
    rest = await command("dead-letter", "requeue", "--all", "--yes", "--json")
    assert [pair["dead_letter_id"] for pair in rest.json()["deliveries"]] == numbers[2:]
    none = await command("dead-letter", "requeue", "--error-code", "HTTP_4XX")
    assert (none.code, none.out) == (0, "0 dead letters requeued\n")


async def test_requeue_without_saying_which_is_wrong_use(command: Command) -> None:
    for arguments in (
        [],
        ["1", "--all"],
        ["1", "--dry-run"],
        ["--all", "--limit", "10001"],
        ["--all", "--tenant", "acme"],
    ):
        done = await command("dead-letter", "requeue", *arguments)
        assert (done.code, done.out) == (2, "")


async def test_an_error_code_that_does_not_exist_is_wrong_use_and_the_nearest_is_named(
    command: Command,
) -> None:
    for which in ("list", "requeue"):
        done = await command("dead-letter", which, "--error-code", "HTTP_500")
        assert (done.code, done.out) == (2, "")
        assert "TIMEOUT, DNS_FAILED," in done.err and "Did you mean HTTP_5XX?" in done.err
        assert (await command("dead-letter", which, "--error-code", "gone")).code == 0


# ── tail ──────────────────────────────────────────────────────────────────────────────────────


async def test_tail_begins_with_the_newest_and_shows_each_change_until_ctrl_c(
    command: Command, owner: Any
) -> None:
    await a_saga(owner)
    saga = await a_saga(owner)
    arguments = ("tail", "-n", "1", "--interval", "0.1", "--json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "surehook", *arguments),
        env={**os.environ, "SUREHOOK_CONFIG": os.devnull, **command.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None

    async def next_line() -> dict[str, Any]:
        assert process.stdout is not None
        shown: dict[str, Any] = json.loads(
            await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        )
        return shown

    assert (await next_line())["id"] == saga
    new = await a_saga(owner, status=SagaStatus.COMPLETED)
    shown = await next_line()
    while (shown["id"], shown["status"]) != (new, "Completed"):  # steps in between may be seen too
        shown = await next_line()
    await a_job(owner, saga_id=saga)
    await move_saga(owner, saga, SagaStatus.IN_PROGRESS)
    shown = await next_line()
    assert (shown["id"], shown["status"]) == (saga, "InProgress")
    process.send_signal(signal.SIGINT)
    _, said = await asyncio.wait_for(process.communicate(), PATIENCE)
    system = f"system: {command.env['SUREHOOK_URL']} (SUREHOOK_URL)\n"
    assert (process.returncode, said.decode()) == (0, system)


class CountedApi:
    """Deliveries by id, all of them listed; counts what it is asked."""

    def __init__(self) -> None:
        self.rows: dict[int, Delivery] = {}
        self.pages = 0
        self.asked: list[int] = []
        self.deliveries = self

    def put(self, *ids: int, status: str = "Pending") -> None:
        now = datetime.now(UTC)
        for number in ids:
            self.rows[number] = DeliveryWithAttempts(
                id=number,
                event_id=1,
                subscription_id=1,
                status=status,
                next_attempt_at=now,
                created_at=now,
                updated_at=now,
            )

    def page(self, *, limit: int, cursor: str | None) -> Page[Delivery]:
        assert limit == PAGE
        self.pages += 1
        end = int(cursor or 2**62)
        older = [number for number in sorted(self.rows, reverse=True) if number < end]
        page = [self.rows[number] for number in older[:PAGE]]
        return Page(items=page, next=str(page[-1].id) if len(older) > PAGE else None)

    def get(self, number: int) -> Delivery:
        self.asked.append(number)
        return self.rows[number]


def test_a_turn_of_tail_asks_a_bounded_number_of_times() -> None:
    api = CountedApi()
    watch = Watch(api, {})  # type: ignore[arg-type]
    api.put(*range(1, 1001))
    assert len(watch.look()) == PAGE and api.pages == 1  # the first look: a page, no history

    api.put(*range(1001, 1500))  # all of them are new: pages until what was known
    assert len(watch.look()) == 499 and api.pages == 1 + 3
    api.put(*range(1500, 5000))
    assert len(watch.look()) == PAGES_MAX * PAGE and api.pages == 1 + 3 + PAGES_MAX
    assert len(api.asked) == 2 * OLDER_PER_TURN


def test_tail_sees_old_deliveries_end_that_are_no_longer_on_the_newest_page() -> None:
    api = CountedApi()
    watch = Watch(api, {})  # type: ignore[arg-type]
    api.put(*range(1, 16))
    watch.look()
    api.put(*range(16, 16 + PAGE), status="Completed")
    watch.look()
    api.put(*range(1, 16), status="DeadLettered")
    seen = [one.id for _ in range(4) for one in watch.look()]
    assert sorted(seen) == list(range(1, 16))


async def test_tail_for_people_is_one_line_per_change(command: Command, owner: Any) -> None:
    dead = await a_saga(owner, status=SagaStatus.DEAD_LETTERED)
    await a_saga(owner)
    done = await command("tail", "--status", "DeadLettered", "--count", "1")
    assert done.code == 0 and done.out.count("\n") == 1
    assert done.out.split()[1:4] == ["DeadLettered", "delivery", str(dead)]
    assert done.out.endswith("attempts 1  HTTP_5XX\n")


async def test_an_event_is_shown_with_all_of_its_deliveries(command: Command, owner: Any) -> None:
    event = await an_event(owner)
    wanted = await many_deliveries(owner, event, 205)
    shown = (await command("event", "show", str(event), "--json")).json()
    assert [one["id"] for one in shown["deliveries"]] == wanted
    people = (await command("event", "show", str(event))).out
    assert f"\n{wanted[0]} " in people and f"\n{wanted[-1]} " in people
