"""The client's calls that are a request and its answer. Written by `make generate` from the
asynchronous one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from surehook.client import calls
from surehook.client.calls import call
from surehook.client.results import (
    DeadLetter,
    Delivery,
    DeliveryWithAttempts,
    Event,
    Key,
    Page,
    Requeued,
    RequeuedMany,
    RotatedSecret,
    Subscription,
)

if TYPE_CHECKING:
    from surehook.client.generated.blocking import Client


class Namespace:
    """Calls that belong together."""

    def __init__(self, client: Client) -> None:
        self._client = client


class Events(Namespace):
    def page(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        tenant: str | None = None,
        event_type: str | None = None,
        external_id: str | None = None,
        created_from: datetime | None = None,
        created_until: datetime | None = None,
    ) -> Page[Event]:
        """One page of the list; its `next` is the `cursor` of the page after it."""
        filters = {
            "limit": limit,
            "cursor": cursor,
            "tenant": tenant,
            "event_type": event_type,
            "external_id": external_id,
            "created_from": created_from,
            "created_until": created_until,
        }
        return self._client._run(call("GET", "/v1/events", Page[Event], query=filters))

    def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        tenant: str | None = None,
        event_type: str | None = None,
        external_id: str | None = None,
        created_from: datetime | None = None,
        created_until: datetime | None = None,
    ) -> Iterator[Event]:
        """List events, newest first; `limit` is the size of a page."""
        filters = {
            "limit": limit,
            "cursor": cursor,
            "tenant": tenant,
            "event_type": event_type,
            "external_id": external_id,
            "created_from": created_from,
            "created_until": created_until,
        }
        return self._client._pages("/v1/events", Page[Event], filters)


class Subscriptions(Namespace):
    def create(
        self,
        event_type: str,
        callback_url: str,
        *,
        tenant: str | UnsetType | None = UNSET,
        active: bool | UnsetType = UNSET,
        max_attempts: int | UnsetType | None = UNSET,
        base_delay_seconds: float | UnsetType | None = UNSET,
        request_timeout_seconds: float | UnsetType | None = UNSET,
        concurrency_cap: int | UnsetType | None = UNSET,
        rate_limit_per_second: float | UnsetType | None = UNSET,
        description: str | UnsetType | None = UNSET,
        custom_headers: Mapping[str, str] | UnsetType | None = UNSET,
        signature: str | UnsetType = UNSET,
        secret: str | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> Subscription:
        """Create a subscription; the result's `secret` is shown this once.

        A shared secret is made here unless you give one: then it is known even if the first answer
        is lost and the call repeated. With `signature` v1a the server makes the key pair.
        """
        fields = {
            "tenant": tenant,
            "event_type": event_type,
            "callback_url": callback_url,
            "active": active,
            "max_attempts": max_attempts,
            "base_delay_seconds": base_delay_seconds,
            "request_timeout_seconds": request_timeout_seconds,
            "concurrency_cap": concurrency_cap,
            "rate_limit_per_second": rate_limit_per_second,
            "description": description,
            "custom_headers": custom_headers,
            "signature": signature,
            "secret": secret,
        }
        return self._client._run(calls.create_subscription(fields, idempotency_key))

    def get(self, subscription_id: int) -> Subscription:
        """One subscription with its newest verification."""
        path = f"/v1/subscriptions/{int(subscription_id)}"
        return self._client._run(call("GET", path, Subscription))

    def update(
        self,
        subscription_id: int,
        *,
        event_type: str | UnsetType = UNSET,
        callback_url: str | UnsetType = UNSET,
        active: bool | UnsetType = UNSET,
        max_attempts: int | UnsetType | None = UNSET,
        base_delay_seconds: float | UnsetType | None = UNSET,
        request_timeout_seconds: float | UnsetType | None = UNSET,
        concurrency_cap: int | UnsetType | None = UNSET,
        rate_limit_per_second: float | UnsetType | None = UNSET,
        description: str | UnsetType | None = UNSET,
        custom_headers: Mapping[str, str] | UnsetType | None = UNSET,
        if_version: int | None = None,
    ) -> Subscription:
        """Change what is named; a new URL of a verified one is staged until it proves itself.

        `if_version`: the `version` that the change is made from. If it has been changed since,
        nothing changes and Stale is raised.
        """
        fields = {
            "event_type": event_type,
            "callback_url": callback_url,
            "active": active,
            "max_attempts": max_attempts,
            "base_delay_seconds": base_delay_seconds,
            "request_timeout_seconds": request_timeout_seconds,
            "concurrency_cap": concurrency_cap,
            "rate_limit_per_second": rate_limit_per_second,
            "description": description,
            "custom_headers": custom_headers,
        }
        path = f"/v1/subscriptions/{int(subscription_id)}"
        return self._client._run(
            call(
                "PATCH",
                path,
                Subscription,
                fields,
                headers=calls.if_match(if_version),
                repeatable=if_version is None,
            )
        )

    def rotate_secret(
        self,
        subscription_id: int,
        *,
        signature: str | UnsetType = UNSET,
        overlap_seconds: float | UnsetType | None = UNSET,
        secret: str | UnsetType | None = UNSET,
    ) -> RotatedSecret:
        """Make a new secret; the old one signs as well until the overlap ends."""
        fields = {"signature": signature, "overlap_seconds": overlap_seconds, "secret": secret}
        path = f"/v1/subscriptions/{int(subscription_id)}/rotate-secret"
        return self._client._run(call("POST", path, RotatedSecret, fields, repeatable=False))

    def page(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        tenant: str | None = None,
        event_type: str | None = None,
        active: bool | None = None,
        verified: bool | None = None,
    ) -> Page[Subscription]:
        """One page of the list; its `next` is the `cursor` of the page after it."""
        filters = {
            "limit": limit,
            "cursor": cursor,
            "tenant": tenant,
            "event_type": event_type,
            "active": active,
            "verified": verified,
        }
        return self._client._run(
            call("GET", "/v1/subscriptions", Page[Subscription], query=filters)
        )

    def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        tenant: str | None = None,
        event_type: str | None = None,
        active: bool | None = None,
        verified: bool | None = None,
    ) -> Iterator[Subscription]:
        """List subscriptions, newest first; `limit` is the size of a page."""
        filters = {
            "limit": limit,
            "cursor": cursor,
            "tenant": tenant,
            "event_type": event_type,
            "active": active,
            "verified": verified,
        }
        return self._client._pages("/v1/subscriptions", Page[Subscription], filters)


class Deliveries(Namespace):
    def get(self, delivery_id: int) -> DeliveryWithAttempts:
        """One delivery with its attempts."""
        path = f"/v1/deliveries/{int(delivery_id)}"
        return self._client._run(call("GET", path, DeliveryWithAttempts))

    def page(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        tenant: str | None = None,
        event_id: int | None = None,
        subscription_id: int | None = None,
        status: str | None = None,
        event_type: str | None = None,
        created_from: datetime | None = None,
        created_until: datetime | None = None,
    ) -> Page[Delivery]:
        """One page of the list; its `next` is the `cursor` of the page after it."""
        filters = {
            "limit": limit,
            "cursor": cursor,
            "tenant": tenant,
            "event_id": event_id,
            "subscription_id": subscription_id,
            "status": status,
            "event_type": event_type,
            "created_from": created_from,
            "created_until": created_until,
        }
        return self._client._run(call("GET", "/v1/deliveries", Page[Delivery], query=filters))

    def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        tenant: str | None = None,
        event_id: int | None = None,
        subscription_id: int | None = None,
        status: str | None = None,
        event_type: str | None = None,
        created_from: datetime | None = None,
        created_until: datetime | None = None,
    ) -> Iterator[Delivery]:
        """List deliveries, newest first; `limit` is the size of a page."""
        filters = {
            "limit": limit,
            "cursor": cursor,
            "tenant": tenant,
            "event_id": event_id,
            "subscription_id": subscription_id,
            "status": status,
            "event_type": event_type,
            "created_from": created_from,
            "created_until": created_until,
        }
        return self._client._pages("/v1/deliveries", Page[Delivery], filters)


class DeadLetters(Namespace):
    def get(self, dead_letter_id: int) -> DeadLetter:
        """One dead letter with its payload."""
        path = f"/v1/dead-letters/{int(dead_letter_id)}"
        return self._client._run(call("GET", path, DeadLetter))

    def requeue(self, dead_letter_id: int) -> Requeued:
        """Deliver a dead letter anew; 200 = that was done before."""
        path = f"/v1/dead-letters/{int(dead_letter_id)}/requeue"
        return self._client._run(call("POST", path, Requeued))

    def requeue_many(
        self,
        *,
        tenant: str | UnsetType | None = UNSET,
        subscription_id: int | UnsetType | None = UNSET,
        event_type: str | UnsetType | None = UNSET,
        error_code: str | UnsetType | None = UNSET,
        failed_from: datetime | UnsetType | None = UNSET,
        failed_until: datetime | UnsetType | None = UNSET,
        all: bool | UnsetType = UNSET,
        limit: int | UnsetType = UNSET,
        dry_run: bool | UnsetType = UNSET,
    ) -> RequeuedMany:
        """Deliver many dead letters anew, oldest first: by filter, or all."""
        fields = {
            "tenant": tenant,
            "subscription_id": subscription_id,
            "event_type": event_type,
            "error_code": error_code,
            "failed_from": failed_from,
            "failed_until": failed_until,
            "all": all,
            "limit": limit,
            "dry_run": dry_run,
        }
        path = "/v1/dead-letters/requeue"
        return self._client._run(
            call("POST", path, RequeuedMany, fields, repeatable=dry_run is True)
        )

    def page(
        self,
        *,
        tenant: str | None = None,
        subscription_id: int | None = None,
        event_type: str | None = None,
        error_code: str | None = None,
        failed_from: datetime | None = None,
        failed_until: datetime | None = None,
        requeued: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[DeadLetter]:
        """One page of the list; its `next` is the `cursor` of the page after it."""
        filters = {
            "tenant": tenant,
            "subscription_id": subscription_id,
            "event_type": event_type,
            "error_code": error_code,
            "failed_from": failed_from,
            "failed_until": failed_until,
            "requeued": requeued,
            "limit": limit,
            "cursor": cursor,
        }
        return self._client._run(call("GET", "/v1/dead-letters", Page[DeadLetter], query=filters))

    def list(
        self,
        *,
        tenant: str | None = None,
        subscription_id: int | None = None,
        event_type: str | None = None,
        error_code: str | None = None,
        failed_from: datetime | None = None,
        failed_until: datetime | None = None,
        requeued: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Iterator[DeadLetter]:
        """List dead letters, newest first; `limit` is the size of a page."""
        filters = {
            "tenant": tenant,
            "subscription_id": subscription_id,
            "event_type": event_type,
            "error_code": error_code,
            "failed_from": failed_from,
            "failed_until": failed_until,
            "requeued": requeued,
            "limit": limit,
            "cursor": cursor,
        }
        return self._client._pages("/v1/dead-letters", Page[DeadLetter], filters)


class Keys(Namespace):
    def create(
        self, name: str, scopes: Sequence[str], *, tenant: str | UnsetType | None = UNSET
    ) -> Key:
        """Create a key; it is shown this once."""
        fields = {"name": name, "scopes": scopes, "tenant": tenant}
        path = "/v1/keys"
        return self._client._run(call("POST", path, Key, fields, repeatable=False))

    def revoke(self, key_id: int) -> Key:
        """Revoke a key; takes effect within 2 seconds."""
        path = f"/v1/keys/{int(key_id)}"
        return self._client._run(call("DELETE", path, Key))

    def page(
        self, *, limit: int | None = None, cursor: str | None = None, tenant: str | None = None
    ) -> Page[Key]:
        """One page of the list; its `next` is the `cursor` of the page after it."""
        filters = {"limit": limit, "cursor": cursor, "tenant": tenant}
        return self._client._run(call("GET", "/v1/keys", Page[Key], query=filters))

    def list(
        self, *, limit: int | None = None, cursor: str | None = None, tenant: str | None = None
    ) -> Iterator[Key]:
        """List keys, newest first; `limit` is the size of a page."""
        filters = {"limit": limit, "cursor": cursor, "tenant": tenant}
        return self._client._pages("/v1/keys", Page[Key], filters)
