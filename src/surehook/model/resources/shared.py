"""The types that several resources share: limits and descriptions once."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, TypeVar

from msgspec import Meta, Raw, Struct

from surehook.model import rules

Item = TypeVar("Item")

BIGGEST_ID = 2**63 - 1
LIMIT_DEFAULT = 50
LIMIT_MAX = 200
TIME_EXAMPLE = "2026-11-15T20:55:01.123456Z"
TEXT = {"pattern": f"^{rules.TEXT_CHARACTER}*$"}

Id = Annotated[int, Meta(ge=1, le=BIGGEST_ID)]
Time = Annotated[datetime, Meta(tz=True, examples=[TIME_EXAMPLE])]
EventType = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=rules.EVENT_TYPE_MAX,
        examples=["order.paid"],
        extra_json_schema={"pattern": f"^{rules.EVENT_TYPE_CHARACTER}+$"},
    ),
]
Tenant = Annotated[
    str,
    Meta(
        max_length=rules.TENANT_MAX,
        description="One of your customers, or another part of your system: an event goes only "
        "to subscriptions of the same tenant. No control characters; empty = no tenant",
        examples=["acme"],
        extra_json_schema=TEXT,
    ),
]
Url = Annotated[
    str,
    Meta(
        max_length=500,
        description="https only",
        examples=["https://shop.example.com/hooks/orders"],
    ),
]
Payload = Annotated[
    Raw,
    Meta(
        description="Any JSON; stored and delivered byte for byte as received",
        extra_json_schema={"examples": [{"order": 4711, "total": "12.50"}]},
    ),
]
Secret = Annotated[str, Meta(max_length=200, examples=["whsec_…"])]


class Request(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What clients send."""


Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="How many items at most")]
Cursor = Annotated[
    str | None, Meta(description="`next` of the page before; it fits the same filters only")
]


class ListQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor = None


class Page(Struct, Generic[Item], frozen=True):
    """A page; `next` is the cursor of the next one, null at the end."""

    items: list[Item]
    next: str | None


class ProblemBody(Struct, frozen=True, omit_defaults=True, rename={"kind": "type"}):
    """What went wrong; `field` names the part of the request that is at fault."""

    kind: Annotated[
        str, Meta(description="/problems/ and the kind", examples=["/problems/invalid"])
    ]
    title: str
    status: int
    detail: str
    request_id: str
    field: str | None = None
