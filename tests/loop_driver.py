"""run.py with every step of its event loops measured: python tests/loop_driver.py FILE OVERRIDES...

FILE gets [steps, [[seconds of the thread's CPU, what ran], ...]] of those above 20 ms.
"""

import asyncio.events
import cProfile
import json
import pstats
import runpy
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED_S = 0.020
PROFILED = False
"""Set True to learn which functions a long step was in; the profiler makes all steps longer."""


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from harness import libraries

    place = Path(sys.argv.pop(1))
    original = asyncio.events.Handle._run
    count, long = 0, []

    def timed(handle):
        nonlocal count
        profiler = cProfile.Profile() if PROFILED else None
        began = time.thread_time()
        profiler.runcall(original, handle) if profiler else original(handle)
        took = time.thread_time() - began
        count += 1
        if took > ALLOWED_S:
            where = ""
            if profiler:
                stats = pstats.Stats(profiler).sort_stats("cumulative").fcn_list[:12]
                where = " < ".join(f"{Path(file).name}:{line}:{name}" for file, line, name in stats)
            long.append([round(took, 4), where or repr(handle)[:200]])

    def loaded(backbone):
        load(backbone)
        long.clear()  # before the run's own loop nothing is under way

    load, libraries.load = libraries.load, loaded
    asyncio.events.Handle._run = timed
    sys.argv[0] = "run.py"
    try:
        runpy.run_path(str(ROOT / "run.py"), run_name="__main__")
    finally:
        place.write_text(json.dumps([count, long], indent=1))


if __name__ == "__main__":
    main()
