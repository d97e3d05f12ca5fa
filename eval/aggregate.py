"""From records (lines of answers.jsonl) to metrics.json. All metric values are fractions; None is unknown, never 0."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, quantiles
from typing import Any

from eval.evidence import EVIDENCE_METRICS
from eval.intervals import QuestionKey, mean_interval, too_few
from eval.score import ANSWER_METRICS, SCORER_VERSION
from harness.locomo.schema import CATEGORIES

METRICS = (*ANSWER_METRICS, *EVIDENCE_METRICS)
ADVERSARIAL = 5

LARGEST_SHARE = 0.2
MERGED_SHARE = 0.5
"""Shares of a conversation's turns above which its memory counts as collapsed."""

_SUMMED = ("calls", "errors", "repaired_replies", "notes", "merges", "links", "appends", "merged_turns", "turns")
_COUNTERS = ("fallbacks", "repairs")


def question_scores(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[QuestionKey, float]]:
    """metric -> (sample_id, qa_index) -> the mean over the question's trials that were scored.

    Error records give no score. A metric a record lacks (recall where no evidence resolves) is unknown for it.
    """
    trials: dict[str, dict[QuestionKey, list[float]]] = {}
    for record in records:
        if record["error"] is None:
            key = (record["sample_id"], record["qa_index"])
            for metric, value in record["scores"].items():
                trials.setdefault(metric, {}).setdefault(key, []).append(value)
    return {metric: {key: fmean(values) for key, values in by_key.items()} for metric, by_key in trials.items()}


def aggregate(
    records: Sequence[Mapping[str, Any]], *, memory: Mapping[str, Any], usage: Mapping[str, Any], wall_s: float
) -> dict[str, Any]:
    """metrics.json. `memory` is `memory_totals(...)`; `usage` and `wall_s` pass through.

    n_total, n_scored, n_error, n_evidence and a category's n count answers (question x trial), so that an error in
    one trial shows; n_questions counts questions. Means are over questions, a question's trials averaged first;
    questions with no scored trial are in no mean. n_evidence: scored answers whose evidence resolves, the n of
    recall, hit, recall_20t and recall_700w. `intervals` are of micro, clipped to [0, 1].
    """
    scores = question_scores(records)
    metrics = (*METRICS, *sorted(set(scores) - set(METRICS)))
    category_of = {(r["sample_id"], r["qa_index"]): r["category"] for r in records}
    categories = sorted(set(category_of.values()))
    by_category = {
        category: _counts([r for r in records if r["category"] == category])
        | {metric: _mean(scores, metric, category_of, [category]) for metric in metrics}
        for category in categories
    }
    four = [category for category in categories if category != ADVERSARIAL]
    micro = {metric: _mean(scores, metric, category_of, categories) for metric in metrics}
    intervals, reason = _intervals(scores, metrics)
    total = _counts(records)
    return {
        "n_total": total["n"],
        "n_scored": total["n"] - total["n_error"],
        "n_error": total["n_error"],
        "n_evidence": total["n_evidence"],
        "n_questions": len(category_of),
        "n_conversations": len({sample_id for sample_id, _ in category_of}),
        "errors_by_kind": dict(sorted(Counter(r["error"]["kind"] for r in records if r["error"]).items())),
        "micro": micro,
        "micro4": {metric: _mean(scores, metric, category_of, four) for metric in metrics},
        "macro": {metric: _macro(by_category, metric, categories) for metric in metrics},
        "macro4": {metric: _macro(by_category, metric, four) for metric in metrics},
        "by_category": {
            str(category): {"name": CATEGORIES.get(category, str(category)), **values}
            for category, values in by_category.items()
        },
        "intervals": intervals,
        "interval_reason": reason,
        "evidence": _budgets([r for r in records if r["error"] is None]),
        "memory": dict(memory),
        "asking": _asking(records),
        "usage": dict(usage),
        "wall_s": wall_s,
        "scorer": SCORER_VERSION,
    }


def collapsed(counts: Mapping[str, int]) -> bool:
    """One conversation's memory has collapsed: one note of more than a fifth of its turns, or more than half of the
    turns merged. `counts`: largest (turns in the largest note), merged_turns, turns.

    A note of a single turn is no collapse however short the slice (our choice).
    """
    largest = counts["largest"]
    return (largest > 1 and largest > LARGEST_SHARE * counts["turns"]) or (
        counts["merged_turns"] > MERGED_SHARE * counts["turns"]
    )


