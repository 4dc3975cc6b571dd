"""Rescue: which jobs in BULK are sent although everything there hangs. Part of the worker. Pure.

What waits in BULK waits behind whatever is under way there. When all of that hangs, more would have
to wait for a deadline than those whose endpoint hangs: some of what waits goes by EXPRESS instead.
The likeliest to answer go first: endpoints that have answered since, then those of tenants of which
nothing hangs, in the order in which they last answered. Of an endpoint that has not answered since
one job is tried, and few such at once, for they may hang as well. Where even those few are used up,
tenants of which nothing hangs are still tried, one at a time: each of them hangs once at most.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from surehook.model.records import JobId, WaitingJob


def chosen(
    waiting: Iterable[WaitingJob],
    count: int,
    probes: int,
    *,
    answered: Mapping[int, float],
    since: float,
    busy: Container[int],
    trying: bool,
) -> list[JobId]:
    """At most `count` jobs, at most `probes` of endpoints that have not answered `since` then.
    `answered`: subscription → when it last did. `busy`: subscriptions with requests under way.
    `trying`: one of those that have not answered is being tried already."""
    answering: list[JobId] = []
    silent: dict[int, WaitingJob] = {}  # the first of each subscription
    for job in waiting:
        number = job.subscription_id
        if answered.get(number, 0.0) > since:
            answering.append(job.id)
        elif number not in busy:
            silent.setdefault(number, job)
    likely = sorted(
        silent.values(),
        key=lambda job: (job.tenant_hangs, -answered.get(job.subscription_id, 0.0)),
    )
    if not trying and likely and not likely[0].tenant_hangs:
        probes = max(probes, 1)
    return (answering + [job.id for job in likely[:probes]])[:count]
