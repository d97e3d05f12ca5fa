"""A built memory as counts and as tables of JSON-able rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.memory import MemoryStats
from memfly.builder import Builder
from memfly.topics import violations


def stats(builder: Builder) -> MemoryStats:
    """Counts for metrics.json. `extra` says how many pairs which scoring scored, how many calls were made before their
    score was needed, and how many in vain."""
    hierarchy, counts, config = builder.hierarchy, builder.counts, builder.config
    sizes = [len(note.turns) for note in hierarchy.notes]
    outside = violations(hierarchy.topics, config.topic_min, config.topic_max)
    speculative = {}
    if builder.scoring == "pairwise":
        speculative = {"speculative_calls": builder.speculation.ahead, "wasted_calls": builder.speculation.wasted}
    notices = []
    if outside:
        notices.append(
            f"{len(outside)} of {len(hierarchy.topics)} topics outside {config.topic_min}..{config.topic_max} keywords"
        )
    if counts.too_long:
        notices.append(
            f"{counts.too_long} contexts exceed the embedder's {builder.services.embedder.max_tokens} tokens"
        )
    return MemoryStats(
        notes=len(sizes),
        merges=counts.merges,
        links=counts.links,
        appends=counts.appends,
        largest=max(sizes, default=0),
        merged_turns=sum(size for size in sizes if size > 1),
        notices=tuple(notices),
        distributions={"s_red": tuple(counts.s_red), "s_comp": tuple(counts.s_comp)},
        extra={
            f"pairs_{builder.scoring}": len(counts.s_red),
            **speculative,
            "edges": hierarchy.edge_count,
            "keywords": len(hierarchy.keywords),
            "topics": len(hierarchy.topics),
            "topics_outside_bounds": len(outside),
            "contexts_too_long": counts.too_long,
        },
    )


def tables(builder: Builder) -> Mapping[str, Iterable[Mapping[str, Any]]]:
    """notes, keywords, topics, edges; ids are positions, keywords of notes and topics are surface forms.

    growth: one row a turn, the memory's size after it; merges, links and appends are running totals.
    """
    hierarchy = builder.hierarchy
    forms = [keyword.form for keyword in hierarchy.keywords]
    return {
        "notes": [
            {
                "id": note.id,
                "date": note.date.isoformat(),
                "dia_ids": list(note.dia_ids),
                "context": note.context,
                "keywords": [forms[keyword] for keyword in note.keywords],
                "turns": [
                    {
                        "dia_id": turn.dia_id,
                        "session": turn.session,
                        "speaker": turn.speaker,
                        "date": turn.date_time.isoformat(),
                        "text": turn.text,
                        "caption": turn.caption,
                    }
                    for turn in note.turns
                ],
            }
            for note in hierarchy.notes
        ],
        "keywords": [{"id": k.id, "form": k.form, "notes": list(k.notes)} for k in hierarchy.keywords],
        "topics": [
            {"id": position, "keywords": [forms[keyword] for keyword in topic.keywords]}
            for position, topic in enumerate(hierarchy.topics)
        ],
        "edges": [
            {"source": a, "target": b, "weight": weight}
            for a in sorted(hierarchy.edges)
            for b, weight in sorted(hierarchy.edges[a].items())
            if a < b
        ],
        "growth": builder.growth,
    }
