"""From a composed configuration (plain values) to a frozen RunSpec, with one-line errors."""

from __future__ import annotations

from typing import Any

from harness.errors import ConfigError
from harness.memory import MemorySystem, load_system
from harness.spec import RunSpec, identity_hash, validate


def build_spec(values: dict[str, Any]) -> tuple[RunSpec, type[MemorySystem]]:
    """Validate everything a run is made of. `values` is the composed configuration without its actions (plan).

    The memory group names its class: `system` ("module:Class") and `name`; what remains is that class's Config.
    """
    values = dict(values)
    memory = values.get("memory")
    if not isinstance(memory, dict) or "system" not in memory or "name" not in memory:
        raise ConfigError("memory names no system: conf/memory/*.yaml gives `system: module:Class` and `name`")
    memory = dict(memory)
    path, name = memory.pop("system"), memory.pop("name")
    ablation = values.get("ablation")
    system = load_system(path)
    # Checked here and not left to the Config, whose author may have forgotten to refuse unknown keys: an option
    # that does nothing is the worst ablation.
    known = system.Config.__dataclass_fields__
    foreign = ", ".join(sorted(set(memory) - set(known)))
    if foreign and ablation != "none":
        raise ConfigError(
            f"ablation={ablation} is not one of memory={name}: it has no option {foreign}; use ablation=none"
        )
    if foreign:
        raise ConfigError(f"memory={name} has no option {foreign}; it has: {', '.join(known)}")
    config = validate(system.Config, memory, "memory")
    spec = validate(RunSpec, {**values, "system": path, "memory_name": name, "memory": config}, "")
    return spec, system


def run_identity(spec: RunSpec, data_sha256: str, prompts: dict[str, str]) -> str:
    """The run's identity: its spec, the content of the data and the text of every prompt it can send."""
    return identity_hash(spec, data=data_sha256, prompts=prompts)


def folder_name(spec: RunSpec, identity: str) -> str:
    """Deterministic: the same run finds its folder again, any other gets its own."""
    return f"{spec.label}-{spec.backbone.name}-{spec.dataset.name}-{spec.protocol.name}-{identity[:12]}"
