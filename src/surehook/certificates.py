"""Certificates for receivers on this machine: an authority that signs one server and is forgotten.

Reads   a directory where they are kept, if one is given
Writes  there: ca.pem (to be trusted) and server.pem (certificate and private key, mode 0600);
        trusted.pem, where somebody's own authorities are to be trusted beside it

The authority's private key is never kept: whoever trusts ca.pem trusts this one certificate, and
nobody can make another. For development and tests only.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from surehook.statedir import state_directory as state_directory  # where they are usually kept

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
    if not _is_good(files, names):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ca_pem, server_pem = made(names)
        _replace(files.server_file, server_pem, 0o600)
        _replace(files.ca_file, ca_pem, 0o644)
    return files


def trusted_beside(files: Certificates, others: Path) -> Path:
    """One file with both: those of `others` and the one that is kept."""
    both = files.ca_file.with_name("trusted.pem")
    _replace(both, others.read_bytes() + b"\n" + files.ca_file.read_bytes(), 0o644)
    return both


def made(names: Sequence[str] = LOCAL_NAMES) -> tuple[bytes, bytes]:
    """(the authority's certificate, the server's certificate and key), as PEM."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    server_key = ec.generate_private_key(ec.SECP256R1())
    issuer = _name(f"surehook local authority {secrets.token_hex(4)}")
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _begun(issuer, issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(authority_id, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    server = (
        _begun(_name(names[0]), issuer, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    key_pem = server_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    pem = serialization.Encoding.PEM
    return authority.public_bytes(pem), server.public_bytes(pem) + key_pem


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + VALID)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _is_good(files: Certificates, names: Sequence[str]) -> bool:
    try:
        authority = x509.load_pem_x509_certificate(files.ca_file.read_bytes())
        server = x509.load_pem_x509_certificate(files.server_file.read_bytes())
        server.verify_directly_issued_by(authority)
        present = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    except Exception as error:  # a signature that does not fit
        if type(error).__name__ != "InvalidSignature":
            raise
        return False
    fresh = server.not_valid_after_utc - RENEW_BEFORE > datetime.now(UTC)
    return fresh and set(_alternatives(names)) <= set(present)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Whole or not at all, and never readable by others for a moment."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    beside.replace(path)
