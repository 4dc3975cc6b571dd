"""The API as the commands reach it: which address, whose key, and what its errors advise.

Reads   --url and --api-key, SUREHOOK_URL and SUREHOOK_API_KEY, else the configuration's api.listen
        and api.admin_key, else where the system that runs here serves, and the key that `dev` keeps
Writes  one line to standard error: which API it is

The configuration's key belongs to the configuration's API: it is sent nowhere else but to this
machine. The development key is sent to a `dev` that runs here and takes it, and nowhere else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from surehook.cli import Invocation
from surehook.cli.output import say_which
from surehook.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from surehook.client import Client
    from surehook.config import Config

# A person waits: so many tries take about a second if nothing listens there.
TRIES_MAX = 4
CALL_SECONDS = 10.0
GRACE_SECONDS = 5.0
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Sourced:
    """A value and where it came from; the value may be a key: it is never shown."""

    value: str
    source: str

    def __repr__(self) -> str:
        return f"Sourced({self.source})"


class Api:
    """What --url and --api-key said, or what they left to be found."""

    def __init__(self, invocation: Invocation, url: Sourced | None, key: Sourced | None) -> None:
        self._invocation = invocation
        self._url = url
        self._key = key

    @contextmanager
    def client(self, seconds: float = CALL_SECONDS, tries: int = TRIES_MAX) -> Iterator[Client]:
        """A client whose errors say what to do. `seconds` is for one try."""
        from surehook.client import Client
        from surehook.client.tries import Retry

        self._check_url()
        url, key = self._found()
        retry = Retry(tries_max=tries, seconds_max=max(3 * CALL_SECONDS, seconds + GRACE_SECONDS))
        say_which(f"{url.value} ({url.source})")
        with wrong_use():
            client = Client(url.value, key.value, timeout=seconds, retry=retry)
        with client, _advised(url, key), _of_text():
            yield client

    def _check_url(self) -> None:
        """First of all: an invalid address needs no key."""
        from surehook.client.wire import parse_url

        if self._url is None:
            return
        try:
            parse_url(self._url.value)
        except ValueError as wrong:
            said = str(wrong).removeprefix("url ")
            raise UsageError(f"The API's address ({self._url.source}) {said}.") from None

    def _found(self) -> tuple[Sourced, Sourced]:
        if self._url and self._key:  # no need to look at a configuration, whatever it is like
            return self._url, self._key
        # Only the API's settings are of interest; the database's may be incomplete here.
        config = self._invocation.config({"database.roles": False})
        url = self._url or _running_at(config) or _listening_at(config)
        key = self._key or _configured_key(config, url, self._url is None) or _development_key(url)
        if key is None and self._url is None and not _is_answered(url.value):
            raise Unreachable(
                f"No surehook runs here, and nothing answers at {url.value} ({url.source}).",
                "`surehook dev` and `surehook serve` start one; --url names one elsewhere.",
            )
        if key is None:
            raise UsageError(
                f"There is no key for the API at {url.value} ({url.source}).",
                "Give --api-key or set SUREHOOK_API_KEY; `surehook key create` makes one.",
            )
        return url, key


def _running_at(config: Config) -> Sourced | None:
    """Where the system serves that runs here, unless it is said where the API is or which key it
    takes. If a database is named, only the system that runs on it is meant."""
    from surehook.process import system

    if any(config.origins[key].source != "default" for key in ("api.listen", "api.admin_key")):
        return None
    named = system.named(config)
    runs = [one for one in system.running() if one.program and one.program.api_url]
    if named is not None:
        runs = [one for one in runs if one.database == named.database]
    found = system.the_only(runs, "Name one with --url, SUREHOOK_URL or SUREHOOK_DATA_DIR.")
    if found is None or found.program is None or found.program.api_url is None:
        return None
    return Sourced(found.program.api_url, f"`{found.program.command}` runs there")


def _listening_at(config: Config) -> Sourced:
    return Sourced(_listening(config), _source(config, "api.listen"))


def _listening(config: Config) -> str:
    from surehook.process.running import local_address

    return f"http://{local_address(config.text('api.listen'))}"


def _source(config: Config, key: str) -> str:
    source = config.origins[key].source
    return f"{key}'s default" if source == "default" else f"{key} in {source}"


def _configured_key(config: Config, url: Sourced, own_api: bool) -> Sourced | None:
    key = config.optional_text("api.admin_key")
    if key is None or not (own_api or is_this_machine(url.value)):
        return None
    return Sourced(key, _source(config, "api.admin_key"))


def _development_key(url: Sourced) -> Sourced | None:
    """That of the `dev` which serves there."""
    from surehook.process.running import programs
    from surehook.receiver.statedir import state_directory

    if not is_this_machine(url.value):
        return None
    port = urlsplit(url.value).port
    serving = [one for one in programs() if one.api_url and urlsplit(one.api_url).port == port]
    file = state_directory() / "key"
    if not any(one.kept_key for one in serving) or not file.is_file():
        return None
    return Sourced(file.read_text(encoding="ascii").strip(), "`surehook dev`")


def _is_answered(url: str) -> bool:
    import socket

    try:
        address = urlsplit(url)
        where = (address.hostname or "", address.port or 80)
        with socket.create_connection(where, timeout=LOOK_SECONDS):
            return True
    except (OSError, ValueError):
        return False


def is_this_machine(url: str) -> bool:
    """Whether the address is a loopback one, as it is written."""
    from ipaddress import ip_address

    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def _of_text() -> Iterator[None]:
    """Arguments are bytes: what is not UTF-8 has become surrogates, which cannot be sent."""
    try:
        yield
    except UnicodeEncodeError:
        raise UsageError("An argument is not valid UTF-8.") from None


@contextmanager
def _advised(url: Sourced, key: Sourced) -> Iterator[None]:
    from surehook.client import errors

    try:
        yield
    except errors.ServiceUnreachable as error:
        again = _how_to_repeat(error.external_id)
        start = "" if again else " `surehook serve` and `surehook dev` start one."
        error.advice = f"Is the API running at {url.value} ({url.source})?{start}{again}"
        if "[SSL" in error.message and "CERTIFICATE" not in error.message:
            plain = url.value.replace("https://", "http://", 1)
            error.advice = f"Does it speak TLS there? If not, try {plain} ({url.source}).{again}"
        raise
    except errors.NotUnderstood as error:
        error.advice = f"Is {url.value} ({url.source}) the address of surehook's API?"
        raise
    except errors.ServiceUnavailable as error:
        error.advice = f"Request id: {error.request_id}.{_how_to_repeat(error.external_id)}"
        raise
    except (errors.NotAuthenticated, errors.NotPermitted) as error:
        error.advice = f"The key is from {key.source}."
        raise


def _how_to_repeat(external_id: str | None) -> str:
    """What makes it safe to publish again what may have been stored."""
    if external_id is None:
        return ""
    return f" To repeat it without storing it twice: --external-id {external_id}"


@contextmanager
def wrong_use() -> Iterator[None]:
    """Around a call whose arguments the client checks: what it refuses is the user's mistake."""
    try:
        yield
    except ValueError as wrong:
        sentence = str(wrong).rstrip(".")
        if sentence.startswith(("a ", "the ")):  # else a field's name, which is written so
            sentence = sentence[:1].upper() + sentence[1:]
        raise UsageError(f"{sentence}.") from None


