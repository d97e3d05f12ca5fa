"""What a run says when it is printed or resumed under other code, another threshold, or upon another memory."""

import json

import pytest

QUICK = (
    "backbone=scripted",
    "embedder=hashing",
    "memory.scoring=pairwise",
    "dataset.max_sessions=1",
    "dataset.max_questions=3",
)


def lines_of(file):
    return [json.loads(line) for line in file.read_text().split("\n") if line]


def rewrite(file, records):
    bare = [{name: value for name, value in record.items() if name != "crc"} for record in records]
    file.write_text("".join(json.dumps(record) + "\n" for record in bare))


def killed(run_door, tmp_path, moment, *overrides):
    done = run_door(*moment, *QUICK, *overrides, script=("tests/kill_driver.py",), env={"PYTHONPATH": "."})
    assert done.returncode == -9, done.stderr
    (folder,) = (tmp_path / "runs").glob("[!.]*")
    return folder


def test_answers_say_which_code_made_them(run_door, tmp_path):
    folder = killed(run_door, tmp_path, ("answer appended", "4"))
    records = lines_of(folder / "answers.jsonl")
    now = json.loads((folder / "manifest.json").read_text())["code"]
    assert len(now) == 12 and {record["code"] for record in records} == {now}
    rewrite(folder / "answers.jsonl", [record | {"code": "0123456789ab"} for record in records])

    done = run_door(*QUICK, check=0)
    line = f"answers made by code 0123456789ab (4) and code {now} (2)"
    assert line in json.loads((folder / "metrics.json").read_text())["table"]["lines"]
    assert line in " ".join(done.stdout.split()) and line in (folder / "table.md").read_text()
    status = json.loads((folder / "status.json").read_text())
    assert [one["code"] for one in status["processes"]] == [now, now]
    assert status["elapsed_s"] == pytest.approx(sum(one["elapsed_s"] for one in status["processes"]), abs=0.01)

    again = run_door(*QUICK, check=0)
    assert again.stdout == done.stdout
    assert again.stderr.splitlines()[-1].startswith(f"made by code 0123456789ab; this is code {now}")


def test_the_verdict_follows_the_threshold_of_now(run_door, tmp_path):
    run_door(*QUICK, check=0)
    (folder,) = (tmp_path / "runs").glob("[!.]*")
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps(metrics | {"n_error": 1}))  # 1 of 6
    status = json.loads((folder / "status.json").read_text())

    failed = run_door(*QUICK, check=1)
    assert "FAILED: 1 of 6 answers" in failed.stdout and "FAILED: 1 of 6 answers" in (folder / "table.md").read_text()
    assert json.loads((folder / "status.json").read_text()) == status | {
        "state": "failed",
        "message": "FAILED: 1 of 6 answers ended in an error (16.67%; run.max_error_rate allows 1.00%)",
    }
    passed = run_door(*QUICK, "run.max_error_rate=0.2", check=0)
    assert "FAILED" not in passed.stdout and "FAILED" not in (folder / "table.md").read_text()
    assert json.loads((folder / "status.json").read_text()) == status


@pytest.mark.parametrize("sharing", ["true", "false"])
def test_answers_are_never_mixed_over_two_memories(run_door, tmp_path, sharing):
    """As other code, packages or replies would: the memory of the first process held another context."""
    share = f"run.share_memory={sharing}"
    folder = killed(run_door, tmp_path, ("answer appended", "1"), share)
    (answer,) = lines_of(folder / "answers.jsonl")
    for sample in ("sample-1", "sample-2"):
        notes = folder / "memory" / sample / "notes.jsonl"
        if notes.exists():
            rewrite(notes, [note | {"context": "Somebody else."} for note in lines_of(notes)])
    before = (folder / "answers.jsonl").read_bytes()

    refused = run_door(*QUICK, share, check=2)
    last = refused.stderr.strip().split("\n")[-1]
    assert f"the memory of {answer['sample_id']} is not built again" in last and "notes differ" in last
    assert "run.fresh=true" in last and "Traceback" not in refused.stderr
    kept = lines_of(folder / "answers.jsonl")
    assert (folder / "answers.jsonl").read_bytes().startswith(before)
    assert [record for record in kept if record["sample_id"] == answer["sample_id"]] == [answer]
    run_door(*QUICK, share, "run.fresh=true", check=0)
