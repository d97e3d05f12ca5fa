"""Mem0: what each operation does to the memory, provenance, dates and summaries in prompts, stores, budgets."""

import asyncio
import importlib.metadata
import re

import pytest
from baseline_fakes import UNUSABLE, FakeChat, TableEmbedder, ask, build, conversation, services

from baselines.mem0 import Mem0, Mem0Config
from baselines.mem0_paper import pairs_of, summary_of
from harness.errors import ConfigError, EndpointError
from harness.llm.types import Meter
from harness.memory import DataShape, Query
from harness.spec import validate

CONFIG = Mem0Config()
AXES = TableEmbedder({"kiln": [1, 0, 0], "boat": [0, 1, 0], "tea": [0, 0, 1]}, dim=3)


def fact(text, speaker="Ann"):
    return {"speaker": speaker, "text": text}


def facts_by_word(**facts):
    """Facts of a pair by a word of its messages."""

    def reply(text):
        said = " ".join(re.findall(r"<message[^>]*>(.*?)</message>", text))
        return {"facts": [one for word, given in facts.items() if word in said for one in given]}

    return reply


def decide(*decisions):
    """Every decision call is answered by the next of these: tuples (fact, operation, memory, text)."""
    left = list(decisions)

    def reply(text):
        names = ("fact", "operation", "memory", "text")
        return {"decisions": [dict(zip(names, one, strict=True)) for one in left.pop(0)]}

    return reply


def rows(system, deleted=False):
    return [row for row in system.export()["memories"] if row["deleted"] == deleted]


TALK = conversation(["first kiln", "nice"], ["second kiln", "good"])
TWO_KILNS = facts_by_word(first=[fact("Ann has a kiln")], second=[fact("Ann sold the kiln")])


def test_pairs_stay_within_sessions_and_see_the_messages_before_them():
    pairs = pairs_of(conversation(["a", "b", "c"], ["d", "e"]), recent=2)
    said = [([t.text for t in pair.turns], [t.text for t in pair.recent]) for pair in pairs]
    assert said == [(["a", "b"], []), (["c"], ["a", "b"]), (["d", "e"], ["b", "c"])]
    assert [t.text for t in pairs_of(conversation(["a", "b", "c"]), recent=0)[1].recent] == []


def test_which_summary_a_pair_reads_is_fixed_by_its_place():
    assert [summary_of(pair, every=2, lag=1) for pair in range(7)] == [0, 0, 0, 0, 1, 1, 2]
    assert [summary_of(pair, every=2, lag=0) for pair in range(5)] == [0, 0, 1, 1, 2]


def test_add_keeps_both_with_the_turns_of_their_pairs():
    chat = FakeChat({"mem0_facts": TWO_KILNS, "mem0_decide": decide([(1, "ADD", None, "")])})
    system = build(Mem0, CONFIG, TALK, chat, AXES)
    assert [(row["text"], row["dia_ids"], row["owner"]) for row in rows(system)] == [
        ("Ann has a kiln", ["D1:1", "D1:2"], "Ann"),
        ("Ann sold the kiln", ["D2:1", "D2:2"], "Ann"),
    ]
    assert len(chat.asked("mem0_decide")) == 1  # the first fact met an empty store
    assert (system.stats().notes, system.stats().appends, system.stats().merges) == (2, 2, 0)
    assert system.stats().merged_turns == 0


def test_update_rewrites_and_keeps_the_provenance_of_what_it_replaced():
    chat = FakeChat(
        {"mem0_facts": TWO_KILNS, "mem0_decide": decide([(1, "UPDATE", 1, "Ann had a kiln and sold it for tea")])}
    )
    system = build(Mem0, CONFIG, TALK, chat, AXES)
    (row,) = rows(system)
    assert row["text"] == "Ann had a kiln and sold it for tea" and row["history"] == ["Ann has a kiln"]
    assert row["dia_ids"] == ["D1:1", "D1:2", "D2:1", "D2:2"]
    assert row["updated"].startswith("2023-05-09")
    stats = system.stats()
    assert (stats.notes, stats.merges, stats.largest, stats.merged_turns) == (1, 1, 4, 4)
    evidence, _ = ask(system)
    assert evidence.items[0].dia_ids == ("D1:1", "D1:2", "D2:1", "D2:2")
    assert evidence.items[0].date.day == 8 and "[13:56 on 9 May 2023] Ann had" in evidence.context


