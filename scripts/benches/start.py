"""How long run.py takes until it has done nothing yet: processes started anew, beside bare ones."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.errors import BenchError

TITLE = "Cold start"
ROOT = Path(__file__).resolve().parent.parent.parent
ROUNDS = 5
RUN = ("run.py", "backbone=scripted", "memory=rag", "dataset.max_turns=4", "dataset.max_questions=1")
COMMANDS: dict[str, tuple[str, ...]] = {
    "python -c pass": ("-c", "pass"),
    "python -c 'import hydra'": ("-c", "import hydra"),
    "run.py --help": ("run.py", "--help"),
    "run.py --cfg job": ("run.py", "--cfg", "job"),
    "run.py plan=true": (*RUN, "plan=true"),
    "run.py, a finished run again": RUN,
}


def measure(data: Path | None) -> dict[str, Any]:
    """Median seconds of each command, all of them in turn, several rounds, after one that fills the disk's cache."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as place:
        for number in range(ROUNDS + 1):
            for name, command in COMMANDS.items():
                own = [f"run.dir={place}", f"cache.path={place}"] if "--help" not in command else []
                took = _seconds([*command, *own] if command[0] == "run.py" else command)
                if number:
                    seconds[name].append(took)
    return {"rounds": ROUNDS, "commands": {name: statistics.median(each) for name, each in seconds.items()}}


def _seconds(arguments: list[str] | tuple[str, ...]) -> float:
    # As a user has it: compiled modules are kept.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    took = time.perf_counter() - began
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["no word"]
        raise BenchError(f"{' '.join(arguments)} ended with status {done.returncode}: {said[0]}")
    return took


def page(figures: dict[str, Any]) -> str:
    """The Markdown page of these figures."""
    rows = [f"| `{name}` | {seconds:.2f} |" for name, seconds in figures["commands"].items()]
    return f"""Processes started anew, in turn, median of {figures["rounds"]} rounds; compiled modules and files are in the disk's cache.

| | seconds |
| --- | ---: |
{chr(10).join(rows)}"""
