"""Slices and subsets, by hand."""

import pytest

from harness.errors import ConfigError
from harness.locomo import slices
from harness.locomo.loader import load_dataset, shape
from harness.locomo.schema import Question
from harness.locomo.slices import audit_verdicts, round_robin
from harness.spec import DatasetSpec


@pytest.fixture
def cut(tree, write):
    """Load the small data set with these options: ({sample_id: asked qa indices}, {sample_id: kept dia_ids}, notices)."""

    def load(**options):
        data = load_dataset(DatasetSpec(name="locomo10", path=str(write(tree)), **options))
        asked = {sample.sample_id: [q.qa_index for q in sample.questions] for sample in data.samples}
        kept = {sample.sample_id: [t.dia_id for t in sample.conversation.turns] for sample in data.samples}
        return asked, kept, list(data.notices[1:])  # the first says that this is not LoCoMo-10

    return load


WHOLE = ["D1:1", "D1:2", "D1:3", "D2:1", "D2:2", "D3:1"]
BOTH = ["D1:1", "D1:2"]


def test_no_slice(cut):
    assert cut() == ({"one": [0, 1, 2, 3, 4, 5, 6], "two": [0, 1]}, {"one": WHOLE, "two": BOTH}, [])


def test_sessions(cut):
    # session 3 of "one" goes: question 5 cites it, 4 cites nothing; "two" is not cut and keeps all.
    asked, kept, notices = cut(max_sessions=2)
    assert asked == {"one": [0, 1, 2, 3, 6], "two": [0, 1]}
    assert kept == {"one": WHOLE[:5], "two": BOTH}
    assert notices == [
        "Cut run: 1 conversation cut to the first 2 sessions. Not asked: 1 questions whose evidence is not wholly "
        "inside, 1 without resolvable evidence."
    ]


def test_evidence_must_lie_wholly_inside(cut):
    # question 2 cites D1:1 and D2:2: half of it is there.
    asked, kept, _ = cut(max_sessions=1)
    assert asked["one"] == [0, 3, 6]
    assert kept["one"] == WHOLE[:3]


def test_turns(cut):
    asked, kept, notices = cut(max_turns=4)
    assert kept == {"one": WHOLE[:4], "two": BOTH}
    assert asked == {"one": [0, 1, 3, 6], "two": [0, 1]}
    assert notices == [
        "Cut run: 1 conversation cut to the first 4 turns. Not asked: 2 questions whose evidence is not wholly inside, "
        "1 without resolvable evidence."
    ]


def test_sessions_are_cut_before_turns(cut):
    _, kept, notices = cut(max_sessions=2, max_turns=1)
    assert kept == {"one": ["D1:1"], "two": ["D1:1"]}
    assert notices[0].startswith("Cut run: 2 conversations cut to the first 2 sessions and 1 turns. ")
    _, kept, _ = cut(max_sessions=1, max_turns=5)
    assert kept == {"one": WHOLE[:3], "two": BOTH}


def test_limits_beyond_the_data_cut_nothing(cut):
    assert cut(max_sessions=3, max_turns=6, max_questions=7) == cut()


def test_a_session_cut_inside_tells_nothing_of_what_is_gone(tree, write):
    tree[0]["observation"]["session_1_observation"]["Ann"].append(["No one knows.", "D"])
    data = load_dataset(DatasetSpec(name="locomo10", path=str(write(tree)), max_turns=2))
    (session,) = data.samples[0].conversation.sessions
    assert session.summary is None
    assert [seen.text for seen in session.observations] == ["Ann bought a kite.", "Bob likes it."]


def test_dangling_evidence_counts_as_none_in_a_cut_run(cut, tree):
    tree[0]["qa"][0]["evidence"] = ["D9:9"]
    asked, _, notices = cut(max_sessions=2)
    assert asked["one"] == [1, 2, 3, 6]
    assert notices[0].endswith("1 questions whose evidence is not wholly inside, 2 without resolvable evidence.")
    assert cut()[0]["one"] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("limit", "asked"),
    # categories of "one": 4 2 1 5 3 4 4, so the first of each is 2, 1, 4, 0, 3, and then 5 and 6
    [(1, [2]), (2, [1, 2]), (3, [1, 2, 4]), (4, [0, 1, 2, 4]), (5, [0, 1, 2, 3, 4]), (6, [0, 1, 2, 3, 4, 5])],
)
def test_questions_round_robin(cut, limit, asked):
    assert cut(max_questions=limit)[0]["one"] == asked


def test_round_robin_of_uneven_queues():
    questions = [
        Question("s", index, category, "?", "a", None, (), ()) for index, category in enumerate([4, 4, 4, 2, 4, 2, 5])
    ]
    # in turn: 2 (3), 4 (0), 5 (6), 2 (5), 4 (1), 4 (2), 4 (4)
    assert [[q.qa_index for q in round_robin(questions, limit)] for limit in (3, 4, 5, 99)] == [
        [0, 3, 6],
        [0, 3, 5, 6],
        [0, 1, 3, 5, 6],
        [0, 1, 2, 3, 4, 5, 6],
    ]
    assert round_robin([], 3) == ()


