"""Programs that people use, as they come: their requests are read in full, with proxies or not."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from string import Template

import pytest

from support.api import ADMIN_KEY
from support.http import Client, read_reply
from support.programs import here, program
from support.waiting import until

CLIENTS = Path(__file__).parent / "clients"
BODY = '{"event_type":"real.client","payload":{"text":"für alle","numbers":[1,2,3]}}'
CURL = ["--silent", "--show-error", "--output", "/dev/null", "--write-out", "%{http_code}\\n"]
FLAGS = {
    "plain": [],
    "http2": ["--http2"],
    "http2-chunked": ["--http2", "--header", "transfer-encoding: chunked"],
    "expect": ["--header", "expect: 100-continue", "--expect100-timeout", "60"],
    "http1.0": ["--http1.0"],
}
# How each client's program is started, and how many events it publishes.
OTHERS = {
    "java": (["Publish.java"], 3),
    "go": (["run", "publish.go"], 3),
    "node": (["publish.mjs"], 3),
    "aiohttp": (["-I", "publish_aiohttp.py"], 8),
}
PROXIES = {
    # With the recipe for websockets that everybody copies: it passes an Upgrade on.
    "nginx": """
        daemon off; master_process off; error_log stderr; pid $directory/pid;
        events { worker_connections 64; }
        http {
          access_log off;
          client_body_temp_path $directory/a; proxy_temp_path $directory/b;
          fastcgi_temp_path $directory/c; uwsgi_temp_path $directory/d; scgi_temp_path $directory/e;
          upstream surehook { server $upstream; keepalive 4; }
          server {
            listen unix:$directory/socket;
            client_max_body_size 10m;
            location / {
              proxy_pass http://surehook; proxy_http_version 1.1; proxy_request_buffering off;
              proxy_set_header Host $$host;
              proxy_set_header Upgrade $$http_upgrade; proxy_set_header Connection "upgrade";
            }
          }
        }
    """,
    "haproxy": """
defaults
  mode http
  http-reuse always
  timeout connect 60s
  timeout client 60s
  timeout server 60s
frontend entry
  bind $directory/socket
  default_backend surehook
backend surehook
  option httpchk
  server one $upstream
""",
}
STARTS = {"nginx": ["-e", "stderr", "-c"], "haproxy": ["-db", "-f"]}

Through = Callable[[str], Awaitable[str]]


async def run(name: str, *arguments: str) -> list[str]:
    """What a program prints, by lines."""
    found = program(name)
    assert found
    child = await asyncio.create_subprocess_exec(
        found,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=CLIENTS,
        env={**os.environ, "GO111MODULE": "off"},
    )
    printed, complaints = await child.communicate()
    assert child.returncode == 0, complaints.decode()
    return printed.decode().split()


async def payloads(client: Client) -> list[object]:
    listed = (await client.get("/v1/events?limit=200")).json()["items"]
    shown = [(await client.get(f"/v1/events/{item['id']}")).body for item in listed]
    return [b'"payload":{"text":"f\xc3\xbcr alle","numbers":[1,2,3]}' in body for body in shown]


@pytest.fixture
async def through(client: Client) -> AsyncIterator[Through]:
    """await through("nginx"): the socket of such a proxy in front of the API."""
    async with AsyncExitStack() as opened:

        async def opening(name: str) -> str:
            return await opened.enter_async_context(proxy(name, f"{client.host}:{client.port}"))

        yield opening


@asynccontextmanager
async def proxy(name: str, upstream: str) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="surehook-proxy-") as directory:
        settings, socket = Path(directory, "settings"), Path(directory, "socket")
        text = Template(PROXIES[name]).substitute(directory=directory, upstream=upstream)
        await asyncio.to_thread(settings.write_text, text)
        found = program(name)
        assert found
        child = await asyncio.create_subprocess_exec(found, *STARTS[name], str(settings))

        async def listens() -> bool:
            assert child.returncode is None
            try:
                _, writer = await asyncio.open_unix_connection(str(socket))
            except OSError:
                return False
            writer.close()
            return True

        try:
            await until(listens)
            yield str(socket)
        finally:
            if child.returncode is None:
                child.send_signal(signal.SIGTERM)
            await child.wait()


@pytest.mark.parametrize("flags", FLAGS if here("curl") else [])
async def test_curl_publishes(client: Client, flags: str) -> None:
    """Two requests of one process: the second on the same connection where that is possible."""
    url = f"http://{client.host}:{client.port}/v1/events"
    again = ["--header", f"authorization: Bearer {ADMIN_KEY}", "--data", BODY, *FLAGS[flags], *CURL]
    assert await run("curl", *again, url, "--next", *again, url) == ["202", "202"]
    assert await payloads(client) == [True, True]


@pytest.mark.parametrize(
    "name",
    [
        # Debian's Go is 81 MB; compiling its library for the first time takes a minute of CPU.
        pytest.param(name, marks=pytest.mark.long) if name == "go" else name
        for name in here(*OTHERS)
    ],
)
async def test_a_client_of_another_language_or_library_publishes(client: Client, name: str) -> None:
    url = f"http://{client.host}:{client.port}/v1/events"
    start, count = OTHERS[name]
    assert await run(name, *start, url, ADMIN_KEY, BODY) == ["202"] * count
    assert await payloads(client) == [True] * count


@pytest.mark.parametrize("name", here(*PROXIES))
async def test_a_proxy_in_front_passes_every_body_on(
    client: Client, through: Through, name: str
) -> None:
    socket = await through(name)
    arguments: list[str] = []
    for flags in FLAGS.values() if here("curl") else []:
        key = ["--header", f"authorization: Bearer {ADMIN_KEY}"]
        arguments += ["--next"] if arguments else []
        arguments += ["--unix-socket", socket, *key, "--data", BODY, *flags, *CURL]
        arguments += ["http://test/v1/events"]
    if arguments:
        assert await run("curl", *arguments) == ["202"] * len(FLAGS)
        assert await payloads(client) == [True] * len(FLAGS)


@pytest.mark.parametrize("name", here(*PROXIES))
@pytest.mark.parametrize("chunked", [False, True])
async def test_nothing_is_smuggled_through_a_proxy(
    client: Client, through: Through, name: str, chunked: bool
) -> None:
    """The outer request has no key; its body is a request with one."""
    socket = await through(name)
    inner = client.request("POST", "/v1/events", BODY.encode(), {"connection": "close"})
    framing = f"content-length: {len(inner)}"
    if chunked:
        framing, inner = (
            "transfer-encoding: chunked",
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner),
        )
    outer = f"POST /v1/events HTTP/1.1\r\nhost: test\r\nupgrade: h2c\r\n{framing}\r\n"
    for announced in ("connection: upgrade, http2-settings\r\nhttp2-settings: AAMA\r\n", ""):
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write((outer + announced + "\r\n").encode())
        await writer.drain()
        writer.write(inner)
        assert (await read_reply(reader)).status == 401
        writer.write_eof()
        while b"HTTP/1.1 2" not in (rest := await reader.read()) and rest:
            pass
        assert b"HTTP/1.1 2" not in rest
        writer.close()
    assert await payloads(client) == []
