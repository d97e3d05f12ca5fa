"""The systems that remember nothing: their bounds through the door, and that no gold reaches them."""

import json

import pytest
from baseline_fakes import ask, build, conversation

from baselines.sanity import AlwaysAbstain, AlwaysTrap, NoConfig, PerfectCopy
from eval.sanity import SANITY
from harness.locomo.loader import load_dataset
from harness.spec import DatasetSpec

NAMES = {"always_abstain": AlwaysAbstain, "always_trap": AlwaysTrap, "perfect_copy": PerfectCopy}
QUICK = ("backbone=scripted", "embedder=hashing")


def folder(tmp_path, name):
    (path,) = tmp_path.glob(f"runs/{name}-*")
    return path


def metrics(tmp_path, name):
    return json.loads((folder(tmp_path, name) / "metrics.json").read_text())


def test_what_needs_the_gold_is_named_and_never_asked_of_the_system():
    assert AlwaysAbstain.oracle is None
    assert AlwaysTrap.oracle in SANITY and PerfectCopy.oracle in SANITY
    for cls in NAMES.values():
        evidence, meter = ask(build(cls, NoConfig(), conversation(["I bought a kiln."])))
        assert (evidence.context, evidence.items, meter.calls) == ("", (), 0)


def test_through_the_door(run_door, tmp_path):
    golds = {
        (q.sample_id, q.qa_index): q for s in load_dataset(DatasetSpec(name="sample")).samples for q in s.questions
    }
    done = run_door("-m", f"memory={','.join(NAMES)}", *QUICK, check=0)
    assert "together (nothing cached): 0 calls, 0 tokens" in done.stderr
    for name in NAMES:
        assert ("ORACLE" in (folder(tmp_path, name) / "table.md").read_text()) == (name != "always_abstain")
        assert metrics(tmp_path, name)["usage"]["calls"] == 0
        lines = (folder(tmp_path, name) / "answers.jsonl").read_text().splitlines()
        assert len(lines) == len(golds) > 100
        for record in map(json.loads, lines):
            question = golds[record["sample_id"], record["qa_index"]]
            expected = {
                "always_abstain": "Not mentioned in the conversation",
                "always_trap": question.adversarial_answer if question.category == 5 else "",
                "perfect_copy": question.adversarial_answer if question.category == 5 else question.answer,
            }[name]
            assert record["reply"] == record["answer"] == expected
    assert metrics(tmp_path, "perfect_copy")["micro"]["f1_amem"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "f1_locomo", "f1_amem"),
    [("always_abstain", 23.30, 3.04), ("always_trap", 0.10, 22.46), ("perfect_copy", None, 100.0)],
)
def test_bounds_on_locomo10(run_door, tmp_path, locomo_path, name, f1_locomo, f1_amem):
    run_door(f"memory={name}", *QUICK, "dataset=locomo10", f"dataset.path={locomo_path}", check=0)
    micro = metrics(tmp_path, name)["micro"]
    assert round(100 * micro["f1_amem"], 2) == f1_amem
    if f1_locomo is not None:
        assert round(100 * micro["f1_locomo"], 2) == f1_locomo
    else:
        by_category = metrics(tmp_path, name)["by_category"]
        got = {c: by_category[c]["f1_locomo"] for c in "12345"}
        assert [got["1"], got["2"], got["4"]] == [1.0, 1.0, 1.0]
        assert (round(got["3"], 3), round(got["5"], 4)) == (0.927, 0.0045)
