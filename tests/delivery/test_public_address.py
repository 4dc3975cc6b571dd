"""The guard switched on, with nothing allowed: in a network namespace with a "public" address.

Only there can a delivery succeed without an allow-list. Needs root and `ip`; skipped elsewhere.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import PATIENCE

PUBLIC_V4, PUBLIC_V6 = "93.184.216.34", "2606:2800:220:1::34"
TESTS = Path(__file__).parents[1]

SCENARIO = """
import asyncio, json, socket, sys
import uvloop
from support import certificates
from support.dns import NameServer
from support.receiver import Answer, Receiver
from support.sending import request, settings, started

V4, V6 = sys.argv[1:]

async def main():
    context = certificates.server_context("*.example.test", V4, V6)
    certificates.server_context = lambda: context
    found = {}
    async with NameServer() as names, Receiver(host=V4) as public, Receiver(host=V6) as public6:
        inner = await asyncio.start_server(lambda r, w: hits.append(1), "127.0.0.1", public.port)
        hits = []
        names.answer("public.example.test", [V4])
        names.answer("turns.example.test", [V4], ["127.0.0.1"])
        names.answer("mixed.example.test", ["127.0.0.1", V4])
        given = settings(allow_networks=(), name_servers=(names.address,))
        async with started(given) as sender:
            sender._resolver._min_ttl = 0.0
            for path in ("/a", "/r"):
                public.script(path, Answer(headers=(("Connection", "close"),)))
            public.script("/r", Answer(302, (("Location", f"https://127.0.0.1:{public.port}/"),)))
            async def code(url):
                outcome = await sender.send(request(url))
                return str(outcome.error_code or "delivered")
            port = public.port
            found["literal"] = await code(public.url + "/a")
            found["literal6"] = await code(public6.url + "/a")
            found["name"] = await code(f"https://public.example.test:{port}/a")
            found["first"] = await code(f"https://turns.example.test:{port}/a")
            found["then"] = await code(f"https://turns.example.test:{port}/a")
            found["mixed"] = await code(f"https://mixed.example.test:{port}/a")
            found["redirect"] = await code(f"https://public.example.test:{port}/r")
            found["loopback"] = await code(f"https://127.0.0.1:{port}/")
            found["mapped"] = await code(f"https://[::ffff:{V4}]:{port}/")
        found["inner_hits"] = len(hits)
        inner.close()
    print(json.dumps(found))

uvloop.run(main())
"""


def _unusable() -> str:
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        return "needs root, ip and unshare"
    probe = subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], check=False)
    return "" if probe.returncode == 0 else "network namespaces are not permitted here"


def test_with_the_guard_on_only_the_public_address_is_reached(tmp_path: Path) -> None:
    if reason := _unusable():
        pytest.skip(f"NOT SHOWN: the guard against a public address ({reason})")
    script = tmp_path / "scenario.py"
    script.write_text(SCENARIO, encoding="utf-8")
    commands = (
        "ip link set lo up && "
        f"ip addr add {PUBLIC_V4}/32 dev lo && ip -6 addr add {PUBLIC_V6}/128 dev lo nodad && "
        f'exec "$0" "$1" {PUBLIC_V4} {PUBLIC_V6}'
    )
    result = subprocess.run(
        ["unshare", "-n", "sh", "-c", commands, sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {
        "literal": "delivered",
        "literal6": "delivered",
        "name": "delivered",
        "first": "delivered",
        "then": "BLOCKED_ADDRESS",
        "mixed": "delivered",
        "redirect": "HTTP_3XX",
        "loopback": "BLOCKED_ADDRESS",
        "mapped": "BLOCKED_ADDRESS",
        "inner_hits": 0,
    }
