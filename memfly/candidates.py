"""Phase 2, N_cand: which older notes a new one is compared with ([P] a dual sparse-dense index)."""

from __future__ import annotations

import heapq
import math
from itertools import islice

from memfly.config import MemFlyConfig
from memfly.expected import Expected
from memfly.fusion import rrf
from memfly.hierarchy import Hierarchy
from memfly.note import Draft, Note


def candidates(hierarchy: Hierarchy | Expected, draft: Draft, previous: int | None, config: MemFlyConfig) -> list[int]:
    """Note ids, best first, at most k_cand. `previous`: the note of the session's previous turn, always among them
    (in the last place if neither list brings it)."""
    dense = [note for note, _ in hierarchy.note_index.search(draft.vector, config.k_dense)]
    sparse = [note for note, _ in shared_keywords(hierarchy, draft, config.k_sparse, config.exact_index)]
    found = [note for note, _ in rrf((dense, sparse), config.rrf_k)][: config.k_cand]
    if config.candidate_previous and previous is not None and previous not in found:
        found = [*found[: config.k_cand - 1], previous]
    return found


def shared_keywords(hierarchy: Hierarchy | Expected, draft: Draft, count: int, exact: int) -> list[tuple[int, float]]:
    """The `count` notes that share most keywords with the draft, by the sum of the shared keywords' idf, best first.

    Rare keywords first, and only as long as a note without them could still be among the best (MaxScore, Turtle and
    Flood 1995): a common one is on half of all notes. Exact while no more than `exact` postings have to be read; of
    more, the first ones are, so that a note costs no more than that in a memory of any size.
    """
    found = [keyword for form in draft.keywords if (keyword := hierarchy.keyword(form)) is not None]
    held = sorted(((keyword.notes, _parts(hierarchy.idf(keyword))) for keyword in found), key=lambda one: len(one[0]))
    scores: dict[int, int] = {}
    left = sum(weight for _, weight in held)
    read = 0
    for place, (notes, weight) in enumerate(held):
        enough = len(scores) >= count and heapq.nlargest(count, scores.values())[-1] > left
        if enough or read + len(notes) > exact:
            if not enough:
                for note in islice(notes, exact - read):
                    scores.setdefault(note, 0)
            for others, gain in held[place:]:
                for note in scores:
                    if note in others:
                        scores[note] += gain
            break
        for note in notes:
            scores[note] = scores.get(note, 0) + weight
        left -= weight
        read += len(notes)
    best = heapq.nsmallest(count, scores.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(note, score / _PARTS) for note, score in best]


_PARTS = 10**12


def _parts(idf: float) -> int:
    """A whole number, so that the order of summation cannot decide a tie."""
    return round(idf * _PARTS)


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
