"""Subscriptions: create, list, change, verify, test, rotate the secret.

Components  subscriptions, verifier, observer
Reads   subscriptions, verifications        Writes  what Subscriptions and Verifications write
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from surehook.actions.keys import Scope
from surehook.actions.subscriptions import Subscriptions
from surehook.actions.trial import SAMPLE, Trial
from surehook.actions.verifications import Verifications
from surehook.api import strict
from surehook.api.auth import Key
from surehook.api.pages import before_id, page_of
from surehook.api.problems import NOT_FOUND, STALE, not_found
from surehook.api.routes import Answer, Call, Route
from surehook.model.fields import copied
from surehook.model.resources.shared import BIGGEST_ID, Page
from surehook.model.resources.subscription import (
    NewSubscriptionBody,
    RotateBody,
    RotatedSecret,
    Subscription,
    SubscriptionChanges,
    SubscriptionsQuery,
    TestBody,
    TestResult,
    Verification,
    VerifyBody,
    VerifyQuery,
)
from surehook.store.observer import Found
from surehook.store.subscriptions import SETTINGS

WAIT_SECONDS_MAX = 30.0
SEND_SECONDS_MAX = 620.0
BODY_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class SubscriptionServices:
    """What these routes work with."""

    subscriptions: Subscriptions
    verifications: Verifications
    trial: Trial


async def create_subscription(call: Call) -> Answer:
    body = call.body
    settings = {name: getattr(body, name) for name in SETTINGS}
    made = await call.api.subscriptions.subscriptions.create(
        settings,
        tenant=call.key.tenant_for(body.tenant),
        custom_headers=body.custom_headers,
        schemes=tuple(body.signature.split(",")),
        secret=body.secret,
        idempotency_key=call.idempotency_key,
        by_tenant=call.key.tenant is not None,
    )
    shown = await _read(call, made.subscription.id)
    if shown.verification is None:
        shown = await _verified_if_trusted(call, shown)
    if not made.created:
        return _tagged(200, shown)
    return _tagged(
        201,
        replace(shown, secret=made.secret or UNSET, public_key=made.public_key or UNSET),
    )


async def list_subscriptions(call: Call) -> Answer:
    async def fetch(before: int, count: int, **filters: object) -> Found[Subscription]:
        found = await call.api.observer.subscriptions(before, count, **filters)
        return Found(await _shown(call, found.items), found.last)

    return Answer(200, await page_of(call, fetch, before_id(call.query.cursor)))


async def get_subscription(call: Call) -> Answer:
    return _tagged(200, await _with_missed(call, await _read(call, call.number)))


async def change_subscription(call: Call) -> Answer:
    body = call.body
    changes = {
        name: value
        for name, value in asdict(body).items()
        if value is not UNSET and name != "custom_headers"
    }
    await call.api.subscriptions.subscriptions.update(
        call.number,
        changes,
        tenant=call.key.tenant,
        custom_headers=body.custom_headers,
        versions=call.versions,
    )
    shown = await _read(call, call.number)
    if body.callback_url is not UNSET:
        shown = await _verified_if_trusted(call, shown)
    return _tagged(200, await _with_missed(call, shown))


async def _verified_if_trusted(call: Call, shown: Subscription) -> Subscription:
    """An origin of the operator's own needs no call of `verify`. As shown after it began."""
    url = shown.pending_callback_url or shown.callback_url
    proved = shown.verified and url == shown.callback_url
    if proved or not await call.api.subscriptions.verifications.request_if_trusted(shown.id, url):
        return shown
    return await _read(call, shown.id)


async def verify_subscription(call: Call) -> Answer:
    verifications = call.api.subscriptions.verifications
    body: VerifyBody = call.body
    await _read(call, call.number)
    if body.code is not None:
        await verifications.confirm(call.number, body.code, call.key.tenant)
        return _tagged(200, await _read(call, call.number))
    made = await verifications.request(call.number, call.key.tenant)
    query: VerifyQuery = call.query
    if query.wait:
        made = await verifications.tried(made.id, query.wait)
    return Answer(202, _shown_verification(call.key, copied(Verification, made)))


async def test_subscription(call: Call) -> Answer:
    body: TestBody = call.body
    payload = SAMPLE
    if not isinstance(body.payload, UnsetType):
        payload = strict.payload_text(bytes(body.payload))
    tried = await call.api.subscriptions.trial.send(call.number, payload, call.key.tenant)
    outcome = tried.outcome
    return Answer(
        200,
        TestResult(
            callback_url=tried.callback_url,
            sent=outcome.sent,
            delivered=outcome.delivered,
            response_status=outcome.response_status,
            error_code=outcome.error_code,
            response_excerpt=outcome.response_excerpt,
            failure_detail=call.key.shown(outcome.kept_detail),
            milliseconds=tried.milliseconds,
        ),
    )


