"""Logging to Weights & Biases: what is given to it, that it can harm no run, and, where wandb is installed (make
setup-wandb), a real offline run that sends nothing and writes no secret."""

import importlib.util
import json
import os
import socket
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from export_fakes import ERROR, manifest, metrics, record

from eval import wandb_log
from harness.errors import ConfigError
from harness.spec import WandbSpec

SECRET = "5ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7"
real = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed: make setup-wandb")


def folder(path):
    return SimpleNamespace(
        path=path / "memfly-stub",
        manifest=manifest(),
        read_metrics=metrics,
        read_status=lambda: {"state": "finished"},
        answers={("conv-1", 0, 0): record(0), ("conv-1", 1, 0): record(1, **ERROR)},
    )


class FakeWandb:
    """Keeps what it is given. `fails`: the call that raises."""

    def __init__(self, fails=None):
        self.fails, self.settings, self.given, self.logged, self.ended = fails, {}, {}, {}, []
        self.summary, self.url, self.dir = {}, "https://example.org/run", "/x/wandb/offline-run-1/files"

    def Settings(self, **values):
        self.settings = values
        return self.settings

    def Table(self, *, columns, data):
        return [columns, *data]

    def init(self, **given):
        if self.fails == "init":
            raise RuntimeError(f"no server\nfor key {SECRET}")
        self.given = given
        return self

    def log(self, values):
        if self.fails == "log":
            raise OSError("disk full")
        self.logged |= values

    def finish(self, exit_code=0):
        self.ended.append(exit_code)
        if self.fails == "finish":
            raise TimeoutError("too long")

    def teardown(self):
        self.ended.append("torn down")


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    for name in ("WANDB_ERROR_REPORTING", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, "theirs")

    def install(**options):
        made = FakeWandb(**options)
        monkeypatch.setitem(sys.modules, "wandb", made)
        return made

    return install


def test_what_is_logged(fake, tmp_path):
    wandb, said = fake(), []
    wandb_log.log(folder(tmp_path), WandbSpec(mode="offline", dir=str(tmp_path), entity="us"), said.append)
    assert said == ["  wandb: offline, wandb sync /x/wandb/offline-run-1"]
    given = {
        name: wandb.given[name] for name in ("mode", "project", "entity", "id", "name", "group", "job_type", "tags")
    }
    assert given == {
        "mode": "offline", "project": "memfly-bench", "entity": "us", "id": "1f" * 16, "name": "memfly-stub",
        "group": "memfly-no_link", "job_type": "stub", "tags": ["sample", "amem"],
    }  # fmt: skip
    assert set(wandb.given["config"]) == {"spec", "identity", "versions", "data", "prompts"}
    assert wandb.summary["state"] == "finished" and wandb.summary["micro/f1_amem"] == 0.5
    assert set(wandb.logged) == {"by_category", "usage"}
    off = ("disable_git", "disable_code", "x_disable_meta", "x_disable_stats", "x_disable_machine_info")
    assert all(wandb.settings[name] is True for name in off)
    assert wandb.settings["console"] == "off" and wandb.settings["x_save_requirements"] is False
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"
    assert wandb.ended == [0, "torn down"]


def test_answers_are_logged_only_when_asked_for(fake, tmp_path):
    wandb = fake()
    wandb_log.log(folder(tmp_path), WandbSpec(mode="online", dir=str(tmp_path), answers=True), lambda line: None)
    columns, good, bad = wandb.logged["answers"]
    assert dict(zip(columns, good, strict=True))["f1_amem"] == 0.5
    assert dict(zip(columns, bad, strict=True)) | {"error": "unparsable", "f1_amem": None} == dict(
        zip(columns, bad, strict=True)
    )
    assert wandb.given["resume"] == "allow"


@pytest.mark.parametrize("call", ["init", "log", "finish"])
def test_no_failure_of_wandb_reaches_the_run(fake, tmp_path, call):
    wandb, said = fake(fails=call), []
    wandb_log.log(folder(tmp_path), WandbSpec(mode="online", dir=str(tmp_path)), said.append)
    (line,) = said
    assert line.startswith("  wandb: not logged (") and line.endswith("; the records are complete")
    assert "\n" not in line and SECRET not in line
    assert call == "init" or wandb.ended[-1] == "torn down"


def test_summary_by_hand():
    flat = wandb_log.summary(metrics())
    assert flat == {
        "n_total": 2, "n_scored": 1, "n_error": 1, "errors_by_kind/unparsable": 1, "wall_s": 1.5,
        **{f"{name}/{figure}": value for name in ("micro", "micro4", "macro", "macro4") for figure, value in (("f1_amem", 0.5), ("f1_locomo", 1.0))},
        "by_category/4/n": 1, "by_category/4/n_error": 0, "by_category/4/n_evidence": 0,
        "by_category/4/f1_amem": 0.5, "by_category/4/f1_locomo": 1.0,
        "intervals/f1_amem/low": 0.25, "intervals/f1_amem/high": 0.75, "memory/notes": 3, "memory/collapsed": False,
        "usage/calls": 2, "usage/computed_calls": 1, "usage/cached_calls": 1, "usage/prompt_tokens": 90,
        "usage/completion_tokens": 9, "usage/usd": 0.001,
    }  # fmt: skip


def test_tables_by_hand():
    table = wandb_log.by_category(metrics())
    assert table["columns"] == ["category", "n", "n_error", "n_evidence", "f1_amem", "f1_locomo", "recall"]
    assert table["data"][0] == ["4 single_hop", 1, 0, 0, 0.5, 1.0, None]
    assert [row[0] for row in table["data"][1:]] == ["micro", "micro4", "macro", "macro4"]
    assert wandb_log.usage(metrics())["data"] == [[2, 1, 1, 90, 9, 0.001, 1.5]]


