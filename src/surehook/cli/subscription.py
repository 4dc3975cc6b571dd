"""`surehook subscription …`: who gets which events, and where.

Reads and writes  subscriptions, by way of the API. A secret is shown once: when it is made.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from surehook.cli import InOrder
from surehook.cli.arguments import (
    TENANT,
    Finite,
    id_argument,
    payload_arguments,
    payload_of,
    secret_of,
    tenant_option,
)
from surehook.cli.connection import CALL_SECONDS, Api, through_api, wrong_use
from surehook.cli.declared import Decorator, columns, facts_of, list_command, setting_options
from surehook.cli.delivery import advice_on
from surehook.cli.output import as_json_option, done, facts, heading, note, safe, write_json
from surehook.errors import Declined, UsageError
from surehook.model.resources.subscription import (
    RotatedSecret,
    Subscription,
    SubscriptionSecrets,
    SubscriptionsQuery,
    TestResult,
    Verification,
)
from surehook.model.wording import counted

if TYPE_CHECKING:
    from surehook.client import results

TEST_SECONDS = 630.0  # an endpoint may take its time; the API ends it after 620 s


@click.group(cls=InOrder, help="Subscriptions: who gets which events, and where.")
def subscription() -> None:
    pass


_with_id = id_argument("subscription_id")
_secret_option = click.option(
    "--secret", metavar="whsec_…", help="Yours instead of a new one; - reads it from a line."
)
_OWN: dict[str, Decorator] = {
    "tenant": tenant_option(
        f"{TENANT}: a subscription gets only the events of its own tenant, and without one only "
        "those that were published without one."
    ),
    "custom_headers": click.option(
        "--custom-header",
        multiple=True,
        metavar="'NAME: VALUE'",
        help="A header for every delivery; may be repeated. Its value is never shown.",
    ),
    "secret": _secret_option,
}


def _settings(change: bool) -> Decorator:
    first = ("tenant", "event_type", "callback_url", "description")
    return setting_options(Subscription, SubscriptionSecrets, change=change, first=first, own=_OWN)


@subscription.command(help="Create a subscription. Its secret is shown this once.")
@_settings(change=False)
@click.option(
    "--inactive",
    is_flag=True,
    help="Create it disabled: events published before it is enabled never go to it.",
)
@as_json_option
@through_api
def create(
    api: Api, event_type: str, callback_url: str, inactive: bool, as_json: bool, **options: Any
) -> None:
    fields = _fields(options)
    if inactive:
        fields["active"] = False
    with api.client() as client, wrong_use():
        made = client.subscriptions.create(event_type, callback_url, **fields)
    if as_json:
        write_json(made)
        return
    done(f"subscription {made.id} created")
    facts(_facts(made))
    if made.secret:
        note("Keep the secret now: it is not shown again.")
    if not made.verified:
        _note_unverified(made)


def _note_unverified(found: results.Subscription) -> None:
    """What has to be done; nothing where the verifier is at work without being asked to."""
    if _under_way(found):
        note(
            "It is being verified, because the configuration trusts its origin "
            "(verification.trusted) or someone asked for it; nothing is delivered before. "
            f"`surehook subscription show {found.id}` shows the result."
        )
    else:
        note(f"Nothing is delivered before `surehook subscription verify {found.id}`.")


def _under_way(found: results.Subscription) -> bool:
    """Whether the verifier has the newest URL before it."""
    newest = found.verification
    return (
        newest is not None
        and newest.callback_url == (found.pending_callback_url or found.callback_url)
        and newest.verified_at is None
        and newest.last_result in (None, "sending")
    )


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as fields of the API."""
    fields = {name: value for name, value in options.items() if value is not None}
    headers = [given.partition(":") for given in fields.pop("custom_header", ())]
    if any(not name.strip() or not colon for name, colon, _ in headers):
        raise UsageError("A --custom-header looks like 'X-Shop: 4711'.")
    if headers:
        fields["custom_headers"] = {name.strip(): value.strip() for name, _, value in headers}
    if "secret" in fields:
        fields["secret"] = secret_of(fields["secret"])
    return fields


list_command(
    subscription,
    "subscriptions",
    SubscriptionsQuery,
    columns(Subscription, first=("id", "event_type", "callback_url")),
    "No subscription fits; `surehook subscription create` makes one.",
)


