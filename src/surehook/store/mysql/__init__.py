"""MySQL and MariaDB: driver, statements, migrations, rights."""

from __future__ import annotations

from surehook.store.engine import Engine
from surehook.store.mysql import doctor, failures, migrate
from surehook.store.mysql.connection import connect
from surehook.store.mysql.database import MysqlDatabase

ENGINE = Engine(
    name="MySQL",
    database=MysqlDatabase,
    connect=connect,
    losing=failures.losing,
    migrate=migrate.migrate,
    read_state=migrate.read_state,
    set_installation=migrate.set_installation,
    as_sql=migrate.as_sql,
    durability=doctor.durability,
    examine=doctor.examine,
)
