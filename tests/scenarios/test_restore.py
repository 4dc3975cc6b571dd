"""A dump, an empty server, a running system again: the same keys, nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from support import Configure, certificates, dumps
from support.commands import run_command
from support.http import Client
from support.pipeline import ALL, FakeSender, running
from support.receiver import Receiver
from support.rows import a_subscription, an_event
from support.servers import ENCRYPTION_KEY, Server, connected, private_server
from support.waiting import PATIENT, until_row
from surehook.process.doctor import examine
from surehook.store.findings import Level
from surehook.store.logins import DatabaseAccess

COMPLETED = "SELECT count(*) FROM webhook_delivery_sagas WHERE status = 'Completed'"
SOME_COMPLETED = "SELECT count(*) >= 5 FROM webhook_delivery_sagas WHERE status = 'Completed'"
SETTINGS: dict[str, object] = {
    "database.allow_unsafe": True,
    "delivery.allow_networks": "127.0.0.0/8",
    "delivery.ca_file": str(certificates.ca_file()),
    "api.listen": "127.0.0.1:0",
}


def environment(access: DatabaseAccess) -> dict[str, str]:
    return {
        **PATIENT,
        "SUREHOOK_DATABASE_URL": access.url,
        "SUREHOOK_ROLE_SECRET": access.role_secret or "",
        "SUREHOOK_ENCRYPTION_KEY": access.encryption_key or "",
        "SUREHOOK_CONFIG": os.devnull,
    }


async def command(access: DatabaseAccess, *arguments: str) -> str:
    done = await asyncio.to_thread(run_command, arguments, environment(access))
    assert done.code == 0, done
    return done.out


async def test_a_restored_system_has_the_same_keys_and_delivers_the_rest_once(
    owner: Any, server: Server, access: DatabaseAccess, configure: Configure, tmp_path: Path
) -> None:
    made = await command(access, "key", "create", "--name", "shop", "--scope", "ingest", "--json")
    key = json.loads(made)["key"]
    async with Receiver() as receiver:
        await a_subscription(owner, callback_url=f"{receiver.url}/hook")
        async with running(configure(SETTINGS), access, https=True):
            for _ in range(10):
                await an_event(owner)
            await until_row(owner, COMPLETED, wanted=10)
        for _ in range(5):
            await an_event(owner)  # stored, not routed yet
        dumps.dump(server, access.url, tmp_path / "dump")

        with private_server(server.kind) as other:
            restored = DatabaseAccess(other.url, access.role_secret, ENCRYPTION_KEY)
            dumps.restore(other, tmp_path / "dump", other.url)
            await command(restored, "migrate")
            config = configure(SETTINGS, environment(restored))
            findings = await examine(config, restored)
            assert [one for one in findings if one.level is Level.WRONG] == []
            async with (
                connected(other.url) as admin,
                running(config, restored, ("api", *ALL), https=True) as process,
            ):
                assert process.api is not None
                event = {"event_type": "order.paid", "payload": {"after": True}}
                answer = await Client(process.api.address, key).post("/v1/events", event)
                assert answer.status == 202
                await until_row(admin, COMPLETED, wanted=16)
            await command(restored, "check")
        sent = Counter(request.headers["webhook-id"] for request in receiver.requests)
    assert len(sent) == 16 and set(sent.values()) == {1}


async def test_what_was_acknowledged_before_a_dump_under_load_is_restored_and_delivered(
    owner: Any, server: Server, access: DatabaseAccess, configure: Configure, tmp_path: Path
) -> None:
    await a_subscription(owner)
    acknowledged: list[int] = []

    async def publish() -> None:
        async with connected(access.url) as application:
            while True:
                acknowledged.append(await an_event(application))

    # The dump has leases of workers that are gone; they expire when their time is over.
    leases = {"delivery.request_timeout": "1s", "worker.lease_duration": "6s"}
    async with running(configure({**SETTINGS, **leases}), access):
        publishing = asyncio.create_task(publish())
        await until_row(owner, SOME_COMPLETED, wanted=True)
        before = set(acknowledged)
        await asyncio.to_thread(dumps.dump, server, access.url, tmp_path / "dump")
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
    assert len(acknowledged) > len(before) > 0  # it went on during the dump

    with private_server(server.kind) as other:
        restored = DatabaseAccess(other.url, access.role_secret, ENCRYPTION_KEY)
        dumps.restore(other, tmp_path / "dump", other.url)
        await command(restored, "migrate")
        sender = FakeSender()
        async with connected(other.url) as admin:
            kept = {row[0] for row in await admin.fetch("SELECT id FROM events")}
            assert before <= kept
            async with running(configure(SETTINGS, environment(restored)), restored, sender=sender):
                await until_row(admin, COMPLETED, wanted=len(kept))
            rows = await admin.fetch("SELECT event_id FROM webhook_delivery_sagas")
        assert sorted(row[0] for row in rows) == sorted(kept)
        sent = Counter(dict(request.headers)["webhook-id"] for request in sender.requests)
        assert set(sent.values()) <= {1}
        await command(restored, "check")
