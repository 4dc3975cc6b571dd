"""The bench's own statements, on either engine: subscriptions, a past, what is still under way.

Reads   the database as its owner       Writes  subscriptions, their secrets, finished deliveries
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surehook.bench.cases import Case
from surehook.delivery.secrets import Sealer
from surehook.delivery.signature import new_shared_secret
from surehook.errors import Bug
from surehook.model.records import SIGNING_CONTEXT

UNFINISHED = (
    "SELECT EXISTS (SELECT 1 FROM webhook_delivery_sagas "
    "WHERE status IN ('Pending', 'InProgress', 'PendingRetry'))"
)
SUBSCRIPTIONS = "SELECT id, event_type FROM subscriptions ORDER BY id"
LONG_SECONDS = 1800
ROWS_PER_INSERT = 500


class Rows(ABC):
    """On one connection of an engine's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def subscribe(self, case: Case, url: str, sealer: Sealer) -> dict[str, list[int]]:
        """The case's subscriptions, verified, each with its secret; their ids by event type."""
        types = [f"bench.{number % case.event_types}" for number in range(case.subscriptions)]
        await self._subscriptions(types, url, case.cap)
        found: dict[str, list[int]] = {}
        for subscription_id, event_type in await self._fetch(SUBSCRIPTIONS):
            found.setdefault(event_type, []).append(subscription_id)
        ids = [one for several in found.values() for one in several]
        sealed = [sealer.seal(new_shared_secret().reveal(), SIGNING_CONTEXT) for _ in ids]
        await self._secrets(ids, sealed)
        return found

    async def are_unfinished(self) -> bool:
        return bool((await self._fetch(UNFINISHED))[0][0])

    async def count_events(self) -> int:
        return int((await self._fetch("SELECT count(*) FROM events"))[0][0])

    @abstractmethod
    async def _fetch(self, text: str) -> Sequence[Any]: ...

    @abstractmethod
    async def _subscriptions(self, types: Sequence[str], url: str, cap: int | None) -> None: ...

    @abstractmethod
    async def _secrets(self, ids: Sequence[int], sealed: Sequence[str]) -> None: ...

    @abstractmethod
    async def grow_old(self, rows: int) -> None:
        """Finished deliveries of another day, so many that a scan would be felt."""

    @abstractmethod
    async def transactions(self) -> int:
        """How many the server has done so far: of an idle system, about one per query."""

    @abstractmethod
    async def server_pid(self) -> int | None:
        """The server's first process, if it is one of this machine."""


class PostgresRows(Rows):
    async def _fetch(self, text: str) -> Sequence[Any]:
        rows: Sequence[Any] = await self._connection.fetch(text)
        return rows

    async def _subscriptions(self, types: Sequence[str], url: str, cap: int | None) -> None:
        await self._connection.execute(
            "INSERT INTO subscriptions (event_type, callback_url, verified, concurrency_cap) "
            "SELECT type, $2 || '/' || number, true, $3 "
            "FROM unnest($1::text[]) WITH ORDINALITY AS given (type, number)",
            list(types),
            url,
            cap,
        )

    async def _secrets(self, ids: Sequence[int], sealed: Sequence[str]) -> None:
        await self._connection.execute(
            "INSERT INTO subscription_secrets (subscription_id, scheme, sealed) "
            "SELECT id, 'v1', text FROM unnest($1::bigint[], $2::text[]) AS given (id, text)",
            list(ids),
            list(sealed),
        )

    async def grow_old(self, rows: int) -> None:
        first = await self._connection.fetchval("SELECT COALESCE(max(id), 0) + 1 FROM events")
        for statement in (
            "INSERT INTO events (id, event_type, created_at, payload) SELECT $1 + g, 'old', "
            "now() - interval '1 day', '{}' FROM generate_series(0, $2::bigint - 1) AS g",
            "INSERT INTO webhook_delivery_sagas (event_id, subscription_id, status, attempt_count, "
            "created_at, updated_at) SELECT $1 + g, 0, 'Completed', 1, now() - interval '1 day', "
            "now() - interval '1 day' FROM generate_series(0, $2::bigint - 1) AS g",
            "INSERT INTO webhook_delivery_jobs (saga_id, event_id, subscription_id, status, "
            "attempt_at, finished_at) SELECT id, event_id, 0, 'Completed', next_attempt_at, "
            "created_at FROM webhook_delivery_sagas WHERE event_id BETWEEN $1 AND $1 + $2 - 1",
        ):
            await self._connection.execute(statement, first, rows, timeout=LONG_SECONDS)
        await self._connection.execute("SELECT setval('events_id_seq', $1)", first + rows)
        await self._connection.execute("VACUUM ANALYZE", timeout=LONG_SECONDS)

    async def transactions(self) -> int:
        done: int = await self._connection.fetchval(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database "
            "WHERE datname = current_database()"
        )
        return done

    async def server_pid(self) -> int | None:
        host = await self._connection.fetchval("SELECT host(inet_server_addr())")
        if host not in (None, "127.0.0.1", "::1"):
            return None
        parent: int | None = _parent_of(await self._connection.fetchval("SELECT pg_backend_pid()"))
        return parent


class MysqlRows(Rows):
    async def _fetch(self, text: str) -> Sequence[Any]:
        rows: Sequence[Any] = await self._connection.fetch(text)
        return rows

    async def _insert(self, head: str, rows: Sequence[Sequence[object]]) -> None:
        """Several rows by one statement, many statements."""
        for start in range(0, len(rows), ROWS_PER_INSERT):
            part = rows[start : start + ROWS_PER_INSERT]
            names = [[f"v{n}_{m}" for m in range(len(row))] for n, row in enumerate(part)]
            places = ", ".join(f"({', '.join(f'%({name})s' for name in row)})" for row in names)
            values = {
                name: value
                for row, given in zip(names, part, strict=True)
                for name, value in zip(row, given, strict=True)
            }
            await self._connection.write(f"{head} VALUES {places}", **values)

    async def _subscriptions(self, types: Sequence[str], url: str, cap: int | None) -> None:
        head = "INSERT INTO subscriptions (event_type, callback_url, verified, concurrency_cap)"
        rows = [(one, f"{url}/{number}", 1, cap) for number, one in enumerate(types, 1)]
        await self._insert(head, rows)

    async def _secrets(self, ids: Sequence[int], sealed: Sequence[str]) -> None:
        head = "INSERT INTO subscription_secrets (subscription_id, scheme, sealed)"
        rows = [(one, "v1", text) for one, text in zip(ids, sealed, strict=True)]
        await self._insert(head, rows)

    async def grow_old(self, rows: int) -> None:
        raise Bug("the case with old rows runs on PostgreSQL")

    async def transactions(self) -> int:
        return int((await self._fetch("SHOW GLOBAL STATUS LIKE 'Questions'"))[0][1])

    async def server_pid(self) -> int | None:
        return None  # nothing that a client may ask says so


def _parent_of(pid: int) -> int | None:
    """The postmaster of a backend, if both are processes of this machine."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
