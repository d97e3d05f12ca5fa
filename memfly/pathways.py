"""The three retrieval pathways [P] and the pool they form. Ranks start at 1; ties go to the older note."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from memfly.config import MemFlyConfig
from memfly.fusion import by_score, rrf
from memfly.hierarchy import Hierarchy

Ranked = list[tuple[int, float]]
"""(note id, score), best first."""


@dataclass(frozen=True)
class Probe:
    """A parsed query as vectors. topic and query: (d,); entities: (n, d); bm25: score per note id (memfly_plus)."""

    query: np.ndarray
    topic: np.ndarray
    entities: np.ndarray
    bm25: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Hit:
    """A note of a pool. rank: from 1. score: of the ranking that placed it. paths: which pathways found it ("fill":
    none did, its cosine filled the pool)."""

    note: int
    rank: int
    score: float
    paths: tuple[str, ...]


def macro_semantic(hierarchy: Hierarchy, topic: np.ndarray, k_topic: int) -> tuple[Ranked, list[int]]:
    """R_topic: notes that hold a keyword of the k_topic topics nearest to h_topic [P], ranked by cos(h_topic, h_n)
    (our choice). Also the positions of those topics."""
    if not hierarchy.topics:
        return [], []
    centroids = np.stack([t.centroid for t in hierarchy.topics])
    nearest = by_score(dict(enumerate((centroids @ topic).tolist())))[:k_topic]
    chosen = [position for position, _ in nearest]
    held = {
        note
        for position in chosen
        for keyword in hierarchy.topics[position].keywords
        for note in hierarchy.keywords[keyword].notes
    }
    cosines = hierarchy.note_cosines(topic)
    return by_score({note: float(cosines[note]) for note in held}), chosen


def matched_keywords(hierarchy: Hierarchy, entities: np.ndarray, k_key: int) -> dict[int, float]:
    """K*: per entity the k_key keywords of highest cosine [P]; one matched by two entities counts once, at its best
    (our choice). Keyword id -> cosine."""
    best: dict[int, float] = {}
    for entity in entities:
        for keyword, cosine in hierarchy.keyword_index.search(entity, k_key):
            best[keyword] = max(cosine, best.get(keyword, -1.0))
    return best


def micro_symbolic(
    hierarchy: Hierarchy, matched: Mapping[int, float], bm25: Mapping[int, float], bm25_weight: float
) -> Ranked:
    """R_key: notes that hold a matched keyword [P], by the sum of cos x idf over their matched keywords (our choice).

    With bm25_weight > 0, BM25 of the question joins in, each part divided by its maximum (memfly_plus).
    """
    scores: dict[int, float] = {}
    for keyword_id, cosine in matched.items():
        keyword = hierarchy.keywords[keyword_id]
        gain = cosine * hierarchy.idf(keyword)
        for note in keyword.notes:
            scores[note] = scores.get(note, 0.0) + gain
    if bm25_weight > 0 and bm25:
        scores = _scaled(scores)
        for note, score in _scaled(bm25).items():
            scores[note] = scores.get(note, 0.0) + bm25_weight * score
    return by_score(scores)


def _scaled(scores: Mapping[int, float]) -> dict[int, float]:
    top = max(scores.values(), default=0.0)
    return {note: score / top for note, score in scores.items()} if top > 0 else dict(scores)


def topological(hierarchy: Hierarchy, anchors: Ranked, cosines: np.ndarray, *, anchors_too: bool) -> Ranked:
    """1-hop RELATED neighbours of the anchors [P], by anchor score x edge weight x cos(query, h), the best anchor
    counting (our choice). cosines: of every note with the query, by note id. anchors_too: an anchor may be the
    neighbour of another (memfly_plus)."""
    among = {note for note, _ in anchors}
    scores: dict[int, float] = {}
    for anchor, strength in anchors:
        for note, weight in hierarchy.edges.get(anchor, {}).items():
            if anchors_too or note not in among:
                scores[note] = max(strength * weight * float(cosines[note]), scores.get(note, -np.inf))
    return by_score(scores)


def pool(fused: Ranked, neighbours: Ranked, cosines: np.ndarray, *, size: int, quota: int) -> tuple[Ranked, list[int]]:
    """The `size` best notes: the fused ranking, of whose places up to `quota` go to neighbours it would not bring by
    itself; filled up by cosine. Returns the pool in rank order and the filled notes."""
    head = fused[: max(0, size - quota)]
    present = {note for note, _ in head}
    brought = [pair for pair in neighbours if pair[0] not in present][: min(quota, size)]
    present.update(note for note, _ in brought)
    rest = [pair for pair in fused[len(head) :] if pair[0] not in present][: size - len(head) - len(brought)]
    chosen = [*head, *brought, *rest]
    present.update(note for note, _ in rest)
    ranking = by_score({note: float(c) for note, c in enumerate(cosines.tolist()) if note not in present})
    filled = ranking[: max(0, size - len(chosen))]
    return [*chosen, *filled], [note for note, _ in filled]


def retrieve(hierarchy: Hierarchy, probe: Probe, config: MemFlyConfig) -> tuple[list[Hit], dict[str, object]]:
    """One round of retrieval: the pool in rank order, and its trace (JSON-able)."""
    cosines = hierarchy.note_cosines(probe.query)
    lists: dict[str, Ranked] = {}
    topics: list[int] = []
    matched: dict[int, float] = {}
    if config.topic:
        lists["topic"], topics = macro_semantic(hierarchy, probe.topic, config.k_topic)
    if config.keyword:
        matched = matched_keywords(hierarchy, probe.entities, config.k_key)
        lists["keyword"] = micro_symbolic(hierarchy, matched, probe.bm25, config.bm25_weight)
    fused = rrf([ids(ranked) for ranked in lists.values()], config.rrf_k)
    quota = 0
    if config.neighbor:
        lists["neighbor"] = topological(
            hierarchy, fused[: config.anchors], cosines, anchors_too=config.anchor_neighbours
        )
        if config.neighbour_mode == "list":
            fused = rrf([ids(ranked) for ranked in lists.values()], config.rrf_k)
        else:
            quota = config.neighbour_quota
    chosen, filled = pool(fused, lists.get("neighbor", []), cosines, size=config.k_final, quota=quota)
    found = {path: {note for note, _ in ranked} for path, ranked in lists.items()}
    hits = [
        Hit(note, rank, score, tuple(p for p, notes in found.items() if note in notes) or ("fill",))
        for rank, (note, score) in enumerate(chosen, start=1)
    ]
    return hits, {
        "topics": topics,
        "keywords": [hierarchy.keywords[k].form for k, _ in by_score(matched)],
        "listed": {path: len(ranked) for path, ranked in lists.items()},
        "pool": [hit.note for hit in hits],
        "filled": len(filled),
    }


def ids(ranked: Sequence[tuple[int, float]]) -> list[int]:
    """The note ids of a ranking."""
    return [note for note, _ in ranked]
