"""Every choice of the method as a field: what the paper fixes is marked [P], what it leaves open "our choice"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from harness.spec import REFUSE_UNKNOWN, Count, Fraction, Positive, Temperature, identity, runtime

Scoring = Literal["pairwise", "listwise", "embedding"]
Weight = Annotated[float, Field(ge=0.0)]
Above = Annotated[float, Field(gt=0.0)]
Cosine = Annotated[float, Field(ge=-1.0, le=1.0)]


@dataclass(frozen=True, kw_only=True)
class MemFlyConfig:
    """The whole method. The defaults are the paper's reading (memory=memfly); memfly_plus and every ablation differ
    from it in values alone. Configurations that differ in stage="recall" fields alone share their built memories."""

    __pydantic_config__ = REFUSE_UNKNOWN

    # Ingestion
    history_turns: Count = identity(default=4)
    """W: earlier turns of the session shown to extraction. Our choice: coreference in dialogue reaches back a few turns."""
    temperature: Temperature = identity(default=0.0)
    """Of every memory, parse and judge call. Our choice: a score is then a function of the two notes alone."""
    denoise: bool = identity(default=True)
    """False (ablation no_denoise): the context is the raw turn; keywords are still extracted."""
    embed_raw: bool = identity(default=False)
    """True: h embeds the context together with the raw turns. Our choice (memfly_plus): names and wording the context lost still match."""

    # Candidates
    k_dense: Positive = identity(default=10)
    """Length of the dense list (cosine). Our choice: the paper has both lists and gives no lengths."""
    k_sparse: Positive = identity(default=10)
    """Length of the sparse list (shared keywords weighted by idf). Our choice, as k_dense."""
    k_cand: Positive = identity(default=10)
    """Candidates scored per note. Our choice: cost is linear in it."""
    candidate_previous: bool = identity(default=True)
    """The note of the session's previous turn is always a candidate. Our choice: without it, it is one only in 33-40% of turns, and question and answer are the edges that help."""

    exact_index: Positive = identity(default=20_000)
    """Notes, and keywords, up to which their search is exact; beyond, by HNSW, and at most so many postings are read for a sparse list. Our choice: beyond what any conversation here holds."""

    # Gate
    scoring: Literal["auto", "pairwise", "listwise", "embedding"] = identity(default="auto")
    """[P] is pairwise: one call per pair. listwise: one call per note. embedding: none. auto: pairwise where the backbone can judge, else embedding (our choice: a very small model says 1 to every pair)."""
    speculation: Positive = runtime(default=8)
    """Depth: turns whose scoring is under way at once, the one to be committed next among them; 1: none ahead. The memory is the same at any depth; a merge wastes at most (depth - 1) x k_cand calls. Only scoring=pairwise scores ahead. Our choice: 8 turns of 10 candidates fill an endpoint that takes 64 calls at once."""
    tau_merge: Fraction = identity(default=0.7)
    """[P] tau_m of Eq. 6: MERGE into the candidate of highest s_red if that exceeds it."""
    tau_link: Fraction = identity(default=0.5)
    """[P] tau_l of Eq. 6: LINK to every other candidate whose s_comp exceeds it."""
    update: bool = identity(default=True)
    """False (ablation no_update): always append, no scoring calls."""
    merge: bool = identity(default=True)
    """False (ablation no_merge): the merge branch is skipped."""
    link: bool = identity(default=True)
    """False (ablation no_link): no edges at all, adjacent ones included."""
    adjacent_edges: bool = identity(default=False)
    """True: edges between adjacent turns of a session, beside the gate's. Our choice (memfly_plus)."""
    adjacent_weight: Above = identity(default=1.0)
    """Weight of such an edge; s_comp lies in [0, 1]. Our choice: as good as the best link (memfly_plus: 2, before any link)."""
    red_cosine_low: Cosine = identity(default=0.6)
    """scoring=embedding: the cosine at which s_red is 0. Our choice, calibrated on the labelled pairs of the tests."""
    red_cosine_high: Cosine = identity(default=1.0)
    """scoring=embedding: the cosine at which s_red is 1. Our choice, calibrated as above; on the safe side, because merging by embeddings gains only by swallowing turns."""
    comp_gain: Above = identity(default=2.0)
    """scoring=embedding: s_comp = min(1, gain x idf-weighted keyword overlap) x (1 - s_red). Our choice, calibrated as above."""

    # Topics
    topic_every: Positive = identity(default=50)
    """New notes between two topic evolutions, a twentieth of the notes where that is more (so that their cost for each new note stays bounded); one more at the end. Our choice: the paper says periodically."""
    topic_min: Positive = identity(default=3)
    """[P] delta_min <= |C|; our choice of the value: two keywords make no topic."""
    topic_max: Positive = identity(default=50)
    """[P] |C| <= delta_max; our choice of the value."""

    # Retrieval
    topic: bool = identity(stage="recall", default=True)
    """False (ablation no_topic): the macro-semantic list is dropped."""
    keyword: bool = identity(stage="recall", default=True)
    """False (ablation no_keyword): the micro-symbolic list is dropped."""
    neighbor: bool = identity(stage="recall", default=True)
    """False (ablation no_neighbor): the topological list is dropped."""
    k_topic: Positive = identity(stage="recall", default=3)
    """[P] topics matched per query."""
    k_key: Positive = identity(stage="recall", default=10)
    """[P] keywords matched per entity."""
    k_final: Positive = identity(stage="recall", default=20)
    """[P] notes in the pool of one round."""
    rrf_k: Weight = identity(default=10.0)
    """[P] reciprocal rank fusion; our choice of the constant: with long lists the cited 60 rewards membership over rank. It fuses the candidates of ingestion too."""
    anchors: Positive = identity(stage="recall", default=5)
    """A: anchors of the topological expansion, the best of the two fused lists. Our choice: [P] takes all of them, whose neighbours are nearly the whole memory (memfly_plus: 12)."""
    neighbour_mode: Literal["quota", "list"] = identity(stage="recall", default="quota")
    """quota: neighbours get places of the pool. list: they are a third fused list. Our choice: as a list of equal weight they cost 6 to 17 points of recall."""
    neighbour_quota: Count = identity(stage="recall", default=5)
    """Places of the pool that neighbours may take (mode quota). Our choice."""
    anchor_neighbours: bool = identity(stage="recall", default=False)
    """True: an anchor may be the neighbour of another anchor. Our choice (memfly_plus)."""
    bm25_weight: Weight = identity(stage="recall", default=0.0)
    """Weight of BM25 of the question over note texts within the micro-symbolic ranking, each part divided by its maximum; 0: off. Our choice (memfly_plus): 1."""

    # Refinement and rendering
    i_max: Count = identity(stage="recall", default=3)
    """[P] I_max rounds of refinement; 0 (ablation no_ier): none."""
    round_weight: Annotated[float, Field(gt=0.0, le=1.0)] = identity(stage="recall", default=0.5)
    """Round r of refinement counts round_weight ** r in the fusion over rounds; 1: all alike. Our choice: a sub-query is narrower than the question, and a wrong one should not push out what the question found (with 1, rule-made sub-queries cost 6 points of recall)."""
    k_total: Positive | None = identity(stage="recall", default=20)
    """Notes the reader gets at most, by fusion over the rounds; null: unbounded. Our choice: equal budgets compare."""
    render: Literal["context+raw", "context", "raw"] = identity(stage="recall", default="context+raw")
    """What the reader sees of a note. Our choice: contexts resolve references, raw turns lose nothing."""

    def resolve_scoring(self, can_judge: bool) -> Scoring:
        """The scoring a run uses, once the backbone is known."""
        if self.scoring != "auto":
            return self.scoring
        return "pairwise" if can_judge else "embedding"

    def topic_interval(self, notes: int) -> int:
        """New notes from one topic evolution to the next, in a memory of this many."""
        return max(self.topic_every, notes // 20)
