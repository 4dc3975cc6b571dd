"""TLS 1.3 as no library sends it: the server's end, written record by record.

Reads   what is sent to it, by way of the standard library
Writes  records of its own making: tickets, key updates, alerts, several of them in one piece

    def script(peer: Peer) -> None:             # for a HostileServer(script, plain=True)
        records = Records(peer)                 # shakes hands
        records.read_request()
        records.send((PAYLOAD, answer), (ALERT, CLOSE_NOTIFY))

The key log of the standard library gives the keys for what is sent.
"""

from __future__ import annotations

import ssl
import struct
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from support import certificates
from support.hostile import Peer

ALERT, HANDSHAKE, PAYLOAD = 21, 22, 23
CLOSE_NOTIFY = b"\x01\x00"
KEY_UPDATE_REQUESTED = b"\x18\x00\x00\x01\x01"
# Lifetime, age_add, no nonce, a ticket of one byte, no extensions.
TICKET = b"\x04\x00\x00\x0e" + struct.pack(">IIB", 3600, 1, 0) + b"\x00\x01t" + b"\x00\x00"

Record = tuple[int, bytes]


class Records:
    """The server's end of one connection; `first` leaves together with the handshake's messages."""

    def __init__(self, peer: Peer, *first: Record) -> None:
        self._peer = peer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with tempfile.TemporaryDirectory() as directory:
            log = Path(directory) / "keys"
            context = _context(log)
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
            while not self._shaken():
                flight = self._outgoing.read()
                if flight:
                    self._use(_secret(log.read_text(encoding="ascii")))
                    flight += self.sealed(*first)
                    peer.send(flight)
                self._incoming.write(peer.read())
            del context  # closes the key log

    def _shaken(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read(self) -> bytes:
        """Some of what was sent, at least a byte."""
        while True:
            try:
                return self._tls.read(65536)
            except ssl.SSLWantReadError:
                self._incoming.write(self._peer.read())

    def read_request(self, body: bytes = b"{}") -> None:
        """A complete POST with this body, or what is left of it; counted."""
        data = bytearray()
        while not data.endswith(body[-1000:]):
            data += self.read()
        self._peer.server.count_post(bytes(data))

    def send(self, *records: Record) -> None:
        self._peer.send(self.sealed(*records))

    def sealed(self, *records: Record) -> bytes:
        return b"".join(self._seal(kind, content) for kind, content in records)

    def _seal(self, kind: int, content: bytes) -> bytes:
        head = b"\x17\x03\x03" + struct.pack(">H", len(content) + 17)
        nonce = (self._iv ^ self._number).to_bytes(12, "big")
        self._number += 1
        record = head + self._key.encrypt(nonce, content + bytes([kind]), head)
        if (kind, content) == (HANDSHAKE, KEY_UPDATE_REQUESTED):
            self._use(_expand(self._secret, b"traffic upd", 48))
        return record

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._key = AESGCM(_expand(secret, b"key", 32))
        self._iv = int.from_bytes(_expand(secret, b"iv", 12), "big")
        self._number = 0


def _context(log: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates.authority().issue_cert("127.0.0.1").configure_cert(context)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # the first record after the handshake is ours
    context.keylog_filename = str(log)
    return context


def _secret(log: str) -> bytes:
    lines = [line for line in log.splitlines() if line.startswith("SERVER_TRAFFIC_SECRET_0")]
    return bytes.fromhex(lines[0].split()[2])


def _expand(secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446, for TLS_AES_256_GCM_SHA384: what both ends prefer."""
    label = b"tls13 " + label
    info = struct.pack(">HB", length, len(label)) + label + b"\x00"
    return HKDFExpand(hashes.SHA384(), length, info).derive(secret)
