"""Run folders: locked, atomic, resumable; damage is found, set aside and said."""

import binascii
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import RecordError
from harness.records import RunFolder, parse_record, table_texts, write_atomic

ROOT = Path(__file__).resolve().parent.parent
ONE = {
    "sample_id": "s",
    "qa_index": 0,
    "trial": 0,
    "category": 4,
    "answer": "a\u2028b",
    "evidence": [],
    "scores": {"f1_amem": 0.5},
    "usage": {},
    "error": None,
}
TWO = ONE | {"qa_index": 1, "answer": "c"}


def test_answers_survive_and_resume(tmp_path):
    with RunFolder(tmp_path / "run", "id1", {"spec": {}}) as folder:
        folder.append_answer(ONE)
        run_id = folder.run_id
    with RunFolder(tmp_path / "run", "id1", {"spec": {}}) as folder:
        assert folder.answers == {("s", 0, 0): ONE}  # a line separator inside a text splits no record
        assert folder.run_id == run_id
        folder.append_answer(TWO)
    lines = (tmp_path / "run" / "answers.jsonl").read_text().split("\n")
    assert [json.loads(line)["qa_index"] for line in lines if line] == [0, 1]


DAMAGED = [
    '{"sample_id": "s", "qa_in',
    "\x00\x00\x00",
    '{"sample_id": "s"}',
    "[1]",
    '"text"',
    "[" * 100_000,
    json.dumps(TWO | {"error": {"message": "without a kind"}}),
    json.dumps(TWO | {"qa_index": "1"}),
    json.dumps({name: value for name, value in TWO.items() if name != "usage"}),
    json.dumps(TWO | {"scores": {"f1_amem": float("nan")}}),
    json.dumps(TWO).replace("0.5", "1e999"),
]


@pytest.mark.parametrize("tail", DAMAGED, ids=range(len(DAMAGED)))
def test_a_half_written_line_is_set_aside(tmp_path, tail):
    with RunFolder(tmp_path / "run", "id1", {}) as folder:
        folder.append_answer(ONE)
    with (tmp_path / "run" / "answers.jsonl").open("a") as handle:
        handle.write(tail)
    with RunFolder(tmp_path / "run", "id1", {}) as folder:
        assert list(folder.answers) == [("s", 0, 0)]
        assert folder.notices == [
            "1 unreadable line(s) of answers.jsonl set aside in answers.damaged.jsonl; asked again"
        ]
        folder.append_answer(TWO)
    assert (tmp_path / "run" / "answers.damaged.jsonl").read_text() == tail + "\n"
    with RunFolder(tmp_path / "run", "id1", {}) as folder:
        assert set(folder.answers) == {("s", 0, 0), ("s", 1, 0)}
        assert folder.notices == []


def test_a_line_that_is_sound_json_and_not_what_was_written_is_set_aside(tmp_path):
    with RunFolder(tmp_path / "run", "id1", {}) as folder:
        for place in range(3):
            folder.append_answer(ONE | {"qa_index": place})
    file = tmp_path / "run" / "answers.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    changed = lines[1].replace(b'"qa_index": 1', b'"qa_index": 7')  # one byte: another question's answer
    assert len(changed) == len(lines[1]) and changed != lines[1]
    file.write_bytes(lines[0] + changed + lines[2])
    with RunFolder(tmp_path / "run", "id1", {}) as again:
        assert [key[1] for key in again.answers] == [0, 2]
        assert again.notices == [
            "1 unreadable line(s) of answers.jsonl set aside in answers.damaged.jsonl; asked again"
        ]
    assert file.read_bytes() == lines[0] + lines[2]
    assert (tmp_path / "run" / "answers.damaged.jsonl").read_bytes() == changed


