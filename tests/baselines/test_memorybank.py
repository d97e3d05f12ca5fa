"""MemoryBank: two calls a date and two over all, the three forgetting curves by hand, strengthening, extended hits."""

import asyncio
import hashlib
import json
import math
from datetime import timedelta

import numpy as np
import pytest
from baseline_fakes import START, UNUSABLE, FakeChat, TableEmbedder, ask, build, conversation, services

from baselines.memorybank import NOTICES, MemoryBank, MemoryBankConfig
from baselines.memorybank_store import Day, Document, Pair, documents_of, drawn, extend, load
from harness.errors import EndpointError
from harness.llm.types import Meter
from harness.locomo.loader import load_dataset
from harness.memory import DataShape, Query
from harness.spec import DatasetSpec, identity_hash

OFF = MemoryBankConfig(forgetting="off")
TALK = conversation(
    ["I bought a kiln in Lisbon.", "A kiln! What will you fire?", "A blue bowl for Mia."],
    ["The kiln broke yesterday.", "Oh no, can Paul repair the kiln?", "Paul came, it works.", "Good man!"],
)
WRITTEN = {
    "memorybank_day_events": lambda text: {"summary": f"Day of {'bowl' if 'bowl' in text else 'repair'}."},
    "memorybank_day_portrait": lambda text: {"personality": "Both kind.", "strategy": "Be brief."},
    "memorybank_all_events": {"summary": "A kiln was bought and repaired."},
    "memorybank_all_portraits": {"personality": "Ann makes pots.", "strategy": "Speak of pots."},
}


def pairs_of(talk):
    return [tuple(turn.dia_id for turn in pair.turns) for one in talk.days for pair in one.pairs]


def dia_ids(evidence):
    return [item.dia_ids for item in evidence.items]


def tables(system):
    return json.dumps({name: list(rows) for name, rows in system.export().items()})


def test_two_calls_a_date_and_two_over_all_none_a_question():
    chat = FakeChat(WRITTEN)
    system = build(MemoryBank, OFF, TALK, chat)
    assert [len(chat.asked(f"memorybank_{name}")) for name in ("day_events", "day_portrait")] == [2, 2]
    assert [len(chat.asked(f"memorybank_{name}")) for name in ("all_events", "all_portraits")] == [1, 1]
    (events,) = chat.asked("memorybank_all_events")
    assert "8 May 2023: Day of bowl.\n9 May 2023: Day of repair." in events
    (portraits,) = chat.asked("memorybank_all_portraits")
    assert "8 May 2023: Both kind. Be brief." in portraits
    assert ask(system)[1].calls == 0
    assert system.services.meter.calls == 6


def test_turns_are_paired_within_their_session():
    system = build(MemoryBank, OFF, TALK)
    assert pairs_of(system) == [("D1:1", "D1:2"), ("D1:3",), ("D2:1", "D2:2"), ("D2:3", "D2:4")]
    assert {pair.strength for one in system.days for pair in one.pairs} == {1}
    assert [one.pairs[0].last_recall for one in system.days] == [START, START + timedelta(days=1)]


def test_what_is_embedded():
    embedder = TableEmbedder()
    build(MemoryBank, OFF, TALK, FakeChat(WRITTEN), embedder)
    assert embedder.encoded[:3] == [
        "Conversation on 8 May 2023: Ann: I bought a kiln in Lisbon.\nBen: A kiln! What will you fire?",
        "Conversation on 8 May 2023: Ann: A blue bowl for Mia.",
        "Summary of the conversation on 8 May 2023: Day of bowl.",
    ]
    assert len(embedder.encoded) == 3 + 3


def pair(age_days, strength=1, number=1):
    """A pair last recalled that many days before NOW, one minute to midnight (a day is a date, not 24 hours)."""
    when = (NOW - timedelta(days=age_days)).replace(hour=23, minute=59)
    (turn,) = conversation([f"text {number}"]).turns
    return Pair((turn,), when, strength)


NOW = START + timedelta(days=100)


@pytest.mark.parametrize(
    ("mode", "days", "strength", "retention"),
    [
        ("paper", 0, 1, 1.0),
        ("paper", 1, 1, 0.36788),  # e^-1
        ("paper", 2, 1, 0.13534),  # e^-2
        ("paper", 2, 2, 0.36788),  # e^(-2/2): a strong memory fades more slowly
        ("paper", 10, 1, 0.0000454),
        ("official_code", 0, 1, 1.0),
        ("official_code", 1, 1, 0.81873),  # e^-0.2
        ("official_code", 2, 1, 0.67032),  # e^-0.4
        ("official_code", 2, 2, 0.44933),  # e^-0.8: a strong memory fades faster
        ("official_code", 10, 1, 0.13534),  # e^-2
        ("off", 10, 1, 1.0),
    ],
)
def test_retention(mode, days, strength, retention):
    assert pair(days, strength).retention(mode, NOW) == pytest.approx(retention, rel=1e-4)


