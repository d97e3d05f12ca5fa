"""A-MEM: notes link and rewrite one another by number, the index is stale until its rebuild, links follow their hit."""

import asyncio
import json
import re

import pytest
from baseline_fakes import UNUSABLE, FakeChat, TableEmbedder, ask, build, conversation, services

from baselines.amem import AMem, AMemConfig
from harness.errors import ConfigError, EndpointError
from harness.llm.types import Meter
from harness.locomo.loader import load_dataset
from harness.memory import DataShape, Query
from harness.spec import DatasetSpec, identity_hash, validate

CONFIG = AMemConfig()
PAPER = AMemConfig(index_text="paper")
NOTHING = {
    "should_evolve": False,
    "actions": [],
    "connections": [],
    "new_tags": [],
    "neighbour_contexts": [],
    "neighbour_tags": [],
}
TALK = conversation(
    ["I bought a kiln in Lisbon.", "A kiln! What will you fire?", "A blue bowl for Mia.", "Mia loves blue bowls."],
    ["The kiln broke yesterday.", "Oh no, can Paul repair the kiln?", "Paul came and the kiln works again."],
)
AXES = TableEmbedder({"alpha": [1, 0, 0], "beta": [0, 1, 0], "gamma": [0, 0, 1]}, dim=3)


def plain_note(text):
    """A note whose context is the turn's text, tagged "old"."""
    turn = re.search(r"<turn>\w+: (.*?)</turn>", text, re.DOTALL).group(1)
    return {"keywords": [], "context": turn, "tags": ["old"]}


def chat_of(evolve, **replies):
    """evolve: {word of the new note's line: what differs from NOTHING}."""

    def reply(text):
        line = re.search(r"<new[^>]*>\s*(.*?)\n", text).group(1)
        for word, changes in evolve.items():
            if word in line:
                return NOTHING | {"should_evolve": True} | changes
        return NOTHING

    return FakeChat({"amem_note": plain_note, "amem_evolve": reply} | replies)


def tables(system):
    return json.dumps({name: list(rows) for name, rows in system.export().items()})


def index_score(system, axis):
    """id -> cosine with an axis of AXES."""
    return dict(system._index.search(AXES._vector(axis), 99))


def test_every_turn_takes_two_calls_and_sees_its_five_nearest():
    talk = conversation(["alpha 0", "alpha 1", "gamma 2", "alpha 3", "alpha 4", "alpha 5", "alpha 6", "alpha 7"])
    chat = chat_of({})
    system = build(AMem, PAPER, talk, chat, AXES)
    assert system.services.meter.calls == 16
    offered = [re.findall(r'<neighbour id="(\d)"[^>]*>\s*\w+: (.*)', text) for text in chat.asked("amem_evolve")]
    assert offered[0] == []
    assert offered[3] == [("1", "alpha 0"), ("2", "alpha 1"), ("3", "gamma 2")]
    # equal cosines by age; gamma is the sixth nearest of turn 6 and is not offered
    assert offered[6] == [(str(n + 1), f"alpha {t}") for n, t in enumerate([0, 1, 3, 4, 5])]
    assert len(offered[7]) == 5


def test_strengthen_links_by_number_and_replaces_the_own_tags():
    chat = chat_of(
        {"alpha two": {"actions": ["strengthen"], "connections": [2], "new_tags": ["beta", "x"]}},
    )
    talk = conversation(["alpha one", "gamma", "alpha two"])
    system = build(
        AMem, CONFIG, talk, chat, TableEmbedder({"beta": [0, 1, 0], "alpha": [1, 0, 0], "gamma": [0, 0, 1]}, 3)
    )
    assert [note.links for note in system.notes] == [[], [], [1]]  # number 2 is the second nearest: gamma
    assert [note.tags for note in system.notes] == [("old",), ("old",), ("beta", "x")]
    assert [note.context for note in system.notes] == ["alpha one", "gamma", "alpha two"]
    assert system.stats().links == 1
    # the new note is embedded with the tags it got
    assert index_score(system, "beta") == {0: 0.0, 1: 0.0, 2: 1.0}


