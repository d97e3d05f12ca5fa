"""Which runs may stand in one table, and what each is called there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eval.collection import Run
from eval.report.naming import differing, flatten, short_names
from harness.errors import RecordError

CUT_ONLY = ("max_context_tokens",)
"""Of a protocol: how much context the reader gets. It belongs to the systems and tells their rows apart."""


@dataclass(frozen=True)
class Group:
    """Complete runs that share protocol, scorer, data, questions, embedder, trials and the versions of their prompts. `names` are unique."""

    facts: dict[str, Any]
    runs: tuple[Run, ...]
    names: tuple[str, ...]


def facts_of(run: Run) -> dict[str, Any]:
    """What all runs of a table must agree in."""
    spec, data = run.spec, run.spec["dataset"]
    return {
        "protocol": {k: v for k, v in spec["protocol"].items() if k not in CUT_ONLY},
        "scorer": run.metrics.get("scorer", "1"),
        "data": run.data_sha,
        "slice": {key: data.get(key) for key in sorted(data) if key not in ("name", "path")},
        "questions": _questions(run),
        "embedder": spec["embedder"].get("model"),
        "trials": spec["trials"],
    }


def group(runs: Sequence[Run], *, split: bool = False) -> list[Group]:
    """Groups in the order of their first runs. RecordError without `split` when there is more than one, naming what differs."""
    gathered: dict[str, list[Run]] = {}
    kept: dict[str, dict[str, Any]] = {}
    changed = changed_prompts(runs)
    for run in runs:
        facts = facts_of(run) | {"prompts": {file: run.manifest["prompts"].get(file) for file in changed}}
        key = json.dumps(facts, sort_keys=True)
        gathered.setdefault(key, []).append(run)
        kept[key] = facts
    if len(gathered) > 1 and not split:
        raise RecordError(_refusal(list(gathered.values()), list(kept.values())))
    return [Group(kept[key], tuple(members), tuple(names_of(members))) for key, members in gathered.items()]


def changed_prompts(runs: Sequence[Run]) -> list[str]:
    """Prompt files that two of the runs used in different versions: their systems are not the same ones."""
    versions: dict[str, set[str]] = {}
    for run in runs:
        for file, sha in run.manifest["prompts"].items():
            versions.setdefault(file, set()).add(sha)
    return sorted(file for file, found in versions.items() if len(found) > 1)


def names_of(runs: Sequence[Run]) -> list[str]:
    """A name for each run, unique among those on its backbone."""
    names: dict[int, str] = {}
    for backbone in dict.fromkeys(run.backbone for run in runs):
        members = [run for run in runs if run.backbone == backbone]
        made = short_names([r.label for r in members], [r.spec for r in members], [r.identity for r in members])
        names |= {id(run): name for run, name in zip(members, made, strict=True)}
    return [names[id(run)] for run in runs]


def _questions(run: Run) -> str:
    """How many, and the start of a hash of which."""
    asked = sorted({(r["sample_id"], r["qa_index"]) for r in run.outcomes})
    return f"{len(asked)} ({hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]})"


def _refusal(gathered: list[list[Run]], facts: list[dict[str, Any]]) -> str:
    keys, groups = differing(facts), []
    for members, one in zip(gathered, facts, strict=True):
        flat = flatten(one)
        said = ", ".join(f"{key} {str(flat.get(key))[:16]}" for key in keys)
        names = ", ".join(run.path.name for run in members[:3])
        groups.append(f"{names}{' and more' if len(members) > 3 else ''}: {said}")
    return (
        f"these runs do not belong into one table, they differ in {', '.join(keys)} ({'; '.join(groups)}); "
        f"give --split for a table of each kind, or fewer runs"
    )
