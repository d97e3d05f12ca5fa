"""A built memory from its exported tables: the same state, without a model call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.embed import Embedder
from harness.locomo.schema import Conversation, Turn
from memfly.hierarchy import Hierarchy, Keyword, Topic
from memfly.note import Note, embedding_text
from memfly.topics import KeywordGraph

Tables = Mapping[str, Sequence[Mapping[str, Any]]]


async def restore(
    tables: Tables, conversation: Conversation, embedder: Embedder, into: Hierarchy, *, embed_raw: bool
) -> None:
    """Fill an empty hierarchy: the one behind what `memfly.export.tables` wrote, of the conversation it was built from.

    Turns come from the conversation, vectors from the embedder (and so from its cache), centroids from the keywords:
    each is a function of what the tables hold. KeyError for tables of another conversation.
    """
    turns = {turn.dia_id: turn for turn in conversation.turns}
    held = [[turns[dia_id] for dia_id in row["dia_ids"]] for row in tables["notes"]]
    contexts = [row["context"] for row in tables["notes"]]
    texts = [embedding_text(c, of) for c, of in zip(contexts, held, strict=True)] if embed_raw else contexts
    vectors = await embedder.encode([*texts, *(row["form"] for row in tables["keywords"])])
    # In a thread: a long conversation takes 50 ms, in which other conversations' replies would wait.
    await asyncio.to_thread(_fill, into, tables, conversation, held, vectors)


def _fill(
    hierarchy: Hierarchy, tables: Tables, conversation: Conversation, held: Sequence[list[Turn]], vectors: np.ndarray
) -> None:
    """held: the turns of each note. vectors: of the notes, then of the keywords, shape (notes + keywords, d)."""
    of_notes, of_keywords = np.split(vectors, [len(held)])
    keywords = [
        Keyword(row["id"], row["form"], vector, dict.fromkeys(row["notes"]))
        for row, vector in zip(tables["keywords"], of_keywords, strict=True)
    ]
    ids = {keyword.form: keyword.id for keyword in keywords}
    notes = [
        Note(row["id"], of, row["context"], vector, dict.fromkeys(ids[form] for form in row["keywords"]))
        for row, of, vector in zip(tables["notes"], held, of_notes, strict=True)
    ]
    hierarchy.fill(notes, keywords)
    for row in tables["edges"]:
        hierarchy.link(row["source"], row["target"], row["weight"])
    groups = [tuple(ids[form] for form in row["keywords"]) for row in tables["topics"]]
    centroid = KeywordGraph.of(hierarchy).centroids()
    hierarchy.topics = [Topic(group, centroid(group)) for group in groups]