def test_links_are_one_way_and_unchosen_actions_do_nothing():
    changes = {"connections": [1], "new_tags": ["x"], "neighbour_contexts": ["new"], "neighbour_tags": [["y"]]}
    system = build(AMem, CONFIG, conversation(["alpha", "beta"]), chat_of({"beta": changes | {"actions": []}}), AXES)
    assert [(n.context, n.tags, n.links) for n in system.notes] == [("alpha", ("old",), []), ("beta", ("old",), [])]
    system = build(
        AMem, CONFIG, conversation(["alpha", "beta"]), chat_of({"beta": changes | {"actions": ["strengthen"]}}), AXES
    )
    assert [(n.context, n.tags, n.links) for n in system.notes] == [("alpha", ("old",), []), ("beta", ("x",), [0])]
    refused = changes | {"actions": ["strengthen", "update_neighbor"], "should_evolve": False}
    system = build(AMem, CONFIG, conversation(["alpha", "beta"]), chat_of({"beta": refused}), AXES)
    assert [(n.context, n.tags, n.links) for n in system.notes] == [("alpha", ("old",), []), ("beta", ("old",), [])]
    assert system.stats().extra["evolved"] == 0


def test_update_neighbor_overwrites_by_position():
    changes = {
        "actions": ["update_neighbor"],
        "neighbour_contexts": ["near rewritten", "  ", "third"],
        "neighbour_tags": [["n1"], [], ["n3", "n3", " "]],
    }
    talk = conversation(["gamma far", "alpha near", "beta also far", "alpha new"])
    system = build(AMem, PAPER, talk, chat_of({"alpha new": changes}), AXES)
    # nearest first: alpha near (1), then by age gamma far (0) and beta also far (2); empty entries change nothing
    assert [note.context for note in system.notes] == ["gamma far", "near rewritten", "third", "alpha new"]
    assert [note.tags for note in system.notes] == [("old",), ("n1",), ("n3",), ("old",)]
    assert system.stats().extra["neighbours_updated"] == 2
    assert [row["stale"] for row in system.export()["notes"]] == [False, True, True, False]


def test_a_shorter_list_leaves_the_rest():
    changes = {"actions": ["update_neighbor"], "neighbour_contexts": ["c"], "neighbour_tags": [["a"], ["b"]]}
    system = build(AMem, PAPER, conversation(["alpha 1", "alpha 2", "alpha 3"]), chat_of({"alpha 3": changes}), AXES)
    assert [(n.context, n.tags) for n in system.notes] == [("c", ("a",)), ("alpha 2", ("b",)), ("alpha 3", ("old",))]


def test_numbers_and_positions_outside_are_ignored_and_counted():
    changes = {
        "actions": ["strengthen", "update_neighbor"],
        "connections": [0, 1, 3, 1, -1],  # two neighbours: 0, 3 and -1 are outside, the second 1 is a repetition
        "new_tags": [],
        "neighbour_contexts": ["a", "b", "c", "d"],  # two outside
        "neighbour_tags": [["a"], ["b"], ["c"]],  # one outside
    }
    system = build(AMem, PAPER, conversation(["alpha 1", "alpha 2", "alpha 3"]), chat_of({"alpha 3": changes}), AXES)
    assert system.notes[2].links == [0]
    assert system.notes[2].tags == ("old",)  # an empty list leaves the old ones
    assert [note.context for note in system.notes] == ["a", "b", "alpha 3"]
    assert system.stats().extra["indices_ignored"] == 3 + 2 + 1


def test_the_first_note_has_nothing_to_link_to():
    changes = {"actions": ["strengthen", "update_neighbor"], "connections": [1], "neighbour_contexts": ["x"]}
    system = build(AMem, CONFIG, conversation(["alpha"]), chat_of({"alpha": changes}), AXES)
    assert system.notes[0].links == []
    assert system.stats().extra["indices_ignored"] == 2


