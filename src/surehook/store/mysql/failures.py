"""What the servers' error numbers mean to us. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asyncmy.errors import MySQLError

from surehook.errors import DatabaseUnreachable
from surehook.store.logins import Login

DUPLICATE = 1062
DEADLOCK = 1213
LOCK_WAIT = 1205
LOCK_HELD = {LOCK_WAIT, 3572}  # waited too long; NOWAIT on MySQL (on MariaDB that is 1205 too)
# Another transaction undid it; the whole is repeated.
TRY_AGAIN = {DEADLOCK, LOCK_WAIT, 1020}
# Database, table, column, function, global right; and no right to give one on.
NO_RIGHT = {1044, 1142, 1143, 1227, 1370, 1419, 1418}
TRIGGERS_REFUSED = {1419, 1418}  # the server writes a binary log and does not trust us
NO_SUCH_DATABASE = 1049
NOT_LET_IN = {1044, 1045, 1130, 1251, 1524, 1698, 1820, 1862, 2049, 2059, 2061, 3118, 3159, 4151}
# Gone, full, shutting down, too busy, read-only after a failover, or a statement took too long.
GONE = {
    *(2002, 2003, 2006, 2013, 2014, 2026, 2055),
    *(1021, 1037, 1038, 1040, 1041, 1042, 1043, 1047, 1053, 1077, 1079, 1114, 1129),
    *(1152, 1158, 1159, 1160, 1161, 1184, 1203, 1226, 1290, 1317, 1836, 1927, 1969, 3024, 3168),
    *(4031, 0),
}
TOO_MANY = {1040, 1203, 1226}  # connections: of the server, of the user
# Too long, out of range, no such value, no text, larger than a packet, not JSON, a CHECK.
REFUSED = {1264, 1265, 1292, 1366, 1406, 1153, 3140, 3157, 3819, 4025}


class NoEncryption(OSError):
    """The server does not offer TLS."""


def number(error: BaseException | None) -> int | None:
    """The server's or the driver's number of an error; None if it is of another kind."""
    if isinstance(error, MySQLError) and error.args and isinstance(error.args[0], int):
        return int(error.args[0])
    return 2013 if isinstance(error, MySQLError) else None


def message_of(error: BaseException) -> str:
    """What it said, without the number."""
    arguments: tuple[Any, ...] = error.args
    if isinstance(error, MySQLError) and len(arguments) > 1:
        return str(arguments[1])
    return str(error)


def is_gone(error: BaseException) -> bool:
    """Whether the database does not answer or does not let us in."""
    code = number(error)
    if code is None:
        return isinstance(error, OSError | TimeoutError)
    return code in GONE or code in NOT_LET_IN or code == NO_SUCH_DATABASE


def unreachable(error: BaseException, login: Login) -> DatabaseUnreachable:
    """The one line for a database that does not answer or does not let us in."""
    code = number(error)
    if code == NO_SUCH_DATABASE:
        return DatabaseUnreachable(
            f"The server has no such database ({message_of(error)}).",
            "Create it, or correct the URL.",
        )
    if code in NOT_LET_IN:
        advice = (
            "Check the user and the password in the URL. On the server's own machine an anonymous "
            "account goes before one for every host: create the user for localhost too."
        )
        if login.user:
            advice = (
                "Run `surehook migrate` to create the roles, and give every machine the same "
                "SUREHOOK_ROLE_SECRET."
            )
        return DatabaseUnreachable(
            f"The database does not let us in ({message_of(error)}).", advice
        )
    if isinstance(error, NoEncryption):
        return DatabaseUnreachable(
            "The server does not offer TLS, and the URL demands it.",
            "Turn TLS on in the server, or use ssl-mode=PREFERRED on a network that you trust.",
        )
    reason = message_of(error) or (
        "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    )
    return DatabaseUnreachable(
        f"The database does not answer ({reason}).", "Is the server running, and the URL right?"
    )


@contextmanager
def losing(login: Login) -> Iterator[None]:
    """Around work on a connection outside of any pool: a lost one is reported in one line."""
    try:
        yield
    except (MySQLError, OSError, TimeoutError) as error:
        if not is_gone(error):
            raise
        raise unreachable(error, login) from error
