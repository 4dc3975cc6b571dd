"""Subscriptions: create, list, change, verify, test, rotate the secret.

Components  subscriptions, verifier, observer
Reads   subscriptions, verifications        Writes  what Subscriptions and Verifications write
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from surehook.actions.keys import Scope
from surehook.actions.trial import SAMPLE
from surehook.api import strict
from surehook.api.auth import Key
from surehook.api.pages import add_list
from surehook.api.problems import STALE, not_found
from surehook.api.routes import Answer, Call, Routes
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
from surehook.store.subscriptions import SETTINGS

WAIT_SECONDS_MAX = 30.0
SEND_SECONDS_MAX = 620.0
BODY_MAX = 256 * 1024


_EXAMPLE = {
    "event_type": "order.paid",
    "callback_url": "https://shop.example.com/hooks/orders",
    "description": "The shop's ledger",
}
routes = Routes("subscriptions")


@routes(
    "POST",
    "/v1/subscriptions",
    Scope.ADMIN,
    {201: Subscription, 200: Subscription},
    body=NewSubscriptionBody,
    body_max=BODY_MAX,
    idempotent=True,
    example=_EXAMPLE,
    client="subscriptions.create",
)
async def create_subscription(call: Call) -> Answer:
    """Create a subscription; its secret is shown this once."""
    body = call.body
    settings = {name: getattr(body, name) for name in SETTINGS}
    made = await call.api.subscriptions.create(
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


async def _shown(call: Call, found: list[Subscription]) -> list[Subscription]:
    """With what the rows do not say, and without what the key may not know."""
    names = await call.api.trial.header_names([one.id for one in found])
    return [
        replace(
            one,
            custom_header_names=names.get(one.id),
            verification=one.verification and _shown_verification(call.key, one.verification),
        )
        for one in found
    ]


add_list(routes, Page[Subscription], SubscriptionsQuery, shown=_shown)


@routes("GET", "/v1/subscriptions/{id}", Scope.READ, Subscription, client="subscriptions.get")
async def get_subscription(call: Call) -> Answer:
    """One subscription with its newest verification."""
    return _tagged(200, await _with_missed(call, await _read(call, call.number)))


@routes(
    "PATCH",
    "/v1/subscriptions/{id}",
    Scope.ADMIN,
    Subscription,
    problems=(STALE,),
    body=SubscriptionChanges,
    body_max=BODY_MAX,
    conditional=True,
    example={"active": False},
    client="subscriptions.update",
)
async def change_subscription(call: Call) -> Answer:
    """Change what is named; a new URL of a verified one is staged until it proves itself."""
    body = call.body
    changes = {
        name: value
        for name, value in asdict(body).items()
        if value is not UNSET and name != "custom_headers"
    }
    await call.api.subscriptions.update(
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
    if proved or not await call.api.verifications.request_if_trusted(shown.id, url):
        return shown
    return await _read(call, shown.id)


@routes(
    "POST",
    "/v1/subscriptions/{id}/verify",
    Scope.ADMIN,
    {202: Verification, 200: Subscription},
    query=VerifyQuery,
    body=VerifyBody,
    body_required=False,
    seconds=WAIT_SECONDS_MAX + 5,
    example={},
)
async def verify_subscription(call: Call) -> Answer:
    """Send a challenge (202), or confirm with the code that one carried (200)."""
    verifications = call.api.verifications
    body: VerifyBody = call.body
    await _read(call, call.number)
    if body.code is not None:
        await verifications.confirm(call.number, body.code, call.key.tenant)
        return _tagged(200, await _read(call, call.number))
    made = await verifications.request(call.number, call.key.tenant)
    query: VerifyQuery = call.query
    if query.wait:
        made = await verifications.tried(made.id, query.wait)
    return Answer(202, _shown_verification(call.key, made))


@routes(
    "POST",
    "/v1/subscriptions/{id}/test",
    Scope.ADMIN,
    TestResult,
    body=TestBody,
    deep_field="payload",
    body_required=False,
    body_max=2 * 2**20,
    seconds=SEND_SECONDS_MAX,
    example={"payload": {"hello": "world"}},
)
async def test_subscription(call: Call) -> Answer:
    """Send one test event, guarded and signed, and show what came back."""
    body: TestBody = call.body
    payload = SAMPLE
    if not isinstance(body.payload, UnsetType):
        payload = strict.payload_text(bytes(body.payload))
    tried = await call.api.trial.send(call.number, payload, call.key.tenant)
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


@routes(
    "POST",
    "/v1/subscriptions/{id}/rotate-secret",
    Scope.ADMIN,
    RotatedSecret,
    body=RotateBody,
    body_required=False,
    example={"overlap_seconds": 86400},
    client="subscriptions.rotate_secret",
)
async def rotate_secret(call: Call) -> Answer:
    """Make a new secret; the old one signs as well until the overlap ends."""
    body: RotateBody = call.body
    rotated = await call.api.subscriptions.rotate(
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


def _shown_verification(key: Key, one: Verification) -> Verification:
    return replace(one, last_reason=key.shown(one.last_reason))
