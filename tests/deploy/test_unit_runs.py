"""What surehook.service starts, started as it says; the sandbox around it needs a real systemd."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.waiting import PATIENCE

pytestmark = pytest.mark.long
UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "surehook.service"


@pytest.fixture
def home() -> Iterator[Path]:
    """Where any account can come: as root the embedded server runs as another one."""
    made = Path(tempfile.mkdtemp(prefix="surehook-unit-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_the_unit_starts_reports_ready_and_ends_well(home: Path) -> None:
    text = UNIT.read_text(encoding="utf-8").replace("/var/lib/surehook", str(home / "state"))
    (home / "state").mkdir(mode=0o755)
    [command] = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    [given] = re.findall(r"^Environment=(.*)$", text, re.MULTILINE)
    words = command.replace("/opt/surehook/bin/surehook", f"{sys.executable} -m surehook").split()
    env = {"PATH": os.environ["PATH"], **dict(pair.split("=", 1) for pair in given.split())}
    env |= {"NOTIFY_SOCKET": str(home / "notify"), "SUREHOOK_LISTEN": "127.0.0.1:0"}
    env["SUREHOOK_DATA_DIR"] += "/data"  # StateDirectory belongs to the unit's user; here to root
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(env["NOTIFY_SOCKET"])
        heard.settimeout(PATIENCE)
        process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, cwd=home / "state")
        try:
            assert heard.recv(100) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert heard.recv(100) == b"STOPPING=1"
        finally:
            process.terminate()
            _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said.decode()[-3000:]
