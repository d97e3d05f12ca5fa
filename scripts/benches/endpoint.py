"""scripts/endpoint.py for as long as something is measured, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent / "endpoint.py"


@contextmanager
def serving(latency_s: float) -> Iterator[str]:
    """Its base_url."""
    command = [sys.executable, str(PROGRAM), "--latency", str(latency_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own program
    try:
        line = process.stdout.readline() if process.stdout else ""
        yield line.split()[-1]
    finally:
        process.terminate()
        process.communicate()
