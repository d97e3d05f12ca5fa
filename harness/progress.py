"""What a person sees while a run works: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.pace import Pace, Range, span

_FAILURES = {
    "rate_limited": "too many requests (429)",
    "server": "server error or no sound reply",
    "timeout": "no reply in time",
    "unreachable": "not to be reached",
}
"""EndpointError's kinds in words, where they are none."""


@dataclass
class Progress:
    """Counts of a run under way. `live` is the chat client's live counters (harness/llm/usage.py).

    turns: of all conversations. building, asking: calls planned for the memories and for the questions, lowest and
    highest. taken: turns that are in a memory so far, by conversation. elsewhere: how many replies are waited for that
    another process asks.
    """

    conversations: int
    questions: int
    live: Any
    quiet: bool = False
    every_s: float = 10.0
    """Seconds between plain lines where there is no terminal (our choice)."""
    turns: int = 0
    building: Range = (0, 0)
    asking: Range = (0, 0)
    built: int = 0
    answered: int = 0
    errors: int = 0
    taken: dict[str, int] = field(default_factory=dict)
    elsewhere: Callable[[], int] = lambda: 0
    clock: Callable[[], float] = time.monotonic
    _pace: Pace = field(default_factory=Pace)
    _printed: float = 0.0
    _display: Any = None

    def __post_init__(self) -> None:
        self._started = self.clock()

    def took_in(self, conversation: str, turns: int) -> None:
        """So many further turns are in a conversation's memory."""
        self.taken[conversation] = self.taken.get(conversation, 0) + turns

    def finished(self, conversation: str, turns: int) -> None:
        """A conversation's memory is built; it has so many turns, whatever was told before."""
        self.built += 1
        self.taken[conversation] = turns

    def start(self) -> None:
        if self.quiet or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._display = Live(
            console=Console(stderr=True),
            get_renderable=lambda: Text(self.line(), overflow="ellipsis", no_wrap=True),
            refresh_per_second=4,
            transient=True,
        )
        self._display.start()

    def stop(self) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None

    def tick(self) -> None:
        """Call often; prints a plain line now and then where there is no terminal."""
        now = self.clock()
        live = self.live
        self._pace.look(now, live.received, live.failed_tries, live.in_flight)
        if self.quiet or self._display is not None or now - self._printed < self.every_s:
            return
        self._printed = now
        print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """What has happened, what is under way, what is left, on one line."""
        live, now = self.live, self.clock()
        self._pace.look(now, live.received, live.failed_tries, live.in_flight)
        rate = self._pace.rate(now, live.received)
        calls = [f"{live.cache_hits} from the cache", f"{live.in_flight} in flight"]
        if waiting := live.under_way - live.in_flight:
            calls.append(f"{waiting} waiting")
        if elsewhere := self.elsewhere():
            calls.append(f"{elsewhere} asked by another process")
        if rate is not None:
            calls.append(f"{rate:.1f}/s")
        parts = [
            f"{now - self._started:5.0f} s",
            f"memories {self.built}/{self.conversations}",
            f"turns {sum(self.taken.values())}/{self.turns}",
            f"answers {self.answered}/{self.questions}" + (f" ({self.errors} errors)" if self.errors else ""),
            f"calls {live.calls} ({', '.join(calls)})",
            f"tokens {live.prompt_tokens + live.completion_tokens}",
        ]
        if failed := self._pace.failed(live.failed_tries):
            last = _FAILURES.get(live.last_failure, live.last_failure)
            tries = "try" if failed == 1 else "tries"
            parts.append(f"{failed} {tries} failed in the last minute, the last: {last}")
        if live.usd:
            parts.append(f"${live.usd:.2f}")
        low, high = self._left()
        if rate == 0.0 and (live.under_way or elsewhere):
            parts.append("no reply in the last minute")
        elif rate and high > 0:
            parts.append(f"{span((low / rate, high / rate))} left")
        return " | ".join(parts)

    def _left(self) -> Range:
        """Calls that the plan has for the turns and the questions that are not done."""
        turns = 1 - sum(self.taken.values()) / self.turns if self.turns else 0.0
        questions = 1 - self.answered / self.questions if self.questions else 0.0
        low, high = (self.building[i] * turns + self.asking[i] * questions for i in (0, 1))
        return low, high
