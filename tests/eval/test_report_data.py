import json

import pytest
from report_fakes import GROWTH, answered, item, memory_tables, note
from run_folders import record

from eval.evidence import score_evidence, turns_in_order
from eval.report import memories, numbers, records
from eval.report.naming import across_tables, differing, short_names
from eval.report.pack import Pool, pack, unpack


@pytest.mark.parametrize(
    ("category", "scores", "error", "by_amem", "by_locomo"),
    [
        (1, {"f1_amem": 1.0, "f1_locomo": 0.5, "abstained": 0.0}, None, "full", "partial"),
        (4, {"f1_amem": 0.2, "f1_locomo": 0.0, "abstained": 0.0}, None, "partial", "none"),
        (4, {"f1_amem": 0.0, "f1_locomo": 0.0, "abstained": 1.0}, None, "abstained", "abstained"),
        (5, {"f1_amem": 1.0, "f1_locomo": 0.0, "abstained": 0.0}, None, "trap", "trap"),
        (5, {"f1_amem": 0.5, "f1_locomo": 0.0, "abstained": 0.0}, None, "partial", "none"),
        (5, {"f1_amem": 0.0, "f1_locomo": 1.0, "abstained": 1.0}, None, "abstained", "abstained"),
        (1, {}, {"kind": "empty", "message": "x"}, "error", "error"),
    ],
)
def test_outcomes_of_an_answer(category, scores, error, by_amem, by_locomo):
    made = {"category": category, "scores": scores, "error": error}
    assert records.answer_outcome(made, "f1_amem") == by_amem
    assert records.answer_outcome(made, "f1_locomo") == by_locomo


@pytest.mark.parametrize(("recall", "said"), [(1.0, "complete"), (0.25, "partial"), (0.0, "missed"), (None, "unknown")])
def test_outcomes_of_evidence(recall, said):
    assert records.evidence_outcome(answered("s", 0, 1, 0.0, recall)) == said


def test_rows_are_columns_over_shared_questions():
    questions = records.Questions()
    first = [answered("s", 0, 1, 1.0, 0.5), answered("s", 1, 2, 0.33333333, None)]
    again = [answered("s", 1, 2, 0.0, None), answered("s", 1, 2, 0.0, None, gold="repaired")]
    rows = records.rows(first, questions)
    assert rows["question"] == [0, 1]
    assert rows["scores"]["f1_amem"] == [1, 0.3333]
    assert rows["scores"]["recall"] == [0.5, None]
    assert [records.ANSWER_OUTCOMES[code] for code in rows["outcome"]["f1_amem"]] == ["full", "partial"]
    assert rows["tokens"] == [100, 100]
    # A question with another reference is another question.
    assert records.rows(again, questions)["question"] == [1, 2]
    assert questions.columns()["gold"] == ["gold", "gold", "repaired"]
    assert questions.columns()["evidence"] == [("D1:1",)] * 3


def test_details_keep_every_item_once_and_by_rank():
    pieces = records.Pieces()
    late = item(["D1:2"], 1, "two", round=1, paths=("sparse",))
    early = [item(["D1:1"], 2, "one"), item(["D1:3"], 1, "three", score=0.123456)]
    made = [
        answered("s", 0, 1, 1.0, 1.0, evidence=[late, *early], reply="answer"),
        answered("s", 1, 1, 1.0, 1.0, evidence=[*early, late], reply="{}"),
        answered("s", 2, 1, 1.0, 1.0, evidence=[]),
    ]
    detail = records.details(made, pieces)
    columns = pieces.columns({("s", "D1:1"), ("s", "D9:9")})
    assert detail["list"] == [0, 0, 1] and detail["starts"] == [0, 3, 3]
    assert [columns["text"][piece] for piece in detail["items"]["piece"]] == ["three", "one", "two"]
    assert detail["items"]["round"] == [0, 0, 1] and detail["items"]["rank"] == [1, 2, 1]
    assert detail["items"]["score"] == [0.1235, 0.5, 0.5]
    assert [detail["paths"][place] for place in detail["items"]["paths"]] == [["dense"], ["dense"], ["sparse"]]
    assert columns["turns"] == {"s": {"D1:1": "one"}}
    assert detail["reply"] == [None, "{}", "reply"]  # a reply that is the answer is not told twice


def test_a_trace_is_cut_where_it_is_long_and_says_so():
    shown = records.shorten({"pool": list(range(20)), "rounds": [{"q": "x"}] * 10, "text": "a" * 1005, "none": None})
    assert shown["pool"] == [*range(8), "… 12 more"]
    assert len(shown["rounds"]) == 10
    assert shown["text"].endswith(" … 5 more characters") and shown["none"] is None


def test_a_chunk_reads_back_and_is_the_same_every_time():
    value = {"text": "</script> ümlaut \u2028 🦔", "n": [1, None, 0.5]}
    chunk = pack("x", value)
    assert unpack(chunk) == value and pack("x", value) == chunk
    assert set(chunk.data) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    assert chunk.size == len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    assert unpack(pack("x", "\ud800!")) == "?!"
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack("x", float("nan"))


