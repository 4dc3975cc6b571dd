"""Certificates for receivers on this machine: an authority that signs one server and is forgotten.

Reads   a directory where they are kept, if one is given
Writes  there: ca.pem (to be trusted) and server.pem (certificate and private key, mode 0600);
        trusted.pem, where somebody's own authorities are to be trusted beside it

The authority's private key is never kept: to trust ca.pem is to trust this one certificate, and
no other can be made. For development and tests only.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from surehook.errors import UsageError
from surehook.receiver import x509
from surehook.receiver.statedir import (
    state_directory as state_directory,  # where they are usually kept
)

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
VALID = timedelta(days=800)  # some clients refuse what is valid for longer than 825 days
RENEW_BEFORE = timedelta(days=30)


@dataclass(frozen=True)
class Certificates:
    """Files for ssl: trust the one, serve with the other."""

    ca_file: Path
    server_file: Path


def kept(directory: Path, names: Sequence[str] = LOCAL_NAMES) -> Certificates:
    """Those of the directory, made anew if they are missing, for other names, or nearly expired."""
    files = Certificates(directory / "ca.pem", directory / "server.pem")
    try:
        if not _is_good(files, names):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            ca_pem, server_pem = made(names)
            _replace(files.server_file, server_pem, 0o600)
            _replace(files.ca_file, ca_pem, 0o644)
    except UnicodeEncodeError:
        raise UsageError(f"{names[-1][:100]!r} is not a valid host name.", "Use ASCII.") from None
    except OSError as error:
        raise UsageError(
            f"Certificates cannot be kept in {str(directory)[:200]}: {error.strerror or error}.",
            "Name a directory that can be written.",
        ) from None
    return files


def trusted_beside(files: Certificates, others: Path) -> Path:
    """One file with both: those of `others` and the one that is kept."""
    both = files.ca_file.with_name("trusted.pem")
    _replace(both, others.read_bytes() + b"\n" + files.ca_file.read_bytes(), 0o644)
    return both


def made(names: Sequence[str] = LOCAL_NAMES) -> tuple[bytes, bytes]:
    """(the authority's certificate, the server's certificate and key), as PEM."""
    now = datetime.now(UTC)
    valid = (now - timedelta(hours=1), now + VALID)
    issuer = f"surehook local authority {secrets.token_hex(4)}"
    authority_key, server_key = x509.Key(), x509.Key()
    server = x509.server(server_key, names, authority_key, issuer, valid)
    return x509.authority(authority_key, issuer, valid), server + server_key.pem()


def _is_good(files: Certificates, names: Sequence[str]) -> bool:
    """Whether a client that trusts the one file accepts a server with the other, for a while."""
    try:
        certificate = _presented(files, names[0])
    except (OSError, ValueError):  # missing, not what it should be, or refused by the client
        return False
    seconds = ssl.cert_time_to_seconds(certificate["notAfter"])
    fresh = datetime.fromtimestamp(seconds, UTC) - RENEW_BEFORE > datetime.now(UTC)
    present = {_comparable(value) for _, value in certificate.get("subjectAltName", ())}
    return fresh and {_comparable(name) for name in names} <= present


def _presented(files: Certificates, name: str) -> dict[str, Any]:
    """The server's certificate as its client sees it, after a handshake in memory."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(files.ca_file)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(files.server_file, password="")  # never ask a person for one
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return client.getpeercert() or {}


def _comparable(name: str) -> str:
    """An address has several spellings."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower()


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Whole or not at all, and never readable by others for a moment."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    beside.replace(path)
