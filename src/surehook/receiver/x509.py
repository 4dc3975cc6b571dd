"""X.509 certificates for this machine's own receivers, made with the standard library alone.

Reads   nothing     Writes  nothing: names and dates in, PEM out

Just enough of DER and of ECDSA on P-256 to sign two certificates, so that surehook.testing needs no
package. Keys come from `secrets`, but the arithmetic takes a time that depends on them: for
certificates that live on one machine, never for a key that others may try to guess.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

# The curve y² = x³ - 3x + b over the integers modulo P; N is the order of the point G (FIPS 186-5).
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
Point = tuple[int, int] | None  # None: the point at infinity

INTEGER, BITS, OCTETS, OID, UTF8, TIME, SEQUENCE, SET = 2, 3, 4, 6, 12, 23, 0x30, 0x31
BOOLEAN = 1
COMMON_NAME = "2.5.4.3"
PUBLIC_KEY, CURVE, SIGNATURE = "1.2.840.10045.2.1", "1.2.840.10045.3.1.7", "1.2.840.10045.4.3.2"
KEY_IDENTIFIER, KEY_USAGE, ALTERNATIVES = "2.5.29.14", "2.5.29.15", "2.5.29.17"
CONSTRAINTS, AUTHORITY, EXTENDED_USAGE = "2.5.29.19", "2.5.29.35", "2.5.29.37"
SERVER_AUTHENTICATION = "1.3.6.1.5.5.7.3.1"


class Key:
    """A private key with its public half."""

    def __init__(self) -> None:
        self.secret = 1 + secrets.randbelow(N - 1)
        point = _multiplied(self.secret, G)
        assert point is not None
        self.public = b"\x04" + point[0].to_bytes(32, "big") + point[1].to_bytes(32, "big")
        # RFC 5280, 4.2.1.2: any value that is the public key's own.
        self.identifier = hashlib.sha256(self.public).digest()[:20]

    def signature(self, message: bytes) -> bytes:
        digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
        while True:
            nonce = 1 + secrets.randbelow(N - 1)
            point = _multiplied(nonce, G)
            assert point is not None
            r = point[0] % N
            s = pow(nonce, -1, N) * (digest + r * self.secret) % N
            if r and s:
                return _tlv(SEQUENCE, _integer(r), _integer(s))

    def pem(self) -> bytes:
        """PKCS #8, not encrypted."""
        public = _tlv(0xA1, _bits(self.public))
        inner = _tlv(SEQUENCE, _integer(1), _tlv(OCTETS, self.secret.to_bytes(32, "big")), public)
        outer = _tlv(SEQUENCE, _integer(0), _algorithm(), _tlv(OCTETS, inner))
        return _pem("PRIVATE KEY", outer)


def authority(key: Key, name: str, valid: tuple[datetime, datetime]) -> bytes:
    """A certificate that signs itself and may sign others, which may sign none; PEM."""
    usage = _tlv(BITS, b"\x01\x06")  # keyCertSign, cRLSign
    constraints = _tlv(SEQUENCE, _tlv(BOOLEAN, b"\xff"), _integer(0))
    extensions = [
        _extension(CONSTRAINTS, constraints, critical=True),
        _extension(KEY_USAGE, usage, critical=True),
        _extension(KEY_IDENTIFIER, _tlv(OCTETS, key.identifier)),
    ]
    return _certificate(key, name, key, name, valid, extensions)


def server(
    key: Key, names: Sequence[str], signer: Key, issuer: str, valid: tuple[datetime, datetime]
) -> bytes:
    """A certificate of a TLS server for these host names and addresses; PEM."""
    extensions = [
        _extension(ALTERNATIVES, _tlv(SEQUENCE, *map(_alternative, names))),
        _extension(CONSTRAINTS, _tlv(SEQUENCE), critical=True),
        _extension(KEY_USAGE, _tlv(BITS, b"\x07\x80"), critical=True),  # digitalSignature
        _extension(EXTENDED_USAGE, _tlv(SEQUENCE, _oid(SERVER_AUTHENTICATION))),
        _extension(AUTHORITY, _tlv(SEQUENCE, _tlv(0x80, signer.identifier))),
    ]
    return _certificate(key, names[0], signer, issuer, valid, extensions)


def _certificate(
    key: Key,
    subject: str,
    signer: Key,
    issuer: str,
    valid: tuple[datetime, datetime],
    extensions: list[bytes],
) -> bytes:
    signed = _tlv(
        SEQUENCE,
        _tlv(0xA0, _integer(2)),  # version 3
        _integer(1 + secrets.randbits(120)),
        _tlv(SEQUENCE, _oid(SIGNATURE)),
        _name(issuer),
        _tlv(SEQUENCE, *map(_time, valid)),
        _name(subject),
        _tlv(SEQUENCE, _algorithm(), _bits(key.public)),
        _tlv(0xA3, _tlv(SEQUENCE, *extensions)),
    )
    signature = _bits(signer.signature(signed))
    whole = _tlv(SEQUENCE, signed, _tlv(SEQUENCE, _oid(SIGNATURE)), signature)
    return _pem("CERTIFICATE", whole)


# --- DER ------------------------------------------------------------------------------------------


def _tlv(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + content


def _integer(value: int) -> bytes:
    return _tlv(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _tlv(BITS, b"\0", content)


def _oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    return _tlv(OID, bytes([40 * first + second]), *map(_base_128, rest))


def _base_128(value: int) -> bytes:
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(0x80 | value & 0x7F)
    return bytes(reversed(digits))


def _algorithm() -> bytes:
    return _tlv(SEQUENCE, _oid(PUBLIC_KEY), _oid(CURVE))


def _name(common_name: str) -> bytes:
    value = _tlv(UTF8, common_name[:64].encode())
    return _tlv(SEQUENCE, _tlv(SET, _tlv(SEQUENCE, _oid(COMMON_NAME), value)))


def _time(when: datetime) -> bytes:
    return _tlv(TIME, when.astimezone(UTC).strftime("%y%m%d%H%M%SZ").encode())


def _extension(identifier: str, content: bytes, *, critical: bool = False) -> bytes:
    flag = _tlv(BOOLEAN, b"\xff") if critical else b""
    return _tlv(SEQUENCE, _oid(identifier), flag, _tlv(OCTETS, content))


def _alternative(name: str) -> bytes:
    try:
        return _tlv(0x87, ipaddress.ip_address(name).packed)
    except ValueError:
        return _tlv(0x82, name.encode("ascii"))


def _pem(label: str, content: bytes) -> bytes:
    lines = base64.encodebytes(content).decode().replace("\n", "")
    folded = "\n".join(lines[start : start + 64] for start in range(0, len(lines), 64))
    return f"-----BEGIN {label}-----\n{folded}\n-----END {label}-----\n".encode()


# --- The curve ------------------------------------------------------------------------------------


def _multiplied(factor: int, point: Point) -> Point:
    result: Point = None
    while factor:
        if factor & 1:
            result = _sum(result, point)
        point = _sum(point, point)
        factor >>= 1
    return result


def _sum(one: Point, other: Point) -> Point:
    if one is None or other is None:
        return one or other
    if one[0] == other[0]:
        if (one[1] + other[1]) % P == 0:
            return None
        slope = 3 * (one[0] * one[0] - 1) * pow(2 * one[1], -1, P) % P
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, P) % P
    x = (slope * slope - one[0] - other[0]) % P
    return x, (slope * (one[0] - x) - one[1]) % P
