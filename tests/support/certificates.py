"""A certificate authority for tests, made once per process; nothing outside trusts it.

Reads   nothing
Writes  a directory of its own under the system's temporary directory, removed at exit
"""

from __future__ import annotations

import atexit
import shutil
import ssl
import tempfile
from functools import cache
from pathlib import Path

import trustme

NAMES = ("localhost", "127.0.0.1", "::1", "*.example.test")


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def ca_file() -> Path:
    """The authority's certificate as a file, for SUREHOOK_CA_FILE and the like."""
    directory = Path(tempfile.mkdtemp(prefix="surehook-test-ca-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = directory / "ca.pem"
    authority().cert_pem.write_to_path(str(path))
    return path


@cache
def server_context(*names: str) -> ssl.SSLContext:
    """A server's context with a certificate of our authority for these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(*(names or NAMES)).configure_cert(context)
    return context
