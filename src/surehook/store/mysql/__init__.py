"""MySQL and MariaDB: driver, statements, migrations, rights."""

from __future__ import annotations

from surehook.store.cleaner import CleanerStore
from surehook.store.deadletters import DeadLetterStore
from surehook.store.engine import Engine
from surehook.store.ingest import IngestStore
from surehook.store.keys import KeyStore
from surehook.store.mysql import doctor, failures, migrate
from surehook.store.mysql.cleaner import MysqlCleanerStore
from surehook.store.mysql.connection import connect
from surehook.store.mysql.database import MysqlDatabase
from surehook.store.mysql.deadletters import MysqlDeadLetterStore
from surehook.store.mysql.ingest import MysqlIngestStore
from surehook.store.mysql.keys import MysqlKeyStore
from surehook.store.mysql.orchestrator import MysqlOrchestratorStore
from surehook.store.mysql.registry import MysqlRegistryStore
from surehook.store.mysql.router import MysqlRouterStore
from surehook.store.mysql.subscriptions import MysqlSubscriptionStore
from surehook.store.mysql.verifier import MysqlVerifierStore
from surehook.store.mysql.worker import MysqlWorkerStore
from surehook.store.orchestrator import OrchestratorStore
from surehook.store.registry import RegistryStore
from surehook.store.router import RouterStore
from surehook.store.subscriptions import SubscriptionStore
from surehook.store.verifier import VerifierStore
from surehook.store.worker import WorkerStore

ENGINE = Engine(
    name="MySQL",
    database=MysqlDatabase,
    stores={
        CleanerStore: MysqlCleanerStore,
        DeadLetterStore: MysqlDeadLetterStore,
        IngestStore: MysqlIngestStore,
        KeyStore: MysqlKeyStore,
        OrchestratorStore: MysqlOrchestratorStore,
        RegistryStore: MysqlRegistryStore,
        RouterStore: MysqlRouterStore,
        SubscriptionStore: MysqlSubscriptionStore,
        VerifierStore: MysqlVerifierStore,
        WorkerStore: MysqlWorkerStore,
    },
    connect=connect,
    losing=failures.losing,
    migrate=migrate.migrate,
    read_state=migrate.read_state,
    set_installation=migrate.set_installation,
    as_sql=migrate.as_sql,
    durability=doctor.durability,
    examine=doctor.examine,
)
