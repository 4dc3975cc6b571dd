"""Configuration: a TOML file, then the environment, then flags; the later wins.

Reads   the file, os.environ
Writes  nothing

Every setting is declared once, in SETTINGS: its key in the file, its variable, its default, what
it means. From that come `surehook config`, config.default.toml and the checks below. A wrong value
is one clear line (ConfigError, exit 2) before anything starts.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from surehook.errors import ConfigError
from surehook.model.ceilings import Ceilings
from surehook.model.retry import PRESETS, Policy
from surehook.model.roles import ROLES

Value = str | int | float | bool | Path | tuple[str, ...] | None

# Of the client, of `listen` and of this module: no settings, but no mistakes either.
OTHER_VARIABLES = ("SUREHOOK_CONFIG", "SUREHOOK_URL", "SUREHOOK_API_KEY", "SUREHOOK_SECRET")
FILE_NAMES = (Path("surehook.toml"), Path("/etc/surehook/surehook.toml"))
_ORIGIN = re.compile(
    r"https://(?:(?:\*\.)?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?",
    re.ASCII,
)
# A lease outlives its request by this much, so that a result can still be written.
LEASE_MARGIN_SECONDS = 5.0


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


# ── Parsers: raise ValueError with the sentence that completes "<setting> must be …" ────────────


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a non-empty text")
    return value


def path(value: object) -> Path:
    return Path(text(value)).expanduser()


def flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError("on or off")


def whole(smallest: int, largest: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        try:
            number = int(value) if isinstance(value, (int, str)) else None
        except ValueError:
            number = None
        if number is None or isinstance(value, bool) or not smallest <= number <= largest:
            raise ValueError(f"a whole number from {smallest} to {largest}")
        return number

    return parse


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def duration(smallest: float, largest: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        match = _DURATION.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
        seconds = float(match[1]) * _UNIT_SECONDS[match[2]] if match else -1.0
        if not smallest <= seconds <= largest:
            raise ValueError(
                f"a duration from {in_words(smallest)} to {in_words(largest)}, "
                "such as 30, 30s, 5m or 1h"
            )
        return seconds

    return parse


def in_words(seconds: float) -> str:
    """A duration as one would write it in the file."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= _UNIT_SECONDS[unit] and seconds % _UNIT_SECONDS[unit] == 0:
            return f"{seconds / _UNIT_SECONDS[unit]:g}{unit}"
    return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:g}s"


