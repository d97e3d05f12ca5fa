"""MemFly whole: merges keep provenance, nothing depends on timing, every fallback is named, every ablation acts."""

import asyncio
import json
import re
from dataclasses import replace

import pytest
from memfly_fakes import UNUSABLE, FakeChat, TableEmbedder, conversation, services

from harness.errors import EndpointError
from harness.llm.types import Meter
from harness.memory import DataShape, Query
from harness.spec import identity_hash, validate
from memfly.config import MemFlyConfig
from memfly.system import EMBEDDING_NOTICE, MemFly

PAIRWISE = MemFlyConfig(scoring="pairwise")
TALK = conversation(
    ["I bought a kiln in Lisbon.", "A kiln! What will you fire?", "A blue bowl for Mia.", "Mia loves blue bowls."],
    ["The kiln broke yesterday.", "Oh no, can Paul repair the kiln?", "Paul came and the kiln works again."],
)
QUESTION = Query("conv-x/0", "Who repaired the kiln of Ann?", 4)


def build(config=PAIRWISE, chat=None, talk=TALK, embedder=None, **kwargs):
    system = MemFly(config, services(chat, embedder, **kwargs))
    asyncio.run(system.ingest(talk))
    return system


def ask(system, query=QUESTION):
    meter = Meter()
    return asyncio.run(system.recall(query, meter)), meter


def tables(system):
    return json.dumps({name: list(rows) for name, rows in system.export().items()})


def tags(text, *names):
    return [re.search(rf"<{name}[^>]*>(.*?)</{name}>", text, re.DOTALL).group(1) for name in names]


def scores_by_word(new_word, old_word, s_red, s_comp, other=(0.0, 0.0)):
    """A judge that gives these scores to the pair whose notes hold these words, and `other` to the rest."""

    def score(text):
        new, old = tags(text, "new", "old")
        red, comp = (s_red, s_comp) if new_word in new and old_word in old else other
        return {"s_red": red, "s_comp": comp}

    return score


def test_a_merge_unions_turns_and_keywords_and_reembeds():
    chat = FakeChat({"score": scores_by_word("bowl", "kiln", 0.9, 0.9), "merge": {"context": "merged text"}})
    embedder = TableEmbedder({"merged text": [0, 0, 1]})
    system = build(chat=chat, talk=conversation(["I bought a kiln.", "Nice.", "A bowl, too."]), embedder=embedder)
    first, second = system.hierarchy.notes
    assert first.dia_ids == ("D1:1", "D1:3")
    assert second.dia_ids == ("D1:2",)
    assert first.context == "merged text"
    assert first.vector.tolist() == embedder.table["merged text"].tolist()
    assert system.hierarchy.note_index.search(embedder.table["merged text"], 1) == [(0, pytest.approx(1.0))]
    held = {system.hierarchy.keywords[k].form for k in first.keywords}
    assert {"ann", "kiln", "bought", "bowl"} <= held
    assert list(system.hierarchy.keyword("bowl").notes) == [0]
    stats = system.stats()
    assert (stats.notes, stats.merges, stats.largest, stats.merged_turns) == (2, 1, 2, 2)


def test_links_apply_after_a_merge_and_never_to_the_note_itself():
    def score(text):
        new, old = tags(text, "new", "old")
        return {"s_red": 0.8 if "bowl" in new and "kiln" in old else 0.0, "s_comp": 0.9}

    talk = conversation(["I bought a kiln.", "Nice.", "A bowl, too."])
    system = build(chat=FakeChat({"score": score}), talk=talk)
    # note 1 is linked to 0 when it comes; the merge into 0 links 0 to 1 again: one edge, no loop
    assert system.hierarchy.edges == {0: {1: 0.9}, 1: {0: 0.9}}
    stats = system.stats()
    assert (stats.merges, stats.links, stats.appends) == (1, 1, 1)


def test_edges_of_the_note_merged_into_are_kept():
    def score(text):
        new, old = tags(text, "new", "old")
        return {"s_red": 0.9 if "bowl" in new and "kiln" in old else 0.0, "s_comp": 0.6 if "Nice" in new else 0.0}

    system = build(chat=FakeChat({"score": score}), talk=conversation(["I bought a kiln.", "Nice.", "A bowl, too."]))
    assert system.hierarchy.notes[0].dia_ids == ("D1:1", "D1:3")
    assert system.hierarchy.edges == {0: {1: 0.6}, 1: {0: 0.6}}


