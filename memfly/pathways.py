"""The three retrieval pathways [P] and the pool they form. Ranks start at 1; ties go to the older note."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from memfly.config import MemFlyConfig
from memfly.fusion import by_score
from memfly.hierarchy import Hierarchy
from memfly.ranking import Ranking, fuse

Ranked = list[tuple[int, float]]
"""(note id, score), best first."""


@dataclass(frozen=True)
class Probe:
    """A parsed query as vectors. topic and query: (d,); entities: (n, d); bm25: score of every
    note, by id, shape (notes,), 0 where it shares no word (memfly_plus)."""

    query: np.ndarray
    topic: np.ndarray
    entities: np.ndarray
    bm25: np.ndarray | None = None


@dataclass(frozen=True)
class Hit:
    """A note of a pool. rank: from 1. score: of the ranking that placed it. paths: which pathways found it ("fill":
    none did, its cosine filled the pool)."""

    note: int
    rank: int
    score: float
    paths: tuple[str, ...]


def macro_semantic(hierarchy: Hierarchy, topic: np.ndarray, k_topic: int) -> tuple[Ranking, list[int]]:
    """R_topic: notes that hold a keyword of the k_topic topics nearest to h_topic [P], ranked by cos(h_topic, h_n)
    (our choice). Also the positions of those topics."""
    if not hierarchy.topics:
        return Ranking.of({}), []
    centroids = np.stack([t.centroid for t in hierarchy.topics])
    nearest = Ranking(np.arange(len(centroids)), (centroids @ topic).astype(np.float64)).best(k_topic)
    chosen = [position for position, _ in nearest]
    keywords = [hierarchy.keywords[keyword] for position in chosen for keyword in hierarchy.topics[position].keywords]
    held = np.zeros(len(hierarchy.notes), dtype=bool)
    held[np.concatenate([keyword.postings() for keyword in keywords])] = True
    notes = np.flatnonzero(held)
    return Ranking(notes, hierarchy.note_index.cosines(topic, notes).astype(np.float64)), chosen


def matched_keywords(hierarchy: Hierarchy, entities: np.ndarray, k_key: int) -> dict[int, float]:
    """K*: per entity the k_key keywords of highest cosine [P]; one matched by two entities counts once, at its best
    (our choice). Keyword id -> cosine."""
    best: dict[int, float] = {}
    for entity in entities:
        for keyword, cosine in hierarchy.keyword_index.search(entity, k_key):
            best[keyword] = max(cosine, best.get(keyword, -1.0))
    return best


def micro_symbolic(
    hierarchy: Hierarchy, matched: Mapping[int, float], bm25: np.ndarray | None, bm25_weight: float
) -> Ranking:
    """R_key: notes that hold a matched keyword [P], by the sum of cos x idf over their matched keywords (our choice).

    With bm25_weight > 0, BM25 of the question joins in, each part divided by its maximum (memfly_plus).
    """
    scores, held = np.zeros(len(hierarchy.notes)), np.zeros(len(hierarchy.notes), dtype=bool)
    for keyword_id, cosine in matched.items():
        keyword = hierarchy.keywords[keyword_id]
        scores[keyword.postings()] += cosine * hierarchy.idf(keyword)
        held[keyword.postings()] = True
    if bm25_weight > 0 and bm25 is not None:
        scores = _scaled(scores) + bm25_weight * _scaled(bm25)
        held |= bm25 > 0
    notes = np.flatnonzero(held)
    return Ranking(notes, scores[notes])


def _scaled(scores: np.ndarray) -> np.ndarray:
    top = scores.max(initial=0.0)
    return scores / top if top > 0 else scores


def topological(
    hierarchy: Hierarchy, anchors: Ranked, cosines: Callable[[np.ndarray], np.ndarray], *, anchors_too: bool
) -> Ranking:
    """1-hop RELATED neighbours of the anchors [P], by anchor score x edge weight x cos(query, h), the best anchor
    counting (our choice). cosines: of notes (ids, ascending) with the query. anchors_too: an anchor may be the
    neighbour of another (memfly_plus)."""
    among = {note for note, _ in anchors}
    reached = {note for anchor in among for note in hierarchy.edges.get(anchor, ()) if anchors_too or note not in among}
    notes = np.array(sorted(reached), dtype=np.int64)
    cosine = dict(zip(notes.tolist(), cosines(notes).tolist(), strict=True))
    scores: dict[int, float] = {}
    for anchor, strength in anchors:
        for note, weight in hierarchy.edges.get(anchor, {}).items():
            if note in reached:
                scores[note] = max(strength * weight * cosine[note], scores.get(note, -np.inf))
    return Ranking.of(scores)


def pool(
    fused: Ranked,
    neighbours: Iterable[tuple[int, float]],
    nearest: Callable[[int, Collection[int]], Ranked],
    *,
    size: int,
    quota: int,
) -> tuple[Ranked, list[int]]:
    """The `size` best notes: the fused ranking, of whose places up to `quota` go to neighbours it would not bring by
    itself; filled up by cosine. Returns the pool in rank order and the filled notes.

    nearest: how many, and which notes not, to the notes of highest cosine with the query.
    """
    head = fused[: max(0, size - quota)]
    present = {note for note, _ in head}
    brought = [pair for pair in neighbours if pair[0] not in present][: min(quota, size)]
    present.update(note for note, _ in brought)
    rest = [pair for pair in fused[len(head) :] if pair[0] not in present][: size - len(head) - len(brought)]
    chosen = [*head, *brought, *rest]
    present.update(note for note, _ in rest)
    filled = nearest(size - len(chosen), present)
    return [*chosen, *filled], [note for note, _ in filled]


def retrieve(hierarchy: Hierarchy, probe: Probe, config: MemFlyConfig) -> tuple[list[Hit], dict[str, object]]:
    """One round of retrieval: the pool in rank order, and its trace (JSON-able)."""
    index = hierarchy.note_index
    lists: dict[str, Ranking] = {}
    topics: list[int] = []
    matched: dict[int, float] = {}
    if config.topic:
        lists["topic"], topics = macro_semantic(hierarchy, probe.topic, config.k_topic)
    if config.keyword:
        matched = matched_keywords(hierarchy, probe.entities, config.k_key)
        lists["keyword"] = micro_symbolic(hierarchy, matched, probe.bm25, config.bm25_weight)
    listed = config.neighbor and config.neighbour_mode == "list"
    quota = config.neighbour_quota if config.neighbor and not listed else 0
    wanted = max(config.k_final + quota, config.anchors)
    fused = fuse(list(lists.values()), config.rrf_k, wanted)
    if config.neighbor:
        lists["neighbor"] = topological(
            hierarchy,
            fused[: config.anchors],
            lambda notes: index.cosines(probe.query, notes),
            anchors_too=config.anchor_neighbours,
        )
    if listed:
        fused = fuse(list(lists.values()), config.rrf_k, wanted)
    chosen, filled = pool(
        fused,
        lists.get("neighbor", ()),
        lambda count, present: index.scan(probe.query, count, present),
        size=config.k_final,
        quota=quota,
    )
    hits = [
        Hit(note, rank, score, tuple(path for path, ranking in lists.items() if note in ranking) or ("fill",))
        for rank, (note, score) in enumerate(chosen, start=1)
    ]
    return hits, {
        "topics": topics,
        "keywords": [hierarchy.keywords[k].form for k, _ in by_score(matched)],
        "listed": {path: len(ranking) for path, ranking in lists.items()},
        "pool": [hit.note for hit in hits],
        "filled": len(filled),
    }
