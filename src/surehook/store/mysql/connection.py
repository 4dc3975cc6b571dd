"""One connection to MySQL or MariaDB, with its session settings. Sends what it is given.

The driver speaks the protocol; here are the ways in (encryption, one deadline for all of logging
in), the session's settings, and what the driver leaves to chance: a connection on which anything
but a clean answer was read is closed and never used again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import asyncmy
from asyncmy.constants import CLIENT
from asyncmy.errors import MySQLError

from surehook.errors import ConfigError
from surehook.store.database import Row, Written
from surehook.store.logins import Login
from surehook.store.mysql import failures
from surehook.store.mysql.server import Server
from surehook.store.mysql.urls import Target, target, unusable
from surehook.store.mysql.values import CONVERSIONS, literal

Settings = Mapping[str, str | int | float]

GOODBYE_SECONDS = 2.0

# What every statement of ours counts on, whatever the server's defaults are.
SQL_MODE = (
    "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
)


def sql_mode(server: Server) -> str:
    """On MariaDB a GRANT to an unknown account would create it, without a password."""
    return f"{SQL_MODE},NO_AUTO_CREATE_USER" if server.is_mariadb else SQL_MODE


def session_settings(server: Server, more: Settings) -> dict[str, str | int | float]:
    """Everything that a session of ours differs in from the server's defaults."""
    isolation = "tx_isolation" if server.is_mariadb else "transaction_isolation"
    # MariaDB makes a subquery of a long list after IN and may then read, and lock, a whole table.
    lists = {"in_predicate_conversion_threshold": 0} if server.is_mariadb else {}
    return {
        "time_zone": "+00:00",
        "sql_mode": sql_mode(server),
        # Asked for when logging in, but a server may take no notice of that, and what it runs for
        # every new session (init_connect) comes later: without a commit every result would be lost.
        "autocommit": 1,
        "character_set_client": "utf8mb4",
        "character_set_results": "utf8mb4",
        # What has no collation (JSON_TABLE's columns) is compared with our columns.
        "collation_connection": server.collation,
        isolation: "READ-COMMITTED",
        "sql_select_limit": 2**64 - 1,  # else what a statement counts might not be all there is
        **lists,
        **more,
    }


class _Driver(asyncmy.Connection):
    """Asks for no warnings: in strict mode what matters is an error, and asking is a round trip."""

    async def show_warnings(self) -> None:
        return None


class Connection:
    """Statements on one connection of the driver."""

    def __init__(self, driver: Any, login: Login) -> None:
        self.login = login
        self.server = Server(driver.get_server_info())
        self.escape = driver.escape
        self.number = 0  # of its session on the server, also behind a proxy
        self.id_step = 1  # between the ids of two rows of one INSERT
        self._driver = driver
        self._broken = False

    @property
    def usable(self) -> bool:
        """Nothing is unread or half sent, and the server has not hung up: of that the driver knows
        by a private name only (a test kills an idle session and waits for this)."""
        return not self._broken and not self._driver._stream_broken

    @property
    def in_transaction(self) -> bool:
        return bool(self._driver.get_transaction_status())

    async def fetch(self, text: str, **values: object) -> Sequence[Row]:
        """Run one statement, its parameters written %(name)s, and return its rows."""
        cursor = await self._run(self._filled(text, values) if values else text)
        if cursor.description is None:
            return ()
        rows: Sequence[Row] = await cursor.fetchall()
        return rows

    async def value(self, text: str, **values: object) -> Any:
        """The first column of the first row; None without one."""
        rows = await self.fetch(text, **values)
        return rows[0][0] if rows else None

    async def write(self, text: str, **values: object) -> Written:
        """Run one statement that returns no rows."""
        cursor = await self._run(self._filled(text, values) if values else text)
        return Written(cursor.rowcount, cursor.lastrowid, self.id_step)

    def _filled(self, text: str, values: Mapping[str, object]) -> str:
        return text % {name: literal(value, self.escape) for name, value in values.items()}

    async def _run(self, text: str) -> Any:
        cursor = self._driver.cursor()
        try:
            await cursor.execute(text)
        except MySQLError as error:
            self._broken = self._broken or failures.is_gone(error)
            raise
        except BaseException:  # most of all a cancelled task: half an answer may be unread
            self.terminate()
            raise
        return cursor

    async def undo(self, error: BaseException) -> None:
        """Roll back after an error. Where that fails, or this is cancelled, the connection is
        closed: the server does the same then."""
        if not self.usable or not isinstance(error, Exception):
            self.terminate()
            return
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self.write("ROLLBACK")
        except (OSError, MySQLError, TimeoutError):
            self.terminate()

    async def close(self) -> None:
        """Say good-bye, but not for long."""
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._driver.ensure_closed()
        except (OSError, MySQLError, TimeoutError):
            self.terminate()

    def terminate(self) -> None:
        self._broken = True
        self._driver.close()