def test_keywords_of_a_last_merge_have_a_topic_too():
    """Topics evolve after two notes; then a merge alone brings new keywords."""
    chat = FakeChat({"score": scores_by_word("bowl", "kiln", 0.9, 0.9)})
    talk = conversation(["I bought a kiln.", "Nice.", "A bowl, too."])
    rows = build(replace(PAIRWISE, topic_every=2), chat, talk).export()
    assert {word for topic in rows["topics"] for word in topic["keywords"]} == {row["form"] for row in rows["keywords"]}


def test_a_scorer_that_says_yes_to_everything_collapses_the_memory():
    chat = FakeChat({"score": {"s_red": 1.0, "s_comp": 1.0}})
    stats = build(chat=chat).stats()
    assert (stats.notes, stats.largest, stats.merged_turns, stats.links) == (1, 7, 7, 0)
    assert set(stats.distributions["s_red"]) == {1.0}


def test_the_previous_turn_of_the_session_is_always_compared():
    """With one candidate only, every turn but a session's first meets the turn before it."""
    chat = FakeChat({"score": {"s_red": 0.0, "s_comp": 1.0}})
    system = build(replace(PAIRWISE, k_cand=1), chat)
    edges = {(row["source"], row["target"]) for row in system.export()["edges"]}
    assert {(0, 1), (1, 2), (2, 3), (4, 5), (5, 6)} <= edges
    assert chat.count("score") == 6


@pytest.mark.parametrize("scoring", ["pairwise", "listwise", "embedding"])
def test_the_result_does_not_depend_on_timing(scoring):
    config = MemFlyConfig(scoring=scoring, tau_link=0.1, tau_merge=0.2, topic_min=2, topic_every=2)
    calm = build(config, FakeChat())
    for latency in range(4):
        late = build(config, FakeChat(latency=latency))
        assert tables(late) == tables(calm)
        assert late.stats() == calm.stats()
        assert ask(late)[0] == ask(calm)[0]


def test_pairwise_asks_once_per_pair_and_listwise_once_per_note():
    chat = FakeChat({"score": {"s_red": 0, "s_comp": 0}})
    build(chat=chat)
    assert chat.count("score") == 0 + 1 + 2 + 3 + 4 + 5 + 6
    assert chat.count("extract") == 7
    listed = FakeChat({"score_list": lambda text: {"scores": [{"id": 1, "s_red": 0, "s_comp": 0}]}})
    system = build(MemFlyConfig(scoring="listwise"), listed)
    assert listed.count("score_list") == 6  # the first turn has nothing to be compared with
    assert system.services.meter.fallbacks == {"score_missing": 0 + 1 + 2 + 3 + 4 + 5}
    silent = FakeChat()
    build(MemFlyConfig(scoring="embedding"), silent)
    assert silent.count("score") + silent.count("score_list") == 0


def test_listwise_ignores_numbers_outside_and_takes_the_first_of_two():
    def scores(text):
        entry = {"id": 1, "s_red": 0.0, "s_comp": 0.9}
        return {"scores": [{"id": 7, "s_red": 1, "s_comp": 1}, entry, {**entry, "s_red": 1.0}]}

    system = build(
        MemFlyConfig(scoring="listwise"), FakeChat({"score_list": scores}), conversation(["A cat.", "A dog."])
    )
    assert [edge["weight"] for edge in system.export()["edges"]] == [0.9]


def test_auto_scoring_follows_the_backbone():
    for can_judge, scoring in ((True, "pairwise"), (False, "embedding")):
        system = build(MemFlyConfig(), FakeChat(can_judge=can_judge))
        assert f"pairs_{scoring}" in system.stats().extra
    config = MemFlyConfig()
    assert MemFly.table_notices(config, can_judge=False) == (EMBEDDING_NOTICE,)
    assert MemFly.table_notices(config, can_judge=True) == ()
    assert MemFly.table_notices(replace(config, update=False), can_judge=False) == ()
    assert MemFly.table_notices(replace(config, scoring="embedding"), can_judge=True) == (EMBEDDING_NOTICE,)


