"""As whom PostgreSQL runs: the caller, or an unprivileged account when the caller is root.

Reads the passwd database and owners of directories; writes nothing but the ids of this process.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from surehook.errors import EmbeddedServerError

# In this order: an account made for us, the distribution's own for PostgreSQL, the last resort.
UNPRIVILEGED = ("surehook", "postgres", "nobody")


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int
    name: str

    @property
    def is_other(self) -> bool:
        """True if this process is root and has to become somebody else."""
        return os.geteuid() == 0

    @contextmanager
    def acting(self) -> Iterator[None]:
        """See the file system with this account's eyes. Only for a process with one thread."""
        if not self.is_other:
            yield
            return
        groups, gid = os.getgroups(), os.getegid()
        os.setgroups([])
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(gid)
            os.setgroups(groups)

    def become(self) -> None:
        """Turn this process into this account, for good."""
        if not self.is_other:
            return
        try:
            os.setgroups([])
            os.setgid(self.gid)
            os.setuid(self.uid)
        except OSError as error:
            raise EmbeddedServerError(
                f"PostgreSQL never runs as root, and becoming {self.name!r} failed: {error}.",
                "Start surehook as an ordinary user.",
            ) from error
        assert os.geteuid() == self.uid and os.getuid() == self.uid


def server_account(data_dir: Path) -> Account:
    """The account that runs PostgreSQL on this directory."""
    if os.geteuid() != 0:
        return _own_account()
    # An existing directory keeps its owner, even if a better account has been created since.
    for place in (data_dir / "postgres", data_dir):
        try:
            owner = place.stat().st_uid
            if owner != 0:
                return _from_passwd(pwd.getpwuid(owner))
        except (OSError, KeyError):
            continue
    for name in UNPRIVILEGED:
        try:
            return _from_passwd(pwd.getpwnam(name))
        except KeyError:
            continue
    raise EmbeddedServerError(
        "PostgreSQL never runs as root, and there is no account to run it as.",
        "Create one: useradd --system surehook",
    )


def _own_account() -> Account:
    uid = os.geteuid()
    try:
        return _from_passwd(pwd.getpwuid(uid))
    except KeyError:
        raise EmbeddedServerError(
            f"The user id {uid} has no entry in the passwd file, without which PostgreSQL's initdb"
            " refuses to work.",
            "Run as a user that has one, or add: "
            f"echo 'surehook:x:{uid}:{os.getegid()}::/:/sbin/nologin' >> /etc/passwd",
        ) from None


def _from_passwd(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name)
