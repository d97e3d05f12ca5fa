"""What every system in conf/memory must keep. A new YAML there is tested by itself."""

import json
import os
import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from contract_bench import NAMES, SMALL, STAND_INS, Bench, composed
from test_resume import outcome

from harness.locomo.loader import shape
from harness.locomo.schema import Conversation, Question, Sample, Session, Turn
from harness.memory import MemorySystem
from harness.progress import Progress

every_system = pytest.mark.parametrize("name", NAMES)
START = datetime(2023, 5, 8, 13, 56)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """What survives a crash of the machine is not asked here, and hundreds of flushes are most of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def talk(sample_id: str, speakers: tuple[str, str], sessions: list[list[str]]) -> Conversation:
    made = []
    for number, texts in enumerate(sessions, 1):
        when = START + timedelta(days=7 * number)
        turns = tuple(
            Turn(f"D{number}:{place}", number, speakers[place % 2], text, None, when)
            for place, text in enumerate(texts, 1)
        )
        made.append(Session(number, when, "", turns, summary=f"{speakers[0]} and {speakers[1]} talked."))
    return Conversation(sample_id, *speakers, tuple(made))


def question(sample_id: str, index: int, text: str) -> Question:
    return Question(sample_id, index, 4, text, "a lamp", None, ("D1:1",), ("D1:1",))


def test_the_compared_systems_are_registered():
    assert {"memfly", "memfly_plus", "locomo", "rag", "readagent"} <= set(NAMES)
    assert {"always_abstain", "always_trap", "perfect_copy"} <= set(NAMES)


@every_system
def test_ingest_then_recall(name, tmp_path):
    bench = Bench(name, tmp_path)
    kind = bench.system.evidence_of(bench.spec.memory)
    for sample in bench.dataset.samples:
        texts = [q.question for q in sample.questions]
        found, services = bench.remember(sample.conversation, [*texts, *reversed(texts)])
        assert found[: len(texts)] == found[: len(texts) - 1 : -1], "a recall changed the next one"
        known = {turn.dia_id for turn in sample.conversation.turns}
        for evidence in found:
            json.dumps(dict(evidence.trace), allow_nan=False)
            assert services.chat.count_tokens(evidence.context) <= services.context_tokens
            for item in evidence.items:
                assert set(item.dia_ids) <= known and len(set(item.dia_ids)) == len(item.dia_ids)
                assert item.text and item.text in evidence.context
                assert item.rank >= 1 and item.round >= 0 and item.paths
                if item.ends is not None:
                    assert len(item.ends) == len(item.dia_ids)
                    assert all(0 < end <= len(item.text.split()) for end in item.ends)
        assert any(evidence.items for evidence in found) == (kind != "none")
        assert not services.meter.errors and not services.meter.fallbacks


@every_system
def test_empty_and_one_turn_conversations(name, tmp_path):
    bench = Bench(name, tmp_path)
    kind = bench.system.evidence_of(bench.spec.memory)
    (evidence,), _ = bench.remember(Conversation("conv-e", "Ann", "Ben", ()), ["Who has a kiln?"])
    assert evidence.items == ()
    one = talk("conv-o", ("Ann", "Ben"), [["I bought a kiln in Lisbon."]])
    (evidence,), _ = bench.remember(one, ["Who bought a kiln in Lisbon?"])
    assert all(set(item.dia_ids) <= {"D1:1"} for item in evidence.items)
    if kind != "none":
        assert "kiln" in evidence.context


@every_system
def test_recall_before_ingest_is_refused(name, tmp_path):
    with pytest.raises(RuntimeError):
        Bench(name, tmp_path).remember(None, ["Who has a kiln?"])


@every_system
def test_same_seed_same_result_whatever_the_timing(name, tmp_path):
    calm = Bench(name, tmp_path / "calm").run()
    assert [record["error"] for record in calm.records] == [None] * len(calm.records)
    for seed in (1, 2):
        late = Bench(name, tmp_path / f"late{seed}", latency=seed).run()
        assert late.outcome() == calm.outcome()


@every_system
def test_the_plan_holds(name, tmp_path):
    bench = Bench(name, tmp_path).run()
    plan = bench.system.plan(bench.spec.memory, shape(bench.dataset), can_judge=bench.spec.backbone.can_judge)
    low, high = plan.memory_calls
    assert low <= sum(one["calls"] for one in bench.built) <= high
    low, high = plan.query_calls
    for record in bench.records:
        assert low <= record["usage"]["calls"] - plan.reader <= high


LAMP = talk(
    "conv-lamp",
    ("Quillane", "Ostrava"),
    [
        ["My velorum lamp glows green.", "A velorum lamp! Is it old?", "The velorum lamp is from Faro."],
        ["I sold the velorum lamp.", "Who has the velorum lamp now?", "My velorum lamp went to Mia."],
    ],
)
BOAT = talk(
    "conv-boat",
    ("Zorvath", "Ilmari"),
    [
        ["The corvid boat leaks.", "Does the corvid boat sink?", "We mend the corvid boat in Faro."],
        ["The corvid boat is dry.", "Where is the corvid boat kept?", "That corvid boat lies in Mia's shed."],
    ],
)
MARKS = {"conv-lamp": ("velorum", "Quillane", "Ostrava"), "conv-boat": ("corvid", "Zorvath", "Ilmari")}
PAIR = [
    Sample(one, tuple(question(one.sample_id, i, text) for i, text in enumerate(texts)))
    for one, texts in (
        (LAMP, ("Where is the lamp of Quillane from?", "Who has the lamp now?")),
        (BOAT, ("Where does Zorvath mend the boat?", "Where is the boat kept?")),
    )
]


@every_system
def test_conversations_never_leak_into_each_other(name, tmp_path):
    both = Bench(name, tmp_path / "both", samples=PAIR, latency=3).run()
    for prompt in both.transport.prompts:
        assert sum(any(mark in prompt for mark in marks) for marks in MARKS.values()) <= 1
    for sample in PAIR:
        foreign = next(marks for id, marks in MARKS.items() if id != sample.sample_id)
        alone = Bench(name, tmp_path / sample.sample_id, samples=[sample]).run()
        records, memory, built = both.outcome()
        mine = [record for record in records if record["sample_id"] == sample.sample_id]
        assert not any(mark in json.dumps(mine) for mark in foreign)
        assert mine == alone.outcome()[0]
        assert {k: v for k, v in memory.items() if sample.sample_id in k} == alone.outcome()[1]
        assert [one for one in built if one["sample_id"] == sample.sample_id] == alone.outcome()[2]


@every_system
def test_no_prompt_depends_on_gold_or_evidence(name, tmp_path):
    bench = Bench(name, tmp_path / "true").run()
    changed = [
        replace(
            sample,
            questions=tuple(
                replace(
                    q, answer=q.answer and "zzgold", evidence=("D1:2",), evidence_raw=("D1:2",), answer_raw="zzgold"
                )
                for q in sample.questions
            ),
        )
        for sample in bench.dataset.samples
    ]
    other = Bench(name, tmp_path / "changed", samples=changed).run()
    assert other.transport.prompts == bench.transport.prompts
    assert other.outcome()[1:] == bench.outcome()[1:]


@every_system
def test_garbage_that_a_second_attempt_mends_changes_nothing(name, tmp_path):
    calm = Bench(name, tmp_path / "calm").run()
    mended = Bench(name, tmp_path / "mended", garbage_every=10).run()
    assert mended.transport.garbage == len(mended.transport.sent) // 10

    def answers(bench):
        return [(r["answer"], r["evidence"], r["scores"], r["error"], r["fallbacks"]) for r in bench.records]

    assert answers(mended) == answers(calm)
    assert mended.outcome()[1] == calm.outcome()[1]


@pytest.mark.parametrize("every", [10, 3, 1])
@every_system
def test_garbage_without_a_second_attempt_is_never_silent(name, every, tmp_path):
    bench = Bench(name, tmp_path, garbage_every=every, attempts=1).run()  # run() asserts a record for every question
    built_errors = sum(one["errors"] for one in bench.built)
    assert sum(sum(one["fallbacks"].values()) for one in bench.built) >= built_errors
    failed = [record for record in bench.records if record["error"]]
    assert all(record["scores"] == {} and record["answer"] is None for record in failed)
    told = sum(sum(record["fallbacks"].values()) for record in bench.records)
    # A bare text can be taken for the one string a schema asks for; that is a repair, and recorded as an answer.
    taken = sum(one["repaired_replies"] for one in bench.built) + sum(
        bool(record["reply"]) and record["reply"] == "no reply of this kind" for record in bench.records
    )
    assert built_errors + len(failed) + told + taken >= bench.transport.garbage


@pytest.mark.parametrize("name", [name for name in NAMES if composed(name)[1].restore is not MemorySystem.restore])
def test_a_shared_memory_is_the_built_one(name, tmp_path):
    """Whoever restores says that recall, counts and export are equal; scores that merge and link make it hard."""
    busy = ("memory.scoring=pairwise", "memory.tau_merge=0.1", "memory.tau_link=0.1") if "memfly" in name else ()
    one, two = (Bench(name, tmp_path / n, overrides=busy, shared=tmp_path / "shared").run() for n in ("one", "two"))
    assert len(two.transport.sent) == len(one.transport.sent) - sum(facts["calls"] for facts in one.built)
    assert two.outcome()[:2] == one.outcome()[:2]
    first, again = (json.loads(json.dumps(bench.outcome()[2])) for bench in (one, two))
    assert {facts.pop("shared_from") for facts in again} != {None} and again == first
    assert [facts["usage"]["computed_calls"] for facts in two.built] == [0, 0]


@pytest.mark.slow
@every_system
def test_killed_and_resumed_is_undisturbed(name, run_door, tmp_path):
    """One moment a system: halfway through its replies, or at its third answer where it asks for none."""
    overrides = (f"memory={name}", *STAND_INS, *SMALL)

    def result():
        (folder,) = (tmp_path / "runs").glob("[!.]*")
        with sqlite3.connect(tmp_path / "cache" / "replies.sqlite") as db:
            (replies,) = db.execute("SELECT count(*) FROM replies").fetchone()
        return outcome(folder), replies

    run_door(*overrides, check=0)
    calm, paid = result()
    for place in ("runs", "cache"):
        (tmp_path / place).rename(tmp_path / f"calm {place}")
    moment = ("reply stored", str(paid // 2)) if paid > 1 else ("answer appended", "3")
    killed = run_door(*moment, *overrides, script=("tests/kill_driver.py",), env={"PYTHONPATH": "."})
    assert killed.returncode == -9, killed.stderr
    run_door(*overrides, check=0)
    assert result() == (calm, paid)


TELLING = {"memfly", "memfly_plus", "amem", "mem0", "memorybank", "readagent"}


@every_system
def test_the_display_learns_of_every_turn_once_or_of_none(name, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(Progress, "finished", lambda self, which, turns: told.append((self.taken.get(which, 0), turns)))
    Bench(name, tmp_path).run()
    assert len(told) == 2 and all(turns == 14 for _, turns in told)
    assert all(taken == (14 if name in TELLING else 0) for taken, _ in told)
