"""Run run.py and send this very process a signal: `signal_driver.py SIGNALS EVENT DELAY_S OVERRIDES...`

The moment is DELAY_S seconds after the EVENT-th event of any kind: a request, cached or not, an answer, a memory.
SIGNALS: names joined by a plus sign, sent one after another.
"""

import os
import runpy
import signal
import sys
import threading
import time

from harness.llm.cache import ReplyCache
from harness.records import RunFolder

SIGNALS = [getattr(signal, name) for name in sys.argv[1].split("+")]
EVENT, DELAY_S = int(sys.argv[2]), float(sys.argv[3])
_seen = 0


def send():
    for number in SIGNALS:
        time.sleep(DELAY_S)
        os.kill(os.getpid(), number)


def counted(cls, name):
    original = getattr(cls, name)

    def wrapped(self, *arguments, **options):
        global _seen
        _seen += 1
        if _seen == EVENT:
            threading.Thread(target=send, daemon=True).start()
        return original(self, *arguments, **options)

    setattr(cls, name, wrapped)


counted(ReplyCache, "get")
counted(RunFolder, "append_answer")
counted(RunFolder, "write_memory")
sys.argv = ["run.py", *sys.argv[4:]]
runpy.run_path("run.py", run_name="__main__")
