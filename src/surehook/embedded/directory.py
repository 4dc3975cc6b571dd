"""What lies where in a data directory, and who holds it.

    postgres/        PostgreSQL's own directory (PGDATA)
    run/             the socket, unless the path is too long for one
    log/             PostgreSQL's log by day of the week, supervisor.log, start.log
    passfile         the owner's password, in libpq's format
    role_secret      from which the logins' passwords are derived
    encryption_key   with which subscribers' secrets are encrypted
    lock             flock'ed while a server runs; says who holds it
    server.json      where the running server can be found

Reads and writes only the data directory and, for a long path, one private folder for the socket.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import socket
import stat
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from surehook.embedded.account import Account
from surehook.errors import EmbeddedServerError, UsageError

PORT = 5432
DATABASE = "surehook"
OWNER = "surehook"
# A socket's path ends at 104 bytes on macOS and at 108 on Linux.
SOCKET_BYTES_MAX = 100
_LONGEST_SOCKET_NAME = ".s.PGSQL.65535"
_OURS = {"postgres", "lock", "passfile", "encryption_key"}
# Of two starts at once one may see what the other has made so far.
_OURS_MAYBE = {"log", "run"}

Record = TypeVar("Record", "Holder", "Running")


@dataclass(frozen=True)
class Holder:
    """Who holds the lock; the content of the lock file."""

    pid: int  # of the process that wanted the server
    command: str
    since: str
    supervisor: int
    detached: bool
    stopping: bool = False

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command}), since {self.since}"


@dataclass(frozen=True)
class Running:
    """Where the running server can be found; the content of server.json."""

    supervisor: int
    postmaster: int
    socket_directory: str
    port: int
    binaries: str
    version: str


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100  # keeps symbolic links as named
        self.cluster = self.path / "postgres"
        self.upgraded = self.path / "postgres.upgraded"  # for a moment, in an upgrade
        self.log = self.path / "log"
        self.passfile = self.path / "passfile"
        self.lock_file = self.path / "lock"
        self.state_file = self.path / "server.json"

    @property
    def major(self) -> int | None:
        """The major version that wrote the cluster, None before there is one."""
        for cluster in (self.cluster, self.upgraded):
            with contextlib.suppress(FileNotFoundError):
                return int((cluster / "PG_VERSION").read_text().strip())
        return None

    def prepare(self, account: Account) -> None:
        """Create the directory for this account, or refuse one that it cannot use."""
        self._refuse_if_not_ours()
        existing = next(one for one in (self.path, *self.path.parents) if _exists(one))
        _require_reachable(existing, account, self.path)
        try:
            for missing in reversed([one for one in self.path.parents if not _exists(one)]):
                missing.mkdir(mode=0o755, exist_ok=True)
                missing.chmod(0o755)
            self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"The data directory {self.path} cannot be created: {error.strerror}.",
                "Name another one with --data-dir or SUREHOOK_DATA_DIR.",
            ) from error
        if account.is_other and self.path.stat().st_uid == 0:
            os.chown(self.path, account.uid, account.gid)
        with account.acting():
            self._make_private()

    def _refuse_if_not_ours(self) -> None:
        inside: set[str] = set()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            if not self.path.is_dir() and self.path.exists():
                raise UsageError(f"The data directory {self.path} is a file.", "Name another one.")
            inside = {one.name for one in self.path.iterdir()}
        if inside - _OURS_MAYBE and not inside & _OURS:
            raise UsageError(
                f"{self.path} is not empty and not a data directory of surehook.",
                "Name an empty or a new directory.",
            )

    def _make_private(self) -> None:
        try:
            if stat.S_IMODE(self.path.stat().st_mode) != 0o700:
                self.path.chmod(0o700)
            self.log.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"The data directory {self.path} belongs to somebody else: {error.strerror}.",
                "Run as its owner, or name another one with --data-dir or SUREHOOK_DATA_DIR.",
            ) from error

    # --- secrets -----------------------------------------------------------------------------

    def create_secrets(self) -> None:
        """Make what is missing, before the cluster exists that depends on it."""
        random = {
            "passfile": f"*:*:*:{OWNER}:{secrets.token_urlsafe(32)}\n",
            "role_secret": secrets.token_urlsafe(32),
            "encryption_key": base64.b64encode(secrets.token_bytes(32)).decode(),
        }
        for name, content in random.items():
            if not (self.path / name).exists():
                write_durably(self.path / name, content)

    def require_secrets(self) -> None:
        for name in ("passfile", "role_secret", "encryption_key"):
            if not (self.path / name).exists():
                raise EmbeddedServerError(
                    f"The file {self.path / name} is gone, without which the data cannot be used.",
                    "Put it back from your backup.",
                )

    def secret(self, name: str) -> str:
        try:
            return (self.path / name).read_text().strip()
        except OSError as error:
            raise EmbeddedServerError(
                f"The file {self.path / name} cannot be read: {error.strerror}.",
                "Start the embedded server once, or put the file back from your backup.",
            ) from error

    def owner_password(self) -> str:
        return self.secret("passfile").rpartition(":")[2]

    # --- the lock ----------------------------------------------------------------------------

    def try_lock(self) -> int | None:
        """The locked descriptor, or None if somebody else has it."""
        descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def is_locked(self) -> bool:
        """Whether a server is held here. Asks without creating anything."""
        try:
            descriptor = os.open(self.lock_file, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def holder(self) -> Holder | None:
        return _read_record(self.lock_file, Holder)

    def running(self) -> Running | None:
        return _read_record(self.state_file, Running)

    # --- the socket --------------------------------------------------------------------------

    def socket_directory(self) -> Path:
        """A private folder whose path is short enough; made, as the server's account, if absent."""
        inside = self.path / "run"
        if _fits(inside):
            inside.mkdir(mode=0o700, exist_ok=True)
            return inside
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        # Anybody can create a folder in /tmp: a name that is taken by others is left alone.
        for attempt in range(100):
            folder = Path("/tmp") / f"surehook-{os.geteuid()}-{digest}-{attempt}"  # noqa: S108
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            found = folder.lstat()
            private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
            if private and found.st_uid == os.geteuid():
                return folder
        raise EmbeddedServerError(f"The path {self.path} is too long.", "Name a shorter one.")


