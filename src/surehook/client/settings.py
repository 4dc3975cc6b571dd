"""What both clients are made with, and the requests that come of it. Reads the environment."""

from __future__ import annotations

import os
import uuid
from math import inf
from typing import TYPE_CHECKING, Any

from surehook import __version__
from surehook.client.calls import Call
from surehook.client.tries import Retry, Tries
from surehook.client.wire import Distrusted, NotConnected, Origin, parse_url, request_bytes

if TYPE_CHECKING:  # ssl is slow to import: only for https
    import ssl
    from pathlib import Path

TIMEOUT_SECONDS = 10.0
# Connections kept for the next call; more are opened when needed and closed after use.
IDLE_MAX = 16
# A server closes idle connections too: do not keep one for longer than common servers do.
IDLE_SECONDS_MAX = 20.0


class ClientSettings:
    """Where the API is, who asks, and how patiently."""

    def __init__(
        self,
        url: str | None,
        key: str | None,
        timeout: float,
        retry: Retry | None,
        ca_file: str | Path | None,
    ) -> None:
        url = url or os.environ.get("SUREHOOK_URL")
        key = key or os.environ.get("SUREHOOK_API_KEY")
        if not url or not key:
            raise ValueError("url and key are needed, here or in SUREHOOK_URL and SUREHOOK_API_KEY")
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("key must be printable ASCII without blanks")
        if not 0 < timeout < inf:  # nor is nan
            raise ValueError("timeout must be a finite number of seconds, more than 0")
        self.origin: Origin = parse_url(url)
        self._timeout = timeout
        self._retry = retry or Retry()
        self._ca_file = ca_file
        self._tls: ssl.SSLContext | None = None
        self._headers = (
            ("authorization", f"Bearer {key}"),
            ("accept", "application/json"),
            ("user-agent", f"surehook-python/{__version__}"),
        )

    def __repr__(self) -> str:  # without the key
        scheme = "https" if self.origin.secure else "http"
        return f"{scheme}://{self.origin.authority}{self.origin.prefix}"

    def tls(self) -> ssl.SSLContext | None:
        """The context of an https URL: certificate and name verified. Made when first needed."""
        if self.origin.secure and self._tls is None:
            import ssl

            context = ssl.create_default_context()
            if self._ca_file is not None:
                context.load_verify_locations(str(self._ca_file))
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._tls = context
        return self._tls

    def failure(self, error: OSError) -> NotConnected:
        """What an error while connecting means."""
        if type(error).__name__ == "SSLCertVerificationError":
            return Distrusted(f"the certificate is not trusted: {error}")
        return NotConnected(f"no connection: {error or 'timed out'}")

    def begin(self, call: Call[Any]) -> tuple[str, bytes, Tries]:
        """The request id, the request and the tries of one call."""
        request_id = uuid.uuid4().hex
        headers = (*self._headers, ("x-request-id", request_id), *call.headers)
        request = request_bytes(self.origin, call.method, call.target, headers, call.body)
        return request_id, request, Tries(self._retry, self._timeout, call.repeatable, request_id)
