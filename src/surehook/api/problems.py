"""Refusals: every error answer of the API, as problem+json (RFC 9457).

Reads   nothing     Writes  nothing

The list is closed, so that the OpenAPI can document for each route what it may answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from surehook.model.resources.shared import ProblemBody

RETRY_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem."""

    slug: str
    status: int
    title: str


KINDS = (
    BAD_REQUEST := Kind("bad-request", 400, "This is not a request that can be understood"),
    NO_KEY := Kind("unauthorized", 401, "A valid API key is needed"),
    FORBIDDEN := Kind("forbidden", 403, "The key does not allow this"),
    NOT_FOUND := Kind("not-found", 404, "Not found"),
    NO_METHOD := Kind("method-not-allowed", 405, "The method does not fit this path"),
    TIMED_OUT := Kind("request-timeout", 408, "The request did not arrive in time"),
    CONFLICT := Kind("conflict", 409, "Conflicts with an existing resource"),
    STALE := Kind("stale", 412, "It has been changed since it was read"),
    TOO_LARGE := Kind("too-large", 413, "The body is too large"),
    INVALID := Kind("invalid", 422, "A field is wrong"),
    TOO_MANY := Kind("too-many-failures", 429, "Too many wrong keys came from this address"),
    HEADERS_TOO_LARGE := Kind("headers-too-large", 431, "The request's headers are too large"),
    BROKEN := Kind("internal", 500, "This is a bug in surehook"),
    KEY_HELD := Kind(
        "external-id-held", 503, "An open transaction is writing this external_id: try again"
    ),
    UNAVAILABLE := Kind("unavailable", 503, "Not possible at the moment: try again"),
)
BY_STATUS = {kind.status: kind for kind in KINDS}


class Problem(Exception):
    """Raised anywhere while a request is handled; becomes its answer."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        field: str | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.field = field
        self.headers = headers

    def body(self, request_id: str) -> ProblemBody:
        return ProblemBody(
            f"/problems/{self.kind.slug}",
            self.kind.title,
            self.kind.status,
            self.detail,
            request_id,
            self.field,
        )


def unavailable(detail: str, kind: Kind = UNAVAILABLE, field: str | None = None) -> Problem:
    """503: nothing was acknowledged; try again in a moment."""
    headers = ((b"retry-after", str(RETRY_SECONDS).encode()),)
    return Problem(kind, detail, field, headers)


def invalid(detail: str, field: str | None = None) -> Problem:
    return Problem(INVALID, detail, field)


def not_found(what: str, number: int) -> Problem:
    return Problem(NOT_FOUND, f"There is no {what} {number}.")