def in_use(path: Path, holder: Holder | None) -> EmbeddedServerError:
    """What a second program reports."""
    return EmbeddedServerError(
        f"The data directory {path} is in use by {holder or 'somebody'}.",
        "Stop that one first, or name another directory with --data-dir.",
    )


def answers(server: Running) -> bool:
    """Whether a PostgreSQL really serves there (a process id alone proves nothing)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(5)
        try:
            client.connect(f"{server.socket_directory}/.s.PGSQL.{server.port}")
            # The protocol's question "TLS?": 8 bytes that any PostgreSQL answers with one letter.
            client.sendall((8).to_bytes(4, "big") + (80877103).to_bytes(4, "big"))
            return client.recv(1) in (b"N", b"S")
        except OSError:
            return False


def write_durably(path: Path, content: str) -> None:
    """Write beside, flush, rename: a crash leaves the old file or the new one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_record(descriptor: int, record: Any) -> None:
    """Into the locked file itself: it must stay the same file."""
    content = json.dumps(asdict(record)).encode()
    os.pwrite(descriptor, content, 0)
    os.ftruncate(descriptor, len(content))


def now_text() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())


def _read_record(path: Path, kind: type[Record]) -> Record | None:
    try:
        content = json.loads(path.read_text())
        return kind(**{field.name: content[field.name] for field in fields(kind)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _exists(path: Path) -> bool:
    """False also for what we may not even ask about."""
    try:
        return path.exists()
    except PermissionError:
        return False


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / _LONGEST_SOCKET_NAME)) <= SOCKET_BYTES_MAX


def _require_reachable(existing: Path, account: Account, wanted: Path) -> None:
    with account.acting():
        try:
            os.stat(f"{existing}/.")  # noqa: PTH116  # a Path would lose the dot, which is the point
            return
        except NotADirectoryError:
            return  # creating it will fail, and say so
        except PermissionError:
            pass
    raise UsageError(
        f"PostgreSQL runs as {account.name!r}, who cannot reach {wanted}"
        f" ({_blocking(existing, account)} is closed to it).",
        "Name a directory outside of a private home, such as /var/lib/surehook,"
        " with --data-dir or SUREHOOK_DATA_DIR.",
    )


def _blocking(path: Path, account: Account) -> Path:
    with account.acting():
        for one in reversed((path, *path.parents)):
            try:
                os.stat(f"{one}/.")  # noqa: PTH116
            except PermissionError:
                return one
    return path