@pytest.mark.parametrize(
    ("mode", "expected", "spread"),
    [
        # 10 pairs each of 3, 2 and 0 days: 10 (e^-3 + e^-2 + 1); variance 10 sum R (1 - R) = 1.64
        ("paper", 11.851, 1.643),
        # 10 (e^-0.6 + e^-0.4 + 1); variance 10 (0.5488 x 0.4512 + 0.6703 x 0.3297) = 4.69
        ("official_code", 22.191, 4.686),
        ("off", 30.0, 0.0),
    ],
)
def test_expected_survival(mode, expected, spread):
    talk = conversation(["x"] * 20, ["x"] * 20, ["x"] * 20, days=[0, 1, 3])
    days = build(MemoryBank, OFF, talk).written
    seeds = 400
    left = [
        sum(len(one.pairs) for one in load(days, mode, days[-1].date, seed=seed, sample_id="conv-x"))
        for seed in range(seeds)
    ]
    assert abs(np.mean(left) - expected) <= 3 * math.sqrt(spread / seeds)
    assert np.var(left) == pytest.approx(spread, rel=0.25)


def test_the_draw_is_a_hash_of_seed_conversation_and_turn():
    digest = hashlib.sha256(b'[3, "conv-x", "D1:1"]').digest()
    assert drawn(3, "conv-x", "D1:1") == int.from_bytes(digest[:6], "big") / 2**48
    talk = conversation(["x"] * 40, ["x"] * 40, days=[0, 1])
    survivors = pairs_of(build(MemoryBank, MemoryBankConfig(), talk, seed=3))
    old = [(f"D1:{n}", f"D1:{n + 1}") for n in range(1, 40, 2) if drawn(3, "conv-x", f"D1:{n}") < math.exp(-1)]
    assert 0 < len(old) < 20
    assert survivors == old + [(f"D2:{n}", f"D2:{n + 1}") for n in range(1, 40, 2)]
    assert pairs_of(build(MemoryBank, MemoryBankConfig(), talk, seed=4)) != survivors


def test_a_dates_summary_goes_with_its_last_pair():
    """400 days on, e^-400 of the first session is left; of the second, on the last day, all."""
    talk = conversation(["I bought a kiln."], ["Paul came."], days=[0, 400])
    embedder = TableEmbedder()
    system = build(MemoryBank, MemoryBankConfig(), talk, FakeChat(WRITTEN), embedder)
    assert pairs_of(system) == [("D2:1",)]
    assert [text.split(":")[0] for text in embedder.encoded] == [
        "Conversation on 11 June 2024",
        "Summary of the conversation on 11 June 2024",
    ]
    assert [row["left"] for row in system.export()["dates"]] == [False, True]
    assert [row["left"] for row in system.export()["pairs"]] == [False, True]
    assert system.stats().extra == {"turns_left": 1, "dates": 2, "dates_left": 1, "texts_cut": 0}
    # the overall texts were made of both dates, before anything was forgotten
    assert system.services.meter.calls == 6
    one_left = [Day(1, START, (pair(0), pair(9999)), "A summary.")]
    (left,) = load(one_left, "paper", NOW, seed=0, sample_id="conv-x")
    assert len(left.pairs) == 1
    assert [document.pair is None for document in documents_of(left)] == [False, True]


def test_a_recall_strengthens():
    held = pair(2)
    recalled = held.recalled(NOW)
    assert (recalled.strength, recalled.last_recall, recalled.turns) == (2, NOW, held.turns)
    assert recalled.retention("paper", NOW) == 1.0
    later = NOW + timedelta(days=4)
    assert recalled.retention("paper", later) == pytest.approx(math.exp(-4 / 2))
    assert recalled.retention("official_code", later) == pytest.approx(math.exp(-4 * 2 / 5))
    assert recalled.recalled(later).strength == 3
    assert held.strength == 1


