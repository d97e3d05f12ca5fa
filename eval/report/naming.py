"""Runs told apart: what differs between them, and a short name each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

ALIKE = ("run", "cache", "system", "ablation", "memory_name")
"""Parts of a spec that name no difference between results."""


def flatten(spec: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"memory": {"k": 3}} -> {"memory.k": 3}; lists stay whole."""
    flat: dict[str, Any] = {}
    for key, value in spec.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def told_apart(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a table of settings lists: the differing fields but places on a disk; the backbone's last."""
    fields = [field for field in differing(specs) if field != "dataset.path"]
    return sorted(fields, key=lambda key: key.startswith("backbone."))


def differing(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields of flattened specs in which they are not all equal, in the specs' order."""
    flats = [flatten({key: value for key, value in spec.items() if key not in ALIKE}) for spec in specs]
    keys = dict.fromkeys(key for flat in flats for key in flat)
    return [key for key in keys if any(flat.get(key) != flats[0].get(key) for flat in flats)]


def short_names(labels: Sequence[str], specs: Sequence[Mapping[str, Any]], identities: Sequence[str]) -> list[str]:
    """A label alone where it is unique, else with what differs among its namesakes, else with the identity's start."""
    names = []
    for label, spec, identity in zip(labels, specs, identities, strict=True):
        same = [other for other, name in zip(specs, labels, strict=True) if name == label]
        if len(same) == 1:
            names.append(label)
            continue
        flat = flatten(spec)
        told = [f"{key.rpartition('.')[2]} {_said(flat.get(key))}" for key in differing(same)]
        names.append(f"{label} ({', '.join(told) if 0 < len(told) <= 4 else identity[:8]})")
    repeated = {name for name, count in Counter(names).items() if count > 1}
    return [
        f"{name} [{identity[:8]}]" if name in repeated else name
        for name, identity in zip(names, identities, strict=True)
    ]


def across_tables(names: Sequence[str], backbones: Sequence[str], tables: Sequence[int]) -> list[str]:
    """Names that are unique within a table and a backbone made unique over all: the backbone is added where a name
    repeats, the table's number where that is not enough."""
    told = list(names)
    for extra in (backbones, [f"table {number}" for number in tables]):
        counts = Counter(told)
        told = [f"{name}, {more}" if counts[name] > 1 else name for name, more in zip(told, extra, strict=True)]
    return told


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else "…" if isinstance(value, list) else str(value)
