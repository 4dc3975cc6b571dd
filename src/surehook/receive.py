"""For receivers: check that a delivery is genuine, and answer the verification challenge.

Reads   headers and body of a request, the receiver's own secrets, the clock
Writes  nothing
Needs   the standard library alone; `cryptography` only where a `whpk_` public key is used

    message = verify(headers, body, ["whsec_…"])

docs/signatures.md and docs/verification.md describe the same for other languages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

DEFAULT_TOLERANCE_SECONDS = 300
VERIFICATION_TYPE = "surehook.verification"
# The bytes before the challenge. A webhook-signature is made over "<webhook-id>.<…", and a
# webhook-id never starts like this, so neither value can be passed off as the other.
VERIFICATION_DOMAIN = b"surehook-verification-v1\n"
MAX_BODY_BYTES = 2 * 1024 * 1024

Headers = Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]
_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{32,128}", re.ASCII)


class NotGenuine(Exception):
    """The request must not be trusted; the text says why and holds no secret."""


@dataclass(frozen=True)
class Message:
    """A delivery whose signature is right."""

    id: str
    timestamp: int
    event_type: str
    body: bytes
    secret: str
    """The secret that fits: the newest one as soon as the sender has it."""

    def json(self) -> Any:
        """The payload, parsed."""
        return json.loads(self.body)


def verify(
    headers: Headers,
    body: bytes,
    secrets: str | Sequence[str],
    tolerance: float = DEFAULT_TOLERANCE_SECONDS,
    now: float | None = None,
) -> Message:
    """The message, or NotGenuine. `body` must be the bytes as received, before any parsing."""
    fields = _fields(headers)
    webhook_id = _one(fields, "webhook-id")
    stamp = _one(fields, "webhook-timestamp")
    signatures = _one(fields, "webhook-signature").split(" ")
    if not _TIMESTAMP.fullmatch(stamp):
        raise NotGenuine("webhook-timestamp is not a number of seconds")
    age = (time.time() if now is None else now) - int(stamp)
    if not abs(age) <= tolerance:  # not `>`: with nan it would let everything pass
        raise NotGenuine(f"webhook-timestamp is {abs(age):.0f} s off")
    signed = f"{webhook_id}.{stamp}.".encode() + body
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        if _fits(secret, signed, signatures):
            event_type = fields.get("webhook-event-type", [""])[0]
            return Message(webhook_id, int(stamp), event_type, bytes(body), secret)
    raise NotGenuine("no signature fits any secret")


def challenge_response(challenge: str, secret: str) -> str:
    """The proof for a challenge: 64 hexadecimal digits, made with the secret."""
    key = _decode(secret, "whsec_")
    return hmac.new(key, VERIFICATION_DOMAIN + challenge.encode(), hashlib.sha256).hexdigest()


def answer_challenge(message: Message) -> bytes | None:
    """The body to answer with (status 200) when the message is a challenge, else None."""
    if not message.id.startswith("vrf_") or not message.secret.startswith("whsec_"):
        return None
    try:
        content = message.json()
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("type") != VERIFICATION_TYPE:
        return None
    challenge = content.get("challenge")
    if not isinstance(challenge, str) or not _CHALLENGE.fullmatch(challenge):
        return None
    return json.dumps({"response": challenge_response(challenge, message.secret)}).encode()


def _fields(headers: Headers) -> dict[str, list[str]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(_text(name).lower(), []).append(_text(value))
    return fields


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _one(fields: dict[str, list[str]], name: str) -> str:
    values = fields.get(name, [])
    if len(values) != 1 or not values[0]:
        raise NotGenuine(f"{name} must be there exactly once")
    return values[0]


def _fits(secret: str, signed: bytes, signatures: list[str]) -> bool:
    if secret.startswith("whpk_"):
        return _fits_public_key(_decode(secret, "whpk_"), signed, signatures)
    digest = hmac.new(_decode(secret, "whsec_"), signed, hashlib.sha256).digest()
    # The texts are compared, not the decoded bytes: base64 has several spellings of one value.
    expected = b"v1," + base64.b64encode(digest)
    return any(
        [hmac.compare_digest(expected, signature.encode("latin-1")) for signature in signatures]
    )


def _fits_public_key(key: bytes, signed: bytes, signatures: list[str]) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise ImportError(
            "checking a whpk_ key needs the package cryptography: pip install cryptography"
        ) from None

    public = Ed25519PublicKey.from_public_bytes(key)
    for text in signatures:
        version, _, encoded = text.partition(",")
        try:
            raw = base64.b64decode(encoded, validate=True)
            if version != "v1a" or base64.b64encode(raw).decode() != encoded:
                continue
            public.verify(raw, signed)
        except (binascii.Error, ValueError, InvalidSignature):
            continue
        return True
    return False


def _decode(secret: str, prefix: str) -> bytes:
    if not secret.startswith(prefix):
        raise ValueError("a secret must start with whsec_, or whpk_ for a public key")
    return base64.b64decode(secret.removeprefix(prefix), validate=True)


# --- Small web applications ----------------------------------------------------------------------

Secrets = str | Sequence[str]


class _BodyTooLarge(Exception):
    pass


def asgi_receiver(
    handle: Callable[[Message], Awaitable[None]],
    secrets: Secrets,
    tolerance: float = DEFAULT_TOLERANCE_SECONDS,
) -> Callable[..., Awaitable[None]]:
    """An ASGI application that hands genuine deliveries to `handle` and answers 204.

    Challenges are answered without `handle`; what is not genuine gets 401. An exception in
    `handle` becomes the server's 500, so the delivery is tried again.
    """

    async def application(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            raise ValueError("this application answers HTTP requests only")
        try:
            body = await _asgi_body(receive)
            message = verify(scope["headers"], body, secrets, tolerance)
            status, answer = 200, answer_challenge(message)
            if answer is None:
                await handle(message)
                status, answer = 204, b""
        except NotGenuine as error:
            status, answer = 401, str(error).encode()
        except _BodyTooLarge:
            status, answer = 413, b"the body is too large"
        headers = [(b"content-type", _content_type(status))] if answer else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return application


async def _asgi_body(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> bytes:
    body = bytearray()
    while True:
        part = await receive()
        if part["type"] == "http.disconnect":
            raise NotGenuine("the connection ended")
        body += part.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise _BodyTooLarge
        if not part.get("more_body"):
            return bytes(body)


def wsgi_receiver(
    handle: Callable[[Message], None],
    secrets: Secrets,
    tolerance: float = DEFAULT_TOLERANCE_SECONDS,
) -> Callable[[dict[str, Any], Callable[..., Any]], list[bytes]]:
    """The same as a WSGI application."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        try:
            body = _wsgi_body(environ)
            message = verify(_wsgi_headers(environ), body, secrets, tolerance)
            status, answer = "200 OK", answer_challenge(message)
            if answer is None:
                handle(message)
                status, answer = "204 No Content", b""
        except NotGenuine as error:
            status, answer = "401 Unauthorized", str(error).encode()
        except _BodyTooLarge:
            status, answer = "413 Content Too Large", b"the body is too large"
        kind = _content_type(int(status[:3])).decode()
        start_response(status, [("Content-Type", kind)] if answer else [])
        return [answer] if answer else []

    return application


def _wsgi_body(environ: dict[str, Any]) -> bytes:
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        raise NotGenuine("Content-Length is not a number") from None
    if length > MAX_BODY_BYTES:
        raise _BodyTooLarge
    body: bytes = environ["wsgi.input"].read(length)
    return body


def _wsgi_headers(environ: dict[str, Any]) -> list[tuple[str | bytes, str | bytes]]:
    return [
        (name.removeprefix("HTTP_").replace("_", "-"), value)
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]


def _content_type(status: int) -> bytes:
    return b"application/json" if status == 200 else b"text/plain; charset=utf-8"