def test_an_updated_memory_is_found_by_its_new_text():
    chat = FakeChat({"mem0_facts": TWO_KILNS, "mem0_decide": decide([(1, "UPDATE", 1, "Ann has a boat")])})
    system = build(Mem0, CONFIG, TALK, chat, AXES)
    assert ask(system, "boat")[0].items[0].score == pytest.approx(1.0)
    assert ask(system, "kiln")[0].items[0].score == pytest.approx(0.0, abs=1e-3)


def test_delete_removes_the_memory_and_stores_nothing():
    chat = FakeChat({"mem0_facts": TWO_KILNS, "mem0_decide": decide([(1, "DELETE", 1, "")])})
    system = build(Mem0, CONFIG, TALK, chat, AXES)
    assert rows(system) == [] and [row["text"] for row in rows(system, deleted=True)] == ["Ann has a kiln"]
    assert ask(system)[0].items == () and ask(system)[0].context == ""
    assert system.stats().extra["deletes"] == 1


def test_noop_changes_nothing():
    chat = FakeChat({"mem0_facts": TWO_KILNS, "mem0_decide": decide([(1, "NOOP", 1, "other")])})
    system = build(Mem0, CONFIG, TALK, chat, AXES)
    assert [(row["text"], row["dia_ids"]) for row in rows(system)] == [("Ann has a kiln", ["D1:1", "D1:2"])]
    assert system.stats().extra["noops"] == 1


@pytest.mark.parametrize(
    ("decisions", "texts", "fallbacks"),
    [
        ([(1, "UPDATE", 7, "x")], ["Ann has a kiln", "Ann sold the kiln"], {"unknown_memory_add": 1}),
        ([(1, "DELETE", None, "x")], ["Ann has a kiln", "Ann sold the kiln"], {"unknown_memory_add": 1}),
        ([], ["Ann has a kiln", "Ann sold the kiln"], {"undecided_add": 1}),
        ([(1, "UPDATE", 1, " ")], ["Ann sold the kiln"], {"empty_update": 1}),
        ([(1, "NOOP", None, ""), (1, "DELETE", 1, ""), (4, "ADD", None, "")], ["Ann has a kiln"], {"extra_decision": 1, "unknown_fact": 1}),
    ],
)  # fmt: skip
def test_a_reply_that_does_not_hold_is_counted_and_loses_no_fact(decisions, texts, fallbacks):
    meter = Meter()
    chat = FakeChat({"mem0_facts": TWO_KILNS, "mem0_decide": decide(decisions)})
    system = build(Mem0, CONFIG, TALK, chat, AXES, meter=meter)
    assert [row["text"] for row in rows(system)] == texts
    assert dict(meter.fallbacks) == fallbacks


def test_calls_without_a_usable_reply():
    meter = Meter()
    system = build(Mem0, CONFIG, TALK, FakeChat({"mem0_facts": UNUSABLE}), AXES, meter=meter)
    assert rows(system) == [] and meter.fallbacks == {"facts_none": 2}
    meter = Meter()
    chat = FakeChat({"mem0_facts": TWO_KILNS, "mem0_decide": UNUSABLE})
    system = build(Mem0, CONFIG, TALK, chat, AXES, meter=meter)
    assert len(rows(system)) == 2 and meter.fallbacks == {"decide_add": 1}
    with pytest.raises(EndpointError):
        build(Mem0, CONFIG, TALK, FakeChat({"mem0_facts": EndpointError("auth", "no", fatal=True)}), AXES)


def test_each_fact_is_offered_its_own_store_nearest_first():
    talk = conversation(["one", "x"], ["two", "x"])
    chat = FakeChat(
        {
            "mem0_facts": facts_by_word(
                one=[fact("Ann likes tea"), fact("Ann has a kiln"), fact("Ben has a kiln", "ben")],
                two=[fact("Ann lit the kiln"), fact("Ben lit the kiln", "Ben")],
            ),
            "mem0_decide": decide([(1, "UPDATE", 1, "Ann has and lights a kiln"), (2, "NOOP", 1, "")]),
        }
    )
    system = build(Mem0, CONFIG, talk, chat, AXES)
    (prompt,) = chat.asked("mem0_decide")
    shown = [
        re.findall(r'<memory id="(\d)" date="8 May 2023">(.*?)</memory>', part) for part in prompt.split("<fact")[1:]
    ]
    assert shown == [[("1", "Ann has a kiln"), ("2", "Ann likes tea")], [("1", "Ben has a kiln")]]
    assert re.findall(r'id="(\d)" date="9 May 2023">\n<new>(.*?)</new>', prompt) == [
        ("1", "Ann lit the kiln"),
        ("2", "Ben lit the kiln"),
    ]
    assert [row["text"] for row in rows(system)] == ["Ann likes tea", "Ann has and lights a kiln", "Ben has a kiln"]


