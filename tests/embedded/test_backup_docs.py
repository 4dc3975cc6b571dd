"""Backup and restore of the embedded database, with the very lines of docs/operate/backup.md."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from embedded_harness import pipe

from support.waiting import PATIENCE
from surehook.embedded.server import EmbeddedServer

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "backup.md"
SERVE = "&& surehook serve"  # the one that does not end by itself
MAKE_ROWS = """
INSERT INTO events (event_type, payload) SELECT 'order.paid', '{}' FROM generate_series(1, 5)
"""


def documented() -> tuple[str, str]:
    """The lines for the old machine and for the new one."""
    section = PAGE.read_text().partition("\n## Embedded\n")[2].partition("\n## ")[0]
    old, new = re.findall(r"```\n(.*?)```", section, re.DOTALL)
    assert SERVE in new
    return old, new.replace(SERVE, "")


class Machine:
    """A shell in which people follow the page."""

    def __init__(self, place: Path, binaries: Path) -> None:
        self.place = place
        kept = {name: value for name, value in os.environ.items() if "SUREHOOK" not in name}
        path = os.pathsep.join([str(Path(sys.executable).parent), str(binaries), kept["PATH"]])
        self.env = {
            **kept,
            "PATH": path,
            "HOME": str(place),
            "XDG_STATE_HOME": str(place / "state"),
            "SUREHOOK_CONFIG": os.devnull,
            "OLD": str(place / "old"),
            "NEW": str(place / "new"),
        }

    def run(self, lines: str, **variables: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines],
            cwd=self.place,
            env=self.env | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{lines}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def answer(address: str, key: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    connection.request("GET", "/v1/events", headers={"authorization": f"Bearer {key}"})
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_documented_lines_bring_the_embedded_database_to_another_directory(
    data: Path, place: Path
) -> None:
    data.rename(place / "old")
    with EmbeddedServer(place / "old") as server:
        machine = Machine(place, server.binaries)
        machine.run("surehook migrate", SUREHOOK_DATA_DIR=machine.env["OLD"])
        made = machine.run(
            "surehook key create --name shop --scope read --json",
            SUREHOOK_DATA_DIR=machine.env["OLD"],
        )
        machine.run(f'surehook db psql --data-dir "$OLD" -- -qc "{MAKE_ROWS}"')
        dump, restore = documented()
        machine.run(dump)
    machine.run(restore)

    count = '-- -Atc "SELECT count(*) FROM events"'
    assert machine.run(f'surehook db psql --data-dir "$NEW" {count}') == "5\n"
    serving = subprocess.Popen(
        ["surehook", "serve"],
        cwd=place,
        env=machine.env
        | {"SUREHOOK_DATA_DIR": machine.env["NEW"], "SUREHOOK_LISTEN": "127.0.0.1:0"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        facts = (json.loads(line) for line in pipe(serving.stderr))
        listen = next(fact["listen"] for fact in facts if fact.get("component") == "api")
        assert answer(listen, json.loads(made)["key"]) == 200
    finally:
        serving.terminate()
        serving.communicate(timeout=PATIENCE)
    assert serving.returncode == 0
