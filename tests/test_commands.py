"""The promised commands, as a person types them, in a child process."""

import json

import pytest

QUICK = ("backbone=scripted", "embedder=hashing", "dataset.max_sessions=1", "dataset.max_questions=3")


def last_line(text):
    return text.strip().split("\n")[-1]


def test_help_names_the_groups(run_door):
    done = run_door("--help", check=0)
    for group in ("backbone: gpt-4o, gpt-4o-mini, qwen3-14b, qwen3-8b, scripted, smollm2", "ablation: ", "memory: "):
        assert group in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("backbone=qwen3-8b", "ablation=no_link"),
        ("experiment=demo",),
        ("protocol=locomo", "memory=memfly_plus", "seed=3", "trials=2"),
    ],
    ids=" ".join,
)
def test_promised_commands_plan(run_door, command):
    done = run_door(*command, "plan=true", check=0)
    assert "plan (nothing cached): " in done.stderr and " calls, " in done.stderr and " minutes" in done.stderr


def test_a_sweep_runs_every_combination(run_door):
    done = run_door("-m", "memory.tau_merge=0.6,0.7,0.8", "memory.tau_link=0.4,0.5", "plan=true", check=0)
    assert done.stderr.count("plan (nothing cached)") == 6
    assert "sweep: 6 jobs" in done.stderr
    assert done.stderr.count(": finished") == 6


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("backbone=gpt-5",), ("gpt-5", "backbone", "smollm2")),
        (("backbne=gpt-4o",), ("backbne",)),
        (("memory.tau_merge=2",), ("memory.tau_merge=2 is refused", "less than or equal to 1")),
        (("memory.tau=0.5",), ("tau",)),
        (("ablation=no_such",), ("no_such", "no_link")),
        (("memory.system=tests.stub_system:Stub",), ("memory=memfly has no option", "tau_merge", "it has: k")),
        (("backbone=gpt-4o",), ("OPENAI_API_KEY",)),
        (("dataset=locomo10", "dataset.path=/nowhere/locomo10.json"), ("/nowhere/locomo10.json",)),
        (("backbone=scripted", "dataset.conversations=[conv-26]"), ("conv-26", "sample-1", "sample-2")),
        (("backbone=qwen3-8b", "backbone.server.command=no-such-vllm"), ("vllm", "backbone.base_url")),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_wrong_value_is_one_line_and_status_2(run_door, command, words):
    done = run_door(*command, check=2)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    error = last_line(done.stderr)
    assert error.startswith("run.py: ")
    assert all(word in error for word in words), error


def test_in_a_sweep_the_other_jobs_go_on(run_door, tmp_path):
    done = run_door("-m", "memory.tau_merge=0.7,7", "ablation=none,no_such", *QUICK, check=2)
    table = done.stderr[done.stderr.index("sweep: 4 jobs") :]
    assert "#0 memory.tau_merge=0.7 ablation=none" in table and table.count(": finished") == 1
    assert table.count(": refused: ") == 2 and "no_such" in table
    assert table.count(": failed: memory.tau_merge=7 is refused") == 1
    assert last_line(done.stderr) == "run.py: 3 of 4 jobs of the sweep did not finish; the table above says why"
    (metrics,) = tmp_path.glob("runs/*/metrics.json")
    assert json.loads(metrics.read_text())["n_error"] == 0


def test_a_finished_run_computes_nothing_and_fresh_sets_it_aside(run_door, tmp_path):
    first = run_door(*QUICK, check=0)
    (path,) = tmp_path.glob("runs/*/metrics.json")
    before = path.read_text()
    again = run_door(*QUICK, check=0)
    assert "already finished" in again.stderr
    assert again.stdout == first.stdout
    assert path.read_text() == before

    fresh = run_door(*QUICK, "run.fresh=true", check=0)
    assert "set aside" in fresh.stderr
    after = json.loads(path.read_text())
    earlier = json.loads(before)
    assert earlier["usage"]["computed_calls"] > 0
    assert after["usage"]["computed_calls"] == 0
    for timing in ("usage", "wall_s"):
        after.pop(timing), earlier.pop(timing)
    assert after == earlier
    assert len(list(tmp_path.glob("runs/*.old-*"))) == 1


def test_the_stand_in_is_named_as_no_language_model(run_door, tmp_path):
    done = run_door(*QUICK, check=0)
    assert "NO LANGUAGE MODEL" in done.stdout
    (table,) = tmp_path.glob("runs/*/table.md")
    assert "NO LANGUAGE MODEL" in table.read_text()
    assert "gate scored by embeddings, not by the LLM of the paper" in table.read_text()


def test_replay_without_an_archive_reaches_no_network(run_door):
    done = run_door(*QUICK, "backbone=gpt-4o-mini", "cache.mode=replay", check=2)
    assert "replay" in last_line(done.stderr)


def test_a_replay_needs_no_key_and_no_server(run_door, tmp_path):
    """The archive of a scripted run under another backbone's name holds no row of it: the first miss is the error."""
    run_door(*QUICK, check=0)
    done = run_door(*QUICK, "backbone=gpt-4o-mini", "cache.mode=replay", check=2)
    assert "holds no reply" in last_line(done.stderr) and "OPENAI_API_KEY" not in done.stderr


def test_a_password_in_the_address_reaches_no_file(run_door, tmp_path):
    done = run_door("-m", "backbone.base_url=http://bob:s3cretpw@127.0.0.1:1/v1", "seed=0,1", *QUICK, check=2)
    assert "s3cretpw" not in done.stderr + done.stdout
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and "s3cretpw" in path.read_text(errors="replace")
    ]
