"""What a PostgreSQL database has compared with what the migrations make, and putting it right.

Reads   the catalogue, the migration and generated files of the package
Writes  nothing that stays, to compare: the migrations run once more, in a schema of their own and
        in a transaction that is undone. To repair: what differs, part by part.

The migrations are the only source of what is expected, and the server itself spells both sides, so
any version of it may. Tables and columns that are gone take their data along: those are for a
backup to bring back, and `repair` says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from surehook.errors import Declined
from surehook.store.shape import Fault, Name, faults, listed

Connection = Any  # asyncpg ships no types
Make = Callable[[], Awaitable[None]]

# With the schema itself first on the search path, so that names in it need no qualification.
_PARTS = """
WITH ours AS (
    SELECT c.oid, c.relname, c.relkind, c.relpersistence, c.relispartition
    FROM pg_class c WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
    AND c.relkind IN ('r', 'p')
)
SELECT 'type', '', typname, string_agg(enumlabel, ',' ORDER BY enumsortorder)
FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid
WHERE typnamespace = quote_ident(current_schema())::regnamespace GROUP BY typname
UNION ALL
SELECT 'function', '', p.oid::regprocedure::text, pg_get_functiondef(p.oid)
FROM pg_proc p WHERE pronamespace = quote_ident(current_schema())::regnamespace AND prokind = 'f'
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
UNION ALL
SELECT 'table', relname, relname, concat(relkind, relpersistence) FROM ours
UNION ALL
SELECT 'column', relname, attname, concat_ws(' ', format_type(atttypid, atttypmod),
    CASE WHEN attidentity <> '' THEN concat('GENERATED ', attidentity) END,
    CASE WHEN attnotnull THEN 'NOT NULL' END,
    -- A default is of no table's columns; naming the table would wait for a lock on it.
    CASE WHEN attgenerated = '' THEN 'DEFAULT ' || pg_get_expr(adbin, 0) ELSE 'STORED' END)
FROM ours JOIN pg_attribute a ON attrelid = ours.oid AND attnum > 0 AND NOT attisdropped
LEFT JOIN pg_attrdef d ON adrelid = attrelid AND adnum = attnum WHERE NOT relispartition
UNION ALL
SELECT 'constraint', relname, conname, pg_get_constraintdef(c.oid)
FROM ours JOIN pg_constraint c ON conrelid = ours.oid AND contype IN ('p', 'u', 'c', 'f', 'x')
WHERE NOT relispartition
UNION ALL
SELECT 'index', relname, i.indexrelid::regclass::text,
    concat(pg_get_indexdef(indexrelid), CASE WHEN NOT indisvalid THEN ' INVALID' END)
FROM ours JOIN pg_index i ON indrelid = ours.oid
WHERE NOT relispartition AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
UNION ALL
SELECT 'trigger', relname, tgname,
    concat(pg_get_triggerdef(t.oid), CASE WHEN tgenabled <> 'O' THEN concat(' ', tgenabled) END)
