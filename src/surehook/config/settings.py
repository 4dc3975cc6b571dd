"""Every setting, declared once: its key in the file, its variable, its default, what it means.

Reads   nothing     Writes  nothing

From this come the checks at the start, `surehook config` and config.default.toml.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from surehook.config.parsers import (
    Value,
    address,
    address_or_word,
    at_least,
    database_url,
    duration,
    flag,
    networks,
    one_of,
    origins,
    path,
    proxy,
    whole,
)
from surehook.model.retry import PRESETS
from surehook.model.roles import ROLES


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `parse` takes what the file or the environment gave and returns the value."""

    key: str
    default: Value
    parse: Callable[[object], Value]
    meaning: str
    env: str = ""
    secret: bool = False
    example: str = ""  # shown in the default file where the default is "not set"

    @property
    def variable(self) -> str:
        return self.env or "SUREHOOK_" + self.key.replace(".", "_").upper()


_SECONDS_DAY = 86400.0

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "database.url",
        None,
        database_url,
        "The database. Not set: DATABASE_URL, else PostgreSQL embedded in data_dir.",
        env="SUREHOOK_DATABASE_URL",
        secret=True,
        example='"postgresql://surehook@db.example.com/surehook"',
    ),
    Setting(
        "database.data_dir",
        None,
        path,
        "Where the embedded PostgreSQL lives. Not set: /var/lib/surehook for root, else "
        "~/.local/share/surehook; for `surehook dev` surehook-dev beside it.",
        env="SUREHOOK_DATA_DIR",
        example='"/var/lib/surehook"',
    ),
    Setting(
        "database.postgres_binaries",
        None,
        path,
        "The bin directory of the PostgreSQL to embed. Not set: the system's newest from 15 on, "
        "else the one that came with surehook.",
        env="SUREHOOK_POSTGRES_BINARIES",
        example='"/usr/lib/postgresql/17/bin"',
    ),
    Setting(
        "database.roles",
        True,
        flag,
        "Each login is its own database role with the least rights. Off: all use the "
        "main login (for servers where roles cannot be created).",
        env="SUREHOOK_ROLES",
    ),
    Setting(
        "database.role_secret",
        None,
        at_least(16),
        "The logins' passwords are derived from this; the same on every machine. Embedded: "
        "made and kept in data_dir.",
        env="SUREHOOK_ROLE_SECRET",
        secret=True,
        example='"…"',
    ),
    Setting(
        "database.buckets",
        None,
        whole(1, 256),
        "How many partitions the hot tables get; fixed at the first migration. Not set: 1.",
        env="SUREHOOK_BUCKETS",
        example="1",
    ),
    Setting(
        "database.connections",
        4,
        whole(2, 200),
        "The most connections that one login of one process opens.",
    ),
    Setting(
        "database.connect_timeout",
        5.0,
        duration(0.1, 300),
        "How long to wait for a connection to the database.",
    ),
    Setting(
        "database.statement_timeout",
        30.0,
        duration(1, 3600),
        "The longest that one of the pipeline's statements may run.",
    ),
    Setting(
        "database.allow_unsafe",
        False,
        flag,
        "Run on a server that may lose acknowledged writes (fsync or synchronous_commit off).",
    ),
    Setting(
        "retry.preset",
        "standard",
        one_of(*PRESETS),
        "standard: 5 attempts in 7.5 minutes. durable: 22 attempts in 74.5 hours.",
    ),
    Setting(
        "retry.base_delay",
        None,
        duration(0.001, 7 * _SECONDS_DAY),
        "The pause after the first failure; it doubles each time. Not set: the preset's.",
        example='"30s"',
    ),
    Setting(
        "retry.max_attempts",
        None,
        whole(1, 1000),
        "How often a delivery is tried in all. Not set: the preset's.",
        example="5",
    ),
    Setting(
        "retry.max_delay",
        None,
        duration(0.001, 30 * _SECONDS_DAY),
        "The longest pause, also for an endpoint's Retry-After. Not set: the preset's.",
        example='"1h"',
    ),
    Setting(
        "delivery.request_timeout",
        15.0,
        duration(0.1, 600),
        "One deadline for an attempt, from name lookup to the last byte of the answer.",
        env="SUREHOOK_REQUEST_TIMEOUT",
    ),
    Setting(
        "delivery.allow_networks",
        (),
        networks,
        "Networks that deliveries may reach although they are private, loopback or reserved.",
        env="SUREHOOK_ALLOW_NETWORKS",
    ),
    Setting(
        "delivery.ca_file",
        None,
        path,
        "More certificate authorities to trust, beside the system's.",
        env="SUREHOOK_CA_FILE",
        example='"/etc/ssl/private-ca.pem"',
    ),
    Setting(
        "delivery.proxy",
        None,
        proxy,
        "An egress proxy that all deliveries go through (HTTP CONNECT). Proxy variables of the "
        "environment are never used.",
        secret=True,
        example='"http://proxy.example.com:3128"',
    ),
    Setting(
        "delivery.secret_overlap",
        86400.0,
        duration(0, 30 * _SECONDS_DAY),
        "How long old secrets go on signing after a rotation, unless the call says otherwise.",
    ),
    Setting(
        "delivery.encryption_key",
        None,
        at_least(32),
        "Encrypts the subscriptions' secrets in the database. Embedded: made and kept in data_dir. "
        "Of several, separated by commas, the first encrypts and all decrypt: put a new one first; "
        "rotate-secret moves a subscription over to it.",
        env="SUREHOOK_ENCRYPTION_KEY",
        secret=True,
        example='"…"',
    ),
    Setting(
        "verification.trusted",
        (),
        origins,
        "Origins of your own, whose subscriptions need not prove themselves: the verifier "
        "connects, checks the certificate and marks them verified. https://*.example.com covers "
        "every name below example.com. See docs/verification.md.",
    ),
    Setting(
        "worker.concurrency",
        256,
        whole(1, 10_000),
        "How many requests one worker has under way at once, not counting slow ones. Tenants with "
        "little to do have half as many beside these.",
    ),
    Setting(
        "worker.slow_requests",
        256,
        whole(8, 10_000),
        "How many requests one worker has under way beside these: half of them to endpoints that "
        "were slow lately, half of them such that have lasted for more than a second.",
    ),
    Setting(
        "worker.memory",
        64 * 1024 * 1024,
        whole(1024 * 1024, 2**40),
        "How many bytes of payload one worker holds at once.",
    ),
    Setting(
        "worker.lease_duration",
        30.0,
        duration(1, 3600),
        "How long a worker owns an attempt; at least request_timeout + 5s.",
        env="SUREHOOK_LEASE_DURATION",
    ),
    Setting(
        "orchestrator.batch", 500, whole(1, 5000), "How many deliveries one statement handles."
    ),
    Setting(
        "orchestrator.open_jobs",
        2000,
        whole(1, 1_000_000),
        "About how many attempts are open (waiting or being sent) at once, over all subscriptions.",
    ),
    Setting(
        "orchestrator.subscription_cap",
        32,
        whole(1, 100_000),
        "How many attempts one subscription may have open at once, unless it says otherwise.",
    ),
    Setting(
        "limits.concurrency_cap",
        256,
        whole(1, 100_000),
        "The largest concurrency_cap of a subscription. This and the other limits are refused when "
        "someone asks for more, and hold for subscriptions that exist already.",
    ),
    Setting(
        "limits.rate",
        None,
        whole(1, 1_000_000),
        "The largest rate_limit_per_second of a subscription; those without a limit get this one. "
        "Not set: no ceiling.",
        example="500",
    ),
    Setting(
        "limits.request_timeout",
        None,
        duration(0.1, 600),
        "The largest request_timeout_seconds of a subscription. Not set: "
        "worker.lease_duration - 5s.",
        example='"25s"',
    ),
    Setting(
        "limits.subscriptions",
        1000,
        whole(1, 1_000_000),
        "How many subscriptions a tenant may create with its own keys. A key of every tenant may "
        "create more.",
    ),
    Setting(
        "api.listen",
        "127.0.0.1:8080",
        address,
        "Where the HTTP API listens.",
        env="SUREHOOK_LISTEN",
    ),
    Setting(
        "api.admin_key",
        None,
        at_least(24),
        "A first API key with all scopes, given from outside.",
        env="SUREHOOK_ADMIN_KEY",
        secret=True,
        example='"…"',
    ),
    Setting(
        "api.payload_max",
        2**20,
        whole(1024, 64 * 2**20),
        "The largest payload of an event, in bytes.",
    ),
    Setting(
        "api.batch_max",
        8 * 2**20,
        whole(1024, 256 * 2**20),
        "The largest body of a batch of events, in bytes.",
    ),
    Setting(
        "api.memory",
        128 * 2**20,
        whole(2**20, 2**40),
        "How many bytes of request bodies are held at once; beyond that, 503.",
    ),
    Setting(
        "api.connections",
        4096,
        whole(16, 1_000_000),
        "How many connections may be open at once; the one idle for longest makes room.",
    ),
    Setting(
        "api.request_timeout",
        10.0,
        duration(0.1, 600),
        "How long a client may take to send a request's headers, and again for its body.",
    ),
    Setting(
        "api.idle_timeout",
        30.0,
        duration(0.1, 3600),
        "How long a connection is kept for the next request.",
    ),
    Setting(
        "api.answer_timeout",
        1.5,
        duration(0.5, 300),
        "How long a request waits for the database; then its answer is 503, and the client tries "
        "again.",
    ),
    Setting(
        "api.key_failures",
        60,
        whole(1, 1_000_000),
        "How many wrong keys from one address get 401 per minute; the others get 429.",
    ),
    Setting("api.metrics_open", False, flag, "Whether /metrics is served without a key."),
    Setting(
        "serve.processes",
        None,
        whole(1, 64),
        "How many processes `serve` and `dev` share their work among. Not set: one for every two "
        "cores, 4 at most. See docs/operate/processes.md.",
        env="SUREHOOK_PROCESSES",
        example="2",
    ),
    Setting(
        "observe.listen",
        "auto",
        address_or_word("auto", "off"),
        "Where this process serves /healthz, /readyz and /metrics, without a key. auto: a process "
        "that runs the API serves them there, any other on a free port of 127.0.0.1, which the log "
        "and `surehook status` show. An address is taken by every process that starts with it, and "
        "refused if it is not free. off: nowhere but at the API.",
    ),
    Setting(
        "log.level",
        "info",
        one_of("debug", "info", "warning", "error"),
        "The least important lines that are written.",
    ),
    Setting(
        "log.format",
        "auto",
        one_of("auto", "json", "text"),
        "json: one object per line. text: for people. auto: text on a terminal, else json.",
    ),
)

BY_KEY = {setting.key: setting for setting in SETTINGS}
# One URL per login for hardened set-ups, each with its own user and password.
LOGINS = tuple(role.login for role in ROLES)
