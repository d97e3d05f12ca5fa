"""From a composed configuration (plain values) to a frozen RunSpec, with one-line errors."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, get_type_hints

from harness import private
from harness.errors import ConfigError
from harness.memory import MemorySystem, load_system
from harness.spec import BackboneSpec, RunSpec, identity_hash, validate

MISSING = "???"
"""Hydra's sign for a value that must be given."""


def register_defaults() -> None:
    """Give Hydra every option of the groups with its default, so that each can be set without a plus sign and an
    unknown one is refused. conf/config.yaml takes it in as `spec_defaults`; types are checked by `validate`."""
    from hydra.core.config_store import ConfigStore

    groups = ("backbone", "dataset", "embedder", "protocol", "cache", "run", "wandb")
    hints = get_type_hints(RunSpec)
    ConfigStore.instance().store("spec_defaults", {group: default_values(hints[group]) for group in groups})


def default_values(cls: type) -> dict[str, Any]:
    """The defaults of a spec dataclass as plain values, nested ones included; MISSING where there is none."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.default_factory is not dataclasses.MISSING:
            made = field.default_factory()
            values[field.name] = default_values(type(made)) if dataclasses.is_dataclass(made) else made
        else:
            values[field.name] = MISSING if field.default is dataclasses.MISSING else field.default
    return values


def plain(error: BaseException) -> str:
    """A composition error on one line, without what only a developer of Hydra can use."""
    if override := getattr(error, "override", None):
        return f"{override!r} cannot be read as group.option=value; quote lists: 'dataset.conversations=[conv-26]'"
    text = " ".join(str(error).split())
    text = re.sub(r" Config search path: .*$| See https://hydra\.cc\S*.*$", "", text)
    text = re.sub(r"^In '\S+': ", "", text)
    if wanted := re.match(r"Could not find 'hydra/(?:launcher/(submitit|ray)|sweeper/(optuna))", text):
        name = {"submitit": "slurm"}.get(wanted[1], wanted[1] or wanted[2])
        return f"{text.split(' Available')[0]}: it is not installed; `make setup-{name}` installs it (docs/sweeps.md)"
    return re.sub(
        r"Could not override '([^']+)'\.( To append to your config use \S+)?",
        r"\1 is no option here; `python run.py --cfg job` lists them all",
        text,
    )


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
    if fault := _fault(spec.backbone):
        raise ConfigError(fault)
    return spec, system


def _fault(backbone: BackboneSpec) -> str | None:
    """A key where none may stand, or an address that is none."""
    return (
        (backbone.base_url is not None and private.fault_of_address(backbone.base_url))
        or (backbone.api_key_env is not None and private.fault_of_variable(backbone.api_key_env))
        or private.fault_of_server(backbone.server.args)
        or None
    )


def run_identity(spec: RunSpec, data_sha256: str, prompts: dict[str, str]) -> str:
    """The run's identity: its spec, the content of the data and the text of every prompt it can send."""
    return identity_hash(spec, data=data_sha256, prompts=prompts)


def folder_name(spec: RunSpec, identity: str) -> str:
    """Deterministic: the same run finds its folder again, any other gets its own."""
    return f"{spec.label}-{spec.backbone.name}-{spec.dataset.name}-{spec.protocol.name}-{identity[:12]}"