FROM ours JOIN pg_trigger t ON tgrelid = ours.oid AND NOT tgisinternal AND tgparentid = 0
"""
_SCHEMA = "SELECT quote_ident(current_schema()) || '.', quote_literal(current_schema())"
_ANY_SCHEMA = "':schema'"  # stands for its name, in the search path that a function brings along
_ORDER = ("type", "function", "table", "column", "constraint", "index", "trigger")
_LOST = {"table", "column", "type"}  # with what was in them


async def parts(connection: Connection) -> dict[Name, str]:
    """The parts of the schema that comes first on the search path."""
    prefix, literal = await connection.fetchrow(_SCHEMA)
    rows = await connection.fetch(_PARTS)
    rows.sort(key=lambda row: (_ORDER.index(row[0]), row[1], row[2]))
    return {
        Name(*row[:3]): row[3].replace(prefix, "").replace(literal, _ANY_SCHEMA) for row in rows
    }


async def compare(connection: Connection, make: Make, lock_seconds: float) -> list[Fault] | None:
    """What is wrong with the schema; `make` runs the migrations. None: we may not find out.

    Spelling an index or a trigger takes the lock that a SELECT on its table takes.
    """
    undone = connection.transaction()
    await undone.start()
    try:
        await connection.execute(f"SET LOCAL lock_timeout = '{lock_seconds}s'")
        found = await parts(connection)
        name = f"surehook_expected_{connection.get_server_pid()}"
        try:
            await connection.execute(f"CREATE SCHEMA {name}")
        except asyncpg.InsufficientPrivilegeError:
            return None
        await connection.execute(f"SET LOCAL search_path = {name}, pg_temp")
        await make()
        wrong = faults(await parts(connection), found)
        return await _without_respelled(connection, wrong)
    finally:
        await undone.rollback()


async def _without_respelled(connection: Connection, wrong: list[Fault]) -> list[Fault]:
    """A condition that was made from the server's own spelling of it, as by a restored dump or by
    `repair`, is spelled with fewer parentheses from then on: that does not count as a change."""
    doubtful = [one for one in wrong if one.found is not None and _has_condition(one)]
    if not doubtful:
        return wrong
    for fault in doubtful:
        for statement in await _statements(connection, fault, in_peace=True):
            await connection.execute(statement)
    again = await parts(connection)
    return [one for one in wrong if one.found is None or one.found != again.get(one.part)]


def _has_condition(fault: Fault) -> bool:
    if fault.part.kind == "constraint":
        return fault.expected.startswith("CHECK ")
    return fault.part.kind in ("index", "trigger")


# ── Putting it right ──────────────────────────────────────────────────────────────────────────


def refuse_if_lost(wrong: list[Fault]) -> None:
    """What cannot be put right without data that is gone."""
    lost = [fault for fault in wrong if fault.part.kind in _LOST]
    if lost:
        raise Declined(
            f"The schema is damaged: {listed(lost)}.",
            "Restore a backup, or put it back by hand: `surehook migrate` repairs indexes, "
            "constraints, functions, triggers and grants, not tables or columns.",
        )


async def repair(connection: Connection, fault: Fault, lock_seconds: float) -> None:
    """Make one part what it should be. An index is built without holding up who writes."""
    try:
        statements = await _statements(connection, fault)
        if any(" CONCURRENTLY " in statement for statement in statements):
            for statement in statements:
                await connection.execute(statement)
            return
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{lock_seconds}s'")
            for statement in statements:
                await connection.execute(statement)
    except (asyncpg.IntegrityConstraintViolationError, asyncpg.ObjectInUseError) as error:
        raise Declined(
            f"The {fault.part} cannot be put back: {error}.",
            "Correct the rows that it forbids, then run `surehook migrate` again.",
        ) from None


async def _statements(connection: Connection, fault: Fault, in_peace: bool = False) -> list[str]:
    """`in_peace`: no other session uses the table."""
    part, made = fault.part, fault.expected
    if part.kind == "function":
        _, literal = await connection.fetchrow(_SCHEMA)
        return [made.replace(_ANY_SCHEMA, literal)]  # CREATE OR REPLACE
    table = await connection.fetchval("SELECT quote_ident($1)", part.table)
    name = part.name
    if part.kind == "index":
        split = await connection.fetchval(
            "SELECT relkind = 'p' FROM pg_class WHERE oid = $1::text::regclass", table
        )
        how = "" if split or in_peace else " CONCURRENTLY"
        return [f"DROP INDEX{how} IF EXISTS {name}", made.replace(" INDEX ", f" INDEX{how} ", 1)]
    if part.kind == "constraint":
        return [
            f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}, ADD CONSTRAINT {name} {made}"
        ]
    return [f"DROP TRIGGER IF EXISTS {name} ON {table}", made]