def test_questions_report_what_they_strengthen_and_do_not_carry_it():
    chat = FakeChat(WRITTEN | {"memorybank_day_events": UNUSABLE})
    system = build(MemoryBank, MemoryBankConfig(forgetting="off", k=2, extend_chars=0), TALK, chat)
    before = tables(system)
    first, _ = ask(system, "Who repaired the kiln?")
    shown = [list(ids) for ids in dia_ids(first)]
    assert first.trace["strengthened"] == [{"dia_ids": ids, "strength": 2} for ids in shown]
    ask(system, "What is blue?")
    assert ask(system, "Who repaired the kiln?")[0] == first
    assert tables(system) == before

    async def all_at_once():
        queries = [Query("q", text, 4) for text in ("What is blue?", "Who repaired the kiln?", "Who is Mia?")]
        return await asyncio.gather(*(system.recall(query, Meter()) for query in queries))

    assert asyncio.run(all_at_once())[1] == first


def documents(*lengths_by_day):
    """Documents whose texts have these lengths, a list a date."""
    found = []
    for session, lengths in enumerate(lengths_by_day, start=1):
        one = Day(session, START, ())
        found += [Document(one, "x" * length, "", None) for length in lengths]
    return found


@pytest.mark.parametrize(
    ("held", "hit", "places"),
    [
        ([[50, 50, 50, 50, 50]], 2, [1, 2, 3, 4]),  # 50, next 100, previous 150, next but one 200; then 250
        ([[50, 50, 50, 51, 50]], 1, [0, 1, 2]),  # 50, next 100, previous 150; the next but one makes 201
        ([[10, 180, 60, 10]], 1, [1]),  # 180 and the next are 240: the shorter one before is not tried
        ([[10, 180, 20, 10]], 1, [1, 2]),  # 180 + 20 = 200; the one before makes 210
        ([[20, 20], [20, 20], [20, 20]], 2, [2, 3]),  # only within the date
        ([[20, 20], [20, 20], [20, 20]], 3, [2, 3]),
        ([[500, 10]], 0, [0]),  # a long hit stays whole
        ([[10]], 0, [0]),
    ],
)
def test_a_hit_grows_by_adjacent_documents_of_its_date(held, hit, places):
    assert extend(documents(*held), hit, 200) == places


def test_extension_off_and_the_whole_date():
    texts = ["I bought a kiln.", "Nice.", "Mia came.", "Good.", "It rained.", "Oh."]
    query = "I bought a kiln."
    alone, _ = ask(
        build(MemoryBank, MemoryBankConfig(forgetting="off", k=1, extend_chars=0), conversation(texts)), query
    )
    assert dia_ids(alone) == [("D1:1", "D1:2")]
    whole, _ = ask(
        build(MemoryBank, MemoryBankConfig(forgetting="off", k=1, extend_chars=9999), conversation(texts)), query
    )
    assert dia_ids(whole) == [tuple(f"D1:{n}" for n in range(1, 7))]
    assert whole.items[0].paths == ("pair", "summary")


def memory_of_axes(config, context_tokens=10_000):
    """Three dates of one pair, on three axes; their summaries point away from all of them."""
    embedder = TableEmbedder(
        {"Summary": [-1, -1, -1], "alpha": [1, 0, 0], "beta": [0.8, 0.6, 0], "gamma": [0.6, 0, 0.8]}, dim=3
    )
    talk = conversation(["gamma one", "yes"], ["alpha one"], ["beta one", "no"])
    return build(MemoryBank, config, talk, FakeChat(WRITTEN), embedder, context_tokens=context_tokens)


def test_the_k_nearest_in_rank_order_their_context_in_order_of_time():
    evidence, _ = ask(memory_of_axes(OFF), "alpha?")
    assert dia_ids(evidence) == [("D2:1",), ("D3:1", "D3:2"), ("D1:1", "D1:2")]
    assert [item.score for item in evidence.items] == pytest.approx([1.0, 0.8, 0.6])
    assert [item.rank for item in evidence.items] == [1, 2, 3]
    assert evidence.context == (
        "About the speakers: Ann makes pots.\n"
        "What happened, in short: A kiln was bought and repaired.\n"
        "[13:56 on 8 May 2023] Ann: gamma one\nBen: yes\nSummary of the day: Day of repair.\n"
        "[13:56 on 9 May 2023] Ann: alpha one\nSummary of the day: Day of repair.\n"
        "[13:56 on 10 May 2023] Ann: beta one\nBen: no\nSummary of the day: Day of repair."
    )
    assert evidence.items[1].text.startswith("[13:56 on 10 May 2023] Ann: beta one\nBen: no")
    assert evidence.items[1].ends == (8, 10)  # words: [13:56 on 10 May 2023] Ann: beta one | Ben: no
    assert dia_ids(ask(memory_of_axes(MemoryBankConfig(forgetting="off", k=2)), "alpha?")[0]) == [
        ("D2:1",),
        ("D3:1", "D3:2"),
    ]


