"""run.max_usd: a limit on what a process pays, kept before a call and not after it."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from harness.errors import EndpointError
from harness.spec import PriceSpec


class Budget:
    """Dollars one run may still spend.

    A call is let through only if it fits beside those under way, each taken at its highest price (its prompt and all
    the tokens its reply may have), so that the limit is never passed; near the limit, calls wait for the real price
    of those before them. One instance per run and event loop.

    `spent`: dollars of this run's computed replies. `Budget.total`: of all runs in this process, for a sweep.
    """

    total: ClassVar[float] = 0.0

    def __init__(self, price: PriceSpec, max_usd: float | None):
        self._price = price
        self._max = max_usd
        self.spent = 0.0
        self._reserved = 0.0
        self._changed = asyncio.Condition()

    @property
    def limited(self) -> bool:
        return self._max is not None

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens * self._price.prompt + completion_tokens * self._price.completion) / 1e6

    async def reserve(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Wait for room; the amount set aside. EndpointError "budget", fatal, when there will be none."""
        amount = self.cost(prompt_tokens, completion_tokens)
        if self._max is None:
            return 0.0
        async with self._changed:
            while self.spent + self._reserved + amount > self._max and self._reserved > 0:
                await self._changed.wait()
            if self.spent + amount > self._max:
                raise EndpointError(
                    "budget",
                    f"stopped at run.max_usd={self._max:g}: ${self.spent:.4f} spent, and the next call may cost "
                    f"${amount:.4f}; everything so far is kept, start it again to go on",
                    fatal=True,
                )
            self._reserved += amount
        return amount

    async def settle(self, reserved: float, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        """Put what a call cost (0 for one that surely was not billed) in the place of what was set aside."""
        paid = self.cost(prompt_tokens, completion_tokens)
        self.spent += paid
        Budget.total += paid
        if self._max is not None:
            async with self._changed:
                self._reserved = max(0.0, self._reserved - reserved)
                if self._reserved < 1e-12:
                    self._reserved = 0.0  # sums of floats do not return to nought by themselves
                self._changed.notify_all()
