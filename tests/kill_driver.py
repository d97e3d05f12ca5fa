"""Run run.py and SIGKILL this very process at the n-th event of a kind: `kill_driver.py KIND N OVERRIDES...`

A kill at a counted event needs no sleep and no luck.
"""

import os
import runpy
import signal
import sys

from harness.llm.cache import ReplyCache
from harness.records import RunFolder, dumps

KIND, NUMBER = sys.argv[1], int(sys.argv[2])
_seen = 0


def event(kind):
    global _seen
    if kind == KIND:
        _seen += 1
        if _seen == NUMBER:
            os.kill(os.getpid(), signal.SIGKILL)


def around(cls, name, before=None, after=None):
    original = getattr(cls, name)

    def wrapped(self, *args, **kwargs):
        if before:
            event(before)
        result = original(self, *args, **kwargs)
        if after:
            event(after)
        return result

    setattr(cls, name, wrapped)


around(ReplyCache, "_write", before="reply computed, not stored", after="reply stored")
around(RunFolder, "write_memory", before="memory built, not written", after="memory written")
around(RunFolder, "_load_or_create_manifest", after="manifest written")
around(RunFolder, "write_results", before="all answered, no results", after="results written, status not")

append = RunFolder.append_answer


def append_answer(self, record):
    if KIND == "half an answer":
        global _seen
        _seen += 1
        if _seen == NUMBER:
            line = dumps(record)
            self._answers_file.write(line[: len(line) // 2])
            self._answers_file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    append(self, record)
    event("answer appended")


RunFolder.append_answer = append_answer
sys.argv = ["run.py", *sys.argv[3:]]
runpy.run_path("run.py", run_name="__main__")
