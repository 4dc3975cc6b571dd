"""What makes a measurement void, and how its figures are compared."""

from __future__ import annotations

from surehook.bench.ledger import Arrived, Ledger, percentiles
from surehook.bench.machine import Gauge
from surehook.bench.measures import normalised
from surehook.bench.receiver import Book

ONCE = Arrived(1, 1, 12.5)


def verdict_on(arrived: dict[str, Arrived], *owed: str) -> tuple[int, int, int]:
    ledger = Ledger()
    ledger.owe(owed, 12.0)
    found = ledger.verdict(arrived)
    assert found.holds == (found.lost == found.phantom == found.doubled == 0)
    return found.lost, found.phantom, found.doubled


def test_what_is_owed_and_arrives_once_is_well() -> None:
    assert verdict_on({"a": ONCE, "b": ONCE}, "a", "b") == (0, 0, 0)


def test_what_did_not_arrive_or_was_never_accepted_is_lost() -> None:
    assert verdict_on({"b": Arrived(3, 0, 12.5)}, "a", "b") == (2, 0, 0)


def test_what_nobody_published_is_phantom() -> None:
    assert verdict_on({"a": ONCE, "b": ONCE}, "a") == (0, 1, 0)


def test_what_was_accepted_twice_is_doubled_and_a_retry_is_not() -> None:
    assert verdict_on({"a": Arrived(2, 2, 12.5), "b": Arrived(2, 1, 12.5)}, "a", "b") == (0, 0, 1)


def test_delays_run_from_handing_in_to_the_first_arrival() -> None:
    ledger = Ledger()
    ledger.owe(["a", "b"], 12.0)
    assert ledger.milliseconds(["a", "b"], {"a": ONCE}) == [500.0]


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles([float(n) for n in range(101)]) == {"p50": 50.0, "p99": 99.0}
    assert percentiles([3.0]) == {"p50": 3.0, "p99": 3.0}
    assert percentiles([]) == {"p50": 0.0, "p99": 0.0}


def test_a_machine_of_half_the_speed_gives_the_same_normalised_figures() -> None:
    def figures(slower: float) -> dict[str, float]:
        return normalised(
            {
                "cpu_us_per_delivery": {"all": 200.0 * slower},
                "deliveries_per_s": round(8000 / slower),
                "latency_low_load_ms": {"p50": 5.0 * slower},
            },
            Gauge(400.0 * slower, 600.0 * slower),
        )

    assert figures(1) == figures(2)


def test_the_receiver_refuses_the_first_post_of_its_share_and_accepts_the_next() -> None:
    book = Book(failures_percent=10)
    ids = [f"msg_{number}".encode() for number in range(1000)]
    refused = [one for one in ids if b" 503 " in book.take(one)]
    assert 50 < len(refused) < 150 and book.accepted == 1000 - len(refused)
    assert all(b" 200 " in book.take(one) for one in refused)
    assert book.accepted == 1000 and book.summary()["posts"] == 1000 + len(refused)