def test_every_fallback_is_named_and_counted():
    broken = FakeChat({"extract": UNUSABLE, "score": UNUSABLE})
    system = build(chat=broken)
    assert system.services.meter.fallbacks == {"extract_raw": 7, "score_missing": 21}
    assert system.hierarchy.notes[0].context == "Ann (8 May 2023, 13:56): I bought a kiln in Lisbon."
    assert system.hierarchy.keyword("kiln") is not None
    assert system.stats().appends == 7

    broken.replies |= {"parse": UNUSABLE, "judge": UNUSABLE}
    evidence, meter = ask(system)
    assert meter.fallbacks == {"parse_raw": 1, "judge_stop": 1}
    assert evidence.trace["stop"] == "sufficient"
    assert evidence.trace["rounds"][0]["topic"] == QUESTION.text
    assert "kiln" in evidence.trace["rounds"][0]["entities"]

    half = FakeChat(
        {"extract": {"context": " ", "keywords": ["oven"]}, "parse": {"topic": "A kiln.", "entities": [""]}}
    )
    system = build(MemFlyConfig(update=False), half)
    assert system.services.meter.fallbacks == {"extract_raw": 7}
    assert system.hierarchy.notes[0].context == "Ann (8 May 2023, 13:56): I bought a kiln in Lisbon."
    assert len(system.hierarchy.keyword("oven").notes) == 7  # what came is used
    evidence, meter = ask(system)
    assert meter.fallbacks["parse_raw"] >= 1
    assert evidence.trace["rounds"][0]["topic"] == "A kiln."

    same = {"score": {"s_red": 1, "s_comp": 0}, "merge": UNUSABLE}
    system = build(chat=FakeChat(same), talk=conversation(["Hi Ben. I like figs.", "I like figs. I like tea."]))
    assert system.services.meter.fallbacks == {"merge_concat": 1}
    assert system.hierarchy.notes[0].context == "Ann: Hi Ben. I like figs. Ben: I like figs. I like tea."


@pytest.mark.parametrize("purpose", ["extract", "score", "merge"])
def test_an_endpoint_error_passes_through_and_leaves_nothing_running(purpose):
    gone = EndpointError("unreachable", "no endpoint", fatal=True)
    chat = FakeChat({"score": {"s_red": 1, "s_comp": 0}, purpose: gone}, latency=1)

    async def scenario():
        with pytest.raises(EndpointError, match="no endpoint"):
            await MemFly(PAIRWISE, services(chat)).ingest(TALK)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("purpose", ["parse", "judge"])
def test_an_endpoint_error_passes_through_recall(purpose):
    chat = FakeChat()
    system = build(chat=chat)
    chat.replies[purpose] = EndpointError("server", "down", fatal=True)
    with pytest.raises(EndpointError, match="down"):
        ask(system)


@pytest.mark.parametrize(("purpose", "name"), [("parse", "parse_raw"), ("judge", "judge_stop")])
def test_a_request_that_fails_alone_is_a_counted_fallback(purpose, name):
    chat = FakeChat()
    system = build(chat=chat)
    chat.replies[purpose] = EndpointError("refused", "filtered", fatal=False)
    _, meter = ask(system)
    assert meter.fallbacks[name] >= 1


def test_recall_before_ingest_is_refused():
    with pytest.raises(RuntimeError, match="nothing has been ingested"):
        asyncio.run(MemFly(PAIRWISE, services()).recall(QUESTION, Meter()))


def test_empty_and_tiny_conversations():
    evidence, meter = ask(build(talk=conversation()))
    assert (evidence.context, evidence.items, meter.calls) == ("", (), 0)
    evidence, _ = ask(build(talk=conversation(["I bought a kiln."])))
    assert [item.dia_ids for item in evidence.items] == [("D1:1",)]
    assert evidence.context == "[8 May 2023, 13:56] Ann: I bought a kiln."


def test_evidence_items_carry_what_recall_needs():
    content = {"score": {"s_red": 0, "s_comp": 0}, "judge": {"sufficient": True, "sub_query": ""}}
    evidence, _ = ask(build(replace(PAIRWISE, k_final=4, k_total=3), FakeChat(content)))
    assert len(evidence.items) == 3
    assert [item.rank for item in evidence.items] == [1, 2, 3]
    assert {item.round for item in evidence.items} == {0}
    for item in evidence.items:
        assert item.paths and set(item.paths) <= {"topic", "keyword", "neighbor", "fill"}
        assert item.ends == (len(item.text.split()),)
        assert item.date is not None
        assert item.text in evidence.context
    json.dumps(evidence.trace)


def test_context_is_cut_to_the_readers_budget():
    evidence, _ = ask(build(context_tokens=30))
    assert len(evidence.context.split()) <= 30
    assert evidence.trace["dropped_notes"] == 7 - len(evidence.items) > 0