def memory_totals(conversations: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The memory key of metrics.json from each conversation's counts.

    Each: calls, errors, repaired_replies, notes, merges, links, appends, merged_turns, largest, turns (missing ones
    are 0), fallbacks and repairs (name -> count), distributions (name -> values). Counts are summed, `largest` is
    the maximum, distributions become quantiles of all values. `collapsed` says whether any conversation has,
    `collapsed_conversations` which.
    """
    rows = conversations.values()
    totals: dict[str, Any] = {name: sum(row.get(name, 0) for row in rows) for name in _SUMMED}
    totals["largest"] = max((row.get("largest", 0) for row in rows), default=0)
    for name in _COUNTERS:
        totals[name] = dict(sorted(sum((Counter(row.get(name, {})) for row in rows), Counter()).items()))
    names = sorted({name for row in rows for name in row.get("distributions", {})})
    totals["distributions"] = {
        name: describe([value for row in rows for value in row.get("distributions", {}).get(name, ())])
        for name in names
    }
    fallen = [
        sample_id
        for sample_id, row in conversations.items()
        if collapsed({name: row.get(name, 0) for name in ("largest", "merged_turns", "turns")})
    ]
    return totals | {"collapsed": bool(fallen), "collapsed_conversations": fallen}


def describe(values: Sequence[float]) -> dict[str, float]:
    """n, mean, min, q05, q25, q50, q75, q95, max (linear interpolation); n alone when there is no value."""
    if not values:
        return {"n": 0}
    cuts = quantiles(values, n=20, method="inclusive") if len(values) > 1 else [values[0]] * 19
    picked = {"q05": cuts[0], "q25": cuts[4], "q50": cuts[9], "q75": cuts[14], "q95": cuts[18]}
    return {"n": len(values), "mean": fmean(values), "min": min(values), **picked, "max": max(values)}


def failures(metrics: Mapping[str, Any], max_error_rate: float) -> tuple[str, ...]:
    """Why a run fails: one line for answers and one for memory calls whose share of errors is above the limit."""
    kinds = [
        ("answers", metrics["n_error"], metrics["n_total"]),
        ("memory calls", metrics["memory"].get("errors", 0), metrics["memory"].get("calls", 0)),
        ("calls while asking", metrics["asking"]["errors"], metrics["asking"]["calls"]),
    ]
    return tuple(
        f"FAILED: {errors} of {total} {what} ended in an error ({errors / total:.2%}; "
        f"run.max_error_rate allows {max_error_rate:.2%})"
        for what, errors, total in ((what, errors, max(errors, replies)) for what, errors, replies in kinds)
        if errors > max_error_rate * total
    )


def _asking(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Calls made for questions (recall and answer), those without a usable reply, and the fallbacks taken instead."""
    fallbacks = sum((Counter(r.get("fallbacks", {})) for r in records), Counter())
    return {
        "calls": sum(r.get("usage", {}).get("calls", 0) for r in records),
        "errors": sum(r.get("call_errors", 0) for r in records),
        "fallbacks": dict(sorted(fallbacks.items())),
    }


def _counts(records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    scored = [r for r in records if r["error"] is None]
    return {
        "n": len(records),
        "n_error": len(records) - len(scored),
        "n_evidence": sum("recall" in r["scores"] for r in scored),
    }


def _mean(
    scores: Mapping[str, Mapping[QuestionKey, float]],
    metric: str,
    category_of: Mapping[QuestionKey, int],
    categories: Sequence[int],
) -> float | None:
    values = [value for key, value in scores.get(metric, {}).items() if category_of[key] in categories]
    return math.fsum(values) / len(values) if values else None


def _macro(by_category: Mapping[int, Mapping[str, Any]], metric: str, categories: Sequence[int]) -> float | None:
    values = [by_category[c][metric] for c in categories if by_category[c][metric] is not None]
    return fmean(values) if values else None


def _intervals(
    scores: Mapping[str, Mapping[QuestionKey, float]], metrics: Sequence[str]
) -> tuple[dict[str, list[float] | None], str | None]:
    intervals: dict[str, list[float] | None] = {}
    fewest: list[int] = []
    for metric in metrics:
        clusters: dict[str, list[float]] = {}
        for (sample_id, _), value in scores.get(metric, {}).items():
            clusters.setdefault(sample_id, []).append(value)
        interval = mean_interval(clusters)
        intervals[metric] = None if interval is None else [max(0.0, interval[0]), min(1.0, interval[1])]
        if clusters and interval is None:
            fewest.append(len(clusters))
    return intervals, too_few(min(fewest)) if fewest else None


def _budgets(scored: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Means over scored answers; dia_ids is None where no evidence carries any (its turns are not known)."""
    lists = [r["evidence"] for r in scored]
    distinct = [len({d for item in items for d in item["dia_ids"]}) for items in lists]
    tokens = [r["context_tokens"] for r in scored if r.get("context_tokens") is not None]
    return {
        "items": fmean(map(len, lists)) if lists else None,
        "dia_ids": fmean(distinct) if any(distinct) else None,
        "tokens": fmean(tokens) if tokens else None,
    }
