"""A run's account survives the processes that worked on it."""

import json

import pytest

from harness import status as status_module
from harness.records import RunFolder
from harness.run_facts import by_code, code_lines
from harness.status import Said, digests


@pytest.fixture
def clock(monkeypatch):
    """Seconds since the machine was started, as the test sets them."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(status_module, "time", made)
    return made


def opened(tmp_path, code="aaaa"):
    return RunFolder(tmp_path / "run", "id1", {"code": code})


def on_disk(tmp_path):
    return json.loads((tmp_path / "run" / "status.json").read_text())


def test_a_killed_process_leaves_its_account(tmp_path, clock):
    folder = opened(tmp_path)
    said = []
    folder.status.watch(lambda: Said(tuple(said), digests(["long one"])))
    folder.write_status("running", total=8)
    said.append("response_format ignored")
    clock.now += 7
    folder.heartbeat()
    clock.now += 3  # these are lost: it is killed now, and its lock is gone with it
    folder._lock.release()
    assert (on_disk(tmp_path)["state"], on_disk(tmp_path)["elapsed_s"], on_disk(tmp_path)["total"]) == ("running", 7, 8)

    clock.now += 500  # nobody works on it
    with opened(tmp_path, "bbbb") as folder:
        folder.status.watch(lambda: Said(("1 damaged row", "response_format ignored"), digests(["long one", "other"])))
        clock.now += 5
        assert folder.status.elapsed_s == 12
        assert folder.status.said() == Said(
            ("response_format ignored", "1 damaged row"), digests(["long one", "other"])
        )
        folder.write_status("finished")
    account = on_disk(tmp_path)
    assert (account["state"], account["elapsed_s"], account["total"]) == ("finished", 12, 8)
    assert [(one["code"], one["elapsed_s"]) for one in account["processes"]] == [("aaaa", 7), ("bbbb", 5)]
    assert account["processes"][0]["notices"] == ["response_format ignored"]


def test_who_only_looks_writes_nothing(tmp_path, clock):
    with opened(tmp_path) as folder:
        folder.write_status("failed", "2 of 4")
    before = on_disk(tmp_path)
    with opened(tmp_path) as folder:
        clock.now += 9
        folder.heartbeat()
        assert on_disk(tmp_path) == before
        folder.status.amend("finished", "")
    assert on_disk(tmp_path) == before | {"state": "finished", "message": ""}
    folder.heartbeat()  # a late thread
    assert on_disk(tmp_path)["state"] == "finished"


def test_a_heartbeat_never_takes_back_how_a_run_ended(tmp_path, clock):
    with opened(tmp_path) as folder:
        folder.write_status("running")
        folder.write_status("stopped", "interrupted")
        folder.heartbeat()
    assert (on_disk(tmp_path)["state"], on_disk(tmp_path)["message"]) == ("stopped", "interrupted")


def test_an_account_of_before_is_taken_over(tmp_path, clock):
    with opened(tmp_path):
        pass
    (tmp_path / "run" / "status.json").write_text('{"state": "stopped", "message": "", "elapsed_s": 40.5}')
    with opened(tmp_path) as folder:
        clock.now += 2
        folder.write_status("finished")
    assert on_disk(tmp_path)["elapsed_s"] == 42.5


def test_answers_of_two_codes_are_told_apart():
    records = [{"code": "aaaa"}, {"code": "bbbb"}, {"code": "aaaa"}, {}]
    assert by_code(records) == {"aaaa": 2, "bbbb": 1, "unnamed": 1}
    assert code_lines(records[:3]) == ["answers made by code aaaa (2) and code bbbb (1)"]
    assert code_lines(records[:1]) == code_lines([]) == []