# ── Connecting ────────────────────────────────────────────────────────────────────────────────


async def connect(
    login: Login,
    timeout: float,
    settings: Callable[[Server], Settings] = lambda _: {},
    name: str = "surehook",
) -> Connection:
    """Log in and make the session ours; one deadline for all of it.

    A server that is too old or something else gets no settings: its caller refuses it.
    """
    try:
        async with asyncio.timeout(timeout):
            connection = await _log_in(target(login), login, name)
            try:
                if connection.server.is_fit:
                    await _settle(connection, settings(connection.server))
            except BaseException:
                connection.terminate()
                raise
            return connection
    except (OSError, TimeoutError, MySQLError) as error:
        if not failures.is_gone(error):
            raise
        raise failures.unreachable(error, login) from None
    except UnicodeError:
        raise unusable("a name in it has characters that no name has") from None


async def _log_in(where: Target, login: Login, name: str) -> Connection:
    """Without encryption only if the server has none and the URL lets that pass."""
    for encryption in where.encryption:
        driver = _driver(where, encryption, name)
        try:
            await _connected(driver)
        except (OSError, MySQLError):
            if not (encryption and _has_no_tls(driver)):
                raise
        else:
            return Connection(driver, login)
    raise failures.NoEncryption


async def _connected(driver: Any) -> None:
    try:
        await driver.connect()
    except RuntimeError as error:  # the driver's word for a socket that is closed already
        raise ConnectionResetError(f"the connection was closed at once: {error}") from None


def _has_no_tls(driver: Any) -> bool:
    """By its greeting; a server that did not even greet is another matter."""
    return not getattr(driver, "server_capabilities", CLIENT.SSL) & CLIENT.SSL


def _driver(where: Target, encryption: ssl.SSLContext | None, name: str) -> Any:
    made: Any = _Driver  # its stub gives it no types
    return made(
        host=where.host,
        port=where.port,
        unix_socket=where.unix_socket,
        user=where.user,
        password=where.password.encode(),
        database=where.database,
        charset="utf8mb4",
        ssl=encryption,
        autocommit=True,
        client_flag=CLIENT.FOUND_ROWS,
        conv=CONVERSIONS,
        program_name=name,
    )


async def _settle(connection: Connection, more: Settings) -> None:
    """Set the session's settings and look whether they are: a proxy may have swallowed them."""
    settings = session_settings(connection.server, more)
    pairs = [f"SESSION {name} = {literal(v, connection.escape)}" for name, v in settings.items()]
    await connection.write(f"SET {', '.join(pairs)}")
    names = [*settings, "auto_increment_increment"]
    asked = ", ".join(f"@@SESSION.{name}" for name in names)
    number, *row = (await connection.fetch(f"SELECT CONNECTION_ID(), {asked}"))[0]
    connection.number = int(number)
    found = dict(zip(names, row, strict=True))
    wrong = [name for name, value in settings.items() if not _same(value, found[name])]
    if wrong:
        raise ConfigError(
            f"The database changed these session settings: {', '.join(wrong)}.",
            "Connect directly, or let the proxy pass SET SESSION.",
        )
    connection.id_step = int(found["auto_increment_increment"])


def _same(wanted: str | int | float, found: Any) -> bool:
    if isinstance(wanted, str):  # a list of modes comes back in the server's own order
        return set(str(found).upper().split(",")) == set(wanted.upper().split(","))
    return float(found) == float(wanted)
