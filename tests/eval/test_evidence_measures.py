"""Evidence measures on vectors worked out by hand, and the official recall on its nine vectors."""

import dataclasses
import json
from datetime import datetime
from pathlib import Path

import pytest

from eval.evidence import recall_locomo, score_evidence
from harness.memory import EvidenceItem

RECALL = json.loads((Path(__file__).parent / "metric_vectors.json").read_text(encoding="utf-8"))["recall_vectors"]


def item(dia_ids, words=1, *, rank=1, round=0, ends=None, day=1):
    date = None if day is None else datetime(2023, 5, day)
    return EvidenceItem("w " * words, tuple(dia_ids), rank, 0.0, date, round=round, ends=ends)


def score(gold, *items):
    return score_evidence(gold, items)


def test_all_nine_recall_vectors_are_here():
    assert len(RECALL) == 9


@pytest.mark.parametrize("vector", RECALL, ids=lambda v: v["note"].replace(" ", "-"))
def test_official_recall_vector(vector):
    assert recall_locomo(vector["evidence"], vector["context_ids"]) == pytest.approx(vector["locomo_recall"], abs=5e-7)


def test_official_recall_of_an_empty_context():
    assert recall_locomo(["D1:1"], []) == 0.0


def test_recall_and_hit_by_hand():
    found = score(["D1:1", "D2:4", "D3:9"], item(["D1:1", "D1:2"]), item(["D2:4"], rank=2))
    assert found == {
        "recall": pytest.approx(2 / 3),
        "hit": 1.0,
        "recall_20t": pytest.approx(2 / 3),
        "recall_700w": pytest.approx(2 / 3),
    }
    assert score(["D9:9"], item(["D1:1"])) == {"recall": 0.0, "hit": 0.0, "recall_20t": 0.0, "recall_700w": 0.0}


def test_no_gold_is_unknown_and_no_evidence_is_zero():
    assert score([], item(["D1:1"])) == {}
    assert score(["D1:1"]) == {"recall": 0.0, "hit": 0.0, "recall_20t": 0.0, "recall_700w": 0.0}


def test_a_repeated_gold_id_counts_once():
    assert score(["D1:1", "D1:1", "D2:2"], item(["D1:1"]))["recall"] == 0.5


def test_recall_20t_counts_distinct_turns():
    # 19 distinct turns, one of them again, then the gold as the 20th; with one turn more it is the 21st.
    nineteen = [f"D1:{i}" for i in range(1, 20)]
    assert score(["D2:1"], item(nineteen), item(["D1:3"], rank=2), item(["D2:1"], rank=3))["recall_20t"] == 1.0
    twenty = [*nineteen, "D1:20"]
    found = score(["D2:1"], item(twenty), item(["D2:1"], rank=2))
    assert (found["recall"], found["recall_20t"]) == (1.0, 0.0)


def test_order_is_round_then_rank_then_date_whatever_the_order_given():
    filler = [f"D1:{i}" for i in range(1, 21)]
    gold = item(["D2:1"], rank=1, round=1, day=1)
    block = item(filler, rank=9, round=0, day=28)
    assert score(["D2:1"], gold, block)["recall_20t"] == 0.0  # a later round comes after every rank of an earlier
    assert score(["D2:1"], block, dataclasses.replace(gold, round=0))["recall_20t"] == 1.0  # then the rank decides
    same = dataclasses.replace(gold, round=0, rank=9)
    assert score(["D2:1"], block, same)["recall_20t"] == 1.0  # then the date, older first
    assert score(["D2:1"], dataclasses.replace(same, date=None), block)["recall_20t"] == 0.0  # undated last


def test_recall_700w_counts_turns_shown_in_full():
    first = item(["D1:1"], words=690)
    exact = item(["D2:1"], words=10, rank=2)
    one_more = item(["D2:1"], words=11, rank=2)
    assert score(["D2:1"], first, exact)["recall_700w"] == 1.0
    assert score(["D2:1"], first, one_more)["recall_700w"] == 0.0


def test_recall_700w_uses_word_offsets_within_an_item():
    # The item starts at word 600; its turns end 50, 100 and 101 words into it: 650, 700, 701.
    merged = item(["D2:1", "D2:2", "D2:3"], words=101, rank=2, ends=(50, 100, 101))
    found = score(["D2:1", "D2:2", "D2:3"], item(["D1:1"], words=600), merged)
    assert found["recall_700w"] == pytest.approx(2 / 3)
    whole = dataclasses.replace(merged, ends=None)  # without offsets a turn is shown when its item is
    assert score(["D2:1", "D2:2", "D2:3"], item(["D1:1"], words=600), whole)["recall_700w"] == 0.0


def test_a_turn_shown_again_later_keeps_its_first_place():
    again = item(["D1:1"], words=5000, rank=2)
    assert score(["D1:1"], item(["D1:1"], words=3), again)["recall_700w"] == 1.0


def test_a_one_note_memory_has_full_recall_and_no_budgeted_one():
    turns = [f"D1:{i}" for i in range(1, 401)]
    note = item(turns, words=4000, ends=tuple(10 * i for i in range(1, 401)))
    found = score(["D1:20", "D1:21", "D1:70", "D1:71"], note)
    assert found == {"recall": 1.0, "hit": 1.0, "recall_20t": 0.25, "recall_700w": 0.75}


def test_records_score_as_the_items_they_were_written_from():
    items = [item(["D1:1"], words=690, rank=1, day=3), item(["D2:1", "D2:2"], words=20, rank=1, ends=(10, 20), day=2)]
    lines = json.loads(json.dumps([dataclasses.asdict(i) | {"date": i.date.isoformat()} for i in items]))
    gold = ["D2:1", "D2:2", "D1:1", "D4:4"]
    assert score_evidence(gold, lines) == score_evidence(gold, items)
    # by date the second comes first: its 20 words and the first's 690 end at 710
    assert score_evidence(gold, lines)["recall_700w"] == 0.5
    for line in lines:
        del line["ends"], line["date"]
    assert score_evidence(gold, lines)["recall"] == 0.75
