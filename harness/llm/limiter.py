"""Adaptive concurrency: how many requests are under way at once.

The limit starts at `start` and doubles per round of successes while it is saturated; after the first 429 it halves,
and from then on grows by one per round (slow start and congestion avoidance, as TCP has them). A 5xx leaves the limit
and pauses all new requests shortly; a 429 with Retry-After pauses them for that long; a timeout halves as well.
Cache hits never come here.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

SERVER_PAUSE_S = 1.0
"""Pause after a 5xx (our choice): long enough for a worker to restart, short beside a call."""
BACKOFF = 0.5


class Slot:
    """A request under way. `started` is the limiter's count of falls when it began."""

    __slots__ = ("falls", "saturated")

    def __init__(self, falls: int, saturated: bool):
        self.falls = falls
        self.saturated = saturated


class Limiter:
    """One per endpoint and event loop. `limit` is at least 1, at most `maximum`; `in_flight` never exceeds it when a
    request begins (a fall lets those under way finish)."""

    def __init__(
        self,
        start: int,
        maximum: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ):
        self.maximum = maximum
        self.limit = float(min(start, maximum))
        self.in_flight = 0
        self._clock = clock
        self._sleep = sleep
        self._falls = 0
        self._paused_until = float("-inf")
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> Slot:
        """Wait for a place. A pause is slept through without holding one."""
        while True:
            pause = self._paused_until - self._clock()
            if pause > 0:
                await self._sleep(pause)
                continue
            if self.in_flight < int(self.limit):
                self.in_flight += 1
            else:
                await self._queue()
                if self._paused_until > self._clock():
                    self._leave()
                    continue
            return Slot(self._falls, self.in_flight >= int(self.limit))

    async def _queue(self) -> None:
        """Stand in line; the place is counted by whoever grants it."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._leave()
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def _leave(self) -> None:
        self.in_flight -= 1
        self._grant()

    def _grant(self) -> None:
        while self._waiters and self.in_flight < int(self.limit):
            waiter = self._waiters.popleft()
            if not waiter.done():
                self.in_flight += 1
                waiter.set_result(None)

    def release(self, slot: Slot, outcome: str, retry_after: float | None = None) -> None:
        """Give a place back. `outcome`: "ok", or an EndpointError's kind; a timeout is taken for overload, and so
        lowers the limit as a 429 does (our choice); what is not "rate_limited", "timeout" or "server" teaches nothing."""
        if outcome == "ok" and (slot.saturated or self._waiters) and slot.falls == self._falls:
            step = 1.0 if self._falls == 0 else 1.0 / self.limit
            self.limit = min(float(self.maximum), self.limit + step)
        elif outcome in ("rate_limited", "timeout"):
            if slot.falls == self._falls:  # those sent before the last fall tell of the old limit
                self.limit = max(1.0, self.limit * BACKOFF)
                self._falls += 1
            self._pause(retry_after or 0.0)
        elif outcome == "server":
            self._pause(SERVER_PAUSE_S)
        self._leave()

    def _pause(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, self._clock() + seconds)