def one_of(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return parse


def database_url(value: object) -> str:
    """What is wrong is said without the URL, which may hold a password."""
    url = text(value)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("a URL with a host name or address, IPv6 in [brackets]") from None
    if parts.scheme not in ("postgresql", "postgres", "mysql", "mariadb"):
        raise ValueError("a URL that begins with postgresql:// or mysql://")
    hosts = parts.netloc.rpartition("@")[2].split(",")  # PostgreSQL takes several
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    for name, given in parse_qsl(parts.query):
        ports += given.split(",") if name == "port" else []
    if not all(port == "" or _is_port(port, 1) for port in ports):
        raise ValueError("a URL whose port is a number from 1 to 65535")
    return url


def _is_port(given: str, smallest: int) -> bool:
    digits = given.isascii() and given.isdigit() and len(given) <= 5
    return digits and smallest <= int(given) <= 65535


def networks(value: object) -> tuple[str, ...]:
    items = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise ValueError("a list of networks such as 10.0.0.0/8")
    for item in items:
        try:
            ip_network(str(item))
        except ValueError as wrong:
            # The whole list is shown behind this; of several it has to say which.
            which = f" (look at {item!r}: {wrong})" if len(items) > 1 else ""
            raise ValueError(f"networks such as 10.0.0.0/8{which}") from None
    return tuple(str(item) for item in items)


def origins(value: object) -> tuple[str, ...]:
    items = value.replace(",", " ").split() if isinstance(value, str) else value
    wanted = "origins such as https://hooks.example.com or https://*.example.com"
    if not isinstance(items, (list, tuple)):
        raise ValueError(f"a list of {wanted}")
    for item in items:
        if not _ORIGIN.fullmatch(str(item)):
            which = f" (look at {item!r})" if len(items) > 1 else ""
            raise ValueError(f"{wanted}, without a path{which}")
    return tuple(str(item) for item in items)


def address(value: object) -> str:
    host, _, port = text(value).rpartition(":")
    if not host or not host.isprintable() or not _is_port(port, 0) or not _is_name(host):
        raise ValueError("host:port, such as 127.0.0.1:8080 or [::1]:8080")
    return text(value)


def address_or_word(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value is False and "off" in words:  # TOML has a word of its own for it
            return "off"
        if value in words:
            return str(value)
        try:
            return address(value)
        except ValueError as wrong:
            raise ValueError(f"{', '.join(words)}, or {wrong}") from None

    return parse


def _is_name(host: str) -> bool:
    """Whether it can be looked up at all."""
    try:
        host.encode("idna")
    except UnicodeError:  # a label is empty or too long, or of no language
        return False
    return True


def proxy(value: object) -> str:
    try:
        parts = urlsplit(text(value))
        usable = parts.scheme == "http" and parts.path in ("", "/") and parts.port != 0
    except ValueError:  # half an IPv6 address, or a port beyond 65535
        usable = False
    if not usable or not parts.hostname or not _is_name(parts.hostname):
        raise ValueError("a URL such as http://proxy.example.com:3128")
    return text(value)


def at_least(length: int) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or len(value) < length:
            raise ValueError(f"a text of at least {length} characters")
        return value

    return parse


# ── The settings ──────────────────────────────────────────────────────────────────────────────

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
        "Encrypts the subscriptions' secrets in the database. Embedded: made and kept in data_dir.",
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
        "How long a worker owns a job; at least request_timeout + 5s.",
        env="SUREHOOK_LEASE_DURATION",
    ),
    Setting(
        "orchestrator.batch",
        500,
        whole(1, 5000),
        "How many sagas one statement handles.",
    ),
    Setting(
        "orchestrator.open_jobs",
        2000,
        whole(1, 1_000_000),
        "About how many jobs are open (waiting or being sent) at once, over all subscriptions.",
    ),
    Setting(
        "orchestrator.subscription_cap",
        32,
        whole(1, 100_000),
        "How many jobs one subscription may have open at once, unless it says otherwise.",
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
    Setting(
        "api.metrics_open",
        False,
        flag,
        "Whether /metrics is served without a key.",
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

_BY_KEY = {setting.key: setting for setting in SETTINGS}
# One URL per login for hardened set-ups, each with its own user and password.
LOGINS = tuple(role.login for role in ROLES)


@dataclass(frozen=True, slots=True)
class Origin:
    """A value and where it came from, for `surehook config`."""

    setting: Setting
    value: Value
    source: str

    def shown(self) -> str:
        """The value for people: never a secret."""
        if self.value is None:
            return "not set"
        if self.setting.key == "database.url":
            return without_password(str(self.value))
        if self.setting.secret:
            return "(set, hidden)"
        return toml_value(self.value)

    def __repr__(self) -> str:  # what a traceback or a log would show
        return f"{self.setting.key} = {self.shown()} ({self.source})"


def without_password(url: str) -> str:
    """A database URL that may be shown: no password, wherever it stood."""
    parts = urlsplit(url)
    netloc = parts.netloc
    if "@" in netloc:
        login, _, place = netloc.rpartition("@")
        netloc = f"{login.partition(':')[0]}:…@{place}" if ":" in login else netloc
    query = "&".join(
        item
        for item in parts.query.split("&")
        if item and item.partition("=")[0].lower() not in ("password", "sslpassword", "passwd")
    )
    return parts._replace(netloc=netloc, query=query).geturl()


@dataclass(frozen=True)
class Config:
    """All settings, checked. Read them by key: config.text("api.listen")."""

    origins: Mapping[str, Origin]
    login_urls: Mapping[str, str]

    def __repr__(self) -> str:  # no secret in a traceback or a log
        return f"Config({', '.join(map(repr, self.origins.values()))})"

    def _value(self, key: str) -> Value:
        return self.origins[key].value

    def text(self, key: str) -> str:
        value = self._value(key)
        assert isinstance(value, str), key
        return value

    def optional_text(self, key: str) -> str | None:
        value = self._value(key)
        assert value is None or isinstance(value, str), key
        return value

    def optional_path(self, key: str) -> Path | None:
        value = self._value(key)
        assert value is None or isinstance(value, Path), key
        return value

    def number(self, key: str) -> int:
        value = self._value(key)
        assert isinstance(value, int), key
        return value

    def optional_number(self, key: str) -> int | None:
        value = self._value(key)
        assert value is None or isinstance(value, int), key
        return value

    def seconds(self, key: str) -> float:
        value = self._value(key)
        assert isinstance(value, (int, float)), key
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._value(key)
        assert isinstance(value, bool), key
        return value

    @property
    def policy(self) -> Policy:
        preset = PRESETS[self.text("retry.preset")]
        base, attempts, longest = (
            self._value(f"retry.{name}") for name in ("base_delay", "max_attempts", "max_delay")
        )
        return Policy(
            preset.max_attempts if attempts is None else int(str(attempts)),
            preset.base_delay_seconds if base is None else float(str(base)),
            preset.max_delay_seconds if longest is None else float(str(longest)),
        )

    @property
    def ceilings(self) -> Ceilings:
        longest = self.seconds("worker.lease_duration") - LEASE_MARGIN_SECONDS
        asked = self._value("limits.request_timeout")
        return Ceilings(
            concurrency_cap=self.number("limits.concurrency_cap"),
            rate=self.optional_number("limits.rate"),
            request_seconds=longest if asked is None else min(longest, float(str(asked))),
            subscriptions=self.number("limits.subscriptions"),
        )

    @property
    def allow_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        value = self._value("delivery.allow_networks")
        assert isinstance(value, tuple)
        return tuple(ip_network(item) for item in value)

    @property
    def trusted_origins(self) -> tuple[str, ...]:
        value = self._value("verification.trusted")
        assert isinstance(value, tuple)
        return value

    @property
    def embedded(self) -> bool:
        return self._value("database.url") is None

    def without(self, key: str) -> Config:
        """As if nobody had said anything about this setting."""
        setting = _BY_KEY[key]
        unsaid = Origin(setting, setting.default, "default")
        return Config({**self.origins, key: unsaid}, self.login_urls)


# ── Loading ───────────────────────────────────────────────────────────────────────────────────


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Config:
    """The configuration in force, or ConfigError with the one line that says what is wrong."""
    environment = os.environ if environment is None else environment
    if file is None and environment.get("SUREHOOK_CONFIG"):
        file = Path(environment["SUREHOOK_CONFIG"])
    origins = {setting.key: Origin(setting, setting.default, "default") for setting in SETTINGS}
    urls: dict[str, str] = {}
    _take_file(file, origins, urls)
    _take_environment(environment, origins, urls)
    for key, given in (flags or {}).items():
        if given is not None:
            origins[key] = _origin(_BY_KEY[key], given, "flag")
    config = Config(origins, urls)
    _check_together(config)
    return config


def _origin(setting: Setting, given: object, source: str) -> Origin:
    try:
        return Origin(setting, setting.parse(given), source)
    except ValueError as wrong:
        shown = "" if setting.secret else f", not {given!r}"
        raise ConfigError(f"{setting.key} must be {wrong}{shown} ({source}).") from None


def _take_file(file: Path | None, origins: dict[str, Origin], urls: dict[str, str]) -> None:
    if file is None:
        file = next((name for name in FILE_NAMES if name.is_file()), None)
        if file is None:
            return
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"There is no configuration file {file}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as wrong:
        raise ConfigError(f"{file} cannot be read: {wrong}") from None
    except RecursionError:
        raise ConfigError(f"{file} cannot be read: it is nested too deep.") from None
    for section, entries in content.items():
        if not isinstance(entries, dict):
            raise ConfigError(f"{file}: `{section}` must be inside a [section].")
        for name, given in entries.items():
            key = f"{section}.{name}"
            if key == "database.urls" and isinstance(given, dict):
                for login, url in given.items():
                    urls[_known_login(login, str(file))] = _login_url(url, login, file)
            elif key in _BY_KEY:
                origins[key] = _origin(_BY_KEY[key], given, str(file))
            else:
                raise ConfigError(f"{file}: there is no setting {key}.", _nearest(key, _BY_KEY))


def _take_environment(
    environment: Mapping[str, str], origins: dict[str, Origin], urls: dict[str, str]
) -> None:
    setting = _BY_KEY["database.url"]
    fallback = environment.get("DATABASE_URL")
    if fallback and origins[setting.key].value is None and not environment.get(setting.variable):
        origins[setting.key] = _origin(setting, fallback, "DATABASE_URL")
    by_variable = {setting.variable: setting for setting in SETTINGS}
    for name, given in environment.items():
        if not name.startswith("SUREHOOK_") or given == "":
            continue
        if name in by_variable:
            setting = by_variable[name]
            origins[setting.key] = _origin(setting, given, name)
        elif name.startswith("SUREHOOK_DATABASE_URL_"):
            login = name.removeprefix("SUREHOOK_DATABASE_URL_").lower()
            urls[_known_login(login, name)] = _login_url(given, login, name)
        elif name not in OTHER_VARIABLES and not name.startswith("SUREHOOK_TEST_"):
            raise ConfigError(f"There is no setting {name}.", _nearest(name, by_variable))


def _known_login(name: str, source: str) -> str:
    if name not in LOGINS:
        raise ConfigError(f"{source}: there is no login {name}.", f"Logins: {', '.join(LOGINS)}.")
    return name


def _login_url(given: object, login: str, source: object) -> str:
    try:
        return database_url(given)
    except ValueError as wrong:
        raise ConfigError(f"The database URL of {login} must be {wrong} ({source}).") from None


def _nearest(name: str, known: Mapping[str, object]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1)
    return f"Did you mean {found[0]}?" if found else "`surehook config` lists them all."


def _check_together(config: Config) -> None:
    lease = config.seconds("worker.lease_duration")
    request = config.seconds("delivery.request_timeout")
    if lease < request + LEASE_MARGIN_SECONDS:
        raise ConfigError(
            f"worker.lease_duration ({in_words(lease)}) must be at least "
            f"delivery.request_timeout + 5s ({in_words(request + LEASE_MARGIN_SECONDS)})."
        )
    ceilings = config.ceilings
    if request > ceilings.request_seconds:
        raise ConfigError(
            f"delivery.request_timeout ({in_words(request)}) must not exceed "
            f"limits.request_timeout ({in_words(ceilings.request_seconds)})."
        )
    cap = config.number("orchestrator.subscription_cap")
    if cap > ceilings.concurrency_cap:
        raise ConfigError(
            f"orchestrator.subscription_cap ({cap}) must not exceed "
            f"limits.concurrency_cap ({ceilings.concurrency_cap})."
        )
    policy = config.policy
    if policy.base_delay_seconds > policy.max_delay_seconds:
        raise ConfigError(
            f"retry.base_delay ({in_words(policy.base_delay_seconds)}) must not exceed "
            f"retry.max_delay ({in_words(policy.max_delay_seconds)})."
        )
    url = config.optional_text("database.url")
    if (
        url
        and config.flag("database.roles")
        and config.optional_text("database.role_secret") is None
        and not config.login_urls
    ):
        raise ConfigError(
            "database.role_secret is not set (SUREHOOK_ROLE_SECRET).",
            "Set it to a random text of 16 or more characters, the same on every machine; or "
            "give each login its own URL; or set database.roles = off.",
        )


# ── The default file ──────────────────────────────────────────────────────────────────────────


def toml_value(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return f'"{in_words(value)}"'
        case int():
            return str(value)
        case tuple():
            return "[" + ", ".join(f'"{item}"' for item in value) + "]"
        case _:
            return f'"{value}"'


def default_file() -> str:
    """config.default.toml: every setting with its meaning, variable and default."""
    lines = [
        "# Every setting of surehook with its default. Copy what you change into surehook.toml",
        "# (looked for here, then in /etc/surehook; or name it with --config or SUREHOOK_CONFIG).",
        "# The environment wins over the file, flags win over both.",
        "# Durations: seconds, or 500ms, 30s, 5m, 1h, 2d.",
        "# Written by `make generate` from config.py; do not edit.",
    ]
    section = ""
    for setting in SETTINGS:
        place, _, name = setting.key.partition(".")
        if place != section:
            lines += ["", f"[{place}]"]
            section = place
        lines += ["", *_wrapped(setting.meaning), f"# {setting.variable}"]
        if setting.default is None:
            lines.append(f"#{name} = {setting.example}")
        else:
            lines.append(f"{name} = {toml_value(setting.default)}")
    lines += [
        "",
        "# One URL per login, for set-ups where passwords are not derived (SUREHOOK_",
        "# DATABASE_URL_ROUTER and so on).",
        "#[database.urls]",
        *(f'#{login} = "postgresql://…"' for login in LOGINS),
    ]
    return "\n".join(lines) + "\n"


def _wrapped(sentence: str) -> list[str]:
    from textwrap import wrap

    return [f"# {line}" for line in wrap(sentence, 96)]