REWRITE = {"actions": ["update_neighbor"], "neighbour_contexts": ["beta"], "neighbour_tags": []}


@pytest.mark.parametrize(
    ("config", "scores"),
    [
        (PAPER, {0: 0.0, 1: 0.0}),  # one evolved note of 100: note 0 is still found as alpha
        (AMemConfig(index_text="paper", rebuild_every=2), {0: 0.0, 1: 0.0}),
        (AMemConfig(index_text="paper", rebuild_every=1), {0: 1.0, 1: 0.0}),
        (AMemConfig(index_text="paper", always_fresh=True), {0: 1.0, 1: 0.0}),
    ],
)
def test_an_updated_neighbour_keeps_its_old_vector_until_the_rebuild(config, scores):
    system = build(AMem, config, conversation(["alpha", "gamma"]), chat_of({"gamma": REWRITE}), AXES)
    assert system.notes[0].context == "beta"
    assert index_score(system, "beta") == scores
    assert system.stats().extra["stale"] == (0 if scores[0] else 1)


def test_the_index_is_rebuilt_at_the_hundredth_evolved_note():
    for turns, rebuilds, stale in ((99, 0, 1), (100, 1, 0), (101, 1, 1), (200, 2, 0)):
        # every note evolves, the first included, and rewrites its nearest: note 0, again and again
        count = iter(range(1000))
        chat = chat_of({})
        chat.replies["amem_evolve"] = lambda text: (
            NOTHING | {"should_evolve": True} | REWRITE | {"neighbour_contexts": [f"alpha {next(count)}"]}  # noqa: B023
        )
        system = build(AMem, PAPER, conversation(["alpha"] * turns), chat, AXES)
        extra = system.stats().extra
        assert (extra["evolved"], extra["rebuilds"], extra["stale"]) == (turns, rebuilds, stale)


def test_a_rebuild_embeds_the_text_of_now_and_stale_notes_alone():
    talk = conversation(["alpha", "gamma", "gamma again"])
    embedder = TableEmbedder({"alpha": [1, 0, 0], "beta": [0, 1, 0], "gamma": [0, 0, 1]}, dim=3)
    config = AMemConfig(index_text="paper", rebuild_every=2)
    chat = chat_of({"gamma again": {"actions": ["strengthen"]}, "gamma": REWRITE})
    system = build(AMem, config, talk, chat, embedder)
    assert embedder.encoded[3:] == ["beta keywords: "]
    assert index_score(system, "beta") == {0: 1.0, 1: 0.0, 2: 0.0}


def test_what_is_embedded():
    chat = FakeChat({"amem_note": {"keywords": ["k1", "k 2"], "context": "C.", "tags": ["t"]}, "amem_evolve": NOTHING})
    embedder = TableEmbedder()
    build(AMem, CONFIG, conversation(["hello"]), chat, embedder)
    build(AMem, PAPER, conversation(["hello"]), chat, embedder)
    assert embedder.encoded == [
        "Ann: hello context: C. keywords: k1, k 2 tags: t",
        "C. keywords: k1, k 2",
    ]


LINKED = {
    "alpha two": {"actions": ["strengthen"], "connections": [1, 2], "new_tags": []},
    "alpha four": {"actions": ["strengthen"], "connections": [2, 1], "new_tags": []},
}


def linked_memory(config, keywords=("alpha",), **more):
    """Notes 0 beta, 1 gamma, 2 "alpha two" -> 0, 1; 3 "alpha four" -> 0, 2 (its second nearest, then its nearest)."""
    chat = chat_of(LINKED, amem_query={"keywords": list(keywords)})
    talk = conversation(["beta", "gamma", "alpha two", "alpha four"])
    return build(AMem, config, talk, chat, AXES, **more), chat


