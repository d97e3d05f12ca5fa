"""What a run writes down of evidence, of a built memory and of its calls, as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from harness.built import StoredMemory
from harness.llm.types import Meter, Usage
from harness.locomo.schema import Sample
from harness.memory import EvidenceItem, MemorySystem


def evidence_values(item: EvidenceItem) -> dict[str, Any]:
    """An evidence item as the records write it."""
    return {
        "dia_ids": list(item.dia_ids),
        "paths": list(item.paths),
        "rank": item.rank,
        "round": item.round,
        "score": round(float(item.score), 6),
        "date": item.date.isoformat() if item.date else None,
        "ends": list(item.ends) if item.ends is not None else None,
        "text": item.text,
    }


def built_values(sample: Sample, system: MemorySystem, meter: Meter) -> dict[str, Any]:
    """built.json: what a memory holds and what its building took."""
    return {
        "sample_id": sample.sample_id,
        "turns": len(sample.conversation.turns),
        **asdict(system.stats()),
        "calls": meter.calls,
        "errors": meter.errors,
        "repaired_replies": meter.repaired,
        "repairs": dict(meter.repairs),
        "fallbacks": dict(meter.fallbacks),
        "purposes": dict(meter.purposes),
        "latency_s": round(meter.latency_s, 4),
        "usage": usage_values(meter),
    }


def with_calls(built: dict[str, Any], meter: Meter) -> dict[str, Any]:
    """built.json with further calls counted in it."""
    return built | {
        "calls": built["calls"] + meter.calls,
        "purposes": dict(Counter(built["purposes"]) + meter.purposes),
        "latency_s": round(built["latency_s"] + meter.latency_s, 4),
        "usage": total_usage([built["usage"], usage_values(meter)]),
    }


def shared_values(stored: StoredMemory, run: str) -> dict[str, Any]:
    """built.json, in run `run`, of a memory that another one paid for, or an earlier life of this one (run.fresh=true):
    its calls count as replies from the cache."""
    usage = stored.built["usage"]
    paid = {"computed_calls": 0, "cached_calls": usage["calls"], "usd": 0.0}
    named = {"shared_from": stored.run} if stored.run != run else {}
    return stored.built | {"usage": usage | paid} | named


def usage_values(meter: Meter) -> dict[str, Any]:
    return {
        "calls": meter.calls,
        "computed_calls": meter.computed,
        "cached_calls": meter.cached,
        "prompt_tokens": meter.usage.prompt_tokens,
        "completion_tokens": meter.usage.completion_tokens,
        "usd": round(meter.usage.usd, 6),
    }


def total_usage(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sum of usage dictionaries, keys as in metrics.json."""
    keys = (*usage_values(Meter(usage=Usage())),)
    return {key: round(sum(usage[key] for usage in usages), 6) for key in keys}
