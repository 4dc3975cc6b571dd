"""What a login's connections offer, whichever engine is behind them. Reads, writes nothing.

Each engine implements Session and Database in its own folder; only its files know its driver.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

from surehook.config import Config
from surehook.errors import Bug
from surehook.model import fields, statements
from surehook.store.logins import Login
from surehook.store.migrations import State

Row: TypeAlias = Sequence[Any]  # a driver's row, unpacked at once into a record
Result = TypeVar("Result")
Known: TypeAlias = dict[str, tuple[str, tuple[str, ...]]]  # name → text for the driver, parameters


class LockHeld(Exception):
    """Someone's open transaction holds a row for longer than this login waits."""


class Duplicate(Exception):
    """A key is there already, where no ON CONFLICT lets that pass. It discards the whole statement:
    look again, and do it again."""


class ValueRejected(Exception):
    """The database rejected a value: invalid JSON, or too long."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a statement that writes did; on PostgreSQL its RETURNING says so, the id first."""

    rows: int  # that it found, changed or not
    first_id: int = 0  # of the rows that it inserted
    id_step: int = 1

    def ids(self) -> range:
        """Of the rows that one INSERT … VALUES made: their number is known beforehand, so InnoDB
        gives them ids in a row, in the order of input, in each of its modes."""
        return range(self.first_id, self.first_id + self.rows * self.id_step, self.id_step)


class Session(ABC):
    """Named statements on one connection."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def _call(self, name: str, values: dict[str, object]) -> tuple[str, list[object]]:
        if name not in self._known:
            raise Bug(f"There is no statement {name} here; there are {', '.join(self._known)}.")
        text, parameters = self._known[name]
        if values.keys() != set(parameters):
            raise Bug(f"{name} takes {parameters}, not {tuple(values)}.")
        return text, [values[parameter] for parameter in parameters]

    @property
    @abstractmethod
    def number(self) -> int:
        """By which the server knows this session; another connection has another."""

    @abstractmethod
    async def all(self, name: str, **values: object) -> Sequence[Row]:
        """Run a statement and return its rows; may raise LockHeld or ValueRejected."""

    async def one(self, name: str, **values: object) -> Row | None:
        """Run a statement and return its first row, if any."""
        rows = await self.all(name, **values)
        return rows[0] if rows else None

    async def write(self, name: str, **values: object) -> Written:
        """Run a statement that changes rows; may raise Duplicate too."""
        rows = await self.all(name, **values)
        return Written(len(rows), rows[0][0] if rows else 0)


class Database(ABC):
    """The pool of one login. Every method repeats what a deadlock or conflict undid."""

    dialect: ClassVar[str]  # the folder of its statements
    # Whether processes can wake each other through the database; else they look by themselves.
    notifies: ClassVar[bool]

    def __init__(self, config: Config, login: Login) -> None:
        self.login_name = login.name
        self.login = login
        # As the database says; known once check_schema() has run.
        self.buckets = 1
        self.installation = ""
        self._config = config
        self._statements = statements.load(self.dialect, login.name)
        self._known: Known = {
            name: (self._rendered(statement), statement.parameters)
            for name, statement in self._statements.items()
        }
        self._make = {
            name: fields.builder(statement.record, statement.columns)
            for name, statement in self._statements.items()
            if statement.record is not None
        }

    @staticmethod
    @abstractmethod
    def _rendered(statement: statements.Statement) -> str:
        """A statement's text with parameters as the driver wants them."""

    def parameters(self, name: str) -> tuple[str, ...]:
        """The parameters that a statement takes."""
        return self._known[name][1]

    @abstractmethod
    async def open(self) -> None:
        """Open the pool; DatabaseUnreachable if the database does not answer or refuses us."""

    async def check_schema(self) -> None:
        """Refuse a database that is too new or too old for this program."""
        state = await self.run(self._read_state)
        state.refuse_if_too_new()
        state.refuse_if_too_old()
        self.buckets = state.buckets or 1
        self.installation = state.installation

    @abstractmethod
    async def _read_state(self, session: Any) -> State: ...

    @abstractmethod
    def connections(self) -> tuple[int, int]:
        """How many connections are used and idle."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def run(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        """Do `work` with a Session; again if another transaction's lock or change undid it."""

    @abstractmethod
    async def in_transaction(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        """Do `work` with a Session in one short transaction; repeated as a whole like `run`."""

    async def all(self, name: str, **values: object) -> Sequence[Row]:
        """Run one statement in its own transaction and return its rows."""
        rows: Sequence[Row] = await self.run(lambda session: session.all(name, **values))
        return rows

    async def one(self, name: str, **values: object) -> Row | None:
        row: Row | None = await self.run(lambda session: session.one(name, **values))
        return row

    async def write(self, name: str, **values: object) -> Written:
        """Run one statement that changes rows, in its own transaction."""
        written: Written = await self.run(lambda session: session.write(name, **values))
        return written

    async def records(self, name: str, **values: object) -> list[Any]:
        """The rows as what the statement says that they are."""
        make = self._make[name]
        return [make(row) for row in await self.all(name, **values)]

    async def record(self, name: str, **values: object) -> Any:
        found = await self.records(name, **values)
        return found[0] if found else None

    @abstractmethod
    async def notify(self, channel: str, message: str) -> None:
        """Tell other processes; like `listening`, the driver's own affair and no store's."""

    @abstractmethod
    def listening(
        self, channel: str, heard: Callable[[str], None]
    ) -> AbstractAsyncContextManager[asyncio.Future[None]]:
        """Hear other processes; the future ends when that connection is lost."""