@subscription.command(help="Show one subscription and its newest verification.")
@_with_id
@as_json_option
@through_api
def show(api: Api, subscription_id: int, as_json: bool) -> None:
    with api.client() as client:
        _show(client.subscriptions.get(subscription_id), as_json)


def _show(found: results.Subscription, as_json: bool) -> None:
    if as_json:
        write_json(found)
        return
    facts(_facts(found))
    if found.verification is not None:
        heading("Newest verification")
        facts(_verification_facts(found.verification))


def _facts(found: results.Subscription) -> list[tuple[str, object]]:
    """Settings that are not overridden are left out."""
    return facts_of(Subscription, found, without=("version",))


def _verification_facts(found: results.Verification) -> list[tuple[str, object]]:
    return facts_of(Verification, found, without=("id", "last_attempt_at"))


@subscription.command(help="Change what is given; a new URL must prove itself first.")
@_with_id
@_settings(change=True)
@as_json_option
@through_api
def update(
    api: Api, subscription_id: int, clear: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    changes = _fields(options)
    twice = [name for name in clear if name in changes]
    if twice:
        raise UsageError(f"{twice[0]} is given and cleared.", "Do one of them.")
    changes |= dict.fromkeys(clear)
    if not changes:
        raise UsageError("There is nothing to change.", "`… update --help` lists what can be.")
    with api.client() as client:
        changed = client.subscriptions.update(subscription_id, **changes)
    if not as_json:
        done(f"subscription {changed.id} changed")
    _show(changed, as_json)
    if changed.pending_callback_url and not as_json:
        if _under_way(changed):
            note("The new URL is being verified; the old one is used until then.")
        else:
            note(f"The new URL is used after `surehook subscription verify {changed.id}`.")


def _switch(api: Api, subscription_id: int, active: bool, as_json: bool) -> None:
    with api.client() as client:
        changed = client.subscriptions.update(subscription_id, active=active)
    if as_json:
        write_json(changed)
        return
    done(f"subscription {changed.id} is {'enabled' if changed.active else 'disabled'}")
    requeue = f"surehook dead-letter requeue --subscription-id {changed.id}"
    if not changed.active:
        note(
            "It gets no event that is published from now on, not even after it is enabled again. "
            "What waited to be delivered or retried becomes dead letters."
        )
    elif not changed.verified:
        _note_unverified(changed)
    else:
        note(
            "It gets what is published from now on; what was published while it was disabled is "
            f"not delivered. `{requeue} --error-code SUBSCRIPTION_INACTIVE` delivers what was "
            "waiting when it was disabled."
        )
        _note_missed(changed)


def _note_missed(shown: results.Subscription) -> None:
    """What was published while it was off, and how to see it."""
    missed = shown.missed
    if missed is None:
        return
    many = f"{missed.count} or more events" if missed.more else counted(missed.count, "event")
    first, last = (_precise(moment) for moment in (missed.first_at, missed.last_at))
    tenant = f" --tenant {shown.tenant}" if shown.tenant else ""
    note(
        f"{many} of {shown.event_type}, from {first} to {last}, went by meanwhile: "
        f"surehook event list --event-type {shown.event_type}{tenant} --created-from {first}"
    )


def _precise(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


ENABLE_HELP = """Deliver events that are published from now on.

Events published while it was disabled are not delivered. Deliveries that were waiting or being
retried when it was disabled are dead letters with the error SUBSCRIPTION_INACTIVE; `surehook
dead-letter requeue --subscription-id ID --error-code SUBSCRIPTION_INACTIVE` delivers them.
"""
DISABLE_HELP = """Stop delivering to it; this is not a pause.

Events published from now on never go to it, not even after it is enabled again. Deliveries that
wait or are being retried are given up when their turn comes: they become dead letters with the
error SUBSCRIPTION_INACTIVE, which can be requeued once it is enabled. A request that is under way
is finished.
"""


@subscription.command(help=ENABLE_HELP, short_help="Deliver events published from now on.")
@_with_id
@as_json_option
@through_api
def enable(api: Api, subscription_id: int, as_json: bool) -> None:
    _switch(api, subscription_id, True, as_json)


@subscription.command(help=DISABLE_HELP, short_help="Stop delivering; not a pause: retries end.")
@_with_id
@as_json_option
@through_api
def disable(api: Api, subscription_id: int, as_json: bool) -> None:
    _switch(api, subscription_id, False, as_json)


# ── Proving the endpoint ──────────────────────────────────────────────────────────────────────


@subscription.command(help="Send the endpoint a challenge, or confirm with its code.")
@_with_id
@click.option("--code", metavar="7QXM-2KPA-9DTR", help="The code that a challenge carried.")
@click.option(
    "--wait",
    type=Finite(0, 30, min_open=True),
    metavar="SECONDS",
    help="Wait until the challenge was tried, 30 at most; exit 1 if it failed.",
)
@as_json_option
@through_api
def verify(
    api: Api, subscription_id: int, code: str | None, wait: float | None, as_json: bool
) -> None:
    if code is not None and wait is not None:
        raise UsageError("--wait waits for a challenge; with --code none is sent.")
    with api.client((wait or 0) + CALL_SECONDS) as client:
        if code is not None:
            confirmed = client.subscriptions.confirm(subscription_id, code)
            if as_json:
                write_json(confirmed)
            else:
                done(f"subscription {confirmed.id} is verified")
            return
        sent = client.subscriptions.verify(subscription_id, wait=wait)
        _report(sent, subscription_id, wait, as_json)
        if wait is not None and sent.verified_at is None:
            raise _not_verified(sent, client.subscriptions.get(subscription_id), wait)


def _report(
    sent: results.Verification, subscription_id: int, wait: float | None, as_json: bool
) -> None:
    if as_json:
        write_json(sent)
    elif sent.verified_at is not None:
        done(f"subscription {subscription_id} is verified")
    elif wait is None:
        done(f"the verification of {safe(sent.callback_url)} has begun")
        note(f"`surehook subscription show {subscription_id}` shows the result.")
    else:
        facts(_verification_facts(sent))


def _not_verified(sent: results.Verification, now: results.Subscription, wait: float) -> Declined:
    reason = sent.last_reason or sent.last_result or f"it was not tried within {wait:g} s"
    if now.verified and now.callback_url != sent.callback_url:
        return Declined(
            f"The new URL {safe(sent.callback_url)} is not verified yet: {safe(reason)}.",
            f"The old one is still used: {safe(now.callback_url)}",
        )
    return Declined(f"Subscription {now.id} is not verified: {safe(reason)}.")


@subscription.command(help="Send one test delivery, no event; exit 1 if it fails.")
@_with_id
@payload_arguments
@as_json_option
@through_api
def test(
    api: Api, subscription_id: int, payload: str | None, file: Path | None, as_json: bool
) -> None:
    content = payload_of(payload, file)
    given = {} if content is None else {"payload": content}
    with api.client(TEST_SECONDS) as client, wrong_use():
        result = client.subscriptions.test(subscription_id, **given)
    if as_json:
        write_json(result)
    else:
        _show_test(result)
    if not result.delivered:
        raise _not_taken(result)


def _not_taken(result: results.TestResult) -> Declined:
    advice = advice_on(result.error_code)
    if result.sent:
        why = result.error_code or result.response_status
        return Declined(f"The endpoint did not take it: {why}.", advice)
    why = ", ".join(filter(None, [result.error_code, result.failure_detail])).rstrip(".")
    return Declined(f"Nothing was sent: {safe(why)}.", advice)


def _show_test(result: results.TestResult) -> None:
    if result.delivered:
        done(f"delivered: {result.response_status} after {result.milliseconds or 0:.0f} ms")
    facts(facts_of(TestResult, result, without=("sent", "delivered")))


@subscription.command(
    "rotate-secret", help="Make a new secret or key pair; the secret is shown once."
)
@_with_id
@click.option(
    "--signature",
    type=click.Choice(["v1", "v1a"]),
    help="Which one: the shared secret (v1), or the key pair (v1a).  [default: v1]",
)
@click.option(
    "--overlap-seconds", type=Finite(), help="How long the old one signs too; usually a day."
)
@_secret_option
@as_json_option
@through_api
def rotate_secret(api: Api, subscription_id: int, as_json: bool, **options: Any) -> None:
    with api.client() as client:
        rotated = client.subscriptions.rotate_secret(subscription_id, **_fields(options))
    if as_json:
        write_json(rotated)
        return
    what = "secret" if rotated.secret else "key pair"
    done(f"subscription {subscription_id} signs with a new {what}")
    facts(facts_of(RotatedSecret, rotated))
    if rotated.secret:
        note("Keep the secret now: it is not shown again.")
    else:
        note("Give the receiver the public key before the old one expires.")