def test_question_limit_notice_and_order_of_the_steps(cut):
    # of the cut run's 0, 1, 2, 3, 6 the first of categories 1, 2, 4 are 2, 1, 0
    asked, _, notices = cut(conversations=["one"], max_sessions=2, max_questions=3)
    assert asked == {"one": [0, 1, 2]}
    assert notices[0] == "1 of 2 conversations: one."
    assert notices[2] == "At most 3 questions a conversation, taken from the categories in turn: 3 of 5 asked."


def test_conversations_keep_the_files_order(cut):
    asked, _, notices = cut(conversations=["two", "one"])
    assert list(asked) == ["one", "two"]
    assert notices == []


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["three"], "dataset.conversations: no conversation 'three' in this file; it has: one, two"),
        (["one", "On"], "dataset.conversations: no conversation 'On' in this file; it has: one, two"),
        (["one", "one"], "dataset.conversations: 'one' is named twice; name it once"),
        ([], "dataset.conversations is empty; name some of one, two, or leave it null for all"),
    ],
)
def test_wrong_conversations(cut, names, message):
    with pytest.raises(ConfigError) as caught:
        cut(conversations=names)
    assert str(caught.value) == message


def test_a_conversation_without_questions_left_is_not_replayed(cut, tree):
    tree[1]["qa"] = [dict(tree[1]["qa"][0], evidence=["D1:2"])]
    asked, _, notices = cut(max_turns=1)
    assert asked == {"one": [0, 3]}
    assert notices[-1] == "No question of two is left, so it is not replayed."


def test_a_slice_without_questions_is_refused(cut, tree):
    for question in tree[1]["qa"]:
        question["evidence"] = ["D1:2"]
    with pytest.raises(ConfigError, match=r"^the slice leaves no question to ask: raise dataset\.max_sessions or "):
        cut(conversations=["two"], max_turns=1)


def test_clean_equals_all_where_nothing_was_audited(cut):
    asked, _, notices = cut(subset="clean")
    assert asked == cut()[0]
    assert notices == ["Subset clean: only LoCoMo-10 has been audited; for this data it equals all."]


def test_clean_leaves_out_by_verdict_before_the_limit(tree, write):
    samples = load_dataset(DatasetSpec(name="locomo10", path=str(write(tree)))).samples
    verdicts = {
        ("one", 0): "wrong",
        ("one", 1): "debatable",
        ("one", 2): "premise",
        ("one", 3): "void",
        ("one", 4): "citation",
        ("two", 0): "reject",
        ("two", 1): "answerable",
        ("none", 0): "wrong",
    }
    spec = DatasetSpec(name="locomo10", subset="clean", max_questions=2)
    taken, notices = slices.take(samples, spec, verdicts)
    # left of "one": 1 (category 2), 4 (3), 5 and 6 (4)
    assert [[q.qa_index for q in sample.questions] for sample in taken] == [[1, 4], [0]]
    assert notices == [
        "Subset clean: 4 questions left out (wrong 1, premise 1, metadata 0, answerable 1, void 1).",
        "At most 2 questions a conversation, taken from the categories in turn: 3 of 5 asked.",
    ]


def test_shipped_verdicts_hold_no_text():
    verdicts = audit_verdicts()
    assert set(verdicts.values()) == {*slices.LEFT_OUT, "debatable", "reject", "citation"}
    assert all(isinstance(sample_id, str) and isinstance(index, int) for sample_id, index in verdicts)


def test_clean_of_locomo10(locomo):
    whole = load_dataset(DatasetSpec(name="locomo10", path=str(locomo)))
    clean = load_dataset(DatasetSpec(name="locomo10", path=str(locomo), subset="clean"))
    assert whole.n_questions - clean.n_questions == 24 + 29 + 14 + 3 + 2
    assert clean.notices == (
        "Subset clean: 72 questions left out (wrong 24, premise 29, metadata 14, answerable 3, void 2).",
    )
    left = {(q.sample_id, q.qa_index) for sample in clean.samples for q in sample.questions}
    gone = {("conv-30", 79), ("conv-30", 103), ("conv-26", 161), ("conv-26", 184), ("conv-30", 95), ("conv-30", 9)}
    assert not gone & left


def test_first_sessions_of_locomo10(locomo):
    spec = DatasetSpec(name="locomo10", path=str(locomo), conversations=["conv-26"], max_sessions=3, max_questions=20)
    data = load_dataset(spec)
    sizes = shape(data)
    assert (sizes.conversations, sizes.sessions, sizes.questions) == (1, 3, 20)
    ids = {turn.dia_id for turn in data.samples[0].conversation.turns}
    assert all(q.evidence and ids.issuperset(q.evidence) for q in data.samples[0].questions)
    assert {q.category for q in data.samples[0].questions} == {1, 2, 3, 4, 5}
