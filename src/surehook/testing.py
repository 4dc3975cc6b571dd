"""For your own tests: a local endpoint that receives, checks and records webhooks.

Reads   what is sent to it        Writes  a certificate in a temporary directory, removed at exit

    def test_orders(surehook_receiver):                  # the pytest fixture, or:
        with surehook.testing.Receiver() as receiver:    # plain Python
            ... create a subscription for receiver.url with receiver.secret ...
            ... or hand receiver.ca_file to whatever else sends to it ...
            [delivery] = receiver.wait_for(1)
            assert delivery.json() == {"order": 17}

It also answers verification challenges. docs/testing.md shows more.
"""

from __future__ import annotations

import atexit
import base64
import hashlib
import hmac
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Self

from surehook.receiver.listen import Arrival, Behaviour, Listener

__all__ = ["Arrival", "Receiver", "new_secret", "signed_headers"]


def new_secret() -> str:
    """A fresh `whsec_` secret."""
    return "whsec_" + base64.b64encode(os.urandom(32)).decode()


def signed_headers(
    secret: str,
    body: bytes,
    *,
    event_type: str = "test.event",
    webhook_id: str = "msg_0123456789_1_1",
    timestamp: int | None = None,
) -> dict[str, str]:
    """The headers of a genuine delivery of `body`: for testing your own endpoint without us."""
    stamp = int(time.time()) if timestamp is None else timestamp
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    digest = hmac.new(key, f"{webhook_id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "content-type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
        "webhook-event-type": event_type,
    }


class Receiver:
    """An HTTPS endpoint on 127.0.0.1 for as long as the `with` lasts."""

    def __init__(self, secret: str | Sequence[str] | None = None, *, port: int = 0) -> None:
        """`secret`: one or several `whsec_` secrets (or `whpk_` keys); one is made if left out."""
        self.secrets = [secret] if isinstance(secret, str) else list(secret or [new_secret()])
        self.secret = self.secrets[0]
        self.deliveries: list[Arrival] = []
        """Genuine ones, in order of arrival, whatever they were answered."""
        self.refused: list[Arrival] = []
        """Those with a wrong signature or none; they got 401."""
        self.challenges: list[Arrival] = []
        self._port = port
        self._news = threading.Condition()
        self._listener: Listener | None = None

    # --- what it does -----------------------------------------------------------------------------

    def answer(self, status: int, *, times: int | None = None, delay: float = 0.0) -> None:
        """Answer the next `times` deliveries so (then 200 again); without `times`, all of them."""
        self._behave(Behaviour(status=status, delay=delay), times)

    def fail(self, times: int | None = None, status: int = 500) -> None:
        """The same with an error."""
        self._behave(Behaviour(status=status), times)

    def hang(self, times: int | None = None) -> None:
        """Never answer; the sender runs into its timeout."""
        self._behave(Behaviour(hang=True), times)

    def recover(self) -> None:
        """Answer 200 from now on."""
        self._open().next.clear()
        self._open().usual = Behaviour()

    def accept(self, *secrets: str) -> None:
        """Check against these secrets from now on, as after a rotation."""
        self.secrets = list(secrets)
        self.secret = secrets[0]
        self._open().secrets = self.secrets

    # --- what came --------------------------------------------------------------------------------

    def wait_for(self, count: int, timeout: float = 10.0) -> list[Arrival]:
        """All deliveries once there are `count` of them; TimeoutError says what came instead."""
        with self._news:
            arrived = self._news.wait_for(lambda: len(self.deliveries) >= count, timeout)
        if not arrived:
            reasons = ", ".join(sorted({arrival.reason for arrival in self.refused}))
            refused = f"; refused: {len(self.refused)} ({reasons})" if self.refused else ""
            raise TimeoutError(
                f"{len(self.deliveries)} of {count} deliveries arrived in {timeout:g} s{refused}"
            )
        return list(self.deliveries)

    def clear(self) -> None:
        """Forget what came so far."""
        with self._news:
            for arrivals in (self.deliveries, self.refused, self.challenges):
                arrivals.clear()

    # --- its life ---------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._open().port}"

    @property
    def ca_file(self) -> Path:
        """What a sender must trust: SUREHOOK_CA_FILE, or your HTTP client's setting."""
        return _files()[0]

    def start(self) -> Self:
        if self._listener is None:
            self._listener = Listener(
                self._arrived, _files()[1], secrets=self.secrets, port=self._port
            )
        return self

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> Listener:
        if self._listener is None:
            raise RuntimeError("the receiver is not open: use it in a `with`, or start() it")
        return self._listener

    def _behave(self, behaviour: Behaviour, times: int | None) -> None:
        if times is None:
            self._open().usual = behaviour
        else:
            self._open().next.extend([behaviour] * times)

    def _arrived(self, arrival: Arrival) -> None:
        if arrival.message is None:
            kept = self.refused
        else:
            kept = self.challenges if arrival.challenge else self.deliveries
        with self._news:
            kept.append(arrival)
            self._news.notify_all()


@cache
def _files() -> tuple[Path, Path]:
    """The certificates of this process."""
    from surehook.receiver import certificates

    directory = Path(tempfile.mkdtemp(prefix="surehook-receiver-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    files = certificates.kept(directory)
    return files.ca_file, files.server_file
