"""What a person sees while a run works: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """Counts of a run under way. `live` is the chat client's live counters (in_flight, calls, computed, ...)."""

    conversations: int
    questions: int
    live: Any
    quiet: bool = False
    every_s: float = 10.0
    """Seconds between plain lines where there is no terminal (our choice)."""
    built: int = 0
    answered: int = 0
    errors: int = 0
    _started: float = field(default_factory=time.monotonic)
    _printed: float = 0.0
    _display: Any = None

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
        now = time.monotonic()
        if self.quiet or self._display is not None or now - self._printed < self.every_s:
            return
        self._printed = now
        print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        live, seconds = self.live, time.monotonic() - self._started
        parts = [
            f"{seconds:5.0f} s",
            f"memories {self.built}/{self.conversations}",
            f"answers {self.answered}/{self.questions}" + (f" ({self.errors} errors)" if self.errors else ""),
            f"calls {live.calls} ({live.cache_hits} from the cache, {live.in_flight} in flight, "
            f"{live.computed / max(seconds, 1e-9):.1f}/s)",
            f"tokens {live.prompt_tokens + live.completion_tokens}",
        ]
        if live.usd:
            parts.append(f"${live.usd:.2f}")
        if 0 < self.answered < self.questions and self.built == self.conversations:
            parts.append(f"about {seconds / self.answered * (self.questions - self.answered):.0f} s left")
        return " | ".join(parts)
