"""metrics.json worked out by hand on eight records, and the rule for collapsed memories."""

import json

import pytest

from eval.aggregate import METRICS, aggregate, collapsed, describe, failures, memory_totals, question_scores
from eval.intervals import mean_interval

ERROR = {"kind": "timeout", "message": "no reply"}
USAGE = {"calls": 9, "computed_calls": 8, "cached_calls": 1, "prompt_tokens": 70, "completion_tokens": 6, "usd": 0.5}


def record(sample, index, category, f1=None, recall=None, *, trial=0, items=(("D1:1",),), tokens=100):
    scores = {} if f1 is None else {"f1_amem": f1, "f1_locomo": f1 / 2, "bleu1": f1 / 4, "abstained": 0.0}
    if recall is not None:
        scores |= {"recall": recall, "hit": float(recall > 0), "recall_20t": recall / 2, "recall_700w": recall / 4}
    return {
        "sample_id": sample,
        "qa_index": index,
        "trial": trial,
        "category": category,
        "scores": scores,
        "error": ERROR if f1 is None else None,
        "evidence": [{"dia_ids": list(ids), "paths": [], "rank": 1, "round": 0, "text": "t"} for ids in items],
        "context_tokens": tokens,
    }


RECORDS = [
    record("a", 0, 1, 1.0, 1.0, items=(("D1:1", "D1:2"), ("D1:2", "D1:3")), tokens=300),
    record("a", 1, 4, 0.5, 0.5),
    record("a", 2, 4, 0.0),  # no resolvable evidence
    record("a", 3, 5, 1.0, 0.0),
    record("b", 0, 4, 0.25, 1.0),
    record("b", 1, 4),  # an error
    record("b", 2, 5, 0.0, 1.0, items=()),
    record("b", 3, 5),  # an error
]


def run(records=RECORDS, memory=None):
    return aggregate(records, memory=memory or {}, usage=USAGE, wall_s=12.5)


def test_counts():
    found = run()
    assert {
        k: found[k] for k in ("n_total", "n_scored", "n_error", "n_evidence", "n_questions", "n_conversations")
    } == {"n_total": 8, "n_scored": 6, "n_error": 2, "n_evidence": 5, "n_questions": 8, "n_conversations": 2}
    assert found["errors_by_kind"] == {"timeout": 2}
    assert {c: (v["name"], v["n"], v["n_error"], v["n_evidence"]) for c, v in found["by_category"].items()} == {
        "1": ("multi_hop", 1, 0, 1),
        "4": ("single_hop", 4, 1, 2),
        "5": ("adversarial", 3, 1, 2),
    }


def test_averages_by_hand():
    found = run()
    # scored f1_amem: cat 1: 1; cat 4: .5 0 .25; cat 5: 1 0
    assert found["micro"]["f1_amem"] == pytest.approx(2.75 / 6)
    assert found["micro4"]["f1_amem"] == pytest.approx(1.75 / 4)
    assert [found["by_category"][c]["f1_amem"] for c in "145"] == [1.0, 0.25, 0.5]
    assert found["macro"]["f1_amem"] == pytest.approx(1.75 / 3)
    assert found["macro4"]["f1_amem"] == pytest.approx(1.25 / 2)
    assert found["micro"]["f1_locomo"] == pytest.approx(2.75 / 12)
    assert found["micro"]["bleu1"] == pytest.approx(2.75 / 24)


def test_evidence_measures_are_over_questions_with_resolvable_evidence():
    found = run()
    # recall: cat 1: 1; cat 4: .5, 1; cat 5: 0, 1
    assert found["micro"]["recall"] == pytest.approx(3.5 / 5)
    assert found["micro"]["hit"] == pytest.approx(4 / 5)
    assert found["micro4"]["recall_20t"] == pytest.approx(1.25 / 3)
    assert found["by_category"]["4"]["recall_700w"] == pytest.approx(1.5 / 4 / 2)
    assert found["macro"]["recall"] == pytest.approx((1 + 0.75 + 0.5) / 3)


def test_an_error_brings_no_score_even_where_its_evidence_was_scored():
    evidence = {"recall": 1.0, "hit": 1.0, "recall_20t": 1.0, "recall_700w": 1.0}
    found = run([r if r["error"] is None else r | {"scores": evidence, "context_tokens": 9999} for r in RECORDS])
    assert found == run()


