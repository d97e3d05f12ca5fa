"""Evidence measures: which of the turns that hold the answer reached the reader, and within what budget.

A recall without a budget means nothing (a memory merged into one note has recall 1), hence the two budgeted ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from harness.memory import EvidenceItem

EVIDENCE_METRICS = ("recall", "hit", "recall_20t", "recall_700w")
TURN_BUDGET = 20
"""Distinct dia_ids."""
WORD_BUDGET = 700
"""Words between white space, of the items' texts as the reader sees them."""


class _Item(NamedTuple):
    dia_ids: Sequence[str]
    ends: Sequence[int]
    words: int


def score_evidence(gold: Sequence[str], items: Sequence[EvidenceItem | Mapping[str, Any]]) -> dict[str, float]:
    """EVIDENCE_METRICS of one question, as fractions; {} when `gold` (resolvable dia_ids) is empty.

    recall: share of the gold ids in the evidence. hit: any of them. recall_20t: recall over the first 20 distinct
    dia_ids. recall_700w: recall over the turns wholly shown within the first 700 words. Items are taken by round,
    rank, date (undated last), an item's dia_ids in their own order, oldest first. An item is an EvidenceItem or its
    record; without `ends` its turns count as shown where its text ends. No item at all is a recall of 0.
    """
    wanted = set(gold)
    if not wanted:
        return {}
    ordered = [_read(item) for item in sorted(items, key=_order)]
    turns = turns_in_order(items)
    shown: set[str] = set()
    offset = 0
    for item in ordered:
        shown.update(d for d, end in zip(item.dia_ids, item.ends, strict=True) if offset + end <= WORD_BUDGET)
        offset += item.words
    return {
        "recall": _share(wanted, turns),
        "hit": float(not wanted.isdisjoint(turns)),
        "recall_20t": _share(wanted, turns[:TURN_BUDGET]),
        "recall_700w": _share(wanted, shown),
    }


def turns_in_order(items: Sequence[EvidenceItem | Mapping[str, Any]]) -> list[str]:
    """The distinct dia_ids of the evidence in the order the budgets count them: round, rank, date."""
    return list(dict.fromkeys(dia_id for item in sorted(items, key=_order) for dia_id in _field(item, "dia_ids")))


def recall_locomo(evidence_raw: Sequence[str], context_ids: Sequence[str]) -> float:
    """The official code's recall: the file's evidence strings unrepaired, repeats counted, no evidence = 1.

    With session ids ("S8") in the context a string matches by its first session. Malformed strings never match.
    """
    if not evidence_raw:
        return 1.0
    found = set(context_ids)
    if context_ids and context_ids[0].startswith("S"):
        return sum("S" + text.split(":")[0][1:] in found for text in evidence_raw) / len(evidence_raw)
    return sum(text in found for text in evidence_raw) / len(evidence_raw)


def _share(wanted: set[str], got: Sequence[str] | set[str]) -> float:
    return len(wanted.intersection(got)) / len(wanted)


def _field(item: EvidenceItem | Mapping[str, Any], name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name)


def _order(item: EvidenceItem | Mapping[str, Any]) -> tuple[int, int, bool, str]:
    date = _field(item, "date")
    text = date if isinstance(date, str) else date.isoformat() if date is not None else ""
    return _field(item, "round"), _field(item, "rank"), date is None, text


def _read(item: EvidenceItem | Mapping[str, Any]) -> _Item:
    dia_ids, ends, words = _field(item, "dia_ids"), _field(item, "ends"), len(_field(item, "text").split())
    return _Item(dia_ids, [words] * len(dia_ids) if ends is None else ends, words)
