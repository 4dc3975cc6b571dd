"""What one HTTPS POST costs: our sender against aiohttp, in the same run.

Reads   nothing
Writes  figures to standard output; traffic goes to loopback only

    python bench/sender.py [--quick] [--json]

The receiver runs in processes of its own; what is counted is the CPU time of the sending process.
Both clients sign every body (HMAC), send the same headers, follow no redirect, read at most 64 KiB
and have a total deadline. aiohttp has no address guard and no per-connection checks.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import resource
import ssl
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import certificates
from support.dns import NameServer
from support.receiver import Answer, Receiver
from surehook.delivery import Request
from surehook.delivery.client import HttpsSender, SenderSettings
from surehook.delivery.pool import PoolLimits
from surehook.delivery.signature import (
    Signer,
    message_id,
    new_shared_secret,
    parse_secret,
    signed_headers,
)

try:
    import aiohttp
except ImportError:
    sys.exit("The comparison needs aiohttp: pip install aiohttp")

BODY = json.dumps({"order": 4711, "text": "x" * 990}).encode()
DEADLINE = 30.0
LOOPBACK = ("127.0.0.0/8",)
Post = Callable[[int], Awaitable[None]]


# --- The receiving side, in a process of its own -------------------------------------------------


def serve(pipe: Pipe, authority: tuple[bytes, bytes], delay: float) -> None:
    """Answer until the pipe is closed; the parent's authority signs the certificate."""
    import trustme

    certificates.authority.cache_clear()
    certificates.authority = lambda: trustme.CA.from_pem(*authority)
    uvloop.run(_serve(pipe, delay))


async def _serve(pipe: Pipe, delay: float) -> None:
    async with Receiver(record=False) as receiver, NameServer(ttl=300) as names:
        receiver.script("/slow", Answer(delay=delay))
        names.answer_everything(["127.0.0.1"])
        pipe.send((receiver.port, names.address))
        await asyncio.get_running_loop().run_in_executor(None, _until_told, pipe)
        pipe.send((receiver.count, receiver.connections))


def _until_told(pipe: Pipe) -> None:
    pipe.recv()


class Receivers:
    """Some receivers, each with a process."""

    def __init__(self, count: int = 1, delay: float = 0.0) -> None:
        spawn = multiprocessing.get_context("spawn")
        ca = certificates.authority()
        pems = (ca.cert_pem.bytes(), ca.private_key_pem.bytes())
        self.pipes: list[Pipe] = []
        self.processes = []
        for _ in range(count):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=serve, args=(theirs, pems, delay), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        told = [pipe.recv() for pipe in self.pipes]
        self.ports: list[int] = [port for port, _ in told]
        self.name_servers: list[str] = [address for _, address in told]

    def stop(self) -> tuple[int, int]:
        """Requests and connections that arrived."""
        for pipe in self.pipes:
            pipe.send("stop")
        counts = [pipe.recv() for pipe in self.pipes]
        for process in self.processes:
            process.join(10)
        return sum(count for count, _ in counts), sum(opened for _, opened in counts)


# --- The two clients -----------------------------------------------------------------------------


def headers_for(signer: Signer, number: int) -> tuple[tuple[str, str], ...]:
    return signed_headers(
        [signer], message_id("0123456789", number, 7), 1_700_000_000, BODY, "order.created"
    )


async def with_surehook(urls: list[str], run: Callable[[Post], Awaitable[float]]) -> float:
    limits = PoolLimits(per_origin=0 if urls[0].endswith("/new") else 256)
    sender = HttpsSender(
        SenderSettings(allow_networks=LOOPBACK, ca_file=str(certificates.ca_file()), pool=limits)
    )
    await sender.start()
    signer = parse_secret(new_shared_secret().reveal())

    async def post(number: int) -> None:
        url = urls[number % len(urls)]
        outcome = await sender.send(Request(url, BODY, headers_for(signer, number), DEADLINE))
        if not outcome.delivered:
            raise RuntimeError(f"not delivered: {outcome}")

    try:
        return await run(post)
    finally:
        await sender.close()