def test_small_windows_are_never_overflown():
    """FakeChat refuses a prompt that overflows. A window of 900 words, turns of 400."""
    long = " ".join(f"word{n}" for n in range(400))
    talk = conversation([long, f"{long} again", f"{long} more", long])
    for scoring in ("pairwise", "listwise"):
        chat = FakeChat({"score": {"s_red": 0.8, "s_comp": 0.6}} if scoring == "pairwise" else {}, window=900)
        ask(build(MemFlyConfig(scoring=scoring, tau_merge=0.2), chat, talk))
        assert chat.count("extract") == 4


def test_refinement_searches_for_what_the_judge_misses():
    chat = FakeChat(
        {
            "judge": lambda text: {"sufficient": "Mia" in text, "sub_query": "Mia bowl"},
            "score": {"s_red": 0, "s_comp": 0},
        }
    )
    system = build(replace(PAIRWISE, k_final=1, topic=False, neighbor=False), chat)
    evidence, _ = ask(system)
    assert [r["query"] for r in evidence.trace["rounds"]] == [QUESTION.text, "Mia bowl"]
    assert evidence.trace["stop"] == "sufficient"
    assert {item.round for item in evidence.items} == {0, 1}


ABLATIONS = {
    "no_update": {"update": False},
    "no_denoise": {"denoise": False},
    "no_merge": {"merge": False},
    "no_link": {"link": False},
    "no_topic": {"topic": False},
    "no_keyword": {"keyword": False},
    "no_neighbor": {"neighbor": False},
    "no_ier": {"i_max": 0},
}
PARTS = {
    "adjacent_edges": {"adjacent_edges": True},
    "anchor_neighbours": {"anchor_neighbours": True},
    "bm25": {"bm25_weight": 1.0},
    "embed_raw": {"embed_raw": True},
}
LIVELY = MemFlyConfig(
    scoring="pairwise",
    tau_merge=0.55,
    tau_link=0.1,
    k_topic=1,
    k_key=2,
    k_final=4,
    anchors=2,
    neighbour_quota=2,
    topic_min=2,
)
"""A setting in which every part of the method has something to do in a talk of seven turns."""


def lively_chat():
    def score(text):
        new, old = tags(text, "new", "old")
        both = "bowl" in new and "bowl" in old
        return {"s_red": 0.9 if both else 0.0, "s_comp": 0.8 if "kiln" in new and "kiln" in old else 0.0}

    def extract(text):
        (turn,) = tags(text, "turn")
        words = re.findall(r"[A-Za-z]{4,}", turn)
        return {"context": f"It is said that {turn.split(': ', 1)[1]}", "keywords": words}

    return FakeChat({"score": score, "extract": extract, "judge": {"sufficient": False, "sub_query": "Mia bowl"}})


@pytest.mark.parametrize("name", [*ABLATIONS, *PARTS])
def test_every_ablation_and_every_part_changes_hash_and_behaviour(name):
    change = {**ABLATIONS, **PARTS}[name]
    other = replace(LIVELY, **change)
    assert identity_hash(other) != identity_hash(LIVELY)
    whole, changed = build(LIVELY, lively_chat()), build(other, lively_chat())
    seen = [(tables(s), [n.vector.tolist() for n in s.hierarchy.notes], ask(s)[0]) for s in (whole, changed)]
    assert seen[0] != seen[1]


def test_no_update_scores_nothing_and_appends_everything():
    chat = lively_chat()
    stats = build(replace(LIVELY, update=False), chat).stats()
    assert chat.count("score") == chat.count("merge") == 0
    assert (stats.notes, stats.appends, stats.merges, stats.links) == (7, 7, 0, 0)


def test_no_denoise_keeps_the_raw_turn_and_the_extracted_keywords():
    system = build(replace(LIVELY, denoise=False, update=False), lively_chat())
    assert system.hierarchy.notes[0].context == "Ann (8 May 2023, 13:56): I bought a kiln in Lisbon."
    assert system.hierarchy.keyword("lisbon") is not None


def test_no_link_has_no_edges_at_all():
    plus = replace(LIVELY, adjacent_edges=True)
    assert build(plus, lively_chat()).hierarchy.edge_count > 0
    assert build(replace(plus, link=False), lively_chat()).hierarchy.edge_count == 0