async def rotate_secret(call: Call) -> Answer:
    body: RotateBody = call.body
    rotated = await call.api.subscriptions.subscriptions.rotate(
        call.number,
        tenant=call.key.tenant,
        scheme=body.signature,
        secret=body.secret,
        overlap_seconds=body.overlap_seconds,
    )
    return Answer(200, rotated)


# ── Shapes ────────────────────────────────────────────────────────────────────────────────────


def _tagged(status: int, shown: Subscription) -> Answer:
    return Answer(status, shown, headers=((b"etag", b'"%d"' % shown.version),))


async def _with_missed(call: Call, shown: Subscription) -> Subscription:
    return replace(shown, missed=await call.api.observer.missed(shown.id) or UNSET)


async def _read(call: Call, number: int) -> Subscription:
    found = await call.api.observer.subscriptions(BIGGEST_ID, 1, id=number, tenant=call.key.tenant)
    shown = await _shown(call, found.items)
    if not shown:
        raise not_found("subscription", number)
    return shown[0]


async def _shown(call: Call, found: list[Subscription]) -> list[Subscription]:
    """With what the rows do not say, and without what the key may not know."""
    names = await call.api.subscriptions.trial.header_names([one.id for one in found])
    return [
        replace(
            one,
            custom_header_names=names.get(one.id),
            verification=one.verification and _shown_verification(call.key, one.verification),
        )
        for one in found
    ]


def _shown_verification(key: Key, one: Verification) -> Verification:
    return replace(one, last_reason=key.shown(one.last_reason))


_EXAMPLE = {
    "event_type": "order.paid",
    "callback_url": "https://shop.example.com/hooks/orders",
    "description": "The shop's ledger",
}

ROUTES = (
    Route(
        "POST",
        "/v1/subscriptions",
        create_subscription,
        Scope.ADMIN,
        "Create a subscription; its secret is shown this once",
        {201: Subscription, 200: Subscription},
        "subscriptions",
        body=NewSubscriptionBody,
        body_max=BODY_MAX,
        idempotent=True,
        example=_EXAMPLE,
        client="subscriptions.create",
    ),
    Route(
        "GET",
        "/v1/subscriptions",
        list_subscriptions,
        Scope.READ,
        "List subscriptions, newest first",
        {200: Page[Subscription]},
        "subscriptions",
        query=SubscriptionsQuery,
        client="subscriptions.list",
    ),
    Route(
        "GET",
        "/v1/subscriptions/{id}",
        get_subscription,
        Scope.READ,
        "One subscription with its newest verification",
        {200: Subscription},
        "subscriptions",
        (NOT_FOUND,),
        client="subscriptions.get",
    ),
    Route(
        "PATCH",
        "/v1/subscriptions/{id}",
        change_subscription,
        Scope.ADMIN,
        "Change what is named; a new URL of a verified one is staged until it proves itself",
        {200: Subscription},
        "subscriptions",
        (NOT_FOUND, STALE),
        body=SubscriptionChanges,
        body_max=BODY_MAX,
        conditional=True,
        example={"active": False},
        client="subscriptions.update",
    ),
    Route(
        "POST",
        "/v1/subscriptions/{id}/verify",
        verify_subscription,
        Scope.ADMIN,
        "Send a challenge (202), or confirm with the code that one carried (200)",
        {202: Verification, 200: Subscription},
        "subscriptions",
        (NOT_FOUND,),
        query=VerifyQuery,
        body=VerifyBody,
        body_required=False,
        seconds=WAIT_SECONDS_MAX + 5,
        example={},
    ),
    Route(
        "POST",
        "/v1/subscriptions/{id}/test",
        test_subscription,
        Scope.ADMIN,
        "Send one test event, guarded and signed, and show what came back",
        {200: TestResult},
        "subscriptions",
        (NOT_FOUND,),
        body=TestBody,
        deep_field="payload",
        body_required=False,
        body_max=2 * 2**20,
        seconds=SEND_SECONDS_MAX,
        example={"payload": {"hello": "world"}},
    ),
    Route(
        "POST",
        "/v1/subscriptions/{id}/rotate-secret",
        rotate_secret,
        Scope.ADMIN,
        "Make a new secret; the old one signs as well until the overlap ends",
        {200: RotatedSecret},
        "subscriptions",
        (NOT_FOUND,),
        body=RotateBody,
        body_required=False,
        example={"overlap_seconds": 86400},
        client="subscriptions.rotate_secret",
    ),
)