def test_the_checksum_is_the_crc32_of_the_record_and_no_part_of_it(tmp_path):
    with RunFolder(tmp_path / "run", "id1", {}) as folder:
        folder.append_answer(ONE)
    line = (tmp_path / "run" / "answers.jsonl").read_bytes().rstrip(b"\n")
    bare = json.dumps(ONE, ensure_ascii=False).encode()
    assert json.loads(line) == ONE | {"crc": f"{binascii.crc32(bare):08x}"}
    assert parse_record(line)[1] == ONE == parse_record(bare)[1]


def test_a_last_line_without_its_newline_keeps_its_record_apart(tmp_path):
    with RunFolder(tmp_path / "run", "id1", {}) as folder:
        folder.append_answer(ONE)
    path = tmp_path / "run" / "answers.jsonl"
    path.write_text(path.read_text().rstrip("\n"))
    with RunFolder(tmp_path / "run", "id1", {}) as folder:
        folder.append_answer(TWO)
    assert [json.loads(line)["qa_index"] for line in path.read_text().split("\n") if line] == [0, 1]


def test_another_identity_is_refused_and_fresh_sets_aside(tmp_path):
    with RunFolder(tmp_path / "run", "id1", {}) as folder:
        folder.append_answer(ONE)
        first = folder.run_id
    with pytest.raises(RecordError, match=r"holds another run \(identity id1, this one is id2\); use run.fresh=true"):
        RunFolder(tmp_path / "run", "id2", {})
    with RunFolder(tmp_path / "run", "id1", {}, fresh=True) as folder:
        assert folder.answers == {}
        assert folder.run_id != first
    (old,) = tmp_path.glob("run.old-*")
    assert (old / "answers.jsonl").exists()


def test_a_second_process_is_refused(tmp_path):
    code = (
        "import sys; from pathlib import Path; from harness.records import RunFolder\n"
        "from harness.errors import RecordError\n"
        "try: RunFolder(Path(sys.argv[1]), 'id1', {})\n"
        "except RecordError as error: print(error)"
    )
    with RunFolder(tmp_path / "run", "id1", {}):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "run")], cwd=ROOT, capture_output=True, text=True, check=True
        )
    assert "another process is working on this run" in done.stdout
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""


def test_atomic_write_leaves_the_old_file_on_failure(tmp_path):
    path = tmp_path / "status.json"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "new \ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["status.json"]


def test_nan_never_reaches_a_record(tmp_path):
    with RunFolder(tmp_path / "run", "id1", {}) as folder, pytest.raises(ValueError, match="Out of range float"):
        folder.append_answer({**ONE, "scores": {"f1_amem": float("nan")}})
    with RunFolder(tmp_path / "run", "id1", {}) as folder:
        assert folder.answers == {}


def test_damaged_whole_files_are_named(tmp_path):
    with RunFolder(tmp_path / "run", "id1", {}) as folder:
        folder.write_memory("s", table_texts({"notes": [{"id": 0}]}), {"notes": 1})
        assert folder.read_built("s") == {"notes": 1}
    (tmp_path / "run" / "manifest.json").write_text("{")
    with pytest.raises(RecordError, match=r"manifest.json: damaged \(not JSON\); delete it or use run.fresh=true"):
        RunFolder(tmp_path / "run", "id1", {})


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"cannot be used .*set run.dir to a writable folder"):
        RunFolder(tmp_path / "file" / "run", "id1", {})


def test_sample_ids_cannot_leave_the_folder(tmp_path):
    with RunFolder(tmp_path / "run", "id1", {}) as folder:
        folder.write_memory("../../x", {}, {"notes": 0})
        assert folder.read_built("../../x") == {"notes": 0}
    assert not (tmp_path / "x").exists()
    assert not (tmp_path.parent / "x").exists()


def test_files_are_as_readable_as_the_umask_lets_others_read(tmp_path):
    code = f"import os; os.umask(0o027); from harness.records import write_atomic; from pathlib import Path; write_atomic(Path({str(tmp_path / 'f')!r}), 'x')"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).resolve().parent.parent, check=True)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o640
