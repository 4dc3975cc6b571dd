"""API keys at the door: who is asking, and what may they do.

Component  key_checks       Role  key_checker
Reads   api_keys            Writes  last_used_at, once a minute

Cached for 2 s, so that a revoked key is out after two: after 1 s a key is looked up again in the
background, after 2 s requests wait for that. While the database is away no new key is let in.

Keys that are not cached are looked up together, one question at a time, so that a flood of wrong
keys costs the database no more than a few. Whoever has a valid key is therefore never turned away
for the wrong ones of others at the same address, a reverse proxy's for instance: only the wrong
ones are answered with 429. They cannot be guessed, 256 bits are random.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections import OrderedDict
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

import msgspec

from surehook.actions.keys import Scope
from surehook.api.problems import FORBIDDEN, NO_KEY, TOO_MANY, Problem, unavailable
from surehook.delivery.address import without_addresses
from surehook.errors import DatabaseUnreachable
from surehook.pipeline.service import heard
from surehook.store.key_checks import KeyCheckStore

FRESH_SECONDS = 1.0
LIFE_SECONDS = 2.0
TOUCH_SECONDS = 60.0
KEYS_KEPT = 10_000
LOOKUP_KEYS = 1000  # in one question
ADDRESSES_KEPT = 10_000
ALL_SCOPES = frozenset(Scope)
_CHALLENGE = ((b"www-authenticate", b'Bearer realm="surehook"'),)


class Key(msgspec.Struct, frozen=True):
    """Who is asking. tenant None = every tenant."""

    id: int
    name: str
    scopes: frozenset[str]
    tenant: str | None

    def need(self, scope: str) -> None:
        if scope not in self.scopes:
            raise Problem(FORBIDDEN, f"This needs a key with the scope {scope}.")

    def shown(self, reason: str | None) -> str | None:
        """Our own words about a failure: how the network inside looks is for operators only."""
        if reason is None or (self.tenant is None and Scope.OPERATOR in self.scopes):
            return reason
        return without_addresses(reason)

    def tenant_for(self, asked: str | None) -> str:
        """The tenant that a new thing gets."""
        if self.tenant is None:
            return asked or ""
        if asked not in (None, self.tenant):
            raise Problem(FORBIDDEN, "The key is bound to another tenant.", "tenant")
        return self.tenant


_Row = tuple[int, str, str, str | None, bytes]


class _Kept(msgspec.Struct):
    key: Key | None
    asked_at: float  # before the question: what was true then
    touched_at: float = 0.0


class KeyChecks:
    """Finds the key of each request."""

    def __init__(
        self,
        store: KeyCheckStore,
        admin_key: str | None,
        failures_per_minute: int,
        lookup_seconds: float,
    ) -> None:
        self._store = store
        self._lookup_seconds = lookup_seconds
        self._admin_hash = hashlib.sha256(admin_key.encode()).digest() if admin_key else b""
        self._admin = Key(0, "the configuration's", ALL_SCOPES, None)
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._asking: dict[bytes, asyncio.Future[Key | None]] = {}
        self._unasked: list[bytes] = []
        self._lookup: asyncio.Task[None] | None = None
        self._touching: set[asyncio.Task[None]] = set()
        self._failures = Failures(failures_per_minute)

    async def check(self, authorization: bytes | None, client: str) -> Key:
        """The key, or the problem: none given, unknown, revoked, too many tries."""
        if authorization is None or authorization[:7].lower() != b"bearer ":
            raise Problem(
                NO_KEY, "Send the header `Authorization: Bearer <key>`.", None, _CHALLENGE
            )
        key_hash = hashlib.sha256(authorization[7:].strip()).digest()
        if hmac.compare_digest(key_hash, self._admin_hash):
            return self._admin
        now = time.monotonic()
        kept = self._kept.get(key_hash)
        if kept is None or now - kept.asked_at >= LIFE_SECONDS:
            key = await self._wait_for(self._ask(key_hash))
        else:
            key = kept.key
            if now - kept.asked_at >= FRESH_SECONDS:
                self._ask(key_hash)
        if key is None:
            if self._failures.too_many(client, now):
                headers = ((b"retry-after", b"10"),)
                raise Problem(TOO_MANY, "Wait a little, then use a valid key.", None, headers)
            self._failures.count(client, now)
            raise Problem(NO_KEY, "The key is unknown or revoked.", None, _CHALLENGE)
        self._touch(key_hash, key, now)
        return key

    def _ask(self, key_hash: bytes) -> asyncio.Future[Key | None]:
        """Look a key up; many who ask for the same one share the answer."""
        answer = self._asking.get(key_hash)
        if answer is None:
            loop = asyncio.get_running_loop()
            answer = self._asking[key_hash] = loop.create_future()
            self._unasked.append(key_hash)
            if self._lookup is None or self._lookup.done():
                self._lookup = loop.create_task(self._look_up())
        return answer

    async def _look_up(self) -> None:
        """Ask for all keys that wait, until none does."""
        while self._unasked:
            hashes, self._unasked = self._unasked[:LOOKUP_KEYS], self._unasked[LOOKUP_KEYS:]
            now = time.monotonic()
            question = asyncio.ensure_future(self._store.find(hashes))
            question.add_done_callback(heard)
            try:
                # Not wait_for(): giving up must not wait for the driver to cancel the question.
                await asyncio.wait([question], timeout=self._lookup_seconds)
            finally:
                question.cancel()
            error: BaseException | None = DatabaseUnreachable("The database does not answer.")
            rows: dict[bytes, _Row] = {}
            if question.done() and not question.cancelled():
                error = question.exception()
                rows = {} if error else {row[4]: row for row in question.result()}
            for key_hash in hashes:
                answer = self._asking.pop(key_hash)
                if error is None:
                    answer.set_result(self._keep(key_hash, rows.get(key_hash), now))
                else:
                    answer.set_exception(error)
                    answer.exception()  # a refresh in the background need not hear of it

    def _keep(self, key_hash: bytes, row: _Row | None, now: float) -> Key | None:
        if row is None:
            self._kept.pop(key_hash, None)
            return None
        scopes = frozenset(row[2].split(","))
        key = Key(row[0], row[1], ALL_SCOPES if Scope.ADMIN in scopes else scopes, row[3])
        before = self._kept.get(key_hash)
        self._kept[key_hash] = _Kept(key, now, before.touched_at if before else 0.0)
        self._kept.move_to_end(key_hash)
        if len(self._kept) > KEYS_KEPT:
            self._kept.popitem(last=False)
        return key

    async def _wait_for(self, answer: asyncio.Future[Key | None]) -> Key | None:
        await asyncio.wait([answer], timeout=self._lookup_seconds)
        if not answer.done():
            raise unavailable("The key cannot be checked: the database does not answer.")
        try:
            return answer.result()
        except DatabaseUnreachable:
            raise unavailable("The key cannot be checked: the database does not answer.") from None

    def _touch(self, key_hash: bytes, key: Key, now: float) -> None:
        kept = self._kept.get(key_hash)
        if kept is None or now - kept.touched_at < TOUCH_SECONDS:
            return
        kept.touched_at = now
        task = asyncio.get_running_loop().create_task(self._write_touch(key.id))
        self._touching.add(task)
        task.add_done_callback(self._touching.discard)

    async def _write_touch(self, key_id: int) -> None:
        # Only a time for people to see: the next minute writes it.
        with suppress(DatabaseUnreachable):
            await self._store.touch(key_id, TOUCH_SECONDS)

    async def close(self) -> None:
        tasks = [*([self._lookup] if self._lookup else []), *self._touching]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Failures:
    """Wrong keys per client address: a bucket that refills, for a bounded number of addresses."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._counts: OrderedDict[str, tuple[float, float]] = OrderedDict()  # failures, since

    def too_many(self, client: str, now: float) -> bool:
        return self._left(_network(client), now) + 1 > self._per_minute

    def count(self, client: str, now: float) -> None:
        network = _network(client)
        self._counts[network] = (self._left(network, now) + 1, now)
        self._counts.move_to_end(network)
        if len(self._counts) > ADDRESSES_KEPT:
            self._counts.popitem(last=False)

    def _left(self, network: str, now: float) -> float:
        failures, since = self._counts.get(network, (0.0, now))
        return max(0.0, failures - (now - since) * self._per_minute / 60)


def _network(client: str) -> str:
    """An IPv6 user has a whole /64 to come from."""
    if ":" not in client:
        return client
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(int(address) >> 64)
