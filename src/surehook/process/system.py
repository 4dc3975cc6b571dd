"""On which system a command acts: the one that is named, else the one that runs, else the data of
the default directory. Nothing here creates anything.

Reads   the configuration, which programs run (running.py), whether a directory holds data

    named     --data-dir, SUREHOOK_DATABASE_URL, DATABASE_URL, SUREHOOK_DATA_DIR, or the file
    running   the one system whose programs (`dev`, `serve`, `run`) or server run here; of several
              one has to be named
    default   the default data directory, if there is data in it

`dev`, `serve`, `run` and `db start` bring a system into being: they act on the one that is named,
else on their own default directory (`created_by`), and start what is not there. docs/operate/
systems.md says it to users.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from surehook.config import Config, without_password
from surehook.embedded import default_data_dir, development_data_dir
from surehook.embedded.directory import DataDirectory
from surehook.errors import Unreachable, UsageError
from surehook.process.running import Program, programs

HOW_TO_START = "`surehook dev` and `surehook serve` start one."
HOW_TO_NAME = "Name one with SUREHOOK_DATA_DIR or SUREHOOK_DATABASE_URL."


@dataclass(frozen=True, slots=True)
class System:
    """A database, and what led to it."""

    database: str  # its directory, if it is embedded, or a URL without its password
    embedded: bool
    source: str
    program: Program | None = None  # one that runs on it
    named: bool = False

    @property
    def where(self) -> str:
        return f"the database in {self.database}" if self.embedded else self.database

    def __str__(self) -> str:
        return f"{self.where} ({self.source})"


def named(config: Config) -> System | None:
    """What the configuration says, if it says anything."""
    url = config.optional_text("database.url")
    if url is not None:
        return System(without_password(url), False, _source(config, "database.url"), named=True)
    directory = config.optional_path("database.data_dir")
    if directory is not None:
        source = _source(config, "database.data_dir")
        return System(str(directory.absolute()), True, source, named=True)
    return None


def running() -> list[System]:
    """Every system that runs here, once."""
    found: dict[tuple[str, bool], System] = {}
    for program in programs():
        known = found.get((program.database, program.embedded))
        if known is None or (known.program and known.program.api_url is None and program.api_url):
            source = f"`{program.command}` runs on it"
            found[program.database, program.embedded] = System(
                program.database, program.embedded, source, program
            )
    default = str(default_data_dir().absolute())
    if (default, True) not in found and DataDirectory(Path(default)).is_locked():
        found[default, True] = System(default, True, "its server runs")
    return list(found.values())


def created_by(config: Config) -> System:
    """Where a command acts that makes what is not there."""
    _refuse_logins_without_a_database(config)
    return named(config) or _default()


def chosen(config: Config, *, must_exist: bool = True, embedded: bool = False) -> System:
    """Where any other command acts; refuses if there is no data, or if it is not clear.

    `embedded`: of those that run, only embedded ones are meant.
    """
    _refuse_logins_without_a_database(config)
    system = named(config)
    if system is None:
        found = [one for one in running() if one.embedded or not embedded]
        system = the_only(found, HOW_TO_NAME) or _default()
    if must_exist and system.embedded and not _has_data(system):
        raise _nothing(system)
    if not system.embedded and not system.named:
        raise _not_reachable_from_here(system)
    return system


def the_only(found: Sequence[System], how_to_name: str) -> System | None:
    """With several to choose from, do not guess."""
    if len(found) > 1:
        listed = "; ".join(map(_who_and_where, found))
        raise UsageError(f"{len(found)} systems run here: {listed}.", how_to_name)
    return found[0] if found else None


def _who_and_where(system: System) -> str:
    if system.program is None:
        return f"a server on {system.where}"
    at = f" at {system.program.api_url}" if system.program.api_url else ""
    return f"`{system.program.command}`{at} on {system.where}"


def _refuse_logins_without_a_database(config: Config) -> None:
    """Else an embedded one would be made that no login uses."""
    if config.login_urls and config.embedded:
        login = next(iter(config.login_urls))
        raise UsageError(
            f"database.urls has a URL for {login}, but database.url is not set.",
            "Set it (SUREHOOK_DATABASE_URL), at best without a password.",
        )


def _default() -> System:
    return System(str(default_data_dir().absolute()), True, "the default directory")


def _source(config: Config, key: str) -> str:
    source = config.origins[key].source
    return f"{key} in {source}" if source.endswith(".toml") else source


def _has_data(system: System) -> bool:
    directory = DataDirectory(Path(system.database))
    try:
        return directory.major is not None
    except NotADirectoryError:
        return False
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "PG_VERSION holds no number"
        raise Unreachable(
            f"The database in {system.database} ({system.source}) cannot be read: {reason}.",
            "Run as its owner, or name another one with SUREHOOK_DATA_DIR.",
        ) from None


def _nothing(system: System) -> Unreachable:
    if system.named:
        return Unreachable(
            f"There is no database in {system.database} ({system.source}).",
            "`surehook migrate` and `surehook serve` make one.",
        )
    development = development_data_dir()
    asleep = ""
    if os.path.isdir(development / "postgres"):  # noqa: PTH112 — False also where we may not look
        asleep = f" The data of `surehook dev`, which does not run, is in {development}."
    return Unreachable(
        f"No surehook runs here, and there is no database in {system.database}.",
        f"{HOW_TO_START} {HOW_TO_NAME}{asleep}",
    )


def _not_reachable_from_here(system: System) -> UsageError:
    assert system.program is not None
    return UsageError(
        f"`{system.program.command}` (pid {system.program.pid}) runs on {system.database}, which "
        "is not configured here.",
        "Give this command the same SUREHOOK_DATABASE_URL and SUREHOOK_ROLE_SECRET.",
    )
