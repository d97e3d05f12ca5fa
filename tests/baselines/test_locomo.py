"""Full context: what is shown, and what goes when the window is too small."""

import pytest
from baseline_fakes import ask, build, conversation

from baselines.locomo import Locomo, LocomoConfig
from harness.memory import DataShape

TALK = conversation(["a one", "a two"], ["b one", "b two"], ["c one", "c two"])
HEAD = "What Ann and Ben said to each other, the latest session first."  # 12 words


def block(name, date):
    return f"[13:56 on {date} May 2023]\nAnn: {name} one\nBen: {name} two"  # 5 + 3 + 3 words


A, B, C = block("a", 8), block("b", 9), block("c", 10)


def shown(budget, overflow="drop_oldest", talk=TALK):
    system = build(Locomo, LocomoConfig(overflow=overflow), talk, context_tokens=budget)
    evidence, meter = ask(system)
    assert meter.calls == 0
    assert len(evidence.context.split()) <= budget
    return evidence, system


def test_sessions_stand_newest_first_under_a_sentence_that_names_the_speakers():
    evidence, system = shown(1000)
    assert evidence.context == f"{HEAD}\n\n{C}\n\n{B}\n\n{A}"
    assert [item.dia_ids for item in evidence.items] == [("D3:1", "D3:2"), ("D2:1", "D2:2"), ("D1:1", "D1:2")]
    assert {item.ends for item in evidence.items} == {(8, 11)}
    assert [item.rank for item in evidence.items] == [1, 2, 3]
    assert evidence.trace == {"sessions_dropped": 0, "turns_dropped": 0}
    stats = system.stats()
    assert (stats.notes, stats.largest, stats.merged_turns) == (6, 1, 0)
    assert stats.notices == (
        "whole conversations shown, no session dropped (window 32768, 1000 tokens for the context)",
    )


@pytest.mark.parametrize(
    ("budget", "overflow", "blocks"),
    [
        (45, "drop_oldest", [C, B, A]),  # 12 + 3 x 11
        (44, "drop_oldest", [C, B]),
        (34, "drop_oldest", [C, B]),
        (33, "drop_oldest", [C]),
        (44, "drop_newest", [B, A]),
        (33, "drop_newest", [A]),
    ],
)
def test_whole_sessions_are_dropped(budget, overflow, blocks):
    evidence, system = shown(budget, overflow)
    assert evidence.context == "\n\n".join([HEAD, *blocks])
    assert evidence.trace == {"sessions_dropped": 3 - len(blocks), "turns_dropped": 6 - 2 * len(blocks)}
    if len(blocks) == 2:
        end = "oldest" if overflow == "drop_oldest" else "newest"
        assert system.stats().notices == (
            f"conv-x does not fit (window 32768, {budget} tokens for the context): 1 of 3 sessions, 2 of 6 turns "
            f"dropped, the {end} first",
        )


def test_of_a_single_session_that_does_not_fit_the_turns_that_do_are_kept():
    newest, _ = shown(22, "drop_oldest")
    assert newest.context == f"{HEAD}\n\n[13:56 on 10 May 2023]\nBen: c two"
    assert newest.trace == {"sessions_dropped": 2, "turns_dropped": 5}
    oldest, _ = shown(22, "drop_newest")
    assert oldest.context == f"{HEAD}\n\n[13:56 on 8 May 2023]\nAnn: a one"
    nothing, _ = shown(19)
    assert (nothing.context, nothing.items, nothing.trace["turns_dropped"]) == ("", (), 6)


def test_plan():
    shape = DataShape(conversations=2, sessions=4, turns=20, words=400, questions=9)
    plan = Locomo.plan(LocomoConfig(), shape, can_judge=True)
    assert plan.memory_calls == plan.query_calls == (0, 0)
    assert plan.context_tokens == (324, 324)  # (400 x 1.35 + 20 x 3 + 4 x 12) / 2
