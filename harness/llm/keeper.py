"""Keeps one server process, and ends it with everything it started when the bench is gone, however it went.

Run as a script by its path (`python -I keeper.py`), standard library alone. The bench holds the write end of this
process's stdin: closing it, or dying (even by SIGKILL), is an end of file here. The first line on stdin is
{"argv": [...], "env": {...}, "log": path, "grace_s": seconds}; secrets travel in it, never in an argument list.
On stdout, a JSON object a line: {"pid": n}, whatever the server itself prints on stdout when "announces" is true,
and {"exit": status} when the server ended by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SETTLE_S = 3.0
"""Seconds for what a server leaves: Python's resource tracker frees its shared memory (vLLM: hundreds of megabytes)
after it, and would leave that behind if it was killed first."""
_STEP_S = 0.02


def main() -> None:
    # Ctrl-C goes to the bench, which decides; a closed terminal is no reason to leave the server behind.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    order = json.loads(sys.stdin.buffer.readline())
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what outlives the server is ours to wait for
    with open(order["log"], "ab") as log:
        server = subprocess.Popen(  # noqa: S603 - the command comes from the run's own configuration
            order["argv"],
            env=order["env"],
            stdin=subprocess.DEVNULL,
            stdout=None if order["announces"] else log,
            stderr=log,
            start_new_session=True,  # its own group: workers it starts are ended with it
            # Should this process be killed, the kernel ends the server.
            preexec_fn=(lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)) if libc else None,
        )
    say(pid=server.pid)
    stopping = threading.Event()

    def watch() -> None:
        status = server.wait()
        if not stopping.is_set():
            settle(server.pid)
            say(exit=status)
            os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: end(server, stopping, order["grace_s"]))
    sys.stdin.buffer.read()
    end(server, stopping, order["grace_s"])


def end(server: subprocess.Popen, stopping: threading.Event, grace_s: float) -> None:
    stopping.set()
    signal_group(server.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(grace_s)
    server.kill()
    server.wait()
    settle(server.pid)
    os._exit(0)


def settle(group: int) -> None:
    """Let what is left of a server whose first process is gone end by itself, then end it by force."""
    deadline = time.monotonic() + _SETTLE_S
    signal_group(group, signal.SIGTERM)
    with contextlib.suppress(ChildProcessError):  # nobody is left
        while time.monotonic() < deadline:
            if os.waitpid(-group, os.WNOHANG) == (0, 0):
                time.sleep(_STEP_S)
    signal_group(group, signal.SIGKILL)


def signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def say(**message: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
