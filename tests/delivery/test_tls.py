"""TLS: what is not proven is not trusted, and nothing is sent over it."""

from __future__ import annotations

import base64
import datetime
import secrets
import ssl
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import trustme

from support import certificates
from support.dns import NameServer
from support.hostile import HostileServer, Peer
from support.receiver import Receiver
from support.sending import request, run, settings, started
from surehook.delivery.dialer import tls_context
from surehook.delivery.outcome import Outcome
from surehook.errors import ConfigError
from surehook.model.error_codes import ErrorCode

DAY = datetime.timedelta(days=1)


def _context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def _of_authority(authority: trustme.CA, *names: str, **options: object) -> ssl.SSLContext:
    context = _context()
    authority.issue_cert(*names, **options).configure_cert(context)  # type: ignore[arg-type]
    return context


def expired() -> ssl.SSLContext:
    now = datetime.datetime.now(datetime.UTC)
    return _of_authority(
        certificates.authority(), "127.0.0.1", not_before=now - 2 * DAY, not_after=now - DAY
    )


def not_yet_valid() -> ssl.SSLContext:
    now = datetime.datetime.now(datetime.UTC)
    return _of_authority(
        certificates.authority(), "127.0.0.1", not_before=now + DAY, not_after=now + 2 * DAY
    )


def wrong_host() -> ssl.SSLContext:
    return _of_authority(certificates.authority(), "other.example.test")


def wrong_address() -> ssl.SSLContext:
    return _of_authority(certificates.authority(), "127.0.0.2")


def unknown_authority() -> ssl.SSLContext:
    return _of_authority(trustme.CA(), "127.0.0.1")


def self_signed() -> ssl.SSLContext:
    """The certificate of an authority, used as a server's own."""
    authority = trustme.CA()
    context = _context()
    with authority.cert_pem.tempfile() as chain, authority.private_key_pem.tempfile() as key:
        context.load_cert_chain(chain, key)
    return context


def old_tls(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = _of_authority(certificates.authority(), "127.0.0.1")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = version
    return context


def asks_for_a_certificate() -> ssl.SSLContext:
    context = _of_authority(certificates.authority(), "127.0.0.1")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    certificates.authority().configure_trust(context)
    return context


@cache
def refused() -> dict[str, Callable[[], ssl.SSLContext]]:
    return {
        "expired": expired,
        "not yet valid": not_yet_valid,
        "for another host": wrong_host,
        "for another address": wrong_address,
        "of an unknown authority": unknown_authority,
        "self-signed": self_signed,
        "TLS 1.0": lambda: old_tls(ssl.TLSVersion.TLSv1),
        "TLS 1.1": lambda: old_tls(ssl.TLSVersion.TLSv1_1),
        "asks for a client certificate": asks_for_a_certificate,
    }


def answer(peer: Peer) -> None:
    peer.read_request()
    peer.answer()
    peer.hang()


def send_to(server: HostileServer) -> Outcome:
    async def scenario() -> Outcome:
        async with started() as sender:
            return await sender.send(request(server.url))

    return run(scenario())


@pytest.mark.parametrize("kind", refused())
def test_nothing_is_sent_over_tls_that_is_not_proven(kind: str) -> None:
    with HostileServer(answer, tls=refused()[kind]()) as server:
        outcome = send_to(server)
    assert outcome.error_code is ErrorCode.TLS_FAILED
    assert not outcome.sent and outcome.failure_detail
    assert server.bytes_seen == 0 and server.posts == 0


def dhe_alone(directory: Path) -> ssl.SSLContext:
    """A key exchange whose modulus the server makes up; it need not even be a prime."""
    modulus = (secrets.randbits(2048) | 1 << 2047 | 1).to_bytes(257, "big")
    numbers = b"\x02\x82\x01\x01" + modulus + b"\x02\x01\x02"
    der = b"\x30\x82" + len(numbers).to_bytes(2, "big") + numbers
    lines = base64.encodebytes(der).decode("ascii")
    file = directory / "dh.pem"
    file.write_text(f"-----BEGIN DH PARAMETERS-----\n{lines}-----END DH PARAMETERS-----\n")
    context = _of_authority(certificates.authority(), "127.0.0.1", key_type=trustme.KeyType.RSA)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("DHE+AESGCM")
    context.load_dh_params(str(file))
    return context


def test_no_endpoint_makes_the_sender_calculate_with_numbers_of_its_choice(tmp_path: Path) -> None:
    with HostileServer(answer, tls=dhe_alone(tmp_path)) as server:
        outcome = send_to(server)
    assert outcome.error_code is ErrorCode.TLS_FAILED and not outcome.sent
    assert server.posts == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_current_tls_is_accepted(version: ssl.TLSVersion) -> None:
    context = _of_authority(certificates.authority(), "127.0.0.1")
    context.minimum_version = context.maximum_version = version
    with HostileServer(answer, tls=context) as server:
        assert send_to(server).delivered


async def test_a_name_is_verified_as_that_name() -> None:
    async with NameServer() as names, Receiver() as receiver:
        names.answer("a.example.test", ["127.0.0.1"])
        names.answer("example.test", ["127.0.0.1"])
        async with started(settings(name_servers=(names.address,))) as sender:
            good = await sender.send(request(f"https://a.example.test:{receiver.port}/"))
            bad = await sender.send(request(f"https://example.test:{receiver.port}/"))
    assert good.delivered
    assert bad.error_code is ErrorCode.TLS_FAILED and receiver.count == 1


async def test_without_the_ca_file_a_private_authority_is_not_trusted() -> None:
    async with Receiver() as receiver, started(settings(ca_file=None)) as sender:
        outcome = await sender.send(request(receiver.url))
    assert outcome.error_code is ErrorCode.TLS_FAILED and receiver.count == 0


def test_a_ca_file_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        tls_context(str(tmp_path / "missing.pem"))
    empty = tmp_path / "empty.pem"
    empty.write_text("nonsense")
    with pytest.raises(ConfigError, match="not PEM"):
        tls_context(str(empty))


def test_the_context_verifies_and_starts_at_tls_1_2() -> None:
    context = tls_context(None)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
