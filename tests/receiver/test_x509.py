"""Certificates made with the standard library, as another implementation reads them."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509 as other
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.verification import PolicyBuilder, Store

from surehook.receiver import x509

NOW = datetime.now(UTC).replace(microsecond=0)
VALID = (NOW - timedelta(hours=1), NOW + timedelta(days=800))
NAMES = ("localhost", "127.0.0.1", "::1")


@pytest.fixture(params=range(8))  # signatures differ in length by chance
def pair(request: pytest.FixtureRequest) -> tuple[x509.Key, bytes, bytes]:
    signer, key = x509.Key(), x509.Key()
    authority = x509.authority(signer, "an authority", VALID)
    return key, authority, x509.server(key, NAMES, signer, "an authority", VALID)


def test_another_implementation_trusts_the_server_by_its_authority(
    pair: tuple[x509.Key, bytes, bytes],
) -> None:
    _, authority, server = pair
    trusted = other.load_pem_x509_certificate(authority)
    presented = other.load_pem_x509_certificate(server)
    for subject in (other.DNSName("localhost"), other.IPAddress(ipaddress.ip_address("::1"))):
        verifier = PolicyBuilder().store(Store([trusted])).time(NOW).build_server_verifier(subject)
        assert verifier.verify(presented, []) == [presented, trusted]


def test_a_certificate_says_what_it_was_made_for(pair: tuple[x509.Key, bytes, bytes]) -> None:
    key, authority, server = pair
    presented = other.load_pem_x509_certificate(server)
    assert (presented.not_valid_before_utc, presented.not_valid_after_utc) == VALID
    names = presented.extensions.get_extension_for_class(other.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == list(NAMES)
    private = load_pem_private_key(key.pem(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.public_key() == presented.public_key()
    signs = other.load_pem_x509_certificate(authority).extensions
    assert signs.get_extension_for_class(other.BasicConstraints).value.path_length == 0
