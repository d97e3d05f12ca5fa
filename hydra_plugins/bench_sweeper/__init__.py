"""Hydra's basic sweeper, with one difference: no job hides another.

A job that cannot be composed (an unknown group value) or fails does not keep the others from running, and the
sweep ends with a table of every job's status. Works with any launcher.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf


class BenchSweeper(BasicSweeper):
    """The product of all listed values, in the order given on the command line."""

    def sweep(self, arguments: list[str]) -> list[JobReturn | None]:
        """Run every job; raise SweepError after the table when any failed.

        Returns a JobReturn per job.
        """
        from harness.compose import plain
        from harness.errors import SweepError

        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        overrides = parser.parse_overrides([*self._parse_config(), *arguments])
        jobs = self.split_arguments(overrides, None)[0]
        sweep_dir = Path(self.config.hydra.sweep.dir)
        sweep_dir.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, sweep_dir / "multirun.yaml")

        outcomes: dict[int, str] = {}
        runnable: list[int] = []
        for number, job in enumerate(jobs):
            try:
                self.hydra_context.config_loader.load_sweep_config(self.config, list(job))
                runnable.append(number)
            except Exception as error:
                outcomes[number] = "refused: " + plain(error)
        returns: list[JobReturn | None] = [None] * len(jobs)
        if runnable:
            results = self.launcher.launch([jobs[number] for number in runnable], initial_job_idx=0)
            for number, result in zip(runnable, results, strict=True):
                returns[number] = result
                outcomes[number] = outcome(result)
        self._print_table(jobs, outcomes)
        failed = sum(not text.startswith("finished") for text in outcomes.values())
        if failed:
            raise SweepError(f"{failed} of {len(jobs)} jobs of the sweep did not finish; the table above says why")
        return returns

    @staticmethod
    def _print_table(jobs: Sequence[Sequence[str]], outcomes: dict[int, str]) -> None:
        print(f"\nsweep: {len(jobs)} jobs", file=sys.stderr)
        for number, job in enumerate(jobs):
            print(f"  #{number} {' '.join(job)}: {outcomes[number]}", file=sys.stderr)


def outcome(result: JobReturn) -> str:
    """One line on how a job ended."""
    if result.status == JobStatus.COMPLETED:
        return f"finished{_where(result.return_value)}"
    from harness.compose import plain

    return "failed: " + plain(result._return_value)


def _where(value: Any) -> str:
    return f", {value}" if isinstance(value, str) and value else ""
