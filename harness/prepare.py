"""From a composed configuration to a run that is ready to start: validated, its data read, its plan made.

The door prepares a run before it starts it; the sweeper prepares every job before the first is started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.built import made_from
from harness.compose import build_spec, folder_name, run_identity
from harness.errors import ConfigError
from harness.llm.address import is_unpriced
from harness.llm.tokens import with_counter
from harness.locomo.loader import load_dataset, shape
from harness.locomo.schema import Dataset
from harness.memory import MemorySystem
from harness.plan import NOTHING, Amount, Plan, make_plan
from harness.prompts import prompt_hashes
from harness.protocol import Protocol, build_protocol
from harness.spec import RunSpec

GIVE_PRICE = "give backbone.price.prompt and backbone.price.completion in dollars per million tokens"


@dataclass(frozen=True)
class Prepared:
    """A run that nothing but its start is missing to."""

    spec: RunSpec
    system: type[MemorySystem]
    dataset: Dataset
    protocol: Protocol
    plan: Plan
    prompts: dict[str, str]
    identity: str
    plan_only: bool
    """Whether the configuration asks for the plan alone."""

    @property
    def building(self) -> str:
        """What its memories are built from, as text: jobs of equal `building` make the same build calls."""
        data = self.spec.dataset
        cut = (data.conversations, data.max_sessions, data.max_turns, self.dataset.fingerprint.content_sha256)
        return json.dumps([made_from(self.spec, self.system), cut], sort_keys=True)

    @property
    def path(self) -> Path:
        """Its run folder."""
        return Path(self.spec.run.dir) / folder_name(self.spec, self.identity)

    @property
    def finished(self) -> bool:
        """Whether the folder holds its results already: starting it again computes nothing."""
        return not self.spec.run.fresh and (self.path / "metrics.json").is_file()

    @property
    def priced(self) -> bool:
        """Whether its calls cost money: the backbone has a price and the cache may miss."""
        return self.plan.usd is not None and self.spec.cache.mode != "replay"

    @property
    def unpriced(self) -> bool:
        """Whether its calls may cost money, nobody knows how much."""
        return is_unpriced(self.spec.backbone) and self.spec.cache.mode != "replay"

    @property
    def line(self) -> str:
        """Its plan, for a person."""
        return self.plan.line() + (", cost unknown" if self.unpriced else "")


@dataclass(frozen=True)
class Bill:
    """What runs will cost together: as far as prices are known, and the rest. `models`: those of no known price."""

    paid: Amount
    unknown: Amount
    models: tuple[str, ...]


def prepare(values: Mapping[str, Any]) -> Prepared:
    """Validate, load and plan. `values` is the composed configuration, actions included.

    ConfigError, DataError: one line on what to mend. Nothing is written and nothing is started.
    """
    spec, system = build_spec({key: value for key, value in values.items() if key != "plan"})
    spec = replace(spec, backbone=with_counter(spec.backbone))
    if spec.run.max_usd is not None and is_unpriced(spec.backbone):
        raise ConfigError(
            f"run.max_usd={spec.run.max_usd:g} cannot be kept: backbone {spec.backbone.name} has no price; {GIVE_PRICE}"
        )
    dataset = load_dataset(spec.dataset)
    protocol = build_protocol(spec.protocol)
    plan = make_plan(
        spec, system.plan(spec.memory, shape(dataset), can_judge=spec.backbone.can_judge), dataset.n_questions
    )
    prompts = prompt_hashes((*system.prompt_files, *protocol.prompt_files))
    identity = run_identity(spec, dataset.fingerprint.content_sha256, prompts)
    return Prepared(spec, system, dataset, protocol, plan, prompts, identity, bool(values["plan"]))


def sweep_total(jobs: Iterable[Prepared]) -> tuple[Amount, int]:
    """What the unfinished jobs take together, and how many memories (runs' worth) are counted once for several jobs.

    Jobs that build the same memory from the same data share it, or the replies it is made of.
    """
    total, seen, shared = NOTHING, set(), 0
    for job in jobs:
        if job.finished:
            continue
        total += job.plan.asking
        # Without a cache, or with one that is filled anew, each job asks everything by itself.
        if job.spec.cache.mode in ("use", "replay") and job.building in seen:
            shared += 1
        else:
            seen.add(job.building)
            total += job.plan.building
    return total, shared


def bill(jobs: Iterable[Prepared]) -> Bill:
    """What the unfinished jobs cost. A job that only plans, and one that replays, costs nothing."""
    asking = [job for job in jobs if not job.plan_only]
    unknown = [job for job in asking if job.unpriced and not job.finished]
    return Bill(
        paid=sweep_total(job for job in asking if job.priced)[0],
        unknown=sweep_total(unknown)[0],
        models=tuple(dict.fromkeys(job.spec.backbone.model for job in unknown)),
    )
