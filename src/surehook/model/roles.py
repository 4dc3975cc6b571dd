"""Who may read and write what: login → database role → columns. Pure.

The one source of the generated GRANTs, of docs/roles.md, of the check that every statement stays
inside its role, and of the test that logs in as each role and tries everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from surehook.model import fields
from surehook.model.resources.subscription import Subscription

ENGINES = ("postgres", "mysql")  # MariaDB counts as mysql


def _words(*texts: str) -> tuple[str, ...]:
    """The columns that the texts name, blanks between."""
    return tuple(word for text in texts for word in text.split())


# Every table and its columns in order, as they are on every engine.
_EVERYWHERE: dict[str, tuple[str, ...]] = {
    "events": _words("id event_type created_at payload tenant external_id bucket"),
    "subscriptions": _words(
        *fields.column_names(Subscription),
        "custom_headers idempotency_key eligible_until eligible_first",
    ),
    # The intervals that have ended; written by trigger only.
    "subscription_eligibility": _words(
        "id subscription_id tenant pattern eligible_from eligible_until"
    ),
    "subscription_secrets": _words("id subscription_id scheme sealed created_at expires_at"),
    "subscription_verifications": _words(
        "id subscription_id callback_url secret_id challenge code code_tries attempts",
        "last_result last_reason created_at last_attempt_at expires_at verified_at",
    ),
    "webhook_delivery_sagas": _words(
        "id event_id subscription_id status attempt_count next_attempt_at",
        "final_error_code created_at updated_at requeued_from bucket",
    ),
    "webhook_delivery_jobs": _words(
        "id saga_id event_id subscription_id status attempt_at lease_until lease_token",
        "lease_resets worker_id response_status error_code retry_after response_excerpt",
        "created_at started_at finished_at bucket lane failure_detail",
    ),
    "dead_letters": _words(
        "id saga_id event_id subscription_id final_error_code failed_at", "payload_snapshot bucket"
    ),
    "router_cursor": _words("bucket"),  # how to read on is each engine's own affair
    "router_held": _words("bucket subscription_id event_id"),
    "orchestrator_subscriptions": _words("subscription_id rate_tokens rate_refilled_at slow ramp"),
    "dead_letter_cursor": _words("bucket swept_until rewalked_at"),
    "api_keys": _words("id name key_hash scopes tenant created_at last_used_at revoked_at"),
    "processes": _words(
        "process_id component host pid version address since heartbeat_at step_at", "trouble"
    ),
    "system_figures": _words("name begun_at counted_at figures"),
    "schema_migrations": _words("version name checksum oldest_program applied_at"),
    "schema_settings": _words("name value"),
}

# What only one engine has: how its router reads on, and what stands in for partial indexes.
_ONLY_ON: dict[str, dict[str, tuple[str, ...]]] = {
    "postgres": {
        "events": _words("xid"),
        "router_cursor": _words(
            "system_identifier snapshot partial_xid partial_id foreign_id_max",
            "rescan_after_id rescan_until_id updated_at",
        ),
    },
    "mysql": {
        "webhook_delivery_sagas": _words("waiting died_at"),
        "webhook_delivery_jobs": _words("open_for"),
        "router_cursor": _words("read_until_id updated_at"),
        "router_gaps": _words("bucket first_id last_id noticed_at"),
    },
}


def _tables(*engines: str) -> dict[str, tuple[str, ...]]:
    found = dict(_EVERYWHERE)
    for engine in engines:
        for table, columns in _ONLY_ON[engine].items():
            known = found.get(table, ())
            found[table] = known + tuple(column for column in columns if column not in known)
    return found


TABLES_ON = {engine: _tables(engine) for engine in ENGINES}
_ALL_TABLES = _tables(*ENGINES)

SECRET_COLUMNS = {
    "subscriptions": ("custom_headers",),
    "subscription_secrets": ("sealed",),
    "subscription_verifications": ("challenge", "code"),
    "api_keys": ("key_hash",),
}


class Verb(StrEnum):
    SELECT = "SELECT"
    INSERT = "INSERT"
    UPDATE = "UPDATE"


@dataclass(frozen=True, slots=True)
class Grant:
    """One verb on named columns of one table, on all engines that have them."""

    verb: Verb
    table: str
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        unknown = set(self.columns) - set(_ALL_TABLES[self.table])
        if unknown:
            raise ValueError(f"{self.table} has no column {', '.join(sorted(unknown))}")

    def on(self, engine: str) -> Grant:
        """What of it there is on this engine."""
        there = TABLES_ON[engine].get(self.table, ())
        return replace(self, columns=tuple(column for column in self.columns if column in there))


@dataclass(frozen=True, slots=True)
class Role:
    """A database role, the login that it is for, and all that it may do."""

    name: str
    login: str
    purpose: str
    grants: tuple[Grant, ...]
    never: str = "anything else"
    # Its own tables whose rows it may delete, because they are notes and not history.
    may_delete: tuple[str, ...] = ()
    # A role that answers people's questions wants plans for the values at hand, not generic ones.
    custom_plans: bool = field(default=False)

    def columns(self, verb: Verb, table: str) -> frozenset[str]:
        """The columns of `table` on which this role has `verb`."""
        granted: set[str] = set()
        for grant in self.grants:
            if grant.verb is verb and grant.table == table:
                granted.update(grant.columns)
        return frozenset(granted)

    def on(self, engine: str) -> Role:
        """The same role with the grants that there are on this engine."""
        grants = (grant.on(engine) for grant in self.grants)
        return replace(
            self,
            grants=tuple(grant for grant in grants if grant.columns),
            may_delete=tuple(table for table in self.may_delete if table in TABLES_ON[engine]),
        )


def _read(table: str, *columns: str) -> Grant:
    return Grant(Verb.SELECT, table, _words(*columns) or _ALL_TABLES[table])


def _read_all_but(table: str, *hidden: str) -> Grant:
    return Grant(
        Verb.SELECT, table, tuple(c for c in _ALL_TABLES[table] if c not in _words(*hidden))
    )


def _read_public(table: str) -> Grant:
    return _read_all_but(table, *SECRET_COLUMNS.get(table, ()))


def _insert(table: str, *columns: str) -> Grant:
    return Grant(Verb.INSERT, table, _words(*columns))


def _update(table: str, *columns: str) -> Grant:
    return Grant(Verb.UPDATE, table, _words(*columns))


_NEW_EVENT = ("event_type", "payload", "tenant", "external_id", "bucket")
# What the API writes at any time; whose subscription it is and under which key, only at its birth.
_SUBSCRIPTION_CONFIG = (
    *(name for name, one in fields.settings(Subscription).items() if not one.once),
    "custom_headers",
)


def _role(name: str, login: str, purpose: str, *grants: Grant, **more: Any) -> Role:
    """With what every login of ours reads: it must know whether it fits the schema."""
    schema = (_read("schema_migrations"), _read("schema_settings"))
    return Role(name, login, purpose, (*grants, *schema), **more)


_ROLES: tuple[Role, ...] = (
    _role(
        "event_ingest_writer",
        "ingest",
        "stores events",
        _read_all_but("events", "xid"),
        _insert("events", *_NEW_EVENT),
    ),
    Role(
        "outbox_writer",
        "outbox",
        "lets an application insert events in its own transaction",
        (_insert("events", *_NEW_EVENT),),
    ),
    _role(
        "subscription_admin",
        "subscriptions",
        "creates and changes subscriptions",
        _read_all_but("subscriptions", "custom_headers eligible_until eligible_first"),
        _insert("subscriptions", "tenant idempotency_key", *_SUBSCRIPTION_CONFIG),
        _update("subscriptions", "pending_callback_url", *_SUBSCRIPTION_CONFIG),
        # A WHERE clause needs the right to read what it names; the secret itself stays hidden.
        _read("subscription_secrets", "id subscription_id scheme expires_at"),
        _insert("subscription_secrets", "subscription_id scheme sealed"),
        _update("subscription_secrets", "expires_at"),
        never="verified, or any other table",
    ),
    _role(
        "subscription_verifier",
        "verifier",
        "challenges endpoints and marks them verified",
        _read(
            "subscriptions",
            "id tenant event_type callback_url pending_callback_url",
            "request_timeout_seconds custom_headers",
        ),
        _read_all_but("subscription_secrets", "created_at"),
        _read("subscription_verifications"),
        _update("subscriptions", "verified callback_url pending_callback_url"),
        _insert(
            "subscription_verifications",
            "subscription_id callback_url secret_id challenge code expires_at",
        ),
        _update(
            "subscription_verifications",
            "code_tries attempts last_result last_reason last_attempt_at verified_at",
        ),
    ),
    _role(
        "router_worker",
        "router",
        "makes one saga per event and matching subscription",
        _read_all_but("events", "payload external_id"),
        _read(
            "subscriptions",
            "id tenant event_type active verified eligible_from eligible_until",
            "eligible_first",
        ),
        _read_all_but("subscription_eligibility", "id"),
        # RETURNING needs the right to read what it returns, and what is there already is
        # looked for by its whole key.
        _read("webhook_delivery_sagas", "id event_id subscription_id requeued_from bucket"),
        _insert("webhook_delivery_sagas", "event_id subscription_id bucket"),
        _read_all_but("router_cursor", "updated_at"),
        _insert("router_cursor", "bucket system_identifier snapshot"),
        _update("router_cursor", *_ALL_TABLES["router_cursor"][1:]),
        _read("router_gaps"),
        _insert("router_gaps", *_ALL_TABLES["router_gaps"]),
        _read("router_held"),
        _insert("router_held", *_ALL_TABLES["router_held"]),
        never="a saga's status, jobs, payloads",
        may_delete=("router_gaps", "router_held"),
    ),
    _role(
        "saga_orchestrator",
        "orchestrator",
        "creates jobs and applies their results to sagas",
        _read_all_but("webhook_delivery_sagas", "created_at requeued_from died_at"),
        _read(
            "webhook_delivery_jobs",
            "id saga_id event_id subscription_id status attempt_at error_code retry_after",
            "started_at finished_at bucket lane open_for",
        ),
        _read(
            "subscriptions",
            "id tenant max_attempts base_delay_seconds concurrency_cap",
            "rate_limit_per_second",
        ),
        _update(
            "webhook_delivery_sagas",
            "status attempt_count next_attempt_at final_error_code updated_at",
        ),
        _insert("webhook_delivery_jobs", "saga_id event_id subscription_id attempt_at bucket lane"),
        _read("orchestrator_subscriptions"),
        _insert("orchestrator_subscriptions", "subscription_id ramp"),
        _update("orchestrator_subscriptions", "rate_tokens rate_refilled_at slow ramp"),
        never="DELETE, events, subscriptions, leases, HTTP, payloads",
    ),
    _role(
        "job_worker",
        "worker",
        "leases jobs, sends them, writes what came of it",
        _read(
            "webhook_delivery_jobs",
            "id saga_id event_id subscription_id status lease_until lease_token",
            "lease_resets worker_id started_at bucket lane",
        ),
        _read("events", "id event_type created_at payload bucket"),
        _read(
            "subscriptions",
            "id tenant callback_url active verified request_timeout_seconds",
            "custom_headers",
        ),
        _read("subscription_secrets", "id subscription_id sealed expires_at"),
        _update(
            "webhook_delivery_jobs",
            "status lease_until lease_token worker_id started_at finished_at",
            "response_status error_code retry_after response_excerpt failure_detail lane",
        ),
        never="sagas, new jobs, any retry decision",
    ),
    _role(
        "lease_cleaner",
        "cleaner",
        "returns jobs whose lease has expired",
        _read(
            "webhook_delivery_jobs",
            "id saga_id event_id status lease_until lease_resets worker_id error_code",
            "bucket lane",
        ),
        _update(
            "webhook_delivery_jobs",
            "status lease_until lease_token lease_resets error_code finished_at",
        ),
        never="sagas",
    ),
    _role(
        "dead_letter_operator",
        "deadletters",
        "writes down dead sagas and requeues them as new ones",
        _read_all_but("webhook_delivery_sagas", "attempt_count next_attempt_at created_at waiting"),
        _read("webhook_delivery_jobs", "id saga_id attempt_at lease_until worker_id bucket"),
        _read("events", "id event_type payload bucket"),
        _read("subscriptions", "id tenant active verified"),
        _read_all_but("dead_letters", "payload_snapshot"),
        _insert(
            "dead_letters",
            "saga_id event_id subscription_id final_error_code failed_at payload_snapshot",
            "bucket",
        ),
        _insert("webhook_delivery_sagas", "event_id subscription_id requeued_from bucket"),
        _read("dead_letter_cursor"),
        _insert("dead_letter_cursor", "bucket"),
        _update("dead_letter_cursor", *_ALL_TABLES["dead_letter_cursor"][1:]),
        never="UPDATE or DELETE of sagas, events, subscriptions",
    ),
    _role(
        "key_admin",
        "keys",
        "creates and revokes API keys",
        _read_public("api_keys"),
        _insert("api_keys", "name key_hash scopes tenant"),
        _update("api_keys", "revoked_at"),
    ),
    _role(
        "key_checker",
        "key_checks",
        "looks API keys up",
        _read_all_but("api_keys", "created_at"),
        _update("api_keys", "last_used_at"),
    ),
    _role(
        "process_registrar",
        "registry",
        "says which processes run, keeps the figures of the whole system",
        _read("processes", "process_id component heartbeat_at"),
        _insert("processes", *_ALL_TABLES["processes"]),
        _update("processes", "heartbeat_at step_at trouble"),
        _read("system_figures", "name begun_at counted_at"),
        _insert("system_figures", "name begun_at"),
        _update("system_figures", "begun_at counted_at figures"),
        may_delete=("processes",),
    ),
    Role(
        "observer",
        "observer",
        "answers questions: read API, console, check, metrics",
        # No part of the secrets' table: MariaDB's HANDLER shows a whole row to a login that may
        # read any of its columns.
        tuple(_read_public(table) for table in _ALL_TABLES if table != "subscription_secrets"),
        never="writing",
        custom_plans=True,
    ),
)

ROLES_ON = {engine: tuple(role.on(engine) for role in _ROLES) for engine in ENGINES}
# Names, logins and purposes are the same on every engine; where only those count, or the
# engine is PostgreSQL, these will do.
TABLES = TABLES_ON["postgres"]
ROLES = ROLES_ON["postgres"]
BY_LOGIN: dict[str, Role] = {role.login: role for role in ROLES}
