"""Answers as the explorers read them: narrow columns for lists and filters, and the rest a run at a time on demand.

Texts that recur (questions, evidence) are kept once for the whole collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eval.report.pack import Pool

SCORERS = ("f1_amem", "f1_locomo")
"""Scorers an outcome can be judged by."""
ANSWER_OUTCOMES = ("full", "partial", "none", "abstained", "trap", "error")
EVIDENCE_OUTCOMES = ("complete", "partial", "missed", "unknown")
LISTED = 8
"""Plain values of a trace's list that are shown; how many more there were is said."""
LONGEST = 1000
"""Characters of a trace's text that are shown."""

_FULL = 1 - 1e-9


def answer_outcome(record: Mapping[str, Any], scorer: str) -> str:
    """One of ANSWER_OUTCOMES. full, partial, none: F1 of 1, between, 0. `trap`: category 5 answered with exactly the
    trap (whatever the scorer). `abstained` comes before the score: in category 5 it is the right thing."""
    if record["error"] is not None:
        return "error"
    scores = record["scores"]
    if scores.get("abstained"):
        return "abstained"
    if record["category"] == 5 and scores.get("f1_amem", 0.0) >= _FULL:
        return "trap"
    value = scores.get(scorer, 0.0)
    return "full" if value >= _FULL else "partial" if value > 0 else "none"


def evidence_outcome(record: Mapping[str, Any]) -> str:
    """One of EVIDENCE_OUTCOMES: all, some or none of the gold turns reached the reader; unknown where no gold evidence
    resolves, the system's evidence is not exact, or the answer is an error."""
    recall = record["scores"].get("recall")
    if recall is None:
        return "unknown"
    return "complete" if recall >= _FULL else "partial" if recall > 0 else "missed"


class Questions:
    """Every distinct question of the collection. Two runs meet on one only if text, gold and evidence agree."""

    def __init__(self) -> None:
        self._pool = Pool()

    def place(self, record: Mapping[str, Any]) -> int:
        return self._pool.place(
            (
                record["sample_id"],
                record["qa_index"],
                record["category"],
                record["question"],
                str(record["gold"]),
                tuple(record.get("gold_evidence", ())),
            )
        )

    def __len__(self) -> int:
        return len(self._pool)

    def columns(self) -> dict[str, list[Any]]:
        names = ("sample", "qa", "category", "question", "gold", "evidence")
        return {name: [value[place] for value in self._pool.values] for place, name in enumerate(names)}

    def gold_turns(self) -> set[tuple[str, str]]:
        """(sample_id, dia_id) of every gold turn."""
        return {(value[0], dia_id) for value in self._pool.values for dia_id in value[5]}


class Pieces:
    """Evidence texts of the collection with their turns and date, and the gold turns' texts where one is known."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._turns: dict[tuple[str, str], str] = {}

    def place(self, sample_id: str, item: Mapping[str, Any]) -> int:
        dia_ids = tuple(item["dia_ids"])
        if len(dia_ids) == 1:
            self._turns.setdefault((sample_id, dia_ids[0]), item["text"])
        return self._pool.place((item["text"], dia_ids, item.get("date")))

    def turn(self, sample_id: str, dia_id: str, text: str) -> None:
        """The turn's own text, better than an evidence item's."""
        self._turns[sample_id, dia_id] = text

    def columns(self, wanted: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """`turns`: sample_id -> dia_id -> text, of the `wanted` ones that are known."""
        turns: dict[str, dict[str, str]] = {}
        for sample_id, dia_id in sorted(wanted):
            if (sample_id, dia_id) in self._turns:
                turns.setdefault(sample_id, {})[dia_id] = self._turns[sample_id, dia_id]
        values = self._pool.values
        return {
            "text": [value[0] for value in values],
            "dia_ids": [list(value[1]) for value in values],
            "date": [value[2] for value in values],
            "turns": turns,
        }


def rows(records: Sequence[Mapping[str, Any]], questions: Questions) -> dict[str, Any]:
    """The columns of the lists: one entry a record, in the records' order. `scores` holds each metric any has."""
    metrics = list(dict.fromkeys(name for record in records for name in record["scores"]))
    return {
        "question": [questions.place(record) for record in records],
        "trial": [record["trial"] for record in records],
        "answer": [record["answer"] for record in records],
        "scores": {name: [_round(record["scores"].get(name)) for record in records] for name in metrics},
        "outcome": {
            scorer: [ANSWER_OUTCOMES.index(answer_outcome(record, scorer)) for record in records] for scorer in SCORERS
        },
        "found": [EVIDENCE_OUTCOMES.index(evidence_outcome(record)) for record in records],
        "tokens": [tokens(record) for record in records],
    }


def details(records: Sequence[Mapping[str, Any]], pieces: Pieces) -> dict[str, Any]:
    """What the page shows of one answer, for all answers of a run.

    `list` is an entry's place among the distinct evidence lists; list i is items[starts[i]:starts[i + 1]] of the
    columns piece, paths, rank, round, score, in the order round, rank.
    """
    paths, lists = Pool(), Pool()
    of_record = []
    for record in records:
        items = sorted(record["evidence"], key=lambda item: (item.get("round", 0), item["rank"]))
        of_record.append(
            lists.place(
                tuple(
                    (
                        pieces.place(record["sample_id"], item),
                        paths.place(tuple(item.get("paths", ()))),
                        item["rank"],
                        item.get("round", 0),
                        _round(item.get("score")),
                    )
                    for item in items
                )
            )
        )
    flat = [item for items in lists.values for item in items]
    starts = [0]
    for items in lists.values:
        starts.append(starts[-1] + len(items))
    return {
        "list": of_record,
        "starts": starts,
        "paths": [list(value) for value in paths.values],
        "items": {
            name: [item[place] for item in flat]
            for place, name in enumerate(("piece", "paths", "rank", "round", "score"))
        },
        "reply": [None if record["reply"] == record["answer"] else record["reply"] for record in records],
        "options": [record.get("options") for record in records],
        "error": [record["error"] for record in records],
        "context_tokens": [record.get("context_tokens") for record in records],
        "usage": [record.get("usage") for record in records],
        "latency": [record.get("latency_s") for record in records],
        "fallbacks": [record.get("fallbacks") or None for record in records],
        "trace": [shorten(record.get("trace") or None) for record in records],
    }


def tokens(record: Mapping[str, Any]) -> int:
    """Prompt and completion tokens that recall and answer took."""
    usage = record.get("usage") or {}
    return usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)


def shorten(value: Any) -> Any:
    """A trace cut to what can be read: long lists of plain values and long texts end by saying what is left out."""
    if isinstance(value, Mapping):
        return {str(key): shorten(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        if len(value) > LISTED and not any(isinstance(part, Mapping | list | tuple) for part in value):
            return [*map(shorten, value[:LISTED]), f"… {len(value) - LISTED} more"]
        return [shorten(part) for part in value]
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[:LONGEST]} … {len(value) - LONGEST} more characters"
    return value


def _round(value: float | None) -> float | int | None:
    if value is None:
        return None
    rounded = round(float(value), 4)
    return int(rounded) if rounded.is_integer() else rounded
