"""An API key: what applications and people show to be let in."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from surehook.model import rules
from surehook.model.fields import Column, Shown
from surehook.model.resources.shared import TEXT, Id, ListQuery, Request, Tenant, Time

ScopeName = Literal["ingest", "read", "operator", "admin"]


class Key(Struct, frozen=True, kw_only=True):
    """An API key as people see it; `key` itself only when it is made."""

    id: Annotated[Id, Shown("id")]
    name: Annotated[str, Shown("name")]
    scopes: Annotated[list[ScopeName], Shown("scopes")]
    tenant: Annotated[str | None, Shown("tenant")]  # None = every tenant
    created_at: Annotated[Time, Shown("created")]
    last_used_at: Annotated[Time | None, Shown("last used")]
    revoked_at: Annotated[Time | None, Shown("revoked")]
    key: Annotated[
        str | UnsetType, Meta(description="Shown this once", examples=["shk_…"]), Column("")
    ] = UNSET


class NewKeyBody(Request, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=rules.NAME_MAX, extra_json_schema=TEXT)]
    scopes: Annotated[list[ScopeName], Meta(min_length=1, max_length=4)]
    tenant: Tenant | None = None


class KeysQuery(ListQuery, frozen=True, kw_only=True):
    tenant: Tenant | None = None
