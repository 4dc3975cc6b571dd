"""Outages: what the API answered while the database was away, and how soon all went on. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from faults.publishers import Answer
from faults.scenario import Bound

ANSWER_SECONDS = 2.0
RESUME_SECONDS = 5.0
BOUNDS = (
    Bound("acknowledged while down", at_most=0),
    Bound("slowest refusal", at_most=ANSWER_SECONDS, unit="s"),
    Bound("answers other than 503", at_most=0),
    Bound("slowest resume", at_most=RESUME_SECONDS, unit="s"),
)


@dataclass(frozen=True)
class Outage:
    """Nobody could use the database from `began` to `ended`; deliveries went on `resumed` seconds
    after that."""

    began: float
    ended: float
    resumed: float


def outage_figures(outages: list[Outage], answers: Iterable[Answer]) -> dict[str, float]:
    """`answers`: of all requests. One that got no answer at all counts as another answer."""
    known = list(answers)
    # Begun after the end of the server and answered before the next start.
    inside = [one for one in known if any(_within(one, outage) for outage in outages)]
    met = [one for one in known if any(_meets(one, outage) for outage in outages)]
    refused = [one for one in met if not one.acknowledged]
    return {
        "outages": len(outages),
        "refusals": len(refused),
        "acknowledged while down": sum(one.acknowledged for one in inside),
        "slowest refusal": max((one.seconds for one in refused), default=0.0),
        "answers other than 503": sum(one.status != 503 for one in refused),
        "slowest resume": max((one.resumed for one in outages), default=0.0),
    }


def _within(answer: Answer, outage: Outage) -> bool:
    return outage.began <= answer.begun and answer.ended <= outage.ended


def _meets(answer: Answer, outage: Outage) -> bool:
    return answer.begun < outage.ended and answer.ended > outage.began