def test_decide_fact_is_a_call_each_that_sees_what_the_fact_before_did():
    talk = conversation(["one", "x"])
    replies = {
        "mem0_facts": facts_by_word(one=[fact("Ann has a kiln"), fact("Ann sold the kiln")]),
        "mem0_decide": decide([(1, "UPDATE", 1, "Ann had a kiln")]),
    }
    chat = FakeChat(replies)
    system = build(Mem0, Mem0Config(decide="fact"), talk, chat, AXES)
    assert [row["text"] for row in rows(system)] == ["Ann had a kiln"] and len(chat.asked("mem0_decide")) == 1
    chat = FakeChat(replies)
    assert len(rows(build(Mem0, CONFIG, talk, chat, AXES))) == 2 and chat.asked("mem0_decide") == []


def test_dates_the_last_messages_and_the_summary_stand_in_the_prompt():
    talk = conversation(["m1", "m2", "m3", "m4"], ["m5", "m6"], ["m7", "m8"], days=[0, 30, 400])
    summaries = iter(["Sum one.", "Sum two."])
    chat = FakeChat({"mem0_summary": lambda text: {"summary": next(summaries)}, "mem0_facts": {"facts": []}})
    build(Mem0, Mem0Config(recent=3, summary_every=1, summary_lag=1), talk, chat)
    prompts = chat.asked("mem0_facts")
    assert [re.search(r"<date>(.*?)</date>", prompt)[1] for prompt in prompts] == [
        "13:56 on 8 May 2023", "13:56 on 8 May 2023", "13:56 on 7 June 2023", "13:56 on 11 June 2024",
    ]  # fmt: skip
    assert "[8 May 2023] Ben: m4\n[7 June 2023] Ann: m5\n[7 June 2023] Ben: m6\n</recent>" in prompts[3]
    assert "m3" not in prompts[3] and "<recent>" not in prompts[0]
    summed = sorted(re.findall(r"<summary>\s*(.*?)\s*</summary>", prompt) for prompt in prompts)
    assert summed == [[], [], ["Sum one."], ["Sum two."]]
    asked = chat.asked("mem0_summary")
    assert len(asked) == 2 and "[8 May 2023] Ann: m1\n[8 May 2023] Ben: m2\n</messages>" in asked[0]
    assert "<summary>Sum one.</summary>" in asked[1] and "Ann: m3" in asked[1] and "m1" not in asked[1]


def test_a_summary_that_fails_keeps_the_old_one_and_a_long_one_is_cut():
    talk = conversation(["m"] * 8)
    meter = Meter()
    replies = iter([{"summary": "one two three four"}, UNUSABLE])
    chat = FakeChat({"mem0_summary": lambda text: next(replies), "mem0_facts": {"facts": []}})
    build(Mem0, Mem0Config(summary_every=1, summary_lag=1, summary_words=3), talk, chat, meter=meter)
    assert meter.fallbacks == {"summary_kept": 1}
    held = [re.findall(r"<summary>\n(.*?)\n", prompt) for prompt in chat.asked("mem0_facts")]
    assert sorted(held) == [[], [], ["one two three"], ["one two three"]]


def test_recall_takes_top_k_of_each_store_best_first():
    talk = conversation(["one", "x"])
    given = [fact("Ann kiln"), fact("Ann tea"), fact("Ann boat"), fact("Ben boat", "Ben"), fact("Ben kiln", "Ben")]
    chat = FakeChat({"mem0_facts": {"facts": given}})
    system = build(Mem0, Mem0Config(top_k=2), talk, chat, AXES)
    evidence, meter = ask(system, "kiln")
    assert [(item.text[22:], item.rank, item.paths) for item in evidence.items] == [
        ("Ann kiln", 1, ("Ann",)), ("Ben kiln", 2, ("Ben",)), ("Ann tea", 3, ("Ann",)), ("Ben boat", 4, ("Ben",)),
    ]  # fmt: skip
    assert evidence.context == (
        "What is remembered of Ann:\n[13:56 on 8 May 2023] Ann kiln\n[13:56 on 8 May 2023] Ann tea\n\n"
        "What is remembered of Ben:\n[13:56 on 8 May 2023] Ben kiln\n[13:56 on 8 May 2023] Ben boat"
    )
    assert meter.calls == 0 and evidence.trace == {"found": 4, "dropped": 0}
    one = build(Mem0, Mem0Config(top_k=2, per_speaker=False), talk, FakeChat({"mem0_facts": {"facts": given}}), AXES)
    assert ask(one, "kiln")[0].context == "[13:56 on 8 May 2023] Ann kiln\n[13:56 on 8 May 2023] Ben kiln"


