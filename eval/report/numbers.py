"""The numbers behind the figures, from runs and their records. Nothing here draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from eval.evidence import turns_in_order
from eval.report.memories import GROWTH
from eval.report.records import tokens

CURVE = 50
"""Distinct turns up to which recall is drawn."""

THRESHOLDS = ("tau_merge", "tau_link")
"""The fields of a gate's config that a threshold map is drawn over: down, across."""


@dataclass(frozen=True)
class Cost:
    """Tokens a question: `asking` for recall and answer (the mean answer's), `building` the memory's, spread over the
    questions."""

    asking: float
    building: float


def recall_curve(records: Iterable[Mapping[str, Any]], longest: int = CURVE) -> list[float] | None:
    """Mean recall over the first k distinct turns of the evidence, k = 1 .. `longest`, over the questions whose
    recall is known (a question's trials averaged first); None without any. At k = 20 it is the mean recall_20t."""
    curves: dict[tuple[str, int], list[list[float]]] = {}
    for record in records:
        if record["error"] is not None or record["scores"].get("recall") is None:
            continue
        gold = set(record["gold_evidence"])
        turns = turns_in_order(record["evidence"])
        found, curve = 0, []
        for place in range(longest):
            found += place < len(turns) and turns[place] in gold
            curve.append(found / len(gold))
        curves.setdefault((record["sample_id"], record["qa_index"]), []).append(curve)
    if not curves:
        return None
    questions = [[fmean(at) for at in zip(*trials, strict=True)] for trials in curves.values()]
    return [fmean(at) for at in zip(*questions, strict=True)]


def cost(records: Sequence[Mapping[str, Any]], usage: Mapping[str, Any]) -> Cost:
    """`usage`: metrics.json's, of the whole run. What was not spent on asking was spent on the memory, which is paid
    for once, whatever the number of trials."""
    questions = {(record["sample_id"], record["qa_index"]) for record in records}
    asked = sum(map(tokens, records))
    building = usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0) - asked
    return Cost(asked / max(1, len(records)), max(0, building) / max(1, len(questions)))


def mean_growth(tables: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, list[float]] | None:
    """Mean over conversations after each turn, up to the shortest conversation's last, so that every point is a mean
    over the same conversations. None without tables."""
    names = [name for name in GROWTH if tables and all(name in table for table in tables)]
    if not names:
        return None
    return {name: [fmean(at) for at in zip(*(table[name] for table in tables), strict=False)] for name in names}


def gate(metrics: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, int] | None:
    """How many turns were merged, how many appended without a link, and how many edges were made; None for a system
    whose `config` knows no thresholds: its counts mean something else."""
    if not all(name in config for name in THRESHOLDS):
        return None
    return {name: metrics["memory"].get(name, 0) for name in ("merges", "links", "appends", "notes")}