def test_check_before_anything_is_computed(monkeypatch, tmp_path):
    found = [None]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found[0])
    with pytest.raises(
        ConfigError, match=r"^wandb.mode=offline needs wandb, which is not installed: make setup-wandb$"
    ):
        wandb_log.check(WandbSpec(mode="offline", dir=str(tmp_path)))
    found[0] = "there"
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    wandb_log.check(WandbSpec(mode="offline", dir=str(tmp_path / "new" / "folder")))
    online = WandbSpec(mode="online", dir=str(tmp_path))
    with pytest.raises(ConfigError, match="needs WANDB_API_KEY in the environment"):
        wandb_log.check(online)
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai login user password {SECRET}\n")
    wandb_log.check(online)
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    with pytest.raises(ConfigError):
        wandb_log.check(online)
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    wandb_log.check(online)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/x cannot be made \(Not a directory\)"):
        wandb_log.check(WandbSpec(mode="offline", dir=str(tmp_path / "file" / "x")))


DRIVER = """
import os, runpy, sys

tried = open({tried!r}, "a", buffering=1)

def see(event, args):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        tried.write(repr((event, args[-1])) + "\\n")
    if event == "socket.connect" and not isinstance(args[1], str | bytes):
        tried.write(repr((event, args[1])) + "\\n")

sys.addaudithook(see)
sys.path.insert(0, os.getcwd())
{more}
sys.argv[0] = "run.py"
runpy.run_path("run.py", run_name="__main__")
"""


@pytest.fixture
def door(run_door, tmp_path):
    """A run in a child process, its own connections noted, with a proxy that counts what other programs would send."""
    tried, driver = tmp_path / "tried", tmp_path / "driver.py"
    home = tmp_path / "home"
    home.mkdir()
    taken = []

    def take(server):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            taken.append(connection.recv(200))
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=take, args=(server,), daemon=True)
        thread.start()
        proxy = f"http://127.0.0.1:{server.getsockname()[1]}"
        env = {"HOME": str(home), "HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "NO_PROXY": "", "no_proxy": ""}

        def run(*overrides, more="", check=0, **environment):
            driver.write_text(DRIVER.format(tried=str(tried), more=more))
            done = run_door(
                "backbone=scripted", "embedder=hashing", "memory=rag", "dataset.max_questions=2", *overrides,
                f"wandb.dir={tmp_path / 'logged'}", script=(str(driver),), env=env | environment, check=check,
            )  # fmt: skip
            return done

        yield SimpleNamespace(run=run, taken=taken, tried=tried, home=home)
        server.close()


def written(path: Path):
    return [one for one in path.rglob("*") if one.is_file()]


def test_without_wandb_nothing_is_computed(door, tmp_path):
    done = door.run("wandb.mode=offline", more='sys.modules["wandb"] = None', check=2)
    assert (
        done.stderr.splitlines()[-1]
        == "run.py: wandb.mode=offline needs wandb, which is not installed: make setup-wandb"
    )
    assert not (tmp_path / "runs").exists()
    door.run("wandb.mode=off", more='sys.modules["wandb"] = None')


@real
def test_an_offline_run_is_written_and_nothing_is_sent(door, tmp_path):
    done = door.run("wandb.mode=offline", WANDB_API_KEY=SECRET)
    (run,) = (tmp_path / "runs").glob("rag-*")
    record = json.loads((run / "answers.jsonl").read_text().splitlines()[0])
    run_id = json.loads((run / "manifest.json").read_text())["run_id"]
    (logged,) = (tmp_path / "logged" / "wandb").glob(f"offline-run-*-{run_id}")
    assert f"  wandb: offline, wandb sync {logged}" in done.stderr
    stored = (logged / f"run-{run_id}.wandb").read_bytes()
    for text in ("micro", "f1_amem", "prompt_tokens", "content_sha256", run.name):
        assert text.encode() in stored
    (table,) = logged.rglob("by_category*.table.json")
    assert json.loads(table.read_text())["data"][-4][0] == "micro"
    everything = [(path, path.read_bytes()) for path in written(tmp_path) if path.name != "driver.py"]
    assert [path for path, data in everything if SECRET.encode() in data] == []
    assert SECRET not in done.stderr + done.stdout
    outside = [(path, data) for path, data in everything if not path.is_relative_to(run)]
    outside = [
        path
        for path, data in outside
        if not path.is_relative_to(tmp_path / "cache") and record["question"].encode() in data
    ]
    assert outside == []
    assert written(door.home) == []
    assert door.tried.read_text() == "" and door.taken == []


@real
def test_answers_when_asked_for_also_of_a_finished_run(door, tmp_path):
    door.run("wandb.mode=off")
    assert not (tmp_path / "logged").exists()
    done = door.run("wandb.mode=offline", "wandb.answers=true")
    assert "already finished" in done.stderr
    (table,) = (tmp_path / "logged" / "wandb").glob("offline-run-*/files/**/answers*.table.json")
    answers = (next((tmp_path / "runs").glob("rag-*")) / "answers.jsonl").read_text().splitlines()
    assert len(json.loads(table.read_text())["data"]) == len(answers)


@real
def test_a_dead_server_costs_the_run_nothing(door, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = door.run(
        "wandb.mode=online", more="import eval.wandb_log; eval.wandb_log.TIMEOUT_S = 3.0",
        WANDB_API_KEY=SECRET, WANDB_BASE_URL=f"http://127.0.0.1:{port}",
    )  # fmt: skip
    assert "wandb: not logged (" in done.stderr and SECRET not in done.stderr
    (run,) = (tmp_path / "runs").glob("rag-*")
    assert json.loads((run / "status.json").read_text())["state"] == "finished"