def test_adjacent_edges_join_turns_of_a_session_alone():
    system = build(MemFlyConfig(update=False, adjacent_edges=True, adjacent_weight=0.7))
    edges = [(row["source"], row["target"], row["weight"]) for row in system.export()["edges"]]
    assert edges == [(0, 1, 0.7), (1, 2, 0.7), (2, 3, 0.7), (4, 5, 0.7), (5, 6, 0.7)]


def test_export_tells_the_whole_memory():
    rows = build(LIVELY, lively_chat()).export()
    assert [note["dia_ids"] for note in rows["notes"]][2] == ["D1:3", "D1:4"]
    assert rows["notes"][0]["turns"][0]["text"] == "I bought a kiln in Lisbon."
    assert rows["notes"][0]["date"] == "2023-05-08T13:56:00"
    assert {word for topic in rows["topics"] for word in topic["keywords"]} == {row["form"] for row in rows["keywords"]}


def test_growth_has_a_row_a_turn_with_running_totals():
    def score(text):
        new, old = tags(text, "new", "old")
        return {"s_red": 0.8 if "bowl" in new and "kiln" in old else 0.0, "s_comp": 0.9}

    system = build(chat=FakeChat({"score": score}), talk=conversation(["I bought a kiln.", "Nice.", "A bowl, too."]))
    rows = system.export()["growth"]
    names = ("turn", "dia_id", "notes", "edges", "merges", "links", "appends")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (1, "D1:1", 1, 0, 0, 0, 1),
        (2, "D1:2", 2, 1, 0, 1, 1),
        (3, "D1:3", 2, 1, 1, 1, 1),
    ]
    assert rows[-1]["keywords"] == len(system.hierarchy.keywords)
    assert [row["topics"] for row in rows] == [0, 0, len(system.hierarchy.topics)]


def test_growth_counts_every_edge():
    system = build(MemFlyConfig(update=False, adjacent_edges=True))
    assert [row["edges"] for row in system.export()["growth"]] == [0, 1, 2, 3, 3, 4, 5]
    lively = build(replace(LIVELY, adjacent_edges=True), lively_chat())
    assert lively.export()["growth"][-1]["edges"] == lively.hierarchy.edge_count


def test_history_stays_within_the_session_and_is_four_turns():
    chat = FakeChat()
    build(MemFlyConfig(update=False), chat, conversation(["a1", "a2", "a3", "a4", "a5", "a6"], ["b1", "b2"]))
    shown = [re.findall(r"\b[ab]\d\b", text) for purpose, text in chat.sent if purpose == "extract"]
    assert shown[5] == ["a2", "a3", "a4", "a5", "a6"]
    assert shown[6] == ["b1"]
    assert shown[7] == ["b1", "b2"]


def test_plan_counts_calls():
    shape = DataShape(conversations=2, sessions=4, turns=42, words=840, questions=10)
    plan = MemFly.plan(MemFlyConfig(), shape, can_judge=True)
    pairs = 2 * (45 + 11 * 10)  # 21 turns each: 0 + 1 + ... + 9, then 10 for each of the other 11
    assert plan.memory_calls == (42 + pairs, 42 + pairs + 12 + 12 * 2 * 7)  # 12 merges, 7 turns scored ahead of each
    one = MemFly.plan(MemFlyConfig(speculation=1), shape, can_judge=True)
    assert one.memory_calls == (42 + pairs, 42 + pairs + 12)
    assert one.memory_tokens[1] < plan.memory_tokens[1]
    assert plan.query_calls == (2, 7)
    assert MemFly.plan(MemFlyConfig(), shape, can_judge=False).memory_calls == (42, 54)
    assert MemFly.plan(MemFlyConfig(scoring="listwise"), shape, can_judge=False).memory_calls == (82, 94)
    assert MemFly.plan(MemFlyConfig(update=False, i_max=0), shape, can_judge=True).memory_calls == (42, 42)
    assert MemFly.plan(MemFlyConfig(update=False, i_max=0), shape, can_judge=True).query_calls == (1, 1)
    assert plan.memory_tokens[0] < plan.memory_tokens[1]


@pytest.mark.parametrize(
    ("field", "value"),
    [("tau_merge", 1.2), ("k_cand", 0), ("scoring", "best"), ("render", "all"), ("i_max", -1), ("rrf_k", -1.0)],
)
def test_values_outside_their_bounds_are_refused(field, value):
    with pytest.raises(Exception, match=rf"memory\.{field}"):
        validate(MemFlyConfig, {field: value}, "memory")
