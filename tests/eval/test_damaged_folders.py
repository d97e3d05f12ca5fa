"""A run folder that is damaged in any way is resumed without what is damaged, or refused in one line; so is the collector."""

import json
import os
import shutil

import pytest
from fuzz import JSON, damaged, damaged_bytes, examples
from hypothesis import given
from hypothesis import strategies as st
from run_folders import record, write_run

from eval.collection import load_runs
from harness.errors import RecordError
from harness.records import RunFolder

RECORDS = [record("c1", 0, 1, f1=0.5), record("c1", 1, 4, error="timeout"), record("c2", 0, 5, f1=1.0)]
BUILT = {"sample_id": "c1", "turns": 3, "calls": 2, "purposes": {"note": 2}, "usage": {"calls": 2}}
FILES = (
    "manifest.json",
    "status.json",
    "answers.jsonl",
    "metrics.json",
    "memory/c1/built.json",
    "memory/c1/notes.jsonl",
)


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("sound") / "run", RECORDS, identity="id")
    processes = [{"started": "2026-01-01", "code": "c", "elapsed_s": 1.5, "notices": ["said"], "too_long": ["ab"]}]
    status = json.loads((folder / "status.json").read_text()) | {"elapsed_s": 1.5, "processes": processes}
    (folder / "status.json").write_text(json.dumps(status))
    (folder / "memory" / "c1").mkdir(parents=True)
    (folder / "memory" / "c1" / "built.json").write_text(json.dumps(BUILT))
    (folder / "memory" / "c1" / "notes.jsonl").write_text('{"id": 0}\n{"id": 1}\n')
    return folder


@pytest.fixture(scope="module")
def with_file(sound, tmp_path_factory):
    """The sound folder with other content in one file."""
    place = tmp_path_factory.mktemp("fuzz") / "run"

    def write(name, content):
        if place.exists():
            shutil.rmtree(place)
        shutil.copytree(sound, place)
        (place / name).write_bytes(content)
        return place

    return write


def one_line(error, place):
    assert str(place) in str(error) and len(str(error).splitlines()) == 1


def resume(place):
    """Open the folder twice, as a run does. The answers it goes on with, or None where it is refused."""
    try:
        with RunFolder(place, "id", {"versions": {}}) as folder:
            folder.read_metrics(), folder.read_built("c1")
            held, notices = dict(folder.answers), folder.notices
            folder.write_status("running", "")
            folder.append_answer(RECORDS[0])
        with RunFolder(place, "id", {}) as folder:
            assert folder.answers == held | {("c1", 0, 0): RECORDS[0]} and folder.notices == []
    except RecordError as error:
        one_line(error, place)
        return None
    lost = (place / "answers.damaged.jsonl").exists()
    assert lost == bool(notices)  # nothing is set aside without a word
    return held


def collect(place):
    try:
        for run in load_runs([place]):
            told = run.label, run.backbone, run.dataset, run.protocol, run.identity, run.data_sha, run.state
            assert all(isinstance(text, str) for text in told)
            assert isinstance(run.seed, int) and isinstance(run.trials, int)
            assert len(run.outcomes) == len(run.answers())
            assert run.sample_ids() == [name for name, _ in run.memories()]
    except RecordError as error:
        one_line(error, place)


def tried(with_file, name, content):
    place = with_file(name, content)
    collect(place)
    return resume(place)


def test_what_is_damaged_here_is_sound_before(with_file, sound):
    place = with_file("answers.jsonl", (sound / "answers.jsonl").read_bytes())
    assert [run.sample_ids() for run in load_runs([place])] == [["c1"]]
    assert len(load_runs([place])[0].outcomes) == 3
    assert list(resume(place).values()) == RECORDS


@examples(120)
@given(data=st.data(), name=st.sampled_from(FILES))
def test_any_byte_of_any_file_may_be_wrong(with_file, sound, data, name):
    tried(with_file, name, data.draw(damaged_bytes((sound / name).read_bytes())))


@examples(120)
@given(data=st.data(), name=st.sampled_from([name for name in FILES if name.endswith(".json")]))
def test_any_value_of_any_file_may_be_wrong(with_file, sound, data, name):
    value = data.draw(damaged(json.loads((sound / name).read_bytes())))
    tried(with_file, name, json.dumps(value).encode())


@examples(120)
@given(data=st.data(), at=st.integers(0, 2))
def test_any_value_of_a_record_may_be_wrong(with_file, data, at):
    """The other lines are kept; the damaged one is used only if it is a record still."""
    lines = [json.dumps(one) for one in RECORDS]
    lines[at] = json.dumps(data.draw(damaged(RECORDS[at]) | JSON))
    held = tried(with_file, "answers.jsonl", "".join(line + "\n" for line in lines).encode())
    assert held is not None
    for one in RECORDS[:at] + RECORDS[at + 1 :]:
        assert one in held.values() or json.loads(lines[at])["sample_id"] == one["sample_id"]  # asked again: the later


def test_a_letter_that_is_no_letter_any_more_sets_its_line_aside(with_file, sound):
    content = (sound / "answers.jsonl").read_bytes().replace(b"question 1?", b"question \xff?")
    held = tried(with_file, "answers.jsonl", content)
    assert set(held) == {("c1", 0, 0), ("c2", 0, 0)}


@pytest.mark.slow
@examples(5000)
@given(data=st.data(), name=st.sampled_from(FILES))
def test_many_bytes_of_any_file_may_be_wrong(with_file, sound, data, name):
    tried(with_file, name, data.draw(damaged_bytes((sound / name).read_bytes())))