def test_budgets_are_means_over_scored_answers():
    # items 2 1 1 1 1 0; distinct ids 3 1 1 1 1 0; tokens 300 and five times 100
    assert run()["evidence"] == {
        "items": pytest.approx(1.0),
        "dia_ids": pytest.approx(7 / 6),
        "tokens": pytest.approx(800 / 6),
    }
    pages = run([record("a", 0, 1, 1.0, items=((), ())), record("a", 1, 1, 1.0, items=((),))])
    assert pages["evidence"]["items"] == 1.5
    assert pages["evidence"]["dia_ids"] is None


def test_the_keys_of_the_record_contract():
    found = json.loads(json.dumps(run(memory=memory_totals({})), allow_nan=False))
    contract = "n_total n_scored n_error micro micro4 macro macro4 by_category intervals evidence memory usage wall_s"
    assert set(contract.split()) <= set(found)
    for name in ("micro", "micro4", "macro", "macro4", "intervals"):
        assert list(found[name]) == list(METRICS)
    assert set(found["evidence"]) == {"items", "dia_ids", "tokens"}
    assert {"calls", "errors", "repaired_replies", "notes", "merges", "links", "appends", "collapsed"} <= set(
        found["memory"]
    )
    assert (found["usage"], found["wall_s"]) == (USAGE, 12.5)
    assert METRICS == ("f1_amem", "f1_locomo", "bleu1", "abstained", "recall", "hit", "recall_20t", "recall_700w")


def test_what_is_unknown_is_null_and_never_zero():
    found = run([record("a", 0, 5), record("a", 1, 4, 0.5)])
    assert found["by_category"]["5"]["f1_amem"] is None
    assert found["by_category"]["4"]["recall"] is None
    assert found["macro"]["f1_amem"] == 0.5  # a category without a scored answer is in no mean
    assert found["micro"]["recall"] is None and found["intervals"]["recall"] is None
    empty = run([record("a", 0, 5)])
    assert (empty["n_total"], empty["n_scored"], empty["micro"]["f1_amem"], empty["micro4"]["f1_amem"]) == (
        1,
        0,
        None,
        None,
    )
    assert empty["evidence"] == {"items": None, "dia_ids": None, "tokens": None}


def test_trials_are_averaged_per_question_first():
    trials = [
        record("a", 0, 4, 1.0, trial=0),
        record("a", 0, 4, 0.5, trial=1),
        record("a", 0, 4, 0.0, trial=2),
        record("a", 1, 4, 0.25, trial=0),
        record("a", 1, 4, None, trial=1),
        record("a", 1, 4, 0.75, trial=2),
        record("a", 2, 1, 0.8, trial=0),
        record("a", 2, 1, None, trial=1),
        record("a", 2, 1, None, trial=2),
    ]
    found = run(trials)
    assert question_scores(trials)["f1_amem"] == {("a", 0): 0.5, ("a", 1): 0.5, ("a", 2): 0.8}
    assert found["micro"]["f1_amem"] == pytest.approx(1.8 / 3)  # over scored answers it would be 3.3 / 6
    assert found["macro"]["f1_amem"] == pytest.approx((0.5 + 0.8) / 2)
    assert [found[k] for k in ("n_total", "n_scored", "n_error", "n_questions")] == [9, 6, 3, 3]


def test_intervals_are_of_micro_by_conversation_and_clipped():
    values = {"a": [1.0, 0.0], "b": [1.0], "c": [0.0, 0.0, 1.0], "d": [1.0, 1.0], "e": [0.0, 1.0]}
    records = [
        record(s, i, 4, v, recall=1.0 - v if s != "e" else None) for s, vs in values.items() for i, v in enumerate(vs)
    ]
    found = run(records)
    assert found["intervals"]["f1_amem"] == pytest.approx(list(mean_interval(values)))
    half = {s: [v / 2 for v in vs] for s, vs in values.items()}
    assert found["intervals"]["f1_locomo"] == pytest.approx(list(mean_interval(half)))
    assert found["intervals"]["recall"] is None  # known in four conversations alone
    assert found["interval_reason"].startswith("no 95% interval: 4 conversations")
    high = run([record(s, i, 4, 1.0 - 0.5 * (s == "a")) for s in "abcde" for i in range(2)])
    assert high["intervals"]["f1_amem"][1] == 1.0  # unclipped 0.9 + 2.776 x 0.1 = 1.18
    assert high["intervals"]["f1_amem"][0] == pytest.approx(0.9 - 0.2776445, abs=1e-6)
    assert high["interval_reason"] is None
    assert run()["interval_reason"].startswith("no 95% interval: 2 conversations")


def test_the_order_of_records_does_not_matter():
    assert run(RECORDS[::-1]) == run(RECORDS)


def test_a_further_metric_is_averaged_too():
    records = [r | {"scores": r["scores"] | {"rouge": 0.5}} for r in RECORDS]
    assert run(records)["micro"]["rouge"] == 0.5


