"""What a run says of itself: the manifest, and the lines that stand above its table."""

from __future__ import annotations

import dataclasses
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from harness.accounts import total_usage
from harness.locomo.schema import Dataset, Fingerprint
from harness.memory import MemorySystem
from harness.prompts import ROOT
from harness.sources import code_version, package_versions
from harness.spec import RunSpec


def manifest_values(spec: RunSpec, fingerprint: Fingerprint, prompts: Mapping[str, str]) -> dict[str, Any]:
    """The manifest's facts. Holds no key: a spec names the environment variable, and of an address only scheme, host
    and path are kept."""
    values = dataclasses.asdict(spec)
    values["backbone"]["base_url"] = without_secrets(spec.backbone.base_url)
    return {
        "spec": values,
        "code": code_version(spec.system),
        "versions": versions(),
        "data": dataclasses.asdict(fingerprint),
        "prompts": dict(prompts),
    }


def without_secrets(url: str | None) -> str | None:
    """An address without user, password, query and fragment."""
    if not url:
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def versions() -> dict[str, str]:
    """Python, the packages that matter, and the commit of this code ("-dirty" with uncommitted changes)."""
    return {"python": platform.python_version(), "bench": _commit(), **package_versions()}


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],  # noqa: S607 - git is found on PATH
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def header_lines(spec: RunSpec, system: type[MemorySystem], dataset: Dataset, facts: Mapping[str, Any]) -> list[str]:
    """What must be known to read the table, one fact a line."""
    backbone, data = spec.backbone, dataset.fingerprint
    lines = []
    if backbone.kind == "scripted":
        lines.append("backbone: rule-based stand-in, NO LANGUAGE MODEL: these answers are no result")
    else:
        lines.append(f"backbone: {backbone.name} ({backbone.model}, {backbone.revision or 'revision not pinned'})")
    if spec.embedder.kind == "hashing":
        lines.append("embedder: hashed words, a stand-in for tests: these retrievals are no result")
    else:
        lines.append(f"embedder: {spec.embedder.model}")
    lines.append(
        f"memory: {spec.label}, evidence {system.evidence_of(spec.memory)}, seed {spec.seed}, trials {spec.trials}"
    )
    if system.oracle is not None:
        lines.append(f"ORACLE ({system.oracle}): answers are made from the gold; a bound on the figures, no result")
    lines.extend(system.table_notices(spec.memory, can_judge=backbone.can_judge))
    lines.append(
        f"data: {dataset.name}, sha256 {data.content_sha256[:12]} (content), gold {spec.dataset.gold}, "
        f"subset {spec.dataset.subset}, {len(dataset.samples)} conversations, {dataset.n_questions} questions"
    )
    lines.extend(dataset.notices)
    lines.append(f"protocol: {spec.protocol.name} asks; both scorers score every reply")
    lines.append(f"context tokens counted by: {facts['tokenizer']}")
    if facts["truncated"]:
        lines.append(f"{facts['truncated']} texts exceed the embedder's {spec.embedder.max_tokens} tokens and were cut")
    lines.extend(facts["notices"])
    return lines


def by_code(records: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Version of the code -> how many answers it made, in the order of first appearance."""
    return dict(Counter(record.get("code") or "unnamed" for record in records))


def code_lines(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """The line that stands above a table of answers that more than one version of the code made."""
    made = by_code(records)
    if len(made) < 2:
        return []
    return ["answers made by " + " and ".join(f"code {code} ({count:,})" for code, count in made.items())]


def overall_usage(built: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """metrics.json's "usage": memories and questions together."""
    return total_usage([*(one["usage"] for one in built), *(record["usage"] for record in records)])
