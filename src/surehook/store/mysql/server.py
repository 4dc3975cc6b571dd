"""Which server it is: MySQL or MariaDB, how old, and what differs between them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from surehook.errors import Declined

# The oldest that can do what we need. MySQL: FOR SHARE by who may only read, as ingest and router
# do (8.0.22), a binary collation that does not pad (8.0.17), CHECK (8.0.16), expressions as
# defaults (8.0.13). MariaDB: SKIP LOCKED and JSON_TABLE (10.6).
MYSQL_MIN = (8, 0, 22)
MARIADB_MIN = (10, 6, 0)
# They take the same words and mean other things by them: no row locks, no triggers, ….
_IMITATIONS = ("TiDB", "Vitess", "OceanBase", "MemSQL", "SingleStore", "Doris", "StarRocks")


@dataclass(frozen=True, slots=True)
class Server:
    """What a server said of itself when it let us in."""

    words: str  # 8.0.46-0ubuntu0.22.04.5, 5.5.5-10.11.19-MariaDB-0+deb12u1, …

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.words.lower()

    @property
    def version(self) -> tuple[int, ...]:
        # MariaDB puts 5.5.5- before its version, for clients that expect a MySQL.
        words = self.words.removeprefix("5.5.5-") if self.is_mariadb else self.words
        numbers = re.match(r"\d+(\.\d+){0,2}", words)
        return tuple(int(part) for part in numbers[0].split(".")) if numbers else ()

    @property
    def imitation(self) -> str | None:
        """The name of a product that is neither, but speaks the protocol."""
        return next((one for one in _IMITATIONS if one.lower() in self.words.lower()), None)

    @property
    def collation(self) -> str:
        """Binary, and a trailing space counts: utf8mb4_bin would pad."""
        return "utf8mb4_nopad_bin" if self.is_mariadb else "utf8mb4_0900_bin"

    def __str__(self) -> str:
        name = self.imitation or ("MariaDB" if self.is_mariadb else "MySQL")
        return f"{name} {'.'.join(map(str, self.version))}"

    @property
    def oldest(self) -> tuple[int, ...]:
        return MARIADB_MIN if self.is_mariadb else MYSQL_MIN

    @property
    def is_fit(self) -> bool:
        return self.imitation is None and self.version >= self.oldest

    def refuse_if_unfit(self) -> None:
        """No statement of ours is sent to a server that is too old or something else."""
        if self.imitation:
            raise Declined(
                f"The server says it is {self.imitation}, not MySQL or MariaDB.",
                "Use MySQL or MariaDB itself: others accept the same words with other meanings.",
            )
        if not self.is_fit:
            needed = ".".join(map(str, self.oldest))
            raise Declined(
                f"{self} is too old; surehook needs {needed} or newer.",
                "Upgrade the server, or leave database.url out and use the embedded one.",
            )