def test_an_unknown_speaker_is_the_pairs_first():
    meter = Meter()
    chat = FakeChat({"mem0_facts": {"facts": [fact("tea", "The user")]}})
    system = build(Mem0, CONFIG, conversation(["one"]), chat, AXES, meter=meter)
    assert [row["owner"] for row in rows(system)] == ["Ann"] and meter.fallbacks == {"unknown_speaker": 1}


def test_what_does_not_fit_the_readers_window_is_dropped_worst_first():
    given = [fact(f"tea number {i}") for i in range(8)] + [fact("kiln")]
    talk = conversation(["one"])
    system = build(Mem0, CONFIG, talk, FakeChat({"mem0_facts": {"facts": given}}), AXES, context_tokens=20)
    evidence, _ = ask(system, "kiln")
    # "What is remembered of Ann:" 5 words, "[13:56 on 8 May 2023] kiln" 6, "... tea number 0" 8: 19 of 20
    assert [item.text[22:] for item in evidence.items] == ["kiln", "tea number 0"]
    assert evidence.trace == {"found": 9, "dropped": 7}


def test_prompts_stay_within_a_small_window():
    talk = conversation(["word " * 400, "other " * 400] * 4)
    build(Mem0, Mem0Config(summary_every=1), talk, FakeChat(window=1200))  # FakeChat asserts it


def test_the_result_does_not_depend_on_timing():
    talk = conversation(*[[f"kiln {i} {j} of clay" for j in range(5)] for i in range(4)])
    config = Mem0Config(summary_every=1)
    calm = build(Mem0, config, talk, FakeChat()).export()["memories"]
    for seed in range(3):
        assert build(Mem0, config, talk, FakeChat(latency=seed)).export()["memories"] == calm


def test_the_stand_in_updates_what_is_alike_and_repeats_nothing():
    talk = conversation(
        ["I bought a big red kiln.", "x"], ["I bought a big red kiln.", "x"], ["I bought a big blue kiln.", "x"]
    )
    system = build(Mem0, CONFIG, talk)
    stats = system.stats()
    # Ann's three: stored; the same again; 4 of 6 content words shared (ann bought big kiln / red blue): rewritten.
    assert [row["text"] for row in rows(system) if row["owner"] == "Ann"] == ["Ann: I bought a big blue kiln."]
    assert (stats.merges, stats.extra["noops"]) == (1, 3)


def test_nothing_ingested_and_nothing_said():
    with pytest.raises(RuntimeError):
        asyncio.run(Mem0(CONFIG, services()).recall(Query("q", "kiln", 4), Meter()))
    assert ask(build(Mem0, CONFIG, conversation()))[0].items == ()


@pytest.mark.parametrize(("decide_by", "most"), [("pair", 2), ("fact", 7)])
def test_the_plan_by_hand(decide_by, most):
    # Sessions of 3 and 4 turns: 2 + 2 pairs; no refresh of the summary can be due before the tenth.
    shape = DataShape(1, 2, 7, 70, 5, turn_words=((10,) * 3, (10,) * 4))
    plan = Mem0.plan(Mem0Config(decide=decide_by), shape, can_judge=True)
    assert plan.memory_calls == (4, 4 * most) and plan.query_calls == (0, 0)


@pytest.mark.parametrize(("found", "message"), [(None, "which is not installed"), ("2.2.1", "found 2.2.1")])
def test_a_missing_package_is_one_line(monkeypatch, found, message):
    def version(name):
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(ConfigError, match=r"mem0ai 1\.0\.x.*make setup-mem0") as caught:
        Mem0.plan(Mem0Config(impl="official"), DataShape(1, 1, 1, 1, 1), can_judge=True)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_wrong_option_is_refused():
    with pytest.raises(ConfigError, match=r"memory\.impl='cloud' is refused"):
        validate(Mem0Config, {"impl": "cloud"}, "memory")