def test_each_hit_is_followed_by_its_linked_notes():
    system, chat = linked_memory(AMemConfig(index_text="paper", k=1))
    assert [note.links for note in system.notes] == [[], [], [0, 1], [0, 2]]
    evidence, meter = ask(system)
    shown = [(item.dia_ids, item.paths, item.rank, item.score) for item in evidence.items]
    assert shown == [
        (("D1:3",), ("hit",), 1, pytest.approx(1.0)),
        (("D1:1",), ("link",), 2, pytest.approx(1.0)),
        (("D1:2",), ("link",), 3, pytest.approx(1.0)),
    ]
    assert evidence.trace == {"keywords": ["alpha"], "hits": 1, "links": 2, "dropped": 0}
    assert meter.calls == 1
    assert len(chat.asked("amem_query")) == 1
    assert evidence.context == "\n".join(item.text for item in evidence.items)


def test_a_note_is_shown_once_and_a_hit_stays_a_hit():
    system, _ = linked_memory(AMemConfig(index_text="paper", k=2))
    evidence, _ = ask(system)
    assert [(item.dia_ids[0], item.paths) for item in evidence.items] == [
        ("D1:3", ("hit", "link")),  # a hit that note 3 links to
        ("D1:1", ("link",)),
        ("D1:2", ("link",)),
        ("D1:4", ("hit",)),
    ]


def test_k_by_category():
    config = validate(AMemConfig, {"index_text": "paper", "k": 3, "k_by_category": [1, 2, 3, 4, 1]}, "memory")
    system, _ = linked_memory(config)
    for category, hits in ((1, 1), (2, 2), (3, 3), (4, 4), (5, 1)):
        assert ask(system, category=category)[0].trace["hits"] == hits
    system, _ = linked_memory(AMemConfig(k=3))
    assert ask(system, category=5)[0].trace["hits"] == 3
    with pytest.raises(ConfigError, match=r"memory\.k_by_category=\[40, 40\] is refused"):
        validate(AMemConfig, {"k_by_category": [40, 40]}, "memory")
    assert identity_hash(config) != identity_hash(AMemConfig(index_text="paper", k=3))


def test_the_keywords_are_what_is_searched():
    system, _ = linked_memory(AMemConfig(index_text="paper", k=1), keywords=["", " the  beta "])
    evidence, meter = ask(system, "alpha or gamma?")
    assert evidence.items[0].dia_ids == ("D1:1",)
    assert evidence.trace["keywords"] == ["the beta"]
    assert not meter.fallbacks
    for no_words in ({"keywords": []}, UNUSABLE):
        system, chat = linked_memory(AMemConfig(index_text="paper", k=1))
        chat.replies["amem_query"] = no_words
        evidence, meter = ask(system, "gamma?")
        assert evidence.items[0].dia_ids == ("D1:2",)
        assert meter.fallbacks == {"query_raw": 1}


def test_an_item_shows_the_turn_first():
    chat = FakeChat({"amem_note": {"keywords": ["kiln"], "context": "A purchase.", "tags": ["craft", "buying"]}})
    evidence, _ = ask(build(AMem, CONFIG, conversation(["I bought a kiln."]), chat))
    (item,) = evidence.items
    assert item.text == (
        "[13:56 on 8 May 2023] Ann: I bought a kiln. (context: A purchase.; keywords: kiln; tags: craft, buying)"
    )
    assert item.ends == (10,)
    assert item.date.isoformat() == "2023-05-08T13:56:00"


def test_fallbacks_are_named_and_counted():
    system = build(AMem, CONFIG, TALK, FakeChat({"amem_note": UNUSABLE, "amem_evolve": UNUSABLE}))
    assert system.services.meter.fallbacks == {"note_raw": 7, "evolve_none": 7}
    note = system.notes[0]
    assert (note.context, note.keywords, note.tags) == (
        "Ann: I bought a kiln in Lisbon.",
        ("Lisbon", "bought", "kiln"),
        (),
    )
    assert all(not note.links for note in system.notes)


