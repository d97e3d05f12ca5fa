"""Errors a person is meant to read: one line that names what, where and what to do."""

import sys
from collections.abc import Callable
from pathlib import Path

from harness.visible import visible


class BenchError(Exception):
    """An expected failure. `run.py` prints its message as one line and exits with status 2."""


def exit_status(program: str, work: Callable[[], object]) -> int:
    """Do a command's work. 0, or 2 after the one line of what a person can mend."""
    try:
        work()
    except BenchError as error:
        print(visible(f"{program}: {error}"), file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"{program}: {missing(error)}", file=sys.stderr)
        return 2
    return 0


def missing(error: ModuleNotFoundError) -> str:
    """One line on a package that this Python lacks. A module of the bench's own is another matter: it is raised."""
    if (Path(__file__).resolve().parent.parent / (error.name or "").partition(".")[0]).exists():
        raise error
    return (
        f"{sys.executable} has no package {error.name!r}; `make setup` makes an environment with all of them: "
        "source .venv/bin/activate"
    )


class ConfigError(BenchError):
    """The composed configuration is not a valid run."""


class DataError(BenchError):
    """A data file cannot be used; the message names the file, the sample and the path inside it."""


class RecordError(BenchError):
    """A run folder cannot be written, resumed or trusted."""


class EndpointError(BenchError):
    """No reply could be had from the backbone: refused for good, or out of retries.

    `kind` is one of: "auth", "refused" (a 4xx for good), "unreachable", "rate_limited", "server",
    "timeout", "replay_miss", "budget". `fatal` says that every further call would fail alike: the
    run then stops, keeps what it has, and can be resumed.
    """

    def __init__(self, kind: str, message: str, *, fatal: bool):
        super().__init__(message)
        self.kind = kind
        self.fatal = fatal

    def __reduce__(self):  # sweep launchers send errors between processes
        return _rebuild, (type(self), (self.kind, str(self)), {"fatal": self.fatal})


class ReplyError(BenchError):
    """The backbone replied, but no attempt gave a usable reply (empty, or not of the schema after repair).

    Whoever asked decides: a question becomes an error record, a memory call uses a named and
    counted fallback. `kind` is "empty" or "unparsable"; `text` is the last raw reply; `usage` counts every attempt.
    """

    def __init__(self, kind: str, message: str, *, text: str = "", usage=None, attempts: int = 0):
        super().__init__(message)
        self.kind = kind
        self.text = text
        self.usage = usage
        self.attempts = attempts

    def __reduce__(self):
        details = {"text": self.text, "usage": self.usage, "attempts": self.attempts}
        return _rebuild, (type(self), (self.kind, str(self)), details)


def _rebuild(cls: type, args: tuple, details: dict) -> BenchError:
    return cls(*args, **details)


class SweepError(BenchError):
    """Some jobs of a sweep failed; every other job was run."""


class ThresholdError(BenchError):
    """A run finished with more errors than run.max_error_rate allows. Its records are complete."""
