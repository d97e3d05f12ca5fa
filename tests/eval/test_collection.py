"""Run folders from anywhere, each once, damaged ones named."""

import json

import pytest
from run_folders import record, write_run

from eval.collection import absent_jobs, load_runs
from harness.errors import RecordError


def test_a_folder_of_runs_a_run_and_a_sweep_are_read_alike(tmp_path):
    first = write_run(tmp_path / "runs" / "a", [record("c1", 0, 1)])
    second = write_run(
        tmp_path / "runs" / "b", [record("c1", 0, 1)], ablation="no_link", state="stopped", metrics=False
    )
    write_run(tmp_path / "runs" / "a.old-20260101", [record("c1", 0, 1)])
    (tmp_path / "sweep").mkdir()
    jobs = [{"folder": str(second)}, {"folder": None}, {"folder": str(first)}, {"folder": str(tmp_path / "gone")}]
    (tmp_path / "sweep" / "runs.json").write_text(json.dumps({"jobs": jobs}))

    runs = load_runs([tmp_path / "runs", first])
    assert [run.label for run in runs] == ["memfly", "memfly-no_link"]
    assert [run.complete for run in runs] == [True, False]
    assert [run.label for run in load_runs([tmp_path / "sweep"])] == ["memfly-no_link", "memfly"]


def test_answers_come_in_order_and_the_later_line_counts(tmp_path):
    lines = [record("c2", 0, 1), record("c1", 1, 1, error="timeout"), record("c1", 0, 1), record("c1", 1, 1, f1=0.5)]
    (run,) = load_runs([write_run(tmp_path / "a", lines)])
    assert [(r["sample_id"], r["qa_index"]) for r in run.answers()] == [("c1", 0), ("c1", 1), ("c2", 0)]
    assert run.answers()[1]["error"] is None


def test_memories_are_read_one_by_one(tmp_path):
    folder = write_run(tmp_path / "a", [record("c1", 0, 1)])
    memory = folder / "memory" / "c1"
    memory.mkdir(parents=True)
    (memory / "notes.jsonl").write_text('{"id": 0}\n{"id": 1}\n')
    (memory / "built.json").write_text('{"sample_id": "c1", "notes": 2}')
    (run,) = load_runs([folder])
    assert run.sample_ids() == ["c1"]
    assert run.memory("c1") == {"built": {"sample_id": "c1", "notes": 2}, "tables": {"notes": [{"id": 0}, {"id": 1}]}}
    with pytest.raises(KeyError):
        run.memory("c2")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("manifest.json", "{", "manifest.json: damaged"),
        ("manifest.json", '{"spec": {}}', "without identity, data, prompts"),
        ("metrics.json", "[]", "metrics.json: damaged (not an object)"),
        ("answers.jsonl", '{"sample_id": "c1"}\n', "answers.jsonl:1: not a record"),
    ],
)
def test_what_is_damaged_is_named(tmp_path, name, text, says):
    folder = write_run(tmp_path / "a", [record("c1", 0, 1)])
    (folder / name).write_text(text)
    with pytest.raises(RecordError) as caught:
        load_runs([folder])[0].answers()
    assert says in str(caught.value)


def test_a_path_without_runs_is_an_error(tmp_path):
    with pytest.raises(RecordError, match="no run folder here"):
        load_runs([tmp_path])


def test_outcomes_are_the_records_without_their_texts(tmp_path):
    items = [{"dia_ids": ["D1:1"], "text": "a long text", "rank": 1}]
    (run,) = load_runs([write_run(tmp_path / "a", [record("c1", 0, 1, f1=0.5, evidence=items)])])
    (outcome,) = run.outcomes
    assert outcome["evidence"] == [{"dia_ids": ["D1:1"]}] and outcome["scores"]["f1_amem"] == 0.5
    assert not {"question", "gold", "reply", "answer"} & set(outcome)
    assert run.answers()[0]["evidence"] == items


def test_a_folder_copied_in_part_is_refused(tmp_path):
    folder = write_run(tmp_path / "a", [record("c1", 0, 1), record("c1", 1, 1)])
    lines = (folder / "answers.jsonl").read_text().splitlines(keepends=True)
    (folder / "answers.jsonl").write_text(lines[0])
    with pytest.raises(RecordError, match=r"holds 1 answers, metrics.json is of 2"):
        _ = load_runs([folder])[0].outcomes
    (folder / "answers.jsonl").unlink()
    with pytest.raises(RecordError, match="holds 0 answers"):
        _ = load_runs([folder])[0].outcomes


def test_a_sweeps_jobs_without_a_folder_are_said(tmp_path):
    folder = write_run(tmp_path / "runs" / "a", [record("c1", 0, 1)])
    (tmp_path / "sweep").mkdir()
    jobs = [
        {"folder": str(folder), "overrides": ["memory=memfly"], "outcome": "finished"},
        {"folder": str(tmp_path / "gone"), "overrides": ["memory=rag"], "outcome": "finished, gone"},
        {"folder": None, "overrides": ["memory=nosuch"], "outcome": "refused: no such memory"},
    ]
    (tmp_path / "sweep" / "runs.json").write_text(json.dumps({"jobs": jobs}))
    lines = absent_jobs([tmp_path / "sweep", folder])
    assert [line.partition("(")[2] for line in lines] == [
        "memory=rag): finished, gone",
        "memory=nosuch): refused: no such memory",
    ]