# ── Options ───────────────────────────────────────────────────────────────────────────────────


def through_api(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command --url and --api-key, and as its first argument the Api they lead to."""

    @click.option("--url", envvar="SUREHOOK_URL", show_envvar=True, help="Where the API is.")
    @click.option(
        "--api-key",
        metavar="shk_…",
        envvar="SUREHOOK_API_KEY",
        show_envvar=True,
        help="The key; others on this machine can see it here, not in the variable.",
    )
    @click.pass_context
    @functools.wraps(command)
    def prepared(
        context: click.Context, /, url: str | None, api_key: str | None, **options: Any
    ) -> None:
        invocation = context.find_object(Invocation)
        assert invocation is not None
        api = Api(invocation, _given(context, "url", url), _given(context, "api_key", api_key))
        command(api, **options)

    return prepared


def _given(context: click.Context, name: str, value: str | None) -> Sourced | None:
    if value is None:
        return None
    variable = {"url": "SUREHOOK_URL", "api_key": "SUREHOOK_API_KEY"}[name]
    by_option = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    source = f"--{name.replace('_', '-')}" if by_option else variable
    if not value.strip():  # such as --api-key "$UNSET": another key is not what was meant
        raise UsageError(f"{source} is empty.", "Give it a value, or leave it out.")
    return Sourced(value, source)
