"""What is tried again, and when. Pure but for the monotonic clock and chance; reads answers.

Tried again: no connection, a connection that broke, 429, 502, 503, 504. Nothing else. A call that
must not happen twice is repeated only where it surely did not happen: no connection, 429, 503.
Retry-After is obeyed if it fits into the time allowed; if not, the error comes at once and says so.
"""

from __future__ import annotations

import random
import time
from math import inf

import msgspec

from surehook.client.errors import ServiceUnreachable
from surehook.client.wire import Answer, Broken, Distrusted, NotConnected

_REPEATABLE = frozenset({429, 502, 503, 504})
_NOT_DONE = frozenset({429, 503})  # by these the server says that it did nothing


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How long a call goes on. `Retry(tries_max=1)` tries once."""

    tries_max: int = 6
    seconds_max: float = 30.0
    """For all tries of a call and the pauses between them."""
    pause_first: float = 0.1
    pause_max: float = 5.0

    def __post_init__(self) -> None:
        if self.tries_max < 1 or not 0 < self.seconds_max < inf:
            raise ValueError("tries_max must be at least 1, seconds_max finite and more than 0")
        if not (0 <= self.pause_first < inf and 0 <= self.pause_max < inf):
            raise ValueError("pause_first and pause_max must be finite and 0 or more")


class Tries:
    """The tries of one call."""

    def __init__(self, retry: Retry, timeout: float, repeatable: bool, request_id: str) -> None:
        self._retry = retry
        self._timeout = timeout
        self._repeatable = repeatable
        self._request_id = request_id
        self._end = time.monotonic() + retry.seconds_max
        self._count = 0

    def deadline(self) -> float:
        """When the try that begins now must be over, by the monotonic clock."""
        self._count += 1
        return min(time.monotonic() + self._timeout, self._end)

    def after_answer(self, answer: Answer) -> float | None:
        """Seconds to wait before the next try; None if this answer is the last word."""
        worth = _REPEATABLE if self._repeatable else _NOT_DONE
        if answer.status not in worth:
            return None
        asked = answer.retry_after()
        return self._pause(self._back_off() if asked is None else asked)

    def after_failure(self, failure: Broken) -> float:
        """Seconds to wait before the next try; ServiceUnreachable if there is none."""
        again = self._repeatable or isinstance(failure, NotConnected)
        pause = self._pause(self._back_off()) if again else None
        if pause is None or isinstance(failure, Distrusted):
            tried = f" (tried {self._count} times)" if self._count > 1 else ""
            raise ServiceUnreachable(
                f"No answer from the service{tried}: {failure}.", self._request_id
            ) from failure
        return pause

    def _back_off(self) -> float:
        longest = min(self._retry.pause_max, self._retry.pause_first * 2 ** (self._count - 1))
        return random.uniform(longest / 2, longest)

    def _pause(self, seconds: float) -> float | None:
        in_time = time.monotonic() + seconds < self._end
        return seconds if in_time and self._count < self._retry.tries_max else None
