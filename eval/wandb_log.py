"""A run's configuration, figures, tables and usage in Weights & Biases. Optional (`make setup-wandb`), off by default.

`check` speaks before anything is computed; `log` comes after everything is on the disk, so that whatever wandb does, no
run is lost or failed by it. wandb gets what is given here and nothing else: its own collecting of the command line, the
git remote, the machine, the console and its error reports is off. The key is read by wandb from the environment.
"""

from __future__ import annotations

import importlib.util
import netrc
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.errors import ConfigError
from harness.records import RunFolder
from harness.spec import WandbSpec

SERVICE = "https://api.wandb.ai"
TIMEOUT_S = 60.0
"""How long wandb may take to begin and to end (our choice): the run itself is long done."""

ANSWER_COLUMNS = (
    "sample_id", "qa_index", "trial", "category", "question", "gold", "answer", "f1_amem", "f1_locomo", "recall", "error",
)  # fmt: skip


def check(options: WandbSpec) -> None:
    """ConfigError if logging cannot work: wandb is not installed, its folder cannot be made, or no key is known."""
    if importlib.util.find_spec("wandb") is None:
        raise ConfigError(f"wandb.mode={options.mode} needs wandb, which is not installed: make setup-wandb")
    try:
        Path(options.dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"wandb.dir={options.dir} cannot be made ({error.strerror}); name a writable folder"
        ) from None
    if options.mode == "online" and not _has_key():
        raise ConfigError("wandb.mode=online needs WANDB_API_KEY in the environment, or a login (wandb login)")


def log(folder: RunFolder, options: WandbSpec, say: Callable[[str], None]) -> None:
    """Log an ended run. A run logged again is the same run there. Never raises but for an interruption: one line says
    what went wrong and that the records are complete."""
    try:
        place = _log(folder, options)
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        if key := os.environ.get("WANDB_API_KEY"):
            said = said.replace(key, "***")
        say(f"  wandb: not logged ({said[:200]}); the records are complete")
        return
    say(f"  wandb: {place}")


def _log(folder: RunFolder, options: WandbSpec) -> str:
    wandb = _import(options)
    manifest, metrics = folder.manifest, folder.read_metrics()
    spec = manifest["spec"]
    settings = wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        init_timeout=TIMEOUT_S,
        finish_timeout=TIMEOUT_S,
        finish_timeout_raises=True,
    )
    run = wandb.init(
        mode=options.mode,
        project=options.project,
        entity=options.entity,
        dir=options.dir,
        id=manifest["run_id"],
        resume="allow" if options.mode == "online" else None,
        name=folder.path.name,
        group=metrics["table"]["title"],
        job_type=spec["backbone"]["name"],
        tags=[spec["dataset"]["name"], spec["protocol"]["name"]],
        config={key: manifest[key] for key in ("spec", "identity", "versions", "data", "prompts")},
        settings=settings,
    )
    try:
        run.summary.update(summary(metrics) | {"state": folder.read_status().get("state")})
        run.log({"by_category": wandb.Table(**by_category(metrics)), "usage": wandb.Table(**usage(metrics))})
        if options.answers:
            run.log({"answers": wandb.Table(columns=list(ANSWER_COLUMNS), data=answers(folder))})
        place = run.url if options.mode == "online" else f"offline, wandb sync {Path(run.dir).parent}"
    except BaseException:
        run.finish(exit_code=1)
        raise
    else:
        run.finish()
    finally:
        wandb.teardown()
    return place


def summary(metrics: Mapping[str, Any]) -> dict[str, float | int | bool]:
    """metrics.json flattened: "micro/f1_amem", "by_category/1/recall", "usage/usd". Unknown values (null) are absent,
    an interval is two figures (.../low, .../high); texts and lists stay in the run folder."""
    return dict(_flat("", {key: value for key, value in metrics.items() if key != "table"}))


def _flat(path: str, value: Any) -> Iterator[tuple[str, float | int | bool]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{path}/{key}".lstrip("/"), inner)
    elif isinstance(value, list) and path.startswith("intervals/"):
        yield from zip((f"{path}/low", f"{path}/high"), value, strict=True)
    elif isinstance(value, int | float):
        yield path, value


def by_category(metrics: Mapping[str, Any]) -> dict[str, list]:
    """Columns and rows of the table by category: one row a category, then the averages."""
    figures = list(metrics["micro"])
    counts = ["n", "n_error", "n_evidence"]
    rows = [
        [f"{id} {values['name']}", *(values[name] for name in counts), *(values.get(name) for name in figures)]
        for id, values in metrics["by_category"].items()
    ]
    rows += [
        [name, None, None, None, *(metrics[name].get(figure) for figure in figures)]
        for name in ("micro", "micro4", "macro", "macro4")
    ]
    return {"columns": ["category", *counts, *figures], "data": rows}


def usage(metrics: Mapping[str, Any]) -> dict[str, list]:
    """Columns and the one row of the usage table."""
    values = dict(metrics["usage"]) | {"wall_s": metrics["wall_s"]}
    return {"columns": list(values), "data": [list(values.values())]}


def answers(folder: RunFolder) -> list[list[Any]]:
    """A row an answer. Holds the data set's text, so it is logged only where wandb.answers says so."""
    flat = (
        record | record["scores"] | {"error": (record["error"] or {}).get("kind")} for record in folder.answers.values()
    )
    return [[record.get(name) for name in ANSWER_COLUMNS] for record in flat]


def _import(options: WandbSpec):
    """wandb, told where to write and what not to send before it is imported."""
    home = Path(options.dir).resolve() / "wandb" / "local"
    os.environ["WANDB_ERROR_REPORTING"] = "false"  # it reports, even offline, to a third party
    for name in ("CACHE", "DATA", "CONFIG"):
        os.environ.setdefault(f"WANDB_{name}_DIR", str(home / name.lower()))
    import wandb

    return wandb


def _has_key() -> bool:
    """Whether wandb will find a key, so that it never asks for one after the run."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or SERVICE).hostname
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False
