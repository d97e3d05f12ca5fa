"""Hydra's basic sweeper, with two differences: no job hides another, and what it will take is said first.

A job that cannot be composed (an unknown group value) or fails does not keep the others from running, and the
sweep ends with a table of every job's status. Before the first job starts, the plans of all are added up, and a paid
sweep starts only when somebody says yes (harness/approve.py). Works with any launcher.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf, open_dict

from harness.visible import visible

if TYPE_CHECKING:
    from harness.prepare import Prepared


class BenchSweeper(BasicSweeper):
    """The product of all listed values: those of the experiment's grid first, then as given on the command line,
    which has the last word on a key of both."""

    def sweep(self, arguments: list[str]) -> list[JobReturn | None]:
        """Run every job; raise SweepError after the table when any failed.

        Returns a JobReturn per job. ConfigError: a paid sweep that nobody allowed, or no job that could start.
        """
        from harness.compose import plain
        from harness.errors import ConfigError, SweepError
        from harness.llm.kept import keeping

        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        overrides = parser.parse_overrides([*self._parse_config(), *arguments])
        jobs = self.split_arguments(overrides, None)[0]
        sweep_dir = Path(self.config.hydra.sweep.dir)

        outcomes: dict[int, str] = {}
        ready: dict[int, Prepared] = {}
        for number, job in enumerate(jobs):
            try:
                ready[number] = self._prepare(job)
            except Exception as error:
                outcomes[number] = "refused: " + plain(error)
        missing = unready(ready)
        if missing and len(missing) == len(ready):
            raise ConfigError(f"nothing was started: {'; '.join(dict.fromkeys(missing.values()))}")
        outcomes |= {number: "refused: " + problem for number, problem in missing.items()}
        ready = {number: one for number, one in ready.items() if number not in missing}
        names = short_names(jobs)
        returns: list[JobReturn | None] = [None] * len(jobs)
        self._announce(names, ready)
        planned = [number for number, one in ready.items() if one.plan_only]
        outcomes |= dict.fromkeys(planned, "planned")
        if len(planned) < len(ready):
            sweep_dir.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(self.config, sweep_dir / "multirun.yaml")
        with keeping():  # for the jobs of this process; a launcher's other processes know nothing of it
            for numbers, extra in self._batches({n: one for n, one in ready.items() if not one.plan_only}):
                batch = [[*jobs[number], *extra[number]] for number in numbers]
                results = self.launcher.launch(batch, initial_job_idx=numbers[0])
                for number, result in zip(numbers, results, strict=True):
                    returns[number] = result
                    outcomes[number] = outcome(result)
        self._print_table(names, outcomes)
        if len(planned) < len(ready):
            write_runs(sweep_dir, jobs, outcomes, ready)
            print(f"tables: python scripts/collect.py {sweep_dir}", file=sys.stderr)
        failed = sum(not text.startswith(("finished", "planned")) for text in outcomes.values())
        if failed:
            raise SweepError(f"{failed} of {len(jobs)} jobs of the sweep did not finish; the table above says why")
        return returns

    def _prepare(self, job: Sequence[str]) -> Prepared:
        from harness.prepare import prepare

        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(job))
        with open_dict(config):
            del config["hydra"]
        return prepare(OmegaConf.to_container(config, resolve=True, throw_on_missing=True))

    @staticmethod
    def _announce(names: Sequence[str], ready: Mapping[int, Prepared]) -> None:
        """Print what the whole sweep will take and, where it is paid for, have it allowed."""
        from harness.approve import approve, terminal
        from harness.llm.servers import download_note
        from harness.prepare import bill, sweep_total

        if not ready:
            return
        total, shared = sweep_total(ready.values())
        finished = sum(one.finished for one in ready.values())
        lines = [f"sweep of {len(names)} jobs, {finished} of them finished already"]
        lines += [f"  #{n} {names[n]}: {one.line}" for n, one in ready.items() if not one.finished]
        lines.append(f"  together (nothing cached): {total.text()}")
        if shared:
            lines.append(f"  {shared} memories are shared by several jobs and counted once")
        replayed = [one.spec.cache.mode == "replay" for one in ready.values()]
        notes = dict.fromkeys(download_note(one.spec.backbone) for one in ready.values()) if not all(replayed) else {}
        lines += [f"  {note}" for note in notes if note]
        print("\n".join(map(visible, lines)), file=sys.stderr, flush=True)
        allowed = all(one.spec.run.assume_yes for one in ready.values())
        approve(bill(ready.values()), yes=allowed, max_usd=limit_of(ready), ask=terminal())

    def _batches(self, ready: Mapping[int, Prepared]):
        """Yield (job numbers, further overrides by number).

        Hydra's basic launcher gets one job after another, each of which may spend what the ones before it left of
        run.max_usd. A launcher that runs jobs beside each other gets them all, and the limit is shared out by plan."""
        from harness.llm.budget import Budget

        allowed = "run.assume_yes=true"
        limit = limit_of(ready)
        numbers = list(ready)
        if isinstance(self.launcher, BasicLauncher):
            before = Budget.total
            for number in numbers:
                extra = [allowed]
                if limit is not None:
                    rest = max(0.0, limit - (Budget.total - before))
                    extra.append(f"run.max_usd={rest:.6f}")  # at 0 it may still finish from the cache
                yield [number], {number: extra}
        elif numbers and limit is None:
            yield numbers, {number: [allowed] for number in numbers}
        elif numbers:
            costs = {n: one.plan.usd[1] if one.priced and not one.finished else 0.0 for n, one in ready.items()}
            whole = sum(costs.values()) or 1.0
            yield numbers, {n: [allowed, f"run.max_usd={limit * costs[n] / whole:.6f}"] for n in numbers}

    @staticmethod
    def _print_table(names: Sequence[str], outcomes: Mapping[int, str]) -> None:
        print(f"\nsweep: {len(names)} jobs", file=sys.stderr)
        for number, name in enumerate(names):
            print(visible(f"  #{number} {name}: {outcomes[number]}"), file=sys.stderr)


def unready(ready: Mapping[int, Prepared]) -> dict[int, str]:
    """By job number, what is missing to those that would ask a model: a key, a program, weights."""
    from harness.errors import ConfigError
    from harness.llm.servers import check

    missing = {}
    for number, one in ready.items():
        if not one.plan_only and not one.finished and one.spec.cache.mode != "replay":
            try:
                check(one.spec.backbone)
            except ConfigError as error:
                missing[number] = str(error)
    return missing


def limit_of(ready: Mapping[int, Prepared]) -> float | None:
    """The smallest run.max_usd of the jobs: what the whole sweep may spend."""
    return min((one.spec.run.max_usd for one in ready.values() if one.spec.run.max_usd is not None), default=None)


def write_runs(
    sweep_dir: Path, jobs: Sequence[Sequence[str]], outcomes: Mapping[int, str], ready: Mapping[int, Prepared]
) -> None:
    """What scripts/collect.py reads."""
    from harness.records import SWEEP_FILE, dumps, write_atomic

    rows = [
        {
            "overrides": list(job),
            "outcome": outcomes[number],
            "folder": str(ready[number].path.absolute()) if number in ready else None,
        }
        for number, job in enumerate(jobs)
    ]
    write_atomic(sweep_dir / SWEEP_FILE, dumps({"jobs": rows}, indent=True) + "\n")


def short_names(jobs: Sequence[Sequence[str]]) -> list[str]:
    """A job's overrides without those that all jobs share; of a single job, all."""
    common = set.intersection(*map(set, jobs)) if len(jobs) > 1 else set()
    return [" ".join(override for override in job if override not in common) for job in jobs]


def outcome(result: JobReturn) -> str:
    """One line on how a job ended."""
    if result.status == JobStatus.COMPLETED:
        return f"finished{_where(result.return_value)}"
    from harness.compose import plain

    return "failed: " + plain(result._return_value)


def _where(value: Any) -> str:
    return f", {value}" if isinstance(value, str) and value else ""
