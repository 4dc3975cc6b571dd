"""Subscriptions: what their owners create and change. Configuration only, nothing runs here.

Role    subscription_admin
Reads   subscriptions
Writes  INSERT and UPDATE subscriptions, INSERT subscription_secrets and UPDATE their expiry
Never   sets `verified`, reads a secret back, sends anything

Every value is checked here, whatever calls. A refusal names the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from surehook.delivery.address import AddressGuard
from surehook.delivery.secrets import Sealer
from surehook.delivery.signature import (
    SecretRefused,
    SharedSecret,
    SigningKey,
    new_shared_secret,
    new_signing_key,
    parse_secret,
)
from surehook.delivery.url import UrlRefused, parse_callback_url
from surehook.errors import FieldRefused, NotFound, Stale
from surehook.model import fields, rules
from surehook.model.ceilings import Ceilings
from surehook.model.moments import Moment
from surehook.model.records import HEADERS_CONTEXT, SIGNING_CONTEXT
from surehook.model.resources.subscription import RotatedSecret, Subscription
from surehook.store.subscriptions import SETTINGS, SubscriptionStore, TooMany

DEFAULTS = {
    name: one.default
    for name, one in fields.settings(Subscription).items()
    if name in SETTINGS and one.default is not msgspec.NODEFAULT
}
OVERLAP_SECONDS = 24 * 3600.0
OVERLAP_MAX_SECONDS = 30 * 24 * 3600.0
CUSTOM_HEADERS_MAX = 20
CUSTOM_HEADER_LENGTH_MAX = 4096
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_HEADERS_TAKEN = re.compile(
    r"webhook-.*|content-.*|host|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect"
    r"|user-agent|accept-encoding|proxy-.*|cookie",
    re.IGNORECASE,
)


class Created(msgspec.Struct, frozen=True):
    """A new subscription and its secrets, shown this once."""

    subscription: Subscription
    created: bool
    secret: str | None = None
    public_key: str | None = None


class Subscriptions:
    """Create, read, change, rotate."""

    def __init__(
        self,
        store: SubscriptionStore,
        sealer: Sealer,
        guard: AddressGuard,
        ceilings: Ceilings,
        overlap_seconds: float = OVERLAP_SECONDS,
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._guard = guard
        self._ceilings = ceilings
        self._overlap_seconds = overlap_seconds

    async def create(
        self,
        settings: Mapping[str, object],
        *,
        tenant: str = "",
        custom_headers: Mapping[str, str] | None = None,
        schemes: tuple[str, ...] = ("v1",),
        secret: str | None = None,
        idempotency_key: str | None = None,
        by_tenant: bool = False,
    ) -> Created:
        """A new subscription, not verified yet. The same idempotency key: the first one.

        `by_tenant`: asked for with the tenant's own key, so that the tenant's number is bounded.
        """
        settings = self._checked({**DEFAULTS, **settings})
        rules.check_tenant(tenant)
        headers = self._sealed_headers(custom_headers)
        shared = _shared(secret)
        signing = new_signing_key() if "v1a" in schemes else None
        # Verification is proved with a shared secret, so there always is one.
        secrets = {"v1": self._sealer.seal(shared.reveal(), SIGNING_CONTEXT)}
        if signing is not None:
            secrets["v1a"] = self._sealer.seal(signing.reveal(), SIGNING_CONTEXT)
        most = self._ceilings.subscriptions if by_tenant else None
        try:
            subscription_id, created = await self._store.create(
                tenant, settings, headers, secrets, idempotency_key, most
            )
        except TooMany:
            raise FieldRefused(
                "tenant",
                f"The tenant has {most} subscriptions, which is the most that it may create.",
                "Change one that is not used, or ask the operator (limits.subscriptions).",
            ) from None
        subscription = await self.read(subscription_id)
        if not created:
            return Created(subscription, False)
        public_key = signing.public_key() if signing else None
        return Created(subscription, True, shared.reveal(), public_key)

    async def read(self, subscription_id: int, tenant: str | None = None) -> Subscription:
        found = await self._store.read_subscription(subscription_id, tenant)
        if found is None:
            raise NotFound(f"There is no subscription {subscription_id}.")
        return found

    async def update(
        self,
        subscription_id: int,
        changes: Mapping[str, object],
        *,
        tenant: str | None = None,
        custom_headers: Mapping[str, str] | msgspec.UnsetType | None = msgspec.UNSET,
        versions: Sequence[int] | None = None,
    ) -> Subscription:
        """Change what is named in `changes` (fields of Settings), whatever others change at the
        same time. Stale, if `versions` are given and it has none of them."""
        sealed = (
            msgspec.UNSET
            if custom_headers is msgspec.UNSET
            else self._sealed_headers(custom_headers)
        )
        changed = await self._store.update(
            subscription_id, self._checked(changes), sealed, tenant=tenant, versions=versions
        )
        current = await self.read(subscription_id, tenant)
        if not changed:
            raise Stale(
                f"Subscription {subscription_id} has been changed: it has version "
                f"{current.version} now.",
                "Read it again and repeat the change.",
            )
        return current

    async def rotate(
        self,
        subscription_id: int,
        *,
        tenant: str | None = None,
        scheme: str = "v1",
        secret: str | None = None,
        overlap_seconds: float | None = None,
    ) -> RotatedSecret:
        """A new secret; until the overlap ends, deliveries carry both signatures."""
        if overlap_seconds is None:
            overlap_seconds = self._overlap_seconds
        if not 0 <= overlap_seconds <= OVERLAP_MAX_SECONDS:
            raise FieldRefused("overlap_seconds", "overlap_seconds must be from 0 to 30 days.")
        await self.read(subscription_id, tenant)
        signer: SharedSecret | SigningKey = new_signing_key()
        if scheme == "v1":
            signer = _shared(secret)
        elif secret is not None:
            raise FieldRefused("secret", "A key pair for v1a is made by the server.")
        sealed = self._sealer.seal(signer.reveal(), SIGNING_CONTEXT)
        expires_at = await self._store.rotate(subscription_id, scheme, sealed, overlap_seconds)
        return RotatedSecret(
            secret=msgspec.UNSET if isinstance(signer, SigningKey) else signer.reveal(),
            old_secrets_expire_at=expires_at and Moment.of(expires_at),
            public_key=signer.public_key() if isinstance(signer, SigningKey) else msgspec.UNSET,
        )

    # ── Checks ────────────────────────────────────────────────────────────────────────────────

    def _checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The given settings, canonical. What is not given is not judged: a change of one setting
        must not fail because another one would not be accepted any more."""
        checked = dict(given)
        if "event_type" in given:
            rules.check_event_type(given["event_type"])
        if "callback_url" in given:
            checked["callback_url"] = self._checked_url(given["callback_url"])
        _check_limits(given)
        self._check_ceilings(given)
        return checked

    def _check_ceilings(self, given: Mapping[str, object]) -> None:
        """A stored value from before a ceiling was lowered is cut where it is used."""
        for field, setting in fields.settings(Subscription).items():
            largest = self._ceilings.largest(setting.ceiling) if setting.ceiling else None
            value = given.get(field)
            if largest is not None and isinstance(value, (int, float)) and value > largest:
                raise FieldRefused(
                    field,
                    f"{field} must be at most {largest:g}.",
                    f"The operator sets this ceiling ({setting.ceiling}).",
                )

    def _checked_url(self, text: str) -> str:
        """The canonical URL. What can never be delivered to is refused at once; what a name leads
        to is judged when it is dialled."""
        try:
            url = parse_callback_url(text)
        except UrlRefused as refusal:
            raise FieldRefused("callback_url", refusal.message) from None
        what = "host" if url.address is None else "address"
        if url.address is None:
            reason = self._guard.refusal_of_name(url.host)
        else:
            reason = self._guard.refusal(url.address)
        if reason:
            raise FieldRefused(
                "callback_url",
                f"The URL's {what} is {reason}.",
                "Use a public address, or let its network through with SUREHOOK_ALLOW_NETWORKS.",
            )
        return str(url)

    def _sealed_headers(self, headers: Mapping[str, str] | None) -> str | None:
        if not headers:
            return None
        if len(headers) > CUSTOM_HEADERS_MAX:
            raise FieldRefused("custom_headers", f"At most {CUSTOM_HEADERS_MAX} custom headers.")
        for name, value in headers.items():
            _check_header(name, value)
        text = msgspec.json.encode(sorted(headers.items())).decode()
        return self._sealer.seal(text, HEADERS_CONTEXT)


def _shared(secret: str | None) -> SharedSecret:
    if secret is None:
        return new_shared_secret()
    try:
        signer = parse_secret(secret)
    except SecretRefused as refusal:
        raise FieldRefused("secret", refusal.message) from None
    if not isinstance(signer, SharedSecret):
        raise FieldRefused("secret", "secret must start with whsec_.")
    return signer


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise FieldRefused("custom_headers", "A custom header's name is not valid.")
    if _HEADERS_TAKEN.fullmatch(name):
        raise FieldRefused("custom_headers", f"The header {name} is set by surehook itself.")
    if len(value) > CUSTOM_HEADER_LENGTH_MAX or not (value.isascii() and value.isprintable()):
        raise FieldRefused(
            "custom_headers", f"The value of {name} must be printable ASCII, at most 4096 long."
        )


def _check_limits(given: Mapping[str, Any]) -> None:
    """The limits of the declaration, for callers other than the API."""
    for one in fields.fields(Subscription):
        if one.name in given:
            try:
                msgspec.convert(given[one.name], one.type)
            except msgspec.ValidationError as wrong:
                raise FieldRefused(one.name, f"{one.name}: {wrong}.") from None
