"""Which runs may stand in one table, and what each is called there."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from eval.collection import Run
from eval.report.naming import differing, flatten, short_names
from harness.errors import RecordError
from harness.spec import RunSpec

CUT_ONLY = ("max_context_tokens",)
"""Of a protocol: how much context the reader gets. It belongs to the systems and tells their rows apart."""

READER = ("kind", "model", "revision", "structured", "thinking", "sampling", "server.args", "server.dtype")
"""Of a backbone: what makes the answer to one and the same prompt. Runs of one table's block share it."""


@dataclass(frozen=True)
class Group:
    """Complete runs that share protocol, scorer, data, questions, embedder, trials and the versions of their prompts,
    and a backbone's reader where they share the backbone.

    `names` are unique among the runs of a backbone. `apart`: the facts in which the groups found together differ.
    """

    facts: dict[str, Any]
    runs: tuple[Run, ...]
    names: tuple[str, ...]
    apart: tuple[str, ...] = ()


def facts_of(run: Run) -> dict[str, Any]:
    """What all runs of a table must agree in. An option that a run does not know counts as not given."""
    spec = run.spec
    return {
        "protocol": _given(spec["protocol"], CUT_ONLY),
        "scorer": run.metrics.get("scorer", "1"),
        "data": run.data_sha,
        "slice": dict(sorted(_given(spec["dataset"], ("name", "path")).items())),
        "questions": _questions(run),
        "embedder": _given(identity_part(spec)["embedder"], ("name",)),
        "trials": spec["trials"],
    }


def group(runs: Sequence[Run], *, split: bool = False) -> list[Group]:
    """Groups in the order of their first runs; copies of a run count once (`copies`).

    RecordError without `split` when there is more than one group, naming what differs.
    """
    again = {id(copy) for copy, _ in copies(runs)}
    runs = [run for run in runs if id(run) not in again]
    gathered: dict[str, list[Run]] = {}
    kept: dict[str, dict[str, Any]] = {}
    changed = changed_prompts(runs)
    readers = _readers(runs)
    for run in runs:
        prompts = {file: sha for file, sha in run.manifest["prompts"].items() if file.startswith("harness/")}
        facts = facts_of(run) | {"prompts": prompts | {file: run.manifest["prompts"].get(file) for file in changed}}
        several = readers[run.backbone]
        key = json.dumps([facts, several.index(_reader(run))], sort_keys=True)
        gathered.setdefault(key, []).append(run)
        kept.setdefault(key, facts | {"backbone": {}})
        if len(several) > 1:
            kept[key]["backbone"][run.backbone] = _reader(run)
    members, facts = list(gathered.values()), list(kept.values())
    if len(members) > 1 and not split:
        raise RecordError(_refusal(members, facts))
    keys = differing(facts)
    return [
        Group(one, tuple(part), tuple(names_of(part)), tuple(_said(key, one) for key in keys))
        for one, part in zip(facts, members, strict=True)
    ]


def copies(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """(a run, the earlier one it is a copy of): the same folder, found in two places."""
    first: dict[tuple[str, str], Run] = {}
    found = []
    for run in runs:
        key = (run.identity, run.manifest.get("run_id") or str(run.path.resolve()))
        if key in first:
            found.append((run, first[key]))
        first.setdefault(key, run)
    return found


def changed_prompts(runs: Sequence[Run]) -> list[str]:
    """Prompt files that two of the runs used in different versions: their systems are not the same ones."""
    versions: dict[str, set[str]] = {}
    for run in runs:
        for file, sha in run.manifest["prompts"].items():
            versions.setdefault(file, set()).add(sha)
    return sorted(file for file, found in versions.items() if len(found) > 1)


def names_of(runs: Sequence[Run]) -> list[str]:
    """A name for each run, unique among those on its backbone: its label, and what tells it from its namesakes."""
    names: dict[int, str] = {}
    for backbone in dict.fromkeys(run.backbone for run in runs):
        members = [run for run in runs if run.backbone == backbone]
        specs = [identity_part(run.spec) for run in members]
        made = short_names([r.label for r in members], specs, [r.identity for r in members])
        repeated = {name for name, count in Counter(made).items() if count > 1}
        for run, name in zip(members, made, strict=True):
            names[id(run)] = name
            if name in repeated:  # one identity run twice, on two machines say: two runs, told apart by their ids
                plain = name.removesuffix(f" [{run.identity[:8]}]")
                names[id(run)] = f"{plain} run {run.manifest.get('run_id', run.path.name)[:6]}"
    return [names[id(run)] for run in runs]


def identity_part(spec: Mapping[str, Any], cls: type = RunSpec) -> dict[str, Any]:
    """A manifest's spec without the fields that cannot change results (harness.spec: runtime)."""
    kinds = {f.name: f.metadata.get("class") for f in dataclasses.fields(cls)}
    types = get_type_hints(cls)
    picked = {}
    for key, value in spec.items():
        if kinds.get(key) != "runtime":
            nested = isinstance(value, Mapping) and dataclasses.is_dataclass(types.get(key))
            picked[key] = identity_part(value, types[key]) if nested else value
    return picked


def _given(options: Mapping[str, Any], without: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in without and value is not None}


def _reader(run: Run) -> dict[str, Any]:
    flat = flatten(run.spec["backbone"])
    return {key: value for key, value in flat.items() if key.startswith(READER) and value is not None}


def _readers(runs: Sequence[Run]) -> dict[str, list[dict[str, Any]]]:
    """Backbone name -> the different readers that runs have under it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        several = found.setdefault(run.backbone, [])
        if _reader(run) not in several:
            several.append(_reader(run))
    return found


def _questions(run: Run) -> str:
    """How many, and the start of a hash of which."""
    asked = sorted({(r["sample_id"], r["qa_index"]) for r in run.outcomes})
    return f"{len(asked)} ({hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]})"


def _said(key: str, facts: Mapping[str, Any]) -> str:
    value = flatten(facts).get(key)
    return f"{key} {'not given' if value is None else str(value)[:24]}"


def _refusal(gathered: list[list[Run]], facts: list[dict[str, Any]]) -> str:
    keys, groups = differing(facts), []
    for members, one in zip(gathered, facts, strict=True):
        names = ", ".join(run.path.name for run in members[:3])
        more = f" and {len(members) - 3} more" if len(members) > 3 else ""
        groups.append(f"{names}{more}: {', '.join(_said(key, one) for key in keys)}")
    return (
        f"these runs do not belong into one table, they differ in {', '.join(keys)} ({'; '.join(groups)}); "
        f"give --split for a table of each kind, or fewer runs"
    )