def test_l2_and_cosine_rank_alike():
    embedder = TableEmbedder()
    texts = [f"{a} {b}" for a in ("kiln", "bowl", "Lisbon", "Mia") for b in ("broke", "works", "came")]
    config = MemoryBankConfig(forgetting="off", k=20, extend_chars=0)
    system = build(MemoryBank, config, conversation(texts), FakeChat({"memorybank_day_events": UNUSABLE}), embedder)
    vectors = asyncio.run(embedder.encode([f"Conversation on 8 May 2023: {p.body}" for p in system.days[0].pairs]))
    (query,) = asyncio.run(embedder.encode(["Who came to Lisbon?"]))
    by_l2 = np.argsort(np.linalg.norm(vectors - query, axis=1), kind="stable")
    assert [int(ids[0][3:]) // 2 for ids in dia_ids(ask(system, "Who came to Lisbon?")[0])] == by_l2.tolist()


def test_a_summary_found_holds_no_turns_and_a_document_is_shown_once():
    embedder = TableEmbedder({"Summary": [1, 0], "what": [1, 0], "Conversation": [0, 1]}, dim=2)
    config = MemoryBankConfig(forgetting="off", k=1, extend_chars=0)
    evidence, _ = ask(build(MemoryBank, config, TALK, FakeChat(WRITTEN), embedder), "what")
    (item,) = evidence.items
    assert (item.dia_ids, item.ends, item.paths) == ((), (), ("summary",))
    assert item.text == "[13:56 on 8 May 2023] Summary of the day: Day of bowl."
    assert evidence.trace["strengthened"] == []
    config = MemoryBankConfig(forgetting="off", k=6, extend_chars=9999)
    evidence, _ = ask(build(MemoryBank, config, TALK, FakeChat(WRITTEN), embedder), "what")
    assert dia_ids(evidence) == [("D1:1", "D1:2", "D1:3"), ("D2:1", "D2:2", "D2:3", "D2:4")]


def test_two_hits_share_the_document_between_them_once():
    """Each hit alone would take the middle one in: 83 + 83 characters."""
    texts = ["alpha one", "yes" + "s" * 35, "gamma", "no" + "o" * 35, "beta", "no" + "o" * 35]
    embedder = TableEmbedder({"alpha": [1, 0], "beta": [0.9, 0.1], "gamma": [0, 1]}, dim=2)
    config = MemoryBankConfig(forgetting="off", k=2)
    chat = FakeChat(dict.fromkeys(WRITTEN, UNUSABLE))
    evidence, _ = ask(build(MemoryBank, config, conversation(texts), chat, embedder), "alpha?")
    assert dia_ids(evidence) == [("D1:1", "D1:2", "D1:3", "D1:4"), ("D1:5", "D1:6")]
    assert evidence.context.count("gamma") == 1


def test_the_strategy_is_kept_but_not_shown():
    system = build(MemoryBank, OFF, TALK, FakeChat(WRITTEN))
    assert system.export()["overall"] == [
        {
            "summary": "A kiln was bought and repaired.",
            "personality": "Ann makes pots.",
            "strategy": "Speak of pots.",
        }
    ]
    assert "Speak of pots" not in ask(system)[0].context


def test_the_context_is_cut_to_the_readers_budget():
    full, _ = ask(memory_of_axes(OFF), "alpha?")
    for tokens in (50, 40, 28):
        cut, _ = ask(memory_of_axes(OFF, tokens), "alpha?")
        assert len(cut.context.split()) <= tokens
        assert cut.items == full.items[: len(cut.items)]
        assert cut.trace["dropped"] == 3 - len(cut.items) > 0
        assert len(cut.trace["strengthened"]) == len(cut.items)
    assert cut.context.startswith("About the speakers: Ann makes pots.\nWhat happened, in short: A kiln was")


def test_small_windows_are_never_overflown():
    """FakeChat refuses a prompt that overflows; every text is longer than the window."""
    long = " ".join(f"word{n}" for n in range(1500))
    chat = FakeChat({"memorybank_day_events": {"summary": long}, "memorybank_day_portrait": {
        "personality": long, "strategy": ""}}, window=900)  # fmt: skip
    system = build(MemoryBank, OFF, conversation([long], [long]), chat)
    assert system.stats().extra["texts_cut"] == 2 * 2 + 2


def test_fallbacks_are_named_and_counted():
    chat = FakeChat(dict.fromkeys(WRITTEN, UNUSABLE))
    system = build(MemoryBank, OFF, TALK, chat)
    assert system.services.meter.fallbacks == {
        "day_events_missing": 2,
        "day_portrait_missing": 2,
        "all_events_missing": 1,
        "all_portraits_missing": 1,
    }
    assert chat.asked("memorybank_all_events") == []  # there is nothing to combine
    evidence, _ = ask(system)
    assert evidence.context.startswith("[13:56 on")
    assert all(item.paths == ("pair",) for item in evidence.items)
    blank = FakeChat(WRITTEN | {"memorybank_day_events": {"summary": "  "}})
    assert build(MemoryBank, OFF, TALK, blank).services.meter.fallbacks == {
        "day_events_missing": 2,
        "all_events_missing": 1,
    }


@pytest.mark.parametrize("purpose", list(WRITTEN))
def test_an_endpoint_error_passes_through_and_leaves_nothing_running(purpose):
    chat = FakeChat({purpose: EndpointError("unreachable", "no endpoint", fatal=True)}, latency=1)

    async def scenario():
        with pytest.raises(EndpointError, match="no endpoint"):
            await MemoryBank(OFF, services(chat)).ingest(TALK)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


def test_the_result_does_not_depend_on_timing():
    talk = conversation(*[[f"word{n} {m}" for m in range(9)] for n in range(6)])
    calm = build(MemoryBank, MemoryBankConfig(), talk, FakeChat())
    for latency in range(3):
        late = build(MemoryBank, MemoryBankConfig(), talk, FakeChat(latency=latency))
        assert tables(late) == tables(calm)
        assert ask(late)[0] == ask(calm)[0]


def test_before_ingest_empty_and_tiny():
    with pytest.raises(RuntimeError, match="nothing has been ingested"):
        ask(MemoryBank(OFF, services()))
    evidence, meter = ask(build(MemoryBank, MemoryBankConfig(), conversation()))
    assert (evidence.context, evidence.items, meter.calls) == ("", (), 0)
    evidence, _ = ask(build(MemoryBank, MemoryBankConfig(k=1), conversation(["I bought a kiln."])))
    assert dia_ids(evidence) == [("D1:1",)]


def test_every_table_says_which_curve_it_used():
    for mode in ("paper", "official_code", "off"):
        config = MemoryBankConfig(forgetting=mode)
        assert MemoryBank.table_notices(config, can_judge=True) == (NOTICES[mode],)
    assert "3.5%" in NOTICES["paper"]
    hashes = {identity_hash(MemoryBankConfig(forgetting=mode)) for mode in NOTICES}
    assert len(hashes) == 3
    assert MemoryBankConfig().forgetting == "paper"


def test_the_plan_is_what_a_run_counts():
    dataset = load_dataset(DatasetSpec(name="sample"))
    talks = [sample.conversation for sample in dataset.samples]
    turns = [turn for talk in talks for turn in talk.turns]
    sessions = sum(len(talk.sessions) for talk in talks)
    shape = DataShape(len(talks), sessions, len(turns), sum(len(t.full_text.split()) for t in turns), 10)
    plan = MemoryBank.plan(OFF, shape, can_judge=False)
    counted = sum(build(MemoryBank, OFF, talk).services.meter.calls for talk in talks)
    assert plan.memory_calls == (counted, counted) == (2 * sessions + 2 * len(talks),) * 2
    assert plan.query_calls == (0, 0)


def test_the_plan_of_locomo10():
    plan = MemoryBank.plan(MemoryBankConfig(), DataShape(10, 272, 5882, 130_000, 1986), can_judge=True)
    assert plan.memory_calls[1] + 1986 * (plan.query_calls[1] + 1) == 2550


@pytest.mark.parametrize(("mode", "share"), [("paper", 0.0353), ("official_code", 0.0697), ("off", 1.0)])
def test_survival_on_locomo10(locomo_path, mode, share):
    """The share of turns that the curve leaves on average at the last session date: what the notices say."""
    dataset = load_dataset(DatasetSpec(name="locomo10", path=str(locomo_path)))
    expected = turns = 0.0
    for sample in dataset.samples:
        sessions = sample.conversation.sessions
        for session in sessions:
            held = Pair(session.turns[:1], session.date_time)
            expected += len(session.turns) * held.retention(mode, sessions[-1].date_time)
            turns += len(session.turns)
    assert expected / turns == pytest.approx(share, abs=5e-5)
