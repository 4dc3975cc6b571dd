"""Configuration: a TOML file, then the environment, then flags; the later wins.

Reads   the file, os.environ, the files that a secret's NAME_FILE names
Writes  nothing

settings.py declares what can be set, parsers.py what a value may be. A wrong value is one clear
line (ConfigError, exit 2) before anything starts.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from surehook.config.parsers import Value, database_url, in_words, toml_value
from surehook.config.settings import BY_KEY, LOGINS, SETTINGS, Setting
from surehook.errors import ConfigError
from surehook.model.ceilings import Ceilings
from surehook.model.retry import PRESETS, Policy

Kind = TypeVar("Kind")

# Of the client, of `listen` and of this module: no settings, but no mistakes either.
OTHER_VARIABLES = ("SUREHOOK_CONFIG", "SUREHOOK_URL", "SUREHOOK_API_KEY", "SUREHOOK_SECRET")
FILE_NAMES = (Path("surehook.toml"), Path("/etc/surehook/surehook.toml"))
# A lease outlives its request by this much: time to write the result.
LEASE_MARGIN_SECONDS = 5.0
# SUREHOOK_ROLE_SECRET_FILE names the file that holds SUREHOOK_ROLE_SECRET: secrets of containers
# and credentials of systemd are files.
FROM_FILE = "_FILE"
LOGIN_URL = "SUREHOOK_DATABASE_URL_"


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

    def _optional(self, key: str, kind: type[Kind]) -> Kind | None:
        value = self._value(key)
        assert value is None or isinstance(value, kind), key
        return value

    def _given(self, key: str, kind: type[Kind]) -> Kind:
        value = self._optional(key, kind)
        assert value is not None, key
        return value

    def text(self, key: str) -> str:
        return self._given(key, str)

    def optional_text(self, key: str) -> str | None:
        return self._optional(key, str)

    def optional_path(self, key: str) -> Path | None:
        return self._optional(key, Path)

    def number(self, key: str) -> int:
        return self._given(key, int)

    def optional_number(self, key: str) -> int | None:
        return self._optional(key, int)

    def seconds(self, key: str) -> float:
        return self._given(key, float)

    def flag(self, key: str) -> bool:
        return self._given(key, bool)

    @property
    def policy(self) -> Policy:
        preset = PRESETS[self.text("retry.preset")]
        return Policy(
            self.optional_number("retry.max_attempts") or preset.max_attempts,
            self._optional("retry.base_delay", float) or preset.base_delay_seconds,
            self._optional("retry.max_delay", float) or preset.max_delay_seconds,
        )

    @property
    def ceilings(self) -> Ceilings:
        longest = self.seconds("worker.lease_duration") - LEASE_MARGIN_SECONDS
        asked = self._optional("limits.request_timeout", float)
        return Ceilings(
            concurrency_cap=self.number("limits.concurrency_cap"),
            rate=self.optional_number("limits.rate"),
            request_seconds=longest if asked is None else min(longest, asked),
            subscriptions=self.number("limits.subscriptions"),
        )

    @property
    def allow_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return tuple(map(ip_network, self._given("delivery.allow_networks", tuple)))

    @property
    def trusted_origins(self) -> tuple[str, ...]:
        return self._given("verification.trusted", tuple)

    @property
    def embedded(self) -> bool:
        return self._value("database.url") is None

    def without(self, key: str) -> Config:
        """The same with this setting at its default."""
        setting = BY_KEY[key]
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
            origins[key] = _origin(BY_KEY[key], given, "flag")
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
            elif key in BY_KEY:
                origins[key] = _origin(BY_KEY[key], given, str(file))
            else:
                raise ConfigError(f"{file}: there is no setting {key}.", _nearest(key, BY_KEY))


def _take_environment(
    environment: Mapping[str, str], origins: dict[str, Origin], urls: dict[str, str]
) -> None:
    setting = BY_KEY["database.url"]
    given = _given(environment)
    fallback = environment.get("DATABASE_URL")
    if fallback and origins[setting.key].value is None and setting.variable not in given:
        origins[setting.key] = _origin(setting, fallback, "DATABASE_URL")
    by_variable = {setting.variable: setting for setting in SETTINGS}
    for name, (value, source) in given.items():
        if name in by_variable:
            setting = by_variable[name]
            origins[setting.key] = _origin(setting, value, source)
        elif name.startswith(LOGIN_URL):
            login = name.removeprefix(LOGIN_URL).lower()
            urls[_known_login(login, source)] = _login_url(value, login, source)
        elif name not in OTHER_VARIABLES and not name.startswith("SUREHOOK_TEST_"):
            raise ConfigError(f"There is no setting {name}.", _nearest(name, by_variable))


def _given(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Our variables: name → value and the variable that gave it, NAME or NAME_FILE."""
    ours = {name: value for name, value in environment.items() if name.startswith("SUREHOOK_")}
    given = {name: (value, name) for name, value in ours.items() if value}
    secrets = {setting.variable for setting in SETTINGS if setting.secret}
    secrets |= {f"{LOGIN_URL}{login.upper()}" for login in LOGINS}
    for secret in sorted(secrets):
        name = secret + FROM_FILE
        if name not in given:
            continue
        if secret in given:
            raise ConfigError(f"{secret} and {name} are both set.", "Remove one of them.")
        del given[name]
        given[secret] = (_content(name, Path(ours[name])), name)
    return given


def _content(name: str, file: Path) -> str:
    """A secret that a file holds; the line end that editors add is not part of it."""
    try:
        content = file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise ConfigError(f"The file of {name} ({file}) is not text.") from None
    except OSError as wrong:
        raise ConfigError(f"The file of {name} cannot be read: {wrong}.") from None
    if not content:
        raise ConfigError(f"The file of {name} ({file}) is empty.")
    return content


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
    ceilings, policy = config.ceilings, config.policy
    cap = config.number("orchestrator.subscription_cap")
    least, most = policy.base_delay_seconds, policy.max_delay_seconds
    longest = ceilings.request_seconds
    for lower, value, upper, largest, shown in (
        ("delivery.request_timeout", request, "limits.request_timeout", longest, in_words),
        (
            "orchestrator.subscription_cap",
            cap,
            "limits.concurrency_cap",
            ceilings.concurrency_cap,
            str,
        ),
        ("retry.base_delay", least, "retry.max_delay", most, in_words),
    ):
        if value > largest:
            raise ConfigError(
                f"{lower} ({shown(value)}) must not exceed {upper} ({shown(largest)})."
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
