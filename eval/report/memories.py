"""Built memories as the page's graph explorer reads them: notes, keywords, topics and edges by position.

Every system's notes can be listed and searched; keywords, topics and edges are there where its tables hold them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval.report.pack import Pool

NOTE_TABLES = ("notes", "memories", "units", "pages", "archive", "pairs", "gists")
"""Tables of notes, by the systems' own names; the first that is there is shown."""
TEXT_FIELDS = ("context", "content", "text", "gist", "summary", "body")
GROWTH = ("notes", "keywords", "edges", "topics", "merges", "links", "appends")

Tables = Mapping[str, Sequence[Mapping[str, Any]]]


def graph(tables: Tables, texts: Pool) -> dict[str, Any] | None:
    """One conversation's memory, or None when no table of notes is there. Texts are places in `texts`.

    notes: columns text, turns (dia_id, text), date, dia_ids, keywords (places), each one entry a note; `id` is the
    system's own. keywords: forms. topics: places of their keywords. edges: source, target (places), weight.
    """
    kind = next((name for name in NOTE_TABLES if tables.get(name)), None)
    if kind is None:
        return None
    rows = tables[kind]
    place_of = {row.get("id", place): place for place, row in enumerate(rows)}
    keywords = Pool()
    for row in tables.get("keywords", ()):
        keywords.place(str(row["form"]))
    notes = {
        "id": [row.get("id", place) for place, row in enumerate(rows)],
        "text": [texts.place(_text(row)) for row in rows],
        "date": [row.get("date") for row in rows],
        "dia_ids": [list(row.get("dia_ids", ())) for row in rows],
        "turns": [
            [(str(turn["dia_id"]), texts.place(turn_text(turn))) for turn in row.get("turns", ())] for row in rows
        ],
        "keywords": [[keywords.place(str(word)) for word in row.get("keywords", ())] for row in rows],
    }
    topics = [[keywords.place(str(word)) for word in row.get("keywords", ())] for row in tables.get("topics", ())]
    return {
        "kind": kind,
        "notes": notes,
        "keywords": keywords.values,
        "topics": topics,
        "edges": _edges(tables, rows, place_of),
        "growth": growth(tables),
    }


def growth(tables: Tables) -> dict[str, list[int]] | None:
    """The columns of the growth table that are there, one entry a turn; None without that table."""
    rows = tables.get("growth")
    if not rows:
        return None
    return {name: [row[name] for row in rows] for name in GROWTH if name in rows[0]}


def turn_text(turn: Mapping[str, Any]) -> str:
    """A turn as the data set's reader sees it: the text, then the caption."""
    said = f"{turn.get('speaker', '')}: {turn['text']}".removeprefix(": ")
    return f"{said} [image: {turn['caption']}]" if turn.get("caption") else said


def _text(row: Mapping[str, Any]) -> str:
    return next((str(row[name]) for name in TEXT_FIELDS if row.get(name)), "")


def _edges(
    tables: Tables, rows: Sequence[Mapping[str, Any]], place_of: Mapping[Any, int]
) -> list[tuple[int, int, float | None]]:
    """The edges table, and the links that notes hold themselves; each pair once, lower place first."""
    found: dict[tuple[int, int], float | None] = {}
    listed = [(row["source"], row["target"], row.get("weight")) for row in tables.get("edges", ())]
    held = [(row.get("id", place), other, None) for place, row in enumerate(rows) for other in row.get("links", ())]
    for source, target, weight in (*listed, *held):
        if source in place_of and target in place_of:
            a, b = sorted((place_of[source], place_of[target]))
            found.setdefault((a, b), weight)
    return [(a, b, weight) for (a, b), weight in sorted(found.items())]
