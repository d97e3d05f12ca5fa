"""Shared memories in a run's account, and in a run that goes on after a kill."""

import hashlib
import json
from dataclasses import replace

from contract_bench import Bench
from test_shared_memories import LIVELY, results, stored

from harness.records import table_texts


def test_the_clients_own_first_call_is_counted_once_a_run(tmp_path):
    """An endpoint is asked whether it heeds schemas: in the account of one memory, whether that is built or found."""

    def run(name, **options):
        bench = Bench("memfly", tmp_path / name, **options)
        backbone = replace(bench.spec.backbone, kind="openai", structured="auto")
        bench.spec = replace(bench.spec, backbone=backbone)
        return bench.run()

    alone = run("alone")
    one, two = (run(name, shared=tmp_path / "shared") for name in ("one", "two"))
    assert ["shared_from" in facts for facts in two.built] == [True, True]
    for bench in (alone, one, two):
        assert [facts["purposes"].get("probe", 0) for facts in bench.built] == [1, 0]
        assert [facts["calls"] for facts in bench.built] == [facts["calls"] for facts in alone.built]
        assert [facts["usage"]["prompt_tokens"] for facts in bench.built] == [
            facts["usage"]["prompt_tokens"] for facts in alone.built
        ]
        assert [r["usage"]["calls"] for r in bench.records] == [r["usage"]["calls"] for r in alone.records]
    # Each run has a cache of its own here, so that call is the second run's.
    assert [facts["usage"]["computed_calls"] for facts in two.built] == [1, 0]


def test_a_resumed_run_keeps_its_own_memory(run_door, tmp_path):
    """Another run refreshed the cache, and a third left a memory of the new replies where the first one's was."""
    killed = run_door("answer appended", "9", *LIVELY, script=("tests/kill_driver.py",), env={"PYTHONPATH": "."})
    assert killed.returncode == -9, killed.stderr
    for place in stored(tmp_path):
        rows = [json.loads(row) for row in (place / "notes.jsonl").read_text().split("\n") if row]
        notes = table_texts({"notes": [row | {"context": "Of another reply."} for row in rows]})["notes"]
        (place / "notes.jsonl").write_text(notes)
        manifest = json.loads((place / "manifest.json").read_text())
        manifest["files"]["notes.jsonl"] = hashlib.sha256(notes.encode()).hexdigest()
        (place / "manifest.json").write_text(json.dumps(manifest | {"run_id": "the third"}))
    left = [(place / "notes.jsonl").read_bytes() for place in stored(tmp_path)]
    run_door(*LIVELY, check=0)
    resumed = results(tmp_path, "memfly")
    assert [(place / "notes.jsonl").read_bytes() for place in stored(tmp_path)] == left

    for place in ("runs", "cache"):
        (tmp_path / place).rename(tmp_path / f"killed {place}")
    run_door(*LIVELY, check=0)
    calm = results(tmp_path, "memfly")
    assert not any("shared" in line for line in resumed[0]["table"]["lines"])
    assert resumed == calm
