"""The end of a run: what its table says beside the figures, the verdict, and the table on the screen."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from pathlib import Path
from typing import Any, get_type_hints

from omegaconf import OmegaConf

from harness.errors import ConfigError, ThresholdError
from harness.memory import MemorySystem
from harness.prompts import ROOT
from harness.spec import RunSpec

CHOICES = ("backbone", "memory", "ablation", "dataset", "protocol")
"""Groups whose choice decides which published row a run is held against."""
SAID_ELSEWHERE = ("dataset", "seed", "trials", "plan", "hydra", "hydra/launcher", "hydra/sweeper")
"""Keys that change no system: the table says what of the data was asked, by which seed and how often."""


def table_facts(spec, system, dataset, built, facts, overrides) -> dict[str, Any]:
    """What a table needs beside the figures; kept in metrics.json, so that a finished run prints it again."""
    from harness.run_facts import header_lines

    lines = header_lines(spec, system, dataset, facts)
    lines += sorted({f"memory: {notice}" for one in built for notice in one["notices"]})
    shared = Counter(one["shared_from"] for one in built if "shared_from" in one)
    for run, count in sorted(shared.items()):
        some = "" if count == len(built) else f", {count} of {len(built)} conversations"
        lines.append(f"memory: shared with {run}{some}; its building counts as replies from the cache")
    changed = [text.lstrip("+~") for text in overrides if changes_system(text, system)]
    if changed:
        lines.append(f"set for this run: {' '.join(changed)}")
    real = spec.backbone.kind != "scripted" and spec.embedder.kind != "hashing"
    asked = dataset.fingerprint.is_locomo10 and dataset.n_questions == dataset.fingerprint.questions
    whole = real and not changed and asked
    comparable = {"backbone": spec.backbone.name, "label": spec.label, "protocol": spec.protocol.name}
    return {"title": spec.label, "lines": lines, "comparable": comparable | {"full_locomo10": whole}}


def changes_system(override: str, system: type[MemorySystem]) -> bool:
    """Whether a command-line override can make another system of the one a paper's figure is for.

    Everything does but what is known not to: a choice of CHOICES, a field classed runtime, a grid.
    """
    key, _, value = override.lstrip("+~").partition("=")
    if key == "embedder":
        return value != "minilm"
    if key == "limits":
        return value != "none"
    if key == "experiment":
        return not is_grid(override)
    if key == "dataset.gold":
        return value != "raw"
    group = key.partition(".")[0]
    if key in CHOICES or group in SAID_ELSEWHERE:
        return False
    cls: Any = RunSpec
    for part in key.split("."):
        fields = {f.name: f for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
        if part not in fields:
            return True
        nested = system.Config if cls is RunSpec and part == "memory" else get_type_hints(cls)[part]
        if fields[part].metadata["class"] == "runtime":
            return False
        cls = nested
    return True


def is_grid(override: str) -> bool:
    """Whether it chooses an experiment that only lists runs (conf/experiment/table1.yaml) and sets nothing in them."""
    key, _, name = override.lstrip("+~").partition("=")
    file = ROOT / "conf" / "experiment" / f"{name}.yaml"
    return key == "experiment" and file.is_file() and set(OmegaConf.load(file)) <= {"hydra"}


def table_options(metrics: dict[str, Any]) -> dict[str, Any]:
    """Arguments of eval.table's renderers from the facts kept in metrics.json."""
    from eval.published import reference_for

    facts = metrics["table"]
    return {
        "header_lines": facts["lines"],
        "title": facts["title"],
        "reference": reference_for(**facts["comparable"]),
        "failures": facts["failures"],
    }


def judge_again(folder, max_error_rate: float) -> None:
    """The verdict on a run that has ended, under the threshold of now: its figures stay what they are."""
    from eval.aggregate import failures
    from eval.table import markdown

    metrics = folder.read_metrics()
    reasons = failures(metrics, max_error_rate)
    if list(reasons) != metrics["table"]["failures"]:
        metrics["table"]["failures"] = list(reasons)
        folder.write_results(metrics, markdown(metrics, **table_options(metrics)))
        folder.status.amend("failed" if reasons else "finished", "; ".join(reasons))


def objective(folder, name: str) -> float:
    """The micro average that a sweeper optimises."""
    micro = folder.read_metrics()["micro"]
    if micro.get(name) is None:
        known = ", ".join(key for key, value in micro.items() if value is not None)
        raise ConfigError(f"run.objective={name} is no figure of this run; it has: {known}")
    return micro[name]


def line(metrics: dict[str, Any]) -> str:
    """A run's micro averages in percent, what went wrong, and what it took."""
    from eval.table import HEADERS

    figures = [
        f"{HEADERS[name]} {100 * metrics['micro'][name]:.1f}"
        for name in ("f1_amem", "f1_locomo", "recall_20t")
        if metrics["micro"].get(name) is not None
    ]
    usage = metrics["usage"]
    warnings = [text for text in metrics["table"]["lines"] if "no result" in text] + list(metrics["table"]["failures"])
    took = (
        f"{metrics['table']['title']}: {', '.join(figures)} (micro, {metrics['n_questions']} questions) | {metrics['n_error']} errors"
        f" | {usage['calls']:,} calls, {usage['computed_calls']:,} of them asked now | {metrics['wall_s']:.0f} s"
    )
    return " | ".join([took, *warnings])


def report(folder, path: Path, *, brief: bool = False) -> str:
    """Print the stored table, or one line of it, and where the records are; raise if the run failed its threshold."""
    from rich.console import Console

    from eval.table import render

    metrics = folder.read_metrics()
    if brief:
        print(line(metrics))
    else:
        Console(width=None if sys.stdout.isatty() else 120).print(render(metrics, **table_options(metrics)))
    print(f"records: {path}")
    status = folder.read_status()
    if status["state"] == "failed":
        raise ThresholdError(
            f"{path}: {status['message']}; the records are complete; run.fresh=true cache.mode=refresh asks everything anew"
        )
    return str(path)