async def with_aiohttp(urls: list[str], run: Callable[[Post], Awaitable[float]]) -> float:
    context = ssl.create_default_context(cafile=str(certificates.ca_file()))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    signer = parse_secret(new_shared_secret().reveal())
    connector = aiohttp.TCPConnector(ssl=context, limit=256, force_close=urls[0].endswith("/new"))
    timeout = aiohttp.ClientTimeout(total=DEADLINE)
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=jar, auto_decompress=False
    ) as session:

        async def post(number: int) -> None:
            url = urls[number % len(urls)]
            headers = headers_for(signer, number)
            async with session.post(
                url, data=BODY, headers=headers, allow_redirects=False
            ) as response:
                await response.content.read(64 * 1024)
                if response.status != 200:
                    raise RuntimeError(f"not delivered: {response.status}")

        return await run(post)


# --- Measuring -----------------------------------------------------------------------------------


async def in_flight(post: Post, count: int, width: int) -> float:
    """CPU µs of this process per POST, `width` at a time."""
    numbers = iter(range(count))

    async def lane() -> None:
        for number in numbers:
            await post(number)

    for _ in range(3):  # all connections open, all caches warm
        await asyncio.gather(*(post(number) for number in range(width)))
    gc.collect()
    begin = time.process_time()
    await asyncio.gather(*(lane() for _ in range(width)))
    return (time.process_time() - begin) * 1e6 / count


def compare(name: str, urls: list[str], count: int, rounds: int) -> dict[str, float]:
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(uvloop.run(with_surehook(urls, lambda post: in_flight(post, count, 64))))
        theirs.append(uvloop.run(with_aiohttp(urls, lambda post: in_flight(post, count, 64))))
    mine, other = statistics.median(ours), statistics.median(theirs)
    print(
        f"{name:<28} surehook {mine:7.1f} µs   aiohttp {other:7.1f} µs   {other / mine:.2f} x"
        f"   (surehook {min(ours):.1f}-{max(ours):.1f})",
        file=sys.stderr,
    )
    return {"surehook_us": mine, "aiohttp_us": other, "ratio": other / mine}


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


async def many_endpoints(port: int, name_server: str, count: int) -> dict[str, float]:
    """So many endpoints, each with a name of its own, all in flight at once, then all idle."""
    sender = HttpsSender(
        SenderSettings(
            allow_networks=LOOPBACK,
            ca_file=str(certificates.ca_file()),
            name_servers=(name_server,),
            pool=PoolLimits(total=count, idle_seconds=300),
        )
    )
    await sender.start()
    signer = parse_secret(new_shared_secret().reveal())

    def request(number: int) -> Request:
        url = f"https://e{number}.example.test:{port}/slow"
        return Request(url, BODY, headers_for(signer, number), 60.0)

    gc.collect()
    before, begin, cpu = resident_mb(), time.perf_counter(), time.process_time()
    outcomes = await asyncio.gather(*(sender.send(request(number)) for number in range(count)))
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    idle = sender.idle_connections
    gc.collect()
    growth = resident_mb() - before
    await sender.close()
    results = Counter(str(outcome.error_code or "delivered") for outcome in outcomes)
    print(
        f"{count} endpoints at once        {dict(results)} in {seconds:.1f} s, "
        f"{cpu * 1e6 / count:.0f} µs CPU each, {idle} kept, "
        f"{growth * 1000 / max(1, idle):.0f} kB per idle endpoint",
        file=sys.stderr,
    )
    return {
        "delivered": results["delivered"],
        "seconds": seconds,
        "cpu_us": cpu * 1e6 / count,
        "idle": idle,
        "kb_per_idle_endpoint": growth * 1000 / max(1, idle),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    scale, rounds = (0.2, 1) if options.quick else (1.0, 3)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    figures: dict[str, dict[str, float]] = {}
    receivers = Receivers()
    base = f"https://127.0.0.1:{receivers.ports[0]}"
    figures["keep_alive"] = compare("keep-alive, 64 in flight", [base], int(20_000 * scale), rounds)
    figures["new"] = compare("a new connection each", [f"{base}/new"], int(2_000 * scale), rounds)
    receivers.stop()

    receivers = Receivers(8)
    urls = [f"https://127.0.0.1:{port}" for port in receivers.ports]
    figures["hosts_8"] = compare("8 hosts, 64 in flight", urls, int(20_000 * scale), rounds)
    receivers.stop()

    count = int(2_000 * max(scale, 0.5))
    receivers, elsewhere = Receivers(delay=8.0), Receivers()
    figures["many"] = uvloop.run(
        many_endpoints(receivers.ports[0], elsewhere.name_servers[0], count)
    )
    arrived, opened = receivers.stop()
    elsewhere.stop()
    figures["many"] |= {"arrived": arrived, "connections": opened}
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
