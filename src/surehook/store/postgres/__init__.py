"""PostgreSQL: driver, statements, migrations, rights."""

from __future__ import annotations

from surehook.store.engine import Engine
from surehook.store.postgres import doctor, migrate
from surehook.store.postgres.database import PostgresDatabase, connect, losing

ENGINE = Engine(
    name="PostgreSQL",
    database=PostgresDatabase,
    connect=connect,
    losing=losing,
    migrate=migrate.migrate,
    read_state=migrate.read_state,
    set_installation=migrate.set_installation,
    as_sql=migrate.as_sql,
    durability=doctor.durability,
    examine=doctor.examine,
)