@pytest.mark.parametrize(
    ("largest", "merged", "turns", "fallen"),
    [
        (400, 400, 400, True),  # a one-note memory
        (21, 21, 100, True),
        (20, 20, 100, False),  # 20% exactly is not more than 20%
        (2, 51, 100, True),
        (2, 50, 100, False),
        (1, 0, 3, False),  # a third of the turns, but one turn a note: nothing was merged
        (2, 2, 3, True),
        (0, 0, 0, False),
    ],
)
def test_collapsed(largest, merged, turns, fallen):
    assert collapsed({"largest": largest, "merged_turns": merged, "turns": turns}) is fallen


def test_memory_totals_by_hand():
    good = {
        "calls": 10,
        "errors": 1,
        "repaired_replies": 2,
        "notes": 90,
        "merges": 5,
        "links": 7,
        "appends": 80,
        "largest": 3,
        "merged_turns": 10,
        "turns": 100,
        "fallbacks": {"pair": 1},
        "repairs": {"fence": 2},
        "distributions": {"s_red": [0.0, 1.0]},
    }
    one_note = {
        "calls": 5,
        "notes": 1,
        "merges": 49,
        "largest": 50,
        "merged_turns": 50,
        "turns": 50,
        "fallbacks": {"pair": 2, "merge": 1},
        "distributions": {"s_red": [0.5], "s_comp": []},
    }
    found = memory_totals({"conv-1": good, "conv-2": one_note})
    assert {k: found[k] for k in ("calls", "errors", "repaired_replies", "notes", "merges", "links", "appends")} == {
        "calls": 15,
        "errors": 1,
        "repaired_replies": 2,
        "notes": 91,
        "merges": 54,
        "links": 7,
        "appends": 80,
    }
    assert (found["largest"], found["merged_turns"], found["turns"]) == (50, 60, 150)
    # Over all conversations neither share is exceeded by much; the rule looks at each by itself.
    assert (found["collapsed"], found["collapsed_conversations"]) == (True, ["conv-2"])
    assert found["fallbacks"] == {"merge": 1, "pair": 3} and found["repairs"] == {"fence": 2}
    assert found["distributions"]["s_red"] == describe([0.0, 1.0, 0.5])
    assert found["distributions"]["s_comp"] == {"n": 0}
    assert memory_totals({"conv-1": good})["collapsed"] is False


def test_quantiles_by_hand():
    assert describe([i / 100 for i in range(101)]) == {
        "n": 101,
        "mean": pytest.approx(0.5),
        "min": 0.0,
        "q05": pytest.approx(0.05),
        "q25": pytest.approx(0.25),
        "q50": pytest.approx(0.5),
        "q75": pytest.approx(0.75),
        "q95": pytest.approx(0.95),
        "max": 1.0,
    }
    assert describe([0.3])["q05"] == describe([0.3])["max"] == 0.3


def test_a_run_over_its_error_threshold_fails_and_says_why():
    found = run(memory={"calls": 200, "errors": 2})
    assert failures(found, 0.3) == ()
    assert failures(found, 0.25) == ()  # 2 of 8 is not above a quarter
    assert failures(found, 0.24) == (
        "FAILED: 2 of 8 answers ended in an error (25.00%; run.max_error_rate allows 24.00%)",
    )
    assert failures(found, 0.005)[1].startswith("FAILED: 2 of 200 memory calls ended in an error (1.00%;")
    assert failures(run(memory={"calls": 0, "errors": 3}), 0.5)[0].startswith("FAILED: 3 of 3 memory calls")


def test_calls_that_fail_while_asking_are_counted_and_held_against_the_limit():
    def record(index, calls, errors, fallbacks):
        return {
            "sample_id": "s", "qa_index": index, "trial": 0, "category": 1, "evidence": [], "error": None,
            "scores": {"f1_amem": 1.0}, "usage": {"calls": calls}, "call_errors": errors, "fallbacks": fallbacks,
        }  # fmt: skip

    records = [record(0, 7, 6, {"parse_raw": 1}), record(1, 3, 0, {"parse_raw": 1, "judge_stop": 2})]
    metrics = aggregate(records, memory={}, usage={}, wall_s=0.0)
    assert metrics["asking"] == {"calls": 10, "errors": 6, "fallbacks": {"judge_stop": 2, "parse_raw": 2}}
    assert failures(metrics, 0.01) == (
        "FAILED: 6 of 10 calls while asking ended in an error (60.00%; run.max_error_rate allows 1.00%)",
    )
