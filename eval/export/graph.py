"""A run's memories as one typed graph, whatever file it is then written to.

Nodes are notes, keywords and topics; edges are RELATED (note, note, weight), HAS_KEYWORD (note, keyword), IN_TOPIC
(keyword, topic) and CO_OCCURS (keyword, keyword, how many notes hold both: the graph topics are communities of).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from harness.errors import RecordError

NEEDED = ("notes", "keywords", "topics", "edges")
"""The tables a memory must hold to be such a graph."""

NOTE, KEYWORD, TOPIC = "Note", "Keyword", "Topic"
RELATED, HAS_KEYWORD, IN_TOPIC, CO_OCCURS = "RELATED", "HAS_KEYWORD", "IN_TOPIC", "CO_OCCURS"
ENDS = {RELATED: (NOTE, NOTE), HAS_KEYWORD: (NOTE, KEYWORD), IN_TOPIC: (KEYWORD, TOPIC), CO_OCCURS: (KEYWORD, KEYWORD)}
"""Edge type -> labels of its two ends. RELATED and CO_OCCURS have no direction: each stands once, lower id first."""

# XML 1.0, section 2.2. Neo4j's reader takes U+FFFF for the end of a file, and lone surrogates are no UTF-8.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_NOT_IN_ID = re.compile("[^\x20-\x24\x26-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Line ends and the per cent sign as well: such a character becomes %<hex>; in an id."""


@dataclass
class MemoryGraph:
    """nodes: label -> rows, each with `id` (unique over all conversations) and its properties. edges: type -> (id, id,
    weight or None). replaced: characters no file can hold, which became U+FFFD."""

    nodes: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {label: [] for label in (NOTE, KEYWORD, TOPIC)}
    )
    edges: dict[str, list[tuple[str, str, float | None]]] = field(default_factory=lambda: {kind: [] for kind in ENDS})
    replaced: int = 0

    def counts(self) -> dict[str, int]:
        """How many nodes of each label and edges of each type."""
        return {name: len(rows) for name, rows in (*self.nodes.items(), *self.edges.items())}

    def text(self, value: Any) -> str:
        """The value as text both formats give back unchanged: line ends become newlines (XML would make them so), and
        characters that neither can hold U+FFFD, which is counted."""
        kept, replaced = _UNWRITABLE.subn("\ufffd", str(value))
        self.replaced += replaced
        return kept.replace("\r\n", "\n").replace("\r", "\n")

    def add(self, conversation: str, tables: Mapping[str, Sequence[Mapping[str, Any]]], where: str) -> None:
        """Add one conversation's memory. `where` names it in errors.

        RecordError: a table is missing (another system's memory), or its rows do not fit together.
        """
        missing = [name for name in NEEDED if name not in tables]
        if missing:
            has = ", ".join(sorted(tables)) or "none"
            raise RecordError(
                f"{where}: this memory is no graph: its tables are {has}; a graph needs {', '.join(NEEDED)} "
                "(memory=memfly and its variants write them)"
            )
        try:
            self._add(conversation, tables)
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{where}: tables that do not fit together ({error!r}); run it again") from None

    def _add(self, conversation: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        notes = _ids(conversation, NOTE, tables["notes"])
        keywords = _ids(conversation, KEYWORD, tables["keywords"])
        topics = _ids(conversation, TOPIC, tables["topics"])
        forms = {row["form"]: keywords[row["id"]] for row in tables["keywords"]}
        name = self.text(conversation)
        self.nodes[NOTE] += [self._note(name, notes[row["id"]], row) for row in tables["notes"]]
        self.nodes[KEYWORD] += [
            {
                "id": keywords[row["id"]],
                "conversation": name,
                "number": int(row["id"]),
                "form": self.text(row["form"]),
                "notes": len(row["notes"]),
            }
            for row in tables["keywords"]
        ]
        self.nodes[TOPIC] += [
            {
                "id": topics[row["id"]],
                "conversation": name,
                "number": int(row["id"]),
                "keywords": len(row["keywords"]),
            }
            for row in tables["topics"]
        ]
        self.edges[RELATED] += [
            (notes[row["source"]], notes[row["target"]], float(row["weight"])) for row in tables["edges"]
        ]
        self.edges[HAS_KEYWORD] += [
            (notes[note], keywords[row["id"]], None) for row in tables["keywords"] for note in row["notes"]
        ]
        self.edges[IN_TOPIC] += [
            (forms[form], topics[row["id"]], None) for row in tables["topics"] for form in row["keywords"]
        ]
        self.edges[CO_OCCURS] += [
            (keywords[a], keywords[b], float(count)) for (a, b), count in cooccurrence(tables["keywords"])
        ]

    def _note(self, conversation: str, id: str, row: Mapping[str, Any]) -> dict[str, Any]:
        turns = row["turns"]
        return {
            "id": id,
            "conversation": conversation,
            "number": int(row["id"]),
            "date": str(row["date"]),
            "context": self.text(row["context"]),
            "raw": self.text("\n".join(_line(turn) for turn in turns)),
            "dia_ids": [self.text(dia_id) for dia_id in row["dia_ids"]],
            "speakers": list(dict.fromkeys(self.text(turn["speaker"]) for turn in turns)),
            "turns": len(turns),
        }


def cooccurrence(keywords: Iterable[Mapping[str, Any]]) -> list[tuple[tuple[int, int], int]]:
    """((keyword id, higher keyword id), notes that hold both), in ascending order, from the keywords' postings."""
    held: dict[int, set[int]] = {}
    for row in keywords:
        for note in row["notes"]:
            held.setdefault(note, set()).add(row["id"])
    counts: Counter[tuple[int, int]] = Counter()
    for ids in held.values():
        counts.update(combinations(sorted(ids), 2))
    return sorted(counts.items())


def _ids(conversation: str, label: str, rows: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Row id -> node id. The last two parts hold no slash, so a conversation's name may hold any."""
    name = _NOT_IN_ID.sub(lambda found: f"%{ord(found[0]):x};", conversation)
    ids = {row["id"]: f"{name}/{label.lower()}/{int(row['id'])}" for row in rows}
    if len(ids) != len(rows):
        raise ValueError(f"two {label.lower()} rows have one id")
    return ids


def _line(turn: Mapping[str, Any]) -> str:
    caption = f" [image: {turn['caption']}]" if turn.get("caption") else ""
    return f"{turn['speaker']}: {turn['text']}{caption}"
