"""How fast a run gets on, and how long what is left of its plan takes."""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0
"""Seconds that a rate is taken over: longer than most calls, short enough to follow an endpoint that slows down."""
SETTLED_S = 5.0
"""No rate before this many seconds: the first replies of many that were asked at once say nothing (our choice)."""
_STEP_S = 1.0

Range = tuple[float, float]
"""(lowest, highest)"""


class Pace:
    """Replies from the endpoint and failed tries in the last minute.

    It begins when something is first under way: what a resumed run replays from the cache before that is no speed, and
    neither is it time. Times in seconds of any one clock.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def look(self, now: float, replies: int, failures: int, in_flight: int) -> None:
        """Remember how many replies and failures there had been by now."""
        if not self._seen and not replies and not in_flight:
            return
        if not self._seen or now - self._seen[-1][0] >= _STEP_S:
            self._seen.append((now, replies, failures))
        while len(self._seen) > 1 and self._seen[1][0] <= now - WINDOW_S:
            self._seen.popleft()

    def rate(self, now: float, replies: int) -> float | None:
        """Replies a second; None where too little has been seen, 0 where nothing came in the last minute."""
        if not self._seen or now - self._seen[0][0] < SETTLED_S:
            return None
        began, before, _ = self._seen[0]
        return (replies - before) / (now - began)

    def failed(self, failures: int) -> int:
        """Tries that failed in the last minute."""
        return failures - self._seen[0][2] if self._seen else failures


def span(seconds: Range) -> str:
    """A range of seconds for a person: "40 to 90 s", "3 to 5 min", "less than 2 h"."""
    unit, size = next(((u, s) for u, s in (("s", 1), ("min", 60)) if round(seconds[1] / s) < 120), ("h", 3600))
    low, high = (max(0, round(value / size)) for value in seconds)
    if low == high:
        return f"{high} {unit}" if high else f"less than 1 {unit}"
    return f"{low} to {high} {unit}" if low else f"less than {high} {unit}"
