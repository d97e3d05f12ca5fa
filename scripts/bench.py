"""What the bench costs beside the model: measured side by side in one run, written to results/bench.

    python scripts/bench.py                 all of them, each in a process of its own, then the page
    python scripts/bench.py scale start     these
    python scripts/bench.py --page          the page again, from the figures that are there

Each measurement of scripts/benches/ writes <name>.json; README.md beside them is the page.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.errors import BenchError, exit_status
from harness.records import write_atomic

NAMES = ("waiting", "client", "scale", "start", "tokens")
OUT = Path(__file__).resolve().parent.parent / "results" / "bench"


LOAD = os.getloadavg()[0]


def measure(name: str, data: Path | None) -> dict:
    """What scripts/benches/<name>.py measures, with when, on what and how long."""
    began = time.perf_counter()
    figures = importlib.import_module(f"scripts.benches.{name}").measure(data)
    return {
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
        "load_at_start": round(LOAD, 2),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "seconds": round(time.perf_counter() - began, 1),
        **figures,
    }


def page(out: Path) -> str:
    """The Markdown page of the figures in `out`; a measurement that was not made is named as missing."""
    parts = [
        "# What the bench costs beside the model",
        "Made by `make bench`; do not edit. Figures that are compared were taken side by side in one run; a bare time says little"
        " about another machine.",
    ]
    for name in NAMES:
        module = importlib.import_module(f"scripts.benches.{name}")
        file = out / f"{name}.json"
        if not file.is_file():
            parts.append(f"## {module.TITLE}\n\nNot measured.")
            continue
        figures = json.loads(file.read_text(encoding="utf-8"))
        made = (
            f"`{name}.json`: {figures['measured']}, {figures['cores']} cores ({figures['machine']}), Python {figures['python']},"
            f" {figures['seconds']} s; load of the machine before it {figures['load_at_start']}."
        )
        parts.append(f"## {module.TITLE}\n\n{module.page(figures)}\n\n{made}")
    return "\n\n".join(parts) + "\n"


def work(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.names or ([] if options.page else NAMES)
    failed = []
    if len(names) == 1:
        write_atomic(options.out / f"{names[0]}.json", json.dumps(measure(names[0], options.data), indent=1) + "\n")
    else:
        for name in names:
            print(f"{name} ...", flush=True)
            data = ["--data", str(options.data)] if options.data else []
            command = [sys.executable, __file__, name, "--out", str(options.out), *data]
            if subprocess.run(command).returncode:  # noqa: S603 - this program itself
                failed.append(name)
    write_atomic(options.out / "README.md", page(options.out))
    print(f"page: {options.out / 'README.md'}")
    if failed:
        raise BenchError(f"not measured: {', '.join(failed)}; what they said stands above")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}; all when none is given")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the figures and the page")
    parser.add_argument("--data", type=Path, help="locomo10.json; without it the shipped sample stands in for it")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no measurement is named {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    return exit_status("bench.py", lambda: work(options))


if __name__ == "__main__":
    sys.exit(main())
