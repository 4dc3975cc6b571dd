"""A subscription: who gets which events, and where."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from surehook.model.fields import Column, Setting, Shown, changes_body, new_body
from surehook.model.resources.shared import (
    EventType,
    Id,
    ListQuery,
    Payload,
    Request,
    Secret,
    Tenant,
    Time,
    Url,
)

Seconds = Annotated[float, Meta(ge=0.001, le=604_800)]
PublicKey = Annotated[str, Meta(description="For v1a signatures", examples=["whpk_…"])]
ShownSecret = Annotated[str, Meta(description="Shown this once", examples=["whsec_…"])]


class Verification(Struct, frozen=True, kw_only=True):
    """An attempt to prove that the endpoint holds the secret."""

    id: Id
    callback_url: str
    attempts: int
    last_result: str | None
    last_reason: str | None
    created_at: Time
    last_attempt_at: Time | None
    expires_at: Time
    verified_at: Time | None


class Missed(Struct, frozen=True, kw_only=True):
    """Events that were created while the subscription last was not both active and verified, or
    is not now. They are not delivered to it."""

    count: int
    more: Annotated[bool, Meta(description="There may be more: not all were looked at")]
    first_at: Time
    last_at: Time


class Subscription(Struct, frozen=True, kw_only=True):
    """Who gets which events, and where."""

    id: Annotated[Id, Shown("id", always=True)]
    tenant: Annotated[Tenant, Setting(None, once=True), Shown("tenant", always=True)]
    event_type: Annotated[
        EventType,
        Setting(),
        Shown("event type", always=True, argument=True, help="Events of this type instead."),
    ]
    callback_url: Annotated[
        Url,
        Setting(stored="staged"),
        Shown("callback url", always=True, argument=True, help="Deliver to this URL instead."),
    ]
    pending_callback_url: Annotated[
        str | None, Meta(description="A new URL that has not proved itself yet")
    ]
    active: Annotated[
        bool,
        Meta(
            description="False: events created from then on never go to it, not even when it is "
            "active again, and deliveries that wait or are being retried become dead letters "
            "(SUBSCRIPTION_INACTIVE)"
        ),
        Setting(True),
        Shown("active", always=True, option="-"),
    ]
    verified: Annotated[bool, Shown("verified", always=True)]
    eligible_from: Annotated[Time | None, Meta(description="Events from then on are delivered")]
    max_attempts: Annotated[
        Annotated[int, Meta(ge=1, le=1000)] | None,
        Setting(None),
        Shown(help="Attempts before it is a dead letter."),
    ]
    base_delay_seconds: Annotated[
        Seconds | None, Setting(None), Shown(help="Delay before the first retry.")
    ]
    request_timeout_seconds: Annotated[
        Annotated[float, Meta(ge=0.1, le=600)] | None,
        Setting(None, ceiling="limits.request_timeout"),
        Shown(help="How long an attempt may take."),
    ]
    concurrency_cap: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Setting(None, ceiling="limits.concurrency_cap"),
        Shown(help="Attempts under way at once."),
    ]
    rate_limit_per_second: Annotated[
        Annotated[float, Meta(ge=0.001, le=1_000_000)] | None,
        Setting(None, ceiling="limits.rate"),
        Shown(help="Attempts begun per second."),
    ]
    custom_header_names: Annotated[list[str] | None, Column("")]
    description: Annotated[
        Annotated[str, Meta(max_length=1000)] | None,
        Setting(None),
        Shown("description", help="What it is for."),
    ]
    created_at: Annotated[Time, Shown(always=True)]
    updated_at: Time
    version: Annotated[
        int, Meta(ge=1, description="Grows with every change; the ETag, for If-Match")
    ]
    verification: Annotated[Verification | None, Meta(description="The newest one")]
    # On some answers only: absent elsewhere, not null.
    missed: Annotated[Missed | UnsetType, Column("")] = UNSET
    secret: Annotated[ShownSecret | UnsetType, Column("")] = UNSET
    public_key: Annotated[PublicKey | UnsetType, Column("")] = UNSET


# ── What only a request carries ───────────────────────────────────────────────────────────────

CustomHeaders = Annotated[
    dict[str, str],
    Meta(
        max_length=20,
        description="Sent with every delivery; stored encrypted, the values are never shown",
        examples=[{"x-shop": "4711"}],
    ),
]


class SubscriptionSecrets(Struct, frozen=True, kw_only=True):
    """What is given and never shown again."""

    custom_headers: Annotated[CustomHeaders | None, Setting(None, stored="sealed")]
    signature: Annotated[Literal["v1", "v1a", "v1,v1a"], Setting("v1", once=True, stored="sealed")]
    secret: Annotated[Secret | None, Setting(None, once=True, stored="sealed")]


NewSubscriptionBody = new_body(
    "NewSubscriptionBody",
    "Events of this type (and tenant) are to be delivered to this URL.",
    Subscription,
    SubscriptionSecrets,
)
SubscriptionChanges = changes_body(
    "SubscriptionChanges",
    "What is named changes; null takes an override away.",
    Subscription,
    SubscriptionSecrets,
)


class SubscriptionsQuery(ListQuery, frozen=True, kw_only=True):
    tenant: Tenant | None = None
    event_type: Annotated[EventType | None, Shown(help="Only for this type.")] = None
    active: Annotated[bool | None, Shown(option="--active/--inactive")] = None
    verified: Annotated[bool | None, Shown(option="--verified/--unverified")] = None


# ── Beside creating, changing and listing ─────────────────────────────────────────────────────


class VerifyBody(Request, frozen=True):
    """Without a code: a challenge is sent. With the code that a challenge carried: confirmed."""

    code: Annotated[str, Meta(max_length=100, examples=["7QXM-2KPA-9DTR"])] | None = None


class VerifyQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    wait: Annotated[
        float, Meta(ge=0, le=30, description="Seconds to wait until the challenge was tried")
    ] = 0.0


class RotateBody(Request, frozen=True):
    signature: Annotated[
        Literal["v1", "v1a"],
        Meta(description="Which secret: the shared one, or the key pair that the server makes"),
    ] = "v1"
    overlap_seconds: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=2_592_000,
                description="For how long the old secret signs as well; left out: the setting "
                "delivery.secret_overlap (24 h)",
            ),
        ]
        | None
    ) = None
    secret: Secret | None = None


class RotatedSecret(Struct, frozen=True, kw_only=True):
    """The new shared secret, or the new key pair's public key."""

    secret: ShownSecret | UnsetType = UNSET
    old_secrets_expire_at: Time | None
    public_key: PublicKey | UnsetType = UNSET


class TestBody(Request, frozen=True):
    payload: Payload | UnsetType = UNSET


class TestResult(Struct, frozen=True, kw_only=True):
    """What one guarded POST came to; it is neither an event nor a delivery."""

    callback_url: Annotated[
        str, Meta(description="What was tested: `pending_callback_url`, where there is one")
    ]
    sent: Annotated[
        bool, Meta(description="False: nothing was sent, the endpoint cannot have seen it")
    ]
    delivered: bool
    response_status: int | None
    error_code: str | None
    response_excerpt: str | None
    failure_detail: str | None
    milliseconds: float
