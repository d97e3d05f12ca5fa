"""Phase 2, N_cand: which older notes a new one is compared with ([P] a dual sparse-dense index)."""

from __future__ import annotations

import math

from memfly.config import MemFlyConfig
from memfly.expected import Expected
from memfly.fusion import by_score, rrf
from memfly.hierarchy import Hierarchy
from memfly.note import Draft, Note


def candidates(hierarchy: Hierarchy | Expected, draft: Draft, previous: int | None, config: MemFlyConfig) -> list[int]:
    """Note ids, best first, at most k_cand. `previous`: the note of the session's previous turn, always among them
    (in the last place if neither list brings it)."""
    dense = [note for note, _ in hierarchy.note_index.search(draft.vector, config.k_dense)]
    sparse = [note for note, _ in shared_keywords(hierarchy, draft)[: config.k_sparse]]
    found = [note for note, _ in rrf((dense, sparse), config.rrf_k)][: config.k_cand]
    if config.candidate_previous and previous is not None and previous not in found:
        found = [*found[: config.k_cand - 1], previous]
    return found


def shared_keywords(hierarchy: Hierarchy | Expected, draft: Draft) -> list[tuple[int, float]]:
    """Notes that share a keyword with the draft, by the sum of the shared keywords' idf."""
    scores: dict[int, float] = {}
    for form in draft.keywords:
        keyword = hierarchy.keyword(form)
        if keyword is not None:
            idf = hierarchy.idf(keyword)
            for note in keyword.notes:
                scores[note] = scores.get(note, 0.0) + idf
    return by_score(scores)


def keyword_overlap(hierarchy: Hierarchy, draft: Draft, note: Note) -> float:
    """idf of the shared keywords over the geometric mean of both sets' idf, in [0, 1]: what scoring by embeddings takes
    for complementarity before the discount (our choice: over the smaller set, one common word would tie a greeting to
    everything)."""
    shared = new = 0.0
    for form in draft.keywords:
        keyword = hierarchy.keyword(form)
        idf = hierarchy.idf(keyword)
        new += idf
        if keyword is not None and keyword.id in note.keywords:
            shared += idf
    old = sum(hierarchy.idf(hierarchy.keywords[keyword]) for keyword in note.keywords)
    return shared / math.sqrt(new * old) if new and old else 0.0
