"""Before the first paid call: the plan is on the screen, and somebody says yes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from harness.errors import ConfigError
from harness.plan import Amount


def approve(amount: Amount, *, yes: bool, max_usd: float | None, ask: Callable[[], str] | None) -> None:
    """Return if the run may spend what `amount` says; ConfigError if nobody allows it.

    Nothing is asked of a backbone without a price, or for nothing. `yes` goes on; with a terminal (`ask` returns what
    was typed) the person decides; without one a limit must be given.
    """
    if not amount.usd or amount.usd[1] <= 0 or yes:
        return
    if ask is not None:
        limit = "" if max_usd is None else f", at most ${max_usd:,.2f}"
        print(f"This is paid for: ${amount.usd[0]:,.2f} to ${amount.usd[1]:,.2f}{limit}. Go on? [y/N] ", end="")
        sys.stdout.flush()
        if ask().strip().lower() not in ("y", "yes"):
            raise ConfigError("not started; nothing was spent")
        return
    if max_usd is None:
        raise ConfigError(
            f"not started: it may cost ${amount.usd[1]:,.2f} and there is no terminal to ask; "
            f"give run.max_usd=DOLLARS to stop at, or run.assume_yes=true"
        )


def terminal() -> Callable[[], str] | None:
    """Reads a line where a person sits at a terminal, else None."""
    return sys.stdin.readline if sys.stdin is not None and sys.stdin.isatty() else None