def test_the_context_is_cut_to_the_readers_budget():
    full, _ = ask(build(AMem, AMemConfig(k=7), TALK))
    cut, _ = ask(build(AMem, AMemConfig(k=7), TALK, context_tokens=60))
    assert len(cut.context.split()) <= 60
    assert cut.items == full.items[: len(cut.items)]
    assert cut.trace["dropped"] == len(full.items) - len(cut.items) > 0
    nothing, _ = ask(build(AMem, CONFIG, TALK, context_tokens=2))
    assert (nothing.context, nothing.items) == ("", ())


def test_small_windows_drop_the_farthest_neighbours():
    """FakeChat refuses a prompt that overflows."""
    long = " ".join(f"word{n}" for n in range(150))
    chat = FakeChat(window=1500)
    system = build(AMem, CONFIG, conversation([long] * 7), chat)
    assert system.stats().extra["neighbours_dropped"] > 0
    assert len(chat.asked("amem_evolve")) == 7
    huge = " ".join(f"word{n}" for n in range(2000))
    system = build(AMem, CONFIG, conversation([huge, huge]), FakeChat(window=1500))
    ask(system, huge)


def test_the_result_does_not_depend_on_timing():
    calm = build(AMem, AMemConfig(rebuild_every=2), TALK, FakeChat())
    assert calm.stats().links > 0
    for latency in range(4):
        late = build(AMem, AMemConfig(rebuild_every=2), TALK, FakeChat(latency=latency))
        assert tables(late) == tables(calm)
        assert ask(late)[0] == ask(calm)[0]


def test_recalls_at_once_do_not_change_each_other():
    system = build(AMem, CONFIG, TALK, FakeChat(latency=3))
    questions = ["Who repaired the kiln?", "What does Mia love?", "Where is the kiln from?"]
    alone = [ask(system, text)[0] for text in questions]
    before = tables(system)

    async def all_at_once():
        return await asyncio.gather(*(system.recall(Query("q", text, 4), Meter()) for text in questions))

    assert asyncio.run(all_at_once()) == alone
    assert tables(system) == before


@pytest.mark.parametrize("purpose", ["amem_note", "amem_evolve"])
def test_an_endpoint_error_passes_through_and_leaves_nothing_running(purpose):
    chat = FakeChat({purpose: EndpointError("unreachable", "no endpoint", fatal=True)}, latency=1)

    async def scenario():
        with pytest.raises(EndpointError, match="no endpoint"):
            await AMem(CONFIG, services(chat)).ingest(TALK)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


def test_before_ingest_empty_and_tiny():
    with pytest.raises(RuntimeError, match="nothing has been ingested"):
        ask(AMem(CONFIG, services()))
    evidence, meter = ask(build(AMem, CONFIG, conversation()))
    assert (evidence.context, evidence.items, meter.calls) == ("", (), 0)
    evidence, _ = ask(build(AMem, CONFIG, conversation(["I bought a kiln."])))
    assert [item.dia_ids for item in evidence.items] == [("D1:1",)]


def test_the_plan_is_what_a_run_counts():
    dataset = load_dataset(DatasetSpec(name="sample", max_sessions=3))
    talks = [sample.conversation for sample in dataset.samples]
    turns = [turn for talk in talks for turn in talk.turns]
    words = sum(len(turn.full_text.split()) for turn in turns)
    shape = DataShape(len(talks), sum(len(t.sessions) for t in talks), len(turns), words, 10)
    plan = AMem.plan(CONFIG, shape, can_judge=False)
    built = [build(AMem, CONFIG, talk) for talk in talks]
    assert plan.memory_calls == (sum(one.services.meter.calls for one in built),) * 2 == (2 * len(turns),) * 2
    assert plan.query_calls == (1, 1)
    assert all(low <= high for low, high in (plan.memory_tokens, plan.query_tokens, plan.context_tokens))


def test_the_plan_of_locomo10():
    plan = AMem.plan(CONFIG, DataShape(10, 272, 5882, 130_000, 1986), can_judge=True)
    assert plan.memory_calls == (11_764, 11_764)
    assert plan.memory_calls[0] + 1986 * (plan.query_calls[0] + 1) == 15_736
