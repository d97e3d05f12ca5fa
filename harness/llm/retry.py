"""The one retry layer: what failed is a typed decision, waits are jittered, exponential and bounded.

When an endpoint is down for good the run must stop with everything kept; when one request keeps failing alone it is
that question's error. So a request that is out of retries is fatal if it never reached the endpoint ("unreachable"),
or if nothing at all succeeded since its first try failed and either another request failed in its time too or it is
the third in a row to run out. What succeeded before that failure says nothing of an endpoint that is down since.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal, TypeVar

from harness.errors import EndpointError

T = TypeVar("T")

Decision = Literal["permanent", "transient", "rate_limited"]

BASE_S = 0.5
CAP_S = 30.0
MAX_RETRY_AFTER_S = 600.0
"""An endpoint that asks for a longer wait than this stops the run (our choice): it can be resumed later."""
ROW_OF_FAILURES = 3


@dataclass
class Failure(Exception):
    """A try that brought no reply. `message` is one line without secrets. `kind` is EndpointError's.

    `retry_after`: seconds the endpoint asked for. `fatal`: every further call would fail alike (permanent only).
    `names_format`: a refusal that speaks of response_format, so that another way to ask is worth a try.
    `billed`: prompt and completion tokens that the endpoint counted all the same.
    """

    kind: str
    decision: Decision
    message: str
    retry_after: float | None = None
    fatal: bool = False
    names_format: bool = False
    billed: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return self.message


def retry_after_seconds(header: str | None, now: float) -> float | None:
    """Retry-After as seconds, from a number of seconds or an HTTP date; None where absent or unreadable.

    `now` is Unix time. A date gone by is 0.
    """
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now
        except (TypeError, ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


def backoff(retry: int, retry_after: float | None, jitter: float) -> float:
    """Seconds before retry number `retry` (from 0): half to all of min(CAP, BASE x 2^retry) by `jitter` in [0, 1].
    A Retry-After is waited out in full, with up to a quarter of that on top, so that callers do not come at once."""
    step = min(CAP_S, BASE_S * 2.0**retry)
    return step * (0.5 + 0.5 * jitter) if retry_after is None else retry_after + 0.25 * step * jitter


class Retrier:
    """Runs tries until one succeeds. One per endpoint: it remembers what succeeded when."""

    def __init__(
        self,
        retries: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ):
        self.retries = retries
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._successes = 0
        self._failures = 0
        self._exhausted = 0

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The first success of `attempt`. Raises EndpointError; Failure itself where `names_format` is set."""
        successes, failures, own = self._successes, self._failures, 0
        for retry in range(self.retries + 1):
            try:
                result = await attempt()
            except Failure as error:
                failure = error
            else:
                self._successes += 1
                self._exhausted = 0
                return result
            if failure.names_format:
                raise failure
            if failure.decision == "permanent":
                raise EndpointError(failure.kind, failure.message, fatal=failure.fatal) from None
            own += 1
            self._failures += 1
            if own == 1 and self.retries:
                successes = self._successes
            if failure.retry_after is not None and failure.retry_after > MAX_RETRY_AFTER_S:
                raise EndpointError(
                    failure.kind,
                    f"{failure.message}; it asks to wait {failure.retry_after:.0f} s: start the run again then, "
                    "it goes on where it stopped",
                    fatal=True,
                ) from None
            if retry < self.retries:
                await self._sleep(backoff(retry, failure.retry_after, self._jitter()))
        nothing_succeeded = self._successes == successes
        if nothing_succeeded:
            self._exhausted += 1
        others_failed = self._failures - failures > own
        down = nothing_succeeded and (others_failed or self._exhausted >= ROW_OF_FAILURES)
        fatal = failure.kind == "unreachable" or down
        advice = "; is the endpoint up? The run can be started again and goes on where it stopped" if fatal else ""
        tries = f"{self.retries + 1} tries" if self.retries else "1 try"
        raise EndpointError(failure.kind, f"{failure.message} (after {tries}){advice}", fatal=fatal) from None
