"""An event loop whose clock jumps: what calls would take if nothing but waiting for them took time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

_POLL_S = 0.05


class _Selector(selectors.DefaultSelector):
    """Asked to wait for a timer, it waits for nothing: the clock is put forward. While threads work it really waits."""

    loop: JumpingLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        if self.loop.busy or timeout is None:
            return super().select(_POLL_S if timeout is None else min(timeout, _POLL_S))
        self.loop.now += timeout
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time starts at 0 and passes only while everything waits for a timer. Work that the loop itself was not asked
    to run in a thread (another library's threads) would be overtaken: there must be none."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = 0.0
        self.busy = 0
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        done = super().run_in_executor(executor, func, *args)
        self.busy += 1
        done.add_done_callback(self._returned)
        return done

    def _returned(self, done: asyncio.Future[Any]) -> None:
        self.busy -= 1


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """asyncio.run on such a loop."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)
