"""The promised commands, as a person types them, in a child process."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

QUICK = ("backbone=scripted", "embedder=hashing", "dataset.max_sessions=1", "dataset.max_questions=3")


def lacks(package):
    return pytest.mark.skipif(importlib.util.find_spec(package) is not None, reason=f"{package} is installed")


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
    assert "plan (nothing cached): " in done.stderr and " calls, " in done.stderr and ", about " in done.stderr


def test_a_sweep_plans_every_combination_and_leaves_nothing(run_door, tmp_path):
    folder = tmp_path / "sweep"
    grid = ("memory.tau_merge=0.6,0.7,0.8", "memory.tau_link=0.4,0.5")
    done = run_door("-m", *grid, "plan=true", f"hydra.sweep.dir={folder}", check=0)
    assert not folder.exists()
    assert done.stderr.count("plan (nothing cached)") == 6
    assert "sweep: 6 jobs" in done.stderr
    assert done.stderr.count(": planned") == 6


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
        pytest.param(
            *(("-m", "hydra/launcher=submitit_slurm"), ("hydra/launcher/submitit_slurm", "`make setup-slurm`")),
            marks=lacks("submitit"),
        ),
        pytest.param(*(("-m", "hydra/launcher=ray"), ("hydra/launcher/ray", "`make setup-ray`")), marks=lacks("ray")),
        pytest.param(
            *(("-m", "hydra/sweeper=optuna"), ("hydra/sweeper/optuna", "`make setup-optuna`")), marks=lacks("optuna")
        ),
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
    assert table.count(": refused: ") == 3 and "no_such" in table
    assert table.count(": refused: memory.tau_merge=7 is refused") == 1
    assert last_line(done.stderr) == "run.py: 3 of 4 jobs of the sweep did not finish; the table above says why"
    (metrics,) = tmp_path.glob("runs/*/metrics.json")
    assert json.loads(metrics.read_text())["n_error"] == 0


def test_a_job_of_a_sweep_is_one_line(run_door, tmp_path):
    done = run_door("-m", "memory=rag,locomo", *QUICK, check=0)
    lines = [line for line in done.stdout.splitlines() if line]
    assert [line.split(":")[0] for line in lines] == ["rag", "records", "locomo", "records"]
    folder = next(tmp_path.glob("runs/rag-*"))
    micro = json.loads((folder / "metrics.json").read_text())["micro"]
    assert f"rag: F1 (A-MEM) {100 * micro['f1_amem']:.1f}, F1 (LoCoMo) {100 * micro['f1_locomo']:.1f}" in lines[0]
    assert "6 questions" in lines[0] and "0 errors" in lines[0] and "NO LANGUAGE MODEL" in lines[0]
    assert "tables: python scripts/collect.py " in done.stderr


def test_a_key_that_is_missing_to_all_jobs_is_said_once(run_door, tmp_path):
    done = run_door("-m", "backbone=gpt-4o,gpt-4o-mini", "memory=rag", f"hydra.sweep.dir={tmp_path / 'sweep'}", check=2)
    assert last_line(done.stderr).startswith("run.py: nothing was started: ")
    assert done.stderr.count("export OPENAI_API_KEY") == 2 and "#0" not in done.stderr  # of two backbones, in one line
    assert not (tmp_path / "sweep").exists()


def test_a_job_without_its_key_is_refused_and_the_others_run(run_door):
    done = run_door("-m", "backbone=gpt-4o,scripted", "memory=locomo", *QUICK[1:], check=2)
    assert "#0 backbone=gpt-4o: refused: backbone 'gpt-4o' needs its key" in done.stderr
    assert "#1 backbone=scripted: finished" in done.stderr


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


GRIDS = {"table1": 16, "table2": 16, "table3": 9, "thresholds": 25, "k_final": 5, "i_max": 5, "k_cand": 4}


@pytest.mark.parametrize("grid", GRIDS)
def test_a_grid_plans_all_its_runs(run_door, grid):
    done = run_door("-m", f"experiment={grid}", "dataset=sample", "plan=true", check=0)
    assert done.stderr.count(": planned") == GRIDS[grid]
    assert "together (nothing cached): " in done.stderr


def test_a_grid_without_m_is_refused_with_the_command(run_door):
    done = run_door("experiment=table1", "backbone=scripted", check=2)
    assert "python run.py -m experiment=table1 backbone=scripted" in last_line(done.stderr)


def test_the_command_line_has_the_last_word_on_a_grid(run_door):
    done = run_door(
        "-m", "experiment=table1", "backbone=scripted", "dataset=sample", "memory=rag,locomo", "plan=true", check=0
    )
    assert done.stderr.count(": planned") == 2 and "gpt" not in done.stderr


def test_a_paid_run_without_a_terminal_needs_a_limit_or_a_yes(run_door):
    key = {"OPENAI_API_KEY": "none"}
    for sweep in ((), ("-m",)):
        done = run_door(*sweep, "backbone=gpt-4o-mini", "memory=rag", "embedder=hashing", env=key, check=2)
        assert "run.max_usd=" in last_line(done.stderr) and "run.assume_yes=true" in last_line(done.stderr)


def test_a_run_of_unknown_cost_without_a_terminal_needs_a_yes(run_door, tmp_path):
    hosted = ("backbone.base_url=http://models.invalid/v1", "backbone.model=big-1", "backbone=qwen3-8b")
    for sweep in ((), ("-m",)):
        done = run_door(*sweep, *hosted, "memory=rag", "embedder=hashing", check=2)
        assert "not started: cost unknown: no price for big-1; " in last_line(done.stderr)
        assert done.stderr.count("minutes, cost unknown\n") + done.stderr.count("hours, cost unknown\n") == 1
    assert not list(tmp_path.glob("runs/*"))


def test_a_run_stops_before_the_call_that_passes_its_limit(run_door, tmp_path):
    key = {"OPENAI_API_KEY": "none"}
    call = (
        "backbone=gpt-4o-mini",
        "memory=rag",
        "embedder=hashing",
        "run.max_usd=0",
        "backbone.base_url=http://127.0.0.1:9/v1",
    )
    done = run_door(*call, env=key, check=2)
    assert last_line(done.stderr).startswith("run.py: stopped at run.max_usd=0: $0.0000 spent")
    (status,) = tmp_path.glob("runs/*/status.json")
    assert json.loads(status.read_text())["state"] == "stopped"


def test_a_sweep_as_a_whole_stops_at_its_limit(run_door, tmp_path):
    """Three questions, one call each: what one run takes is known after it; the limit is two runs and a half."""
    priced = ("backbone.price.prompt=1000", "backbone.price.completion=1000", "backbone.price.date=today", *QUICK)
    one_conversation = "dataset.conversations=[sample-1]"
    done = run_door("memory=rag", one_conversation, *priced, "run.assume_yes=true", check=0)
    (metrics,) = tmp_path.glob("runs/*/metrics.json")
    cost = json.loads(metrics.read_text())["usage"]["usd"]
    assert cost > 0
    sweep = ("-m", "memory=rag", "seed=1,2,3,4", one_conversation, *priced, f"run.max_usd={2.5 * cost:.6f}")
    done = run_door(*sweep, "cache.mode=off", check=2)
    table = done.stderr[done.stderr.index("\nsweep: 4 jobs") :]
    assert table.count(": finished") == 2 and table.count("stopped at run.max_usd=") >= 1
    paid = [json.loads(line)["usage"]["usd"] for file in tmp_path.glob("runs/*/answers.jsonl") for line in file.open()]
    assert sum(paid) - cost <= 2.5 * cost
    again = run_door(*sweep, "cache.mode=off", "run.assume_yes=true", check=0)  # the same limit, for what was left
    assert again.stderr.count("already finished") == 2


@pytest.mark.parametrize("program", ["run.py", "scripts/collect.py", "scripts/endpoint.py", "scripts/bench.py"])
def test_a_python_without_the_packages_is_told_where_they_are(program):
    arguments = {"scripts/collect.py": ["results"], "scripts/bench.py": ["scale"]}.get(program, [])
    command = [sys.executable, "-S", program, *arguments]  # no site-packages
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert re.fullmatch(r"\S+\.py: \S+ has no package '\w+'; `make setup` makes .*\n", done.stderr), done.stderr
