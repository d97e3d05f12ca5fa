"""The named, counted rules that mend what is irregular in LoCoMo. Each keeps the raw value beside the mended one.

Counters hold, for evidence (and, prefixed "observation_", for observations' evidence):
  evidence_split      strings that hold several ids
  evidence_rewritten  strings that hold one id, written otherwise ("D:11:26", "D30:05")
  evidence_without_id strings that hold none
  evidence_dangling   ids of no turn, dropped
  evidence_repeated   ids given again for the same question, dropped
  observation_list    observations whose evidence is a list instead of a string
for answers: answer_int (numbers made text), answer_zero_width (answers with zero-width spaces, removed);
and date_without_session (a date key whose session does not exist, ignored).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from harness.locomo.schema import Question, Sample

_DIA_ID = re.compile(r"D:?(\d+):0*(\d+)", re.ASCII)
_ZERO_WIDTH = re.compile("[\u200b\ufeff]")


def resolve_evidence(
    raw: Iterable[str], known: Container[str], repairs: Counter[str], prefix: str = ""
) -> tuple[str, ...]:
    """The existing dia_ids the strings hold, each once, in order. What had to be mended is counted in `repairs`."""
    ids: dict[str, None] = {}
    for text in raw:
        found = [f"D{session}:{position}" for session, position in _DIA_ID.findall(text)]
        if not found:
            repairs[f"{prefix}evidence_without_id"] += 1
        elif len(found) > 1:
            repairs[f"{prefix}evidence_split"] += 1
        elif found[0] != text:
            repairs[f"{prefix}evidence_rewritten"] += 1
        for dia_id in found:
            if dia_id not in known:
                repairs[f"{prefix}evidence_dangling"] += 1
            elif dia_id in ids:
                repairs[f"{prefix}evidence_repeated"] += 1
            else:
                ids[dia_id] = None
    return tuple(ids)


def mend_answer(raw: str | int, repairs: Counter[str]) -> str:
    """An answer as text, without zero-width spaces."""
    if isinstance(raw, int):
        repairs["answer_int"] += 1
        return str(raw)
    mended = _ZERO_WIDTH.sub("", raw)
    repairs["answer_zero_width"] += mended != raw
    return mended


@cache
def _gold_edits() -> dict[tuple[str, int], tuple[str, list[tuple[int, int, str]]]]:
    """(sample_id, qa_index) -> sha256 of the damaged answer, and edits (offset, characters deleted, text inserted).

    Edits instead of answers, so that none of LoCoMo's text ships here.
    """
    rows = json.loads(Path(__file__).with_name("gold_repairs.json").read_text(encoding="utf-8"))
    return {(sample_id, index): (digest, edits) for sample_id, index, digest, edits in rows}


def mend_gold(question: Question) -> Question:
    """The question with its damaged gold (fused words, typing errors) mended, or as it is.

    Only an answer whose sha256 is the listed one is touched, so that other data never are.
    """
    digest, edits = _gold_edits().get((question.sample_id, question.qa_index), ("", []))
    raw = question.answer_raw
    if not isinstance(raw, str) or hashlib.sha256(raw.encode()).hexdigest() != digest:
        return question
    return replace(question, answer=_edit(raw, edits))


def _edit(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """Apply edits whose offsets count from the start of the unedited text."""
    for offset, deleted, inserted in reversed(edits):
        text = text[:offset] + inserted + text[offset + deleted :]
    return text


def mend_golds(samples: Sequence[Sample]) -> tuple[tuple[Sample, ...], int]:
    """All samples with their damaged golds mended, and how many were."""
    mended = tuple(replace(sample, questions=tuple(map(mend_gold, sample.questions))) for sample in samples)
    changed = sum(
        new is not old
        for after, before in zip(mended, samples, strict=True)
        for new, old in zip(after.questions, before.questions, strict=True)
    )
    return mended, changed
