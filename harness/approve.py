"""Before the first paid call: the plan is on the screen, and somebody says yes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from harness.errors import ConfigError
from harness.prepare import GIVE_PRICE, Bill


def approve(bill: Bill, *, yes: bool, max_usd: float | None, ask: Callable[[], str] | None) -> None:
    """Return if the runs may spend what `bill` says; ConfigError if nobody allows it.

    Nothing is asked of what is free. `yes` goes on; with a terminal (`ask` returns what was typed) the person decides;
    without one a limit must be given, which only known prices can keep.
    """
    usd = bill.paid.usd if bill.paid.usd and bill.paid.usd[1] > 0 else None
    unknown = ""
    if bill.unknown.calls[1] > 0:
        unknown = f"no price for {', '.join(bill.models)}; {bill.unknown.load()}"
    if yes or not (usd or unknown):
        return
    if ask is not None:
        limit = "" if max_usd is None else f", at most ${max_usd:,.2f}"
        known = f"This is paid for: ${usd[0]:,.2f} to ${usd[1]:,.2f}{limit}. " if usd else ""
        rest = f"Cost unknown: {unknown}. " if unknown else ""
        print(f"{known}{rest}Go on? [y/N] ", end="")
        sys.stdout.flush()
        if ask().strip().lower() not in ("y", "yes"):
            raise ConfigError("not started; nothing was spent")
        return
    if unknown:
        raise ConfigError(
            f"not started: cost unknown: {unknown}, and there is no terminal to ask; {GIVE_PRICE}, with run.max_usd=DOLLARS to stop at, "
            "or run.assume_yes=true"
        )
    if max_usd is None:
        raise ConfigError(
            f"not started: it may cost ${usd[1]:,.2f} and there is no terminal to ask; "
            f"give run.max_usd=DOLLARS to stop at, or run.assume_yes=true"
        )


def terminal() -> Callable[[], str] | None:
    """Reads a line where a person sits at a terminal, else None."""
    return sys.stdin.readline if sys.stdin is not None and sys.stdin.isatty() else None
