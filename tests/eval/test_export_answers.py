"""Answers as a table: the schema holds whatever a run lacks, errors are rows, texts come back as they were."""

import json
import pickletools
from types import SimpleNamespace

import pytest
from export_fakes import ERROR, HOSTILE, manifest, record

from eval.export import answers
from harness.errors import RecordError

datasets = pytest.importorskip("datasets")


def run(tmp_path, *records, name="run-a"):
    about = manifest()
    return SimpleNamespace(
        path=tmp_path / name,
        manifest=about,
        state="failed",
        identity=about["identity"],
        label="memfly-no_link",
        backbone="stub",
        dataset="sample",
        data_sha=about["data"]["content_sha256"],
        protocol="amem",
        seed=7,
        answers=lambda: list(records),
    )


def test_a_row_by_hand(tmp_path):
    (row,) = answers.build([run(tmp_path, record(3))])
    assert list(row) == list(answers.SCHEMA)
    expected = {
        "run": "run-a", "run_id": "1f" * 16, "identity": "ab" * 32, "label": "memfly-no_link", "memory": "memfly",
        "ablation": "no_link", "backbone": "stub", "dataset": "sample", "data_sha256": "cd" * 32, "protocol": "amem",
        "seed": 7, "run_state": "failed", "sample_id": "conv-1", "qa_index": 3, "trial": 0, "category": 4,
        "category_name": "single_hop", "gold_evidence": ["D1:1"], "options": None, "f1_amem": 0.5, "f1_locomo": 1.0,
        "recall": None, "other_scores": [{"metric": "judge", "value": 1.0}], "calls": 2, "computed_calls": 1,
        "call_errors": 1, "prompt_tokens": 90, "usd": 0.001, "context_tokens": 12, "latency_s": 0.75,
        "fallbacks": [{"name": "gate", "count": 2}], "error_kind": None, "error_message": None,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert row["evidence"] == record(3)["evidence"]
    assert json.loads(row["trace"]) == {"stop": "covered"}


def test_an_error_is_a_row_with_its_kind_and_no_score(tmp_path):
    good, bad = answers.build([run(tmp_path, record(0), record(1, **ERROR))])
    assert (bad["error_kind"], bad["error_message"], bad["reply"]) == ("unparsable", "no JSON", HOSTILE)
    assert [bad[name] for name in answers.SCORES] == [None] * 8 and bad["evidence"] == []
    assert bad["options"] == ERROR["options"] and good["error_kind"] is None


@pytest.mark.parametrize("columns", [{}, {"answer": None, "reply": None, "usage": {}, "latency_s": None}])
def test_the_schema_does_not_depend_on_what_is_null(tmp_path, columns):
    table = answers.build([run(tmp_path, record(0, **columns))])
    assert table.features == answers.features()
    kinds = {name: str(table.features[name]) for name in ("category", "f1_amem", "seed", "usd")}
    assert kinds == {"category": "Value('int32')", "f1_amem": "Value('float64')", "seed": "Value('int64')", "usd": "Value('float64')"}  # fmt: skip


def test_disk_and_parquet_give_back_what_was_written(tmp_path):
    runs = [run(tmp_path, record(0), record(1, **ERROR)), run(tmp_path, record(0), name="run-b")]
    table = answers.build(runs)
    assert table["run"][:] == ["run-a", "run-a", "run-b"]
    out = tmp_path / "out"
    assert answers.write(table, out, disk=True, parquet=True) == [out, out / "answers.parquet"]
    loaded = datasets.load_from_disk(out)
    assert loaded.to_list() == table.to_list() and loaded.features == answers.features()
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(out / "answers.parquet").to_pylist() == table.to_list()
    for path in out.iterdir():
        with pytest.raises(ValueError):
            pickletools.dis(path.read_bytes(), out=open("/dev/null", "w"))  # noqa: SIM115


def test_records_that_do_not_fit_are_one_line(tmp_path):
    broken = record(4)
    del broken["scores"]
    with pytest.raises(RecordError, match=r"run-a/answers.jsonl: the answer of conv-1/4 has no scores$"):
        answers.build([run(tmp_path, broken)])
    with pytest.raises(RecordError, match=r"run-a/answers.jsonl: a value is not of its column's type"):
        answers.build([run(tmp_path, record(4, category="four"))])
