"""Commands as a person or a program runs them, in this process: output and exit code.

Reads   what they print     Writes  nothing

They run in a thread, so that the API that they call can answer meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from support import certificates
from support.api import ADMIN_KEY, FLAGS
from support.pipeline import running
from surehook import observe
from surehook.__main__ import run
from surehook.config import Config
from surehook.store.logins import DatabaseAccess

SENDING: dict[str, object] = {
    **FLAGS,
    "delivery.allow_networks": ["127.0.0.0/8"],
    "delivery.ca_file": str(certificates.ca_file()),
}


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str  # without the line that says which system it is
    system: str = ""

    def json(self) -> Any:
        assert self.code in (0, 1), self.err
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """One JSON object per line."""
        assert self.code in (0, 1), self.err
        return [json.loads(line) for line in self.out.splitlines()]

    def facts(self) -> dict[str, str]:
        """Of `name  value` on each line."""
        pairs = [line.split(None, 1) for line in self.out.splitlines() if line.strip()]
        return {pair[0]: pair[-1] for pair in pairs}

    def rows(self) -> list[list[str]]:
        """The cells of a table, without its heading."""
        return [line.split() for line in self.out.splitlines()[1:]]


def run_command(arguments: tuple[str, ...], env: Mapping[str, str], stdin: bytes = b"") -> Done:
    """Nothing of ours in the environment but `env`."""
    ours: dict[str, str | None] = {
        name: None for name in os.environ if "SUREHOOK_" in name or name == "DATABASE_URL"
    }
    with CliRunner().isolation(stdin, {**ours, "SUREHOOK_CONFIG": os.devnull, **env}) as streams:
        try:
            code = run(list(arguments))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        out, said = (stream.getvalue().decode() for stream in streams[:2])
    lines = said.splitlines(keepends=True)
    which = [line for line in lines if line.startswith("system: ")]
    assert len(which) <= 1, said
    rest = "".join(line for line in lines if line not in which)
    return Done(code, out, rest, "".join(which).removeprefix("system: ").strip())


class Command:
    """command("event", "list") runs it; `env` is what leads it to the test's API."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env

    async def __call__(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> Done:
        given = {name: value for name, value in {**self.env, **(env or {})}.items() if value}
        return await asyncio.to_thread(run_command, arguments, given, stdin)


@asynccontextmanager
async def commands(
    config: Config, access: DatabaseAccess, *components: str, home: str
) -> AsyncIterator[Command]:
    """The API, and other components beside it, for as long as the block lasts."""
    try:
        async with running(config, access, ("api", *components), https=True) as process:
            assert process.api is not None
            url = f"http://{process.api.address}"
            yield Command(
                {"SUREHOOK_URL": url, "SUREHOOK_API_KEY": ADMIN_KEY, "XDG_STATE_HOME": home}
            )
    finally:
        observe.silence()