def test_a_memory_is_a_graph_by_position():
    texts = Pool()
    graph = memories.graph(memory_tables(), texts)
    assert graph["kind"] == "notes"
    assert graph["keywords"] == ["ann", "kiln", "ben"]  # one that the keywords table lacks comes last
    assert graph["notes"]["keywords"] == [[0, 1], [0, 2]]
    assert graph["topics"] == [[0, 1]]
    assert graph["edges"] == [(0, 1, 0.75)]
    assert [texts.values[place] for place in graph["notes"]["text"]] == ["Ann bought a kiln ", "Ben nodded"]
    assert [(d, texts.values[t]) for d, t in graph["notes"]["turns"][0]] == [
        ("D1:1", "Ann: said D1:1"),
        ("D1:3", "Ann: said D1:3"),
    ]
    assert graph["growth"]["notes"] == [1, 2, 2] and graph["growth"]["merges"] == [0, 0, 1]


def test_links_within_notes_are_edges_and_other_systems_notes_are_listed():
    linked = [note(5, ["D1:1"], "a", []) | {"links": []}, note(9, ["D1:2"], "b", []) | {"links": [5, 77]}]
    graph = memories.graph({"notes": linked}, Pool())
    assert graph["edges"] == [(0, 1, None)]  # 77 is no note
    texts = Pool()
    units = memories.graph({"units": [{"id": 0, "indexed": "x", "text": "the unit", "dia_ids": ["D1:1"]}]}, texts)
    assert units["kind"] == "units" and texts.values == ["the unit"] and units["edges"] == []
    assert memories.graph({"core": [{"block": "human", "text": "x"}]}, Pool()) is None


def test_captions_belong_to_a_turns_text():
    assert memories.turn_text({"speaker": "Ann", "text": "Look!", "caption": "a kiln"}) == "Ann: Look! [image: a kiln]"
    assert memories.turn_text({"text": "Look!", "caption": None}) == "Look!"


def test_recall_curve_counts_distinct_turns_by_round_rank_date():
    evidence = [
        item(["D1:9", "D1:2"], 2, "two turns"),
        item(["D1:7"], 1),
        item(["D1:1"], 1, round=1),
    ]
    made = [answered("s", 0, 1, 0.0, 1.0, evidence=evidence, gold_evidence=["D1:1", "D1:2"])]
    assert turns_in_order(evidence) == ["D1:7", "D1:9", "D1:2", "D1:1"]
    assert numbers.recall_curve(made, 5) == [0.0, 0.0, 0.5, 1.0, 1.0]
    # Questions without known recall and errors are left out; trials of a question are averaged first.
    found = answered("s", 1, 1, 0.0, 1.0, evidence=[item(["D1:1"], 1)])
    missed = answered("s", 1, 1, 0.0, 0.0, evidence=[item(["D1:2"], 1)], trial=1)
    others = [answered("s", 2, 1, 0.0, None), record("s", 3, 1, error="empty")]
    assert numbers.recall_curve([*made, found, missed, *others], 3) == [0.25, 0.25, 0.5]
    assert numbers.recall_curve(others) is None


def test_the_curve_at_twenty_is_recall_20t():
    evidence = [item([f"D1:{n}"], n) for n in range(1, 31)]
    gold = ["D1:3", "D1:20", "D1:21"]
    made = [answered("s", 0, 1, 0.0, 1.0, evidence=evidence, gold_evidence=gold)]
    assert numbers.recall_curve(made)[19] == score_evidence(gold, evidence)["recall_20t"] == 2 / 3


def test_cost_spreads_the_memory_over_questions_not_trials():
    made = [record("s", 0, 1), record("s", 0, 1, trial=1)]  # 100 tokens each
    assert numbers.cost(made, {"prompt_tokens": 1100, "completion_tokens": 100}) == numbers.Cost(100.0, 1000.0)


def test_growth_is_a_mean_over_the_same_conversations():
    columns = memories.growth({"growth": GROWTH})
    longer = {name: [v + 2 for v in values] + [99] for name, values in columns.items()}
    assert numbers.mean_growth([columns, longer])["notes"] == [2, 3, 3]
    assert numbers.mean_growth([]) is None and memories.growth({"notes": []}) is None


def test_the_gate_is_told_for_systems_with_thresholds_alone():
    metrics = {"memory": {"merges": 1, "links": 2, "appends": 3, "notes": 4, "calls": 9}}
    assert numbers.gate(metrics, {"tau_merge": 0.7, "tau_link": 0.5}) == {
        "merges": 1,
        "links": 2,
        "appends": 3,
        "notes": 4,
    }
    assert numbers.gate(metrics, {"k": 20}) is None  # fmt: skip


def test_namesakes_are_told_apart_by_what_differs():
    specs = [{"memory": {"k": 1, "on": True}, "seed": 0}, {"memory": {"k": 2, "on": True}, "seed": 0}, {"memory": {}}]
    assert differing(specs[:2]) == ["memory.k"]
    assert short_names(["rag", "rag", "mem0"], specs, ["a" * 12, "b" * 12, "c"]) == ["rag (k 1)", "rag (k 2)", "mem0"]
    assert short_names(["rag", "rag"], [specs[0]] * 2, ["a" * 12, "b" * 12]) == ["rag (aaaaaaaa)", "rag (bbbbbbbb)"]


def test_namesakes_of_several_tables_get_their_backbone_then_the_table():
    assert across_tables(["memfly", "rag", "memfly"], ["gpt-4o", "gpt-4o", "qwen3-8b"], [1, 1, 2]) == [
        "memfly, gpt-4o",
        "rag",
        "memfly, qwen3-8b",
    ]
    assert across_tables(["rag", "rag"], ["gpt-4o"] * 2, [1, 2]) == ["rag, gpt-4o, table 1", "rag, gpt-4o, table 2"]
