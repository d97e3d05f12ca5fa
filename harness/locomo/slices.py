"""Parts of a data set: conversations, sessions, turns, questions, and the audited subset.

Order: conversations are chosen; sessions, then turns are cut; questions whose evidence a cut took away are left
out; then the subset; then the limit on questions. Every step that leaves something out says so in a notice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from harness.errors import ConfigError
from harness.locomo.schema import CATEGORIES, Conversation, Question, Sample, Session
from harness.spec import DatasetSpec

LEFT_OUT = ("wrong", "premise", "metadata", "answerable", "void")
"""Verdicts that `dataset.subset=clean` leaves out: the gold contradicts the conversation; the question names the
wrong person or date; it needs the picture itself; a category 5 item that has an answer; a trap that itself says
"Not mentioned". Verdicts it keeps: debatable, reject (no error), citation."""

Verdicts = Mapping[tuple[str, int], str]


@cache
def audit_verdicts() -> Verdicts:
    """(sample_id, qa_index) -> verdict on LoCoMo-10's gold.

    The questions come from dial481/locomo-audit (CC BY-NC 4.0) and a reading of our own; the verdicts are ours,
    each after a look at the conversation.
    """
    rows = json.loads(Path(__file__).with_name("audit_verdicts.json").read_text(encoding="utf-8"))
    return {(sample_id, index): verdict for sample_id, index, verdict in rows}


def take(
    samples: Sequence[Sample], spec: DatasetSpec, verdicts: Verdicts | None
) -> tuple[tuple[Sample, ...], list[str]]:
    """The part of the samples that `spec` names, and the notices that must stand above a table.

    `verdicts` is None where no audit of the data exists: `clean` then equals `all`. Raises ConfigError for an
    unknown conversation and when no question is left.
    """
    notices: list[str] = []
    chosen = _choose(samples, spec.conversations, notices)
    chosen = _cut(chosen, spec, notices)
    chosen = _subset(chosen, spec.subset, verdicts, notices)
    chosen = _limit(chosen, spec.max_questions, notices)
    asked = tuple(sample for sample in chosen if sample.questions)
    if not asked:
        raise ConfigError(
            "the slice leaves no question to ask: raise dataset.max_sessions or dataset.max_turns, "
            "or choose other dataset.conversations"
        )
    if len(asked) < len(chosen):
        idle = ", ".join(sample.sample_id for sample in chosen if not sample.questions)
        notices.append(f"No question of {idle} is left, so it is not replayed.")
    return asked, notices


def _choose(samples: Sequence[Sample], names: Sequence[str] | None, notices: list[str]) -> tuple[Sample, ...]:
    """The named conversations in the file's order, so that the order of the names cannot change a run."""
    if names is None:
        return tuple(samples)
    valid = [sample.sample_id for sample in samples]
    for name in names:
        if name not in valid:
            raise ConfigError(
                f"dataset.conversations: no conversation {name!r} in this file; it has: {', '.join(valid)}"
            )
        if names.count(name) > 1:
            raise ConfigError(f"dataset.conversations: {name!r} is named twice; name it once")
    if not names:
        raise ConfigError(f"dataset.conversations is empty; name some of {', '.join(valid)}, or leave it null for all")
    chosen = tuple(sample for sample in samples if sample.sample_id in names)
    if len(chosen) < len(samples):
        shown = ", ".join(sample.sample_id for sample in chosen)
        notices.append(f"{len(chosen)} of {len(samples)} conversations: {shown}.")
    return chosen


def cut_conversation(conversation: Conversation, max_sessions: int | None, max_turns: int | None) -> Conversation:
    """The first sessions and, of those, the first turns.

    A session that loses turns loses its summary and the observations not wholly within what is left: they tell of
    turns that are not replayed.
    """
    room = len(conversation.turns) if max_turns is None else max_turns
    kept: list[Session] = []
    for session in conversation.sessions[:max_sessions]:
        if room <= 0:
            break
        if len(session.turns) > room:
            turns = session.turns[:room]
            ids = {turn.dia_id for turn in turns}
            inside = tuple(seen for seen in session.observations if seen.dia_ids and ids.issuperset(seen.dia_ids))
            session = replace(session, turns=turns, summary=None, observations=inside)
        kept.append(session)
        room -= len(session.turns)
    return replace(conversation, sessions=tuple(kept))


def _cut(samples: Sequence[Sample], spec: DatasetSpec, notices: list[str]) -> tuple[Sample, ...]:
    """Cut every conversation. One that is shorter than the limits stays whole, and keeps all its questions."""
    if spec.max_sessions is None and spec.max_turns is None:
        return tuple(samples)
    result = []
    shortened = outside = without = 0
    for sample in samples:
        conversation = cut_conversation(sample.conversation, spec.max_sessions, spec.max_turns)
        questions = sample.questions
        if len(conversation.turns) < len(sample.conversation.turns):
            shortened += 1
            ids = {turn.dia_id for turn in conversation.turns}
            questions = tuple(q for q in sample.questions if q.evidence and ids.issuperset(q.evidence))
            blind = sum(not q.evidence for q in sample.questions)
            without += blind
            outside += len(sample.questions) - len(questions) - blind
        result.append(Sample(conversation, questions))
    if shortened:
        limits = [
            f"{limit} {unit}"
            for limit, unit in ((spec.max_sessions, "sessions"), (spec.max_turns, "turns"))
            if limit is not None
        ]
        notices.append(
            f"Cut run: {_conversations(shortened)} cut to the first {' and '.join(limits)}. Not asked: {outside} questions whose "
            f"evidence is not wholly inside, {without} without resolvable evidence."
        )
    return tuple(result)


def _conversations(count: int) -> str:
    return f"{count} conversation{'' if count == 1 else 's'}"


def _subset(
    samples: Sequence[Sample], subset: str, verdicts: Verdicts | None, notices: list[str]
) -> tuple[Sample, ...]:
    if subset == "all":
        return tuple(samples)
    if verdicts is None:
        notices.append("Subset clean: only LoCoMo-10 has been audited; for this data it equals all.")
        return tuple(samples)
    left_out: Counter[str] = Counter()
    result = []
    for sample in samples:
        kept = []
        for question in sample.questions:
            verdict = verdicts.get((question.sample_id, question.qa_index), "")
            if verdict in LEFT_OUT:
                left_out[verdict] += 1
            else:
                kept.append(question)
        result.append(replace(sample, questions=tuple(kept)))
    counts = ", ".join(f"{verdict} {left_out[verdict]}" for verdict in LEFT_OUT)
    notices.append(f"Subset clean: {left_out.total()} questions left out ({counts}).")
    return tuple(result)


def round_robin(questions: Sequence[Question], limit: int) -> tuple[Question, ...]:
    """At most `limit` questions: the first of each category in turn, then the second of each, and so on.

    Returned in the file's order.
    """
    queues = [[q for q in questions if q.category == category] for category in CATEGORIES]
    depth = max(map(len, queues))
    turns = [queue[round_] for round_ in range(depth) for queue in queues if round_ < len(queue)]
    return tuple(sorted(turns[:limit], key=lambda question: question.qa_index))


def _limit(samples: Sequence[Sample], limit: int | None, notices: list[str]) -> tuple[Sample, ...]:
    if limit is None:
        return tuple(samples)
    result = tuple(replace(sample, questions=round_robin(sample.questions, limit)) for sample in samples)
    asked, there = (sum(len(sample.questions) for sample in group) for group in (result, samples))
    if asked < there:
        notices.append(
            f"At most {limit} questions a conversation, taken from the categories in turn: {asked} of {there} asked."
        )
    return result
