"""A running database server as every process of a test run sees it. Reads and writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

EngineName = Literal["postgres", "mysql"]
ENGINES: tuple[EngineName, ...] = ("postgres", "mysql")
# Which servers there are to test on, and which engine of ours speaks to each.
KINDS: dict[str, EngineName] = {
    "system": "postgres",  # the system's PostgreSQL
    "wheel": "postgres",  # the one that we bring along
    "mariadb": "mysql",  # the system's MariaDB
    "mysql": "mysql",  # what `make mysql` unpacked, or SUREHOOK_TEST_MYSQL_URL names
}
ROLE_SECRET = "a role secret for tests only"
ENCRYPTION_KEY = "5e" * 32


@dataclass(frozen=True)
class Server:
    kind: str
    url: str
    binaries: str
    version: str
    directory: str  # the run's own, for what its processes share
    role_secret: str = ROLE_SECRET

    @property
    def engine(self) -> EngineName:
        return KINDS[self.kind]

    def url_of(self, database: str) -> str:
        return urlsplit(self.url)._replace(path=f"/{database}").geturl()
