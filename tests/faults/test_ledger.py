"""The ledger finds what it is for: a lost event, a phantom, a second id, an extra send."""

from __future__ import annotations

import pytest

from faults.ledger import Arrival, Ledger

BOTH = ("a", "b")


def arrived(tag: str, subscription: str, at: float = 1.0, **more: object) -> Arrival:
    given: dict[str, object] = {"webhook_id": f"id-{tag}-{subscription}", **more}
    return Arrival(tag, subscription, at=at, **given)  # type: ignore[arg-type]


@pytest.fixture
def ledger() -> Ledger:
    """One event for two subscriptions, acknowledged and delivered to both."""
    made = Ledger()
    made.offer("one", BOTH)
    made.acknowledge("one", at=0.5)
    for name in BOTH:
        made.arrive(arrived("one", name))
    return made


def test_what_was_acknowledged_and_arrived_once_is_well(ledger: Ledger) -> None:
    verdict = ledger.verdict()
    assert ledger.is_settled
    assert not verdict.lost and not verdict.phantom and not verdict.second_ids
    assert (verdict.acknowledged, verdict.arrivals, verdict.extra_sends) == (1, 2, 0)
    assert verdict.latest_seconds == 0.5


def test_an_acknowledged_event_that_one_subscription_did_not_get_is_lost(ledger: Ledger) -> None:
    ledger.offer("two", BOTH)
    ledger.arrive(arrived("two", "a"))  # before its answer came
    ledger.acknowledge("two", at=2.0)
    assert ledger.verdict().lost == (("two", "b"),)


def test_an_event_that_was_sent_but_never_accepted_is_lost(ledger: Ledger) -> None:
    ledger.offer("two", ["a"])
    ledger.acknowledge("two", at=1.0)
    ledger.arrive(arrived("two", "a", answer=503))
    ledger.arrive(arrived("two", "a", answer=0))
    assert ledger.verdict().lost == (("two", "a"),)


def test_an_event_whose_answer_was_unclear_may_arrive_and_need_not(ledger: Ledger) -> None:
    ledger.offer("two", BOTH)
    ledger.arrive(arrived("two", "a"))
    verdict = ledger.verdict()
    assert not verdict.phantom and not verdict.lost and verdict.acknowledged == 1


def test_an_event_that_nobody_offered_is_a_phantom(ledger: Ledger) -> None:
    ledger.arrive(arrived("two", "a"))
    assert ledger.verdict().phantom == (("two", "a"),)


def test_an_event_whose_transaction_was_rolled_back_is_a_phantom(ledger: Ledger) -> None:
    ledger.offer("two", BOTH)
    ledger.withdraw("two")
    assert not ledger.verdict().phantom
    ledger.arrive(arrived("two", "b"))
    assert ledger.verdict().phantom == (("two", "b"),)


def test_an_event_that_comes_to_a_subscription_of_another_type_is_a_phantom(ledger: Ledger) -> None:
    ledger.arrive(arrived("one", "c"))
    assert ledger.verdict().phantom == (("one", "c"),)


def test_one_event_under_two_ids_at_one_subscription_is_found(ledger: Ledger) -> None:
    ledger.arrive(arrived("one", "a", webhook_id="another"))
    assert ledger.verdict().second_ids == (("one", "a"),)


def test_a_send_after_an_accepted_one_is_an_extra_send(ledger: Ledger) -> None:
    ledger.arrive(arrived("one", "a"))
    ledger.arrive(arrived("one", "a"))
    verdict = ledger.verdict()
    assert verdict.extra_sends == 2 and ledger.extra_sends() == {("one", "a"): 2}
    assert verdict.extra_percent == 100.0


def test_a_retry_after_a_failure_is_no_extra_send(ledger: Ledger) -> None:
    ledger.offer("two", ["a"])
    for answer in (503, 0, 200):
        ledger.arrive(arrived("two", "a", answer=answer))
    assert ledger.verdict().extra_sends == 0


def test_the_delay_is_that_of_the_first_accepted_arrival(ledger: Ledger) -> None:
    ledger.offer("two", ["a"])
    ledger.acknowledge("two", at=10.0)
    for at, answer in ((11.0, 500), (14.0, 200), (30.0, 200)):
        ledger.arrive(arrived("two", "a", at=at, answer=answer))
    assert ledger.delays()["two", "a"] == 4.0
    assert ledger.verdict().latest_seconds == 4.0
