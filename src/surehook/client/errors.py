"""What the client raises. Reads an answer; writes nothing.

    ClientError
    ├── ServiceUnreachable      no answer: refused, reset, too slow, or not HTTP
    ├── NotUnderstood           an answer that is not the API's: a wrong URL, a proxy's page
    └── Refused                 the API's own no; `problem` says what and why
        ├── InvalidRequest      400, 413, 415, 422 …   the request is wrong; `field` says where
        ├── NotAuthenticated    401   no key, or one that is unknown or revoked
        ├── NotPermitted        403   the key lacks the scope
        ├── NotFound            404   not there, or not this key's tenant's
        ├── Conflict            409   the key belongs to something else, or the state forbids it
        ├── Stale               412   changed since the version that the change was made from
        ├── RateLimited         429   … and still so after the last try
        └── ServiceUnavailable  5xx   … and still so after the last try

Every one carries `request_id`, which the server's log has too. A publish that ended in
ServiceUnreachable or ServiceUnavailable may be stored or not; repeating it with `external_id` of
the error's own attribute cannot store it twice. A wrong argument is a ValueError before anything
is sent. No message holds the key.
"""

from __future__ import annotations

import msgspec

from surehook.client.wire import Answer
from surehook.errors import SurehookError
from surehook.model import rules


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error: problem+json."""

    status: int = 0
    type: str = "about:blank"
    title: str = ""
    detail: str = ""
    field: str | None = None
    request_id: str | None = None

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.title, self.detail) if part) or "no reason given"
        return f"{text} ({self.field})" if self.field else text


class ClientError(SurehookError):
    """The root of what a call may raise."""

    exit_code = 1

    def __init__(self, message: str, request_id: str = "") -> None:
        super().__init__(message)
        self.request_id = request_id
        self.external_id: str | None = None
        """Of a publish: the key it was sent with, for repeating it safely."""


class ServiceUnreachable(ClientError):
    """No answer within the time and the tries allowed."""

    exit_code = 3


class NotUnderstood(ClientError):
    """The answer is not one of the API's."""

    exit_code = 3


class Refused(ClientError):
    """The API said no."""

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(f"{problem.status} {problem}", problem.request_id or "")
        self.problem = problem
        self.status = problem.status
        self.title = problem.title
        self.detail = problem.detail
        self.field = problem.field
        self.retry_after = retry_after
        """Seconds after which the server wants to be asked again, if it said so."""


class InvalidRequest(Refused):
    """The request is wrong; repeating it cannot help."""

    exit_code = 2


class NotAuthenticated(Refused):
    """No key, or one that is unknown or revoked."""


class NotPermitted(Refused):
    """The key lacks the scope."""


class NotFound(Refused):
    """Not there, or not this key's tenant's."""


class Conflict(Refused):
    """The key belongs to something else already, or the present state forbids it."""


class Stale(Refused):
    """It has been changed since the version that the change was made from."""


class RateLimited(Refused):
    """Too much at once, still after the last try."""

    exit_code = 3


class ServiceUnavailable(Refused):
    """The service cannot answer now, still after the last try."""

    exit_code = 3


_BY_STATUS: dict[int, type[Refused]] = {
    401: NotAuthenticated,
    403: NotPermitted,
    404: NotFound,
    409: Conflict,
    412: Stale,
    429: RateLimited,
}


def refusal(answer: Answer, request_id: str) -> ClientError:
    """The error for an answer that is not 2xx."""
    if not 400 <= answer.status <= 599:
        return NotUnderstood(f"The answer has status {answer.status}.", request_id)
    try:
        rules.check_depth(answer.body)
        problem = msgspec.json.decode(answer.body, type=Problem)
    except (msgspec.DecodeError, ValueError):  # a proxy's page
        problem = Problem(detail=answer.body[:200].decode("utf-8", "replace").strip())
    problem = msgspec.structs.replace(
        problem,
        status=answer.status,
        request_id=problem.request_id or answer.headers.get("x-request-id") or request_id,
    )
    kind = ServiceUnavailable if answer.status >= 500 else InvalidRequest
    return _BY_STATUS.get(answer.status, kind)(problem, answer.retry_after())
