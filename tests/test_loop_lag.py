"""The event loop is never held up: no step of it takes more than 20 ms of its thread's CPU, over whole runs.

CPU of the thread and no time of a wall: what other processes do does not matter here.
"""

import json

import pytest

from scripts.benches.endpoint import serving

MERGING = ("memory=memfly", "memory.scoring=pairwise", "memory.tau_merge=0.4", "memory.tau_link=0.3")


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    [
        MERGING,
        ("memory=memfly_plus",),
        ("memory=amem",),
        ("memory=rag", "memory.retriever=hybrid"),
        ("memory=readagent",),
    ],
    ids=lambda system: system[0],
)
def test_no_step_of_a_run_holds_up_the_loop(run_door, tmp_path, system):
    with serving(0.0) as url:
        script = ("tests/loop_driver.py", str(tmp_path / "steps"))
        run_door("backbone=scripted", f"backbone.base_url={url}", *system, script=script, check=0)
    count, long = json.loads((tmp_path / "steps").read_text())
    assert count > 500
    assert long == []
