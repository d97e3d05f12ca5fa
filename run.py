"""The door of memfly-bench: compose, validate, plan, run, report. `python run.py --help` lists the groups."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

try:
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException
except ModuleNotFoundError as error:
    from harness.errors import missing

    print(f"run.py: {missing(error)}", file=sys.stderr)
    raise SystemExit(2) from None

from harness.compose import plain, register_defaults
from harness.errors import BenchError, ConfigError, ThresholdError
from harness.private import fault_of_command
from harness.visible import visible_lines


def say(line: str) -> None:
    """A line for the person at the terminal; results alone go to standard output."""
    print(visible_lines(line), file=sys.stderr, flush=True)


def execute(values: dict[str, Any], overrides: list[str], *, brief: bool = False) -> str | float:
    """Run what a composed configuration asks for. Returns the run folder, or "" for a plan; with run.objective that
    figure instead. brief: one line instead of the table.

    Raises BenchError for whatever a person can mend.
    """
    from harness.approve import approve, terminal
    from harness.llm import servers
    from harness.prepare import bill, prepare

    prepared = prepare(values)
    spec, system, dataset, protocol = prepared.spec, prepared.system, prepared.dataset, prepared.protocol
    path = prepared.path
    say(f"{spec.label} | {spec.backbone.name} | {dataset.name} | {spec.protocol.name} | {path}")
    for notice in dataset.notices:
        say(f"  {notice}")
    say(f"  {len(dataset.samples)} conversations, {dataset.n_questions} questions, {spec.trials} trial(s)")
    say(f"  {prepared.line}")
    if spec.cache.mode != "replay" and (note := servers.download_note(spec.backbone)):
        say(f"  {note}")
    if prepared.plan_only:
        return ""
    if spec.wandb.mode != "off":
        from eval import wandb_log

        wandb_log.check(spec.wandb)
    if not prepared.finished and spec.cache.mode != "replay":
        servers.check(spec.backbone)
        approve(bill([prepared]), yes=spec.run.assume_yes, max_usd=spec.run.max_usd, ask=terminal())

    from eval.run_report import judge_again, objective, report
    from harness.records import RunFolder
    from harness.run_facts import by_code, manifest_values

    manifest = manifest_values(spec, dataset.fingerprint, prepared.prompts)
    stale = ""
    with RunFolder(path, prepared.identity, manifest, fresh=spec.run.fresh) as folder:
        for notice in folder.notices:
            say(f"  {notice}")
        if folder.read_metrics() is not None and folder.read_status().get("state") in ("finished", "failed"):
            say("  already finished: nothing to compute (run.fresh=true runs it again)")
            if others := [code for code in by_code(folder.answers.values()) if code != folder.code]:
                stale = f"made by code {', '.join(others)}; this is code {folder.code}: run.fresh=true runs it again"
            judge_again(folder, spec.run.max_error_rate)
        else:
            if folder.manifest.get("versions") != manifest["versions"]:
                say("  resumed under other versions of code or packages than it was started with (manifest.json)")
            work(spec, system, dataset, protocol, prepared.plan, folder, overrides)
        if spec.wandb.mode != "off":
            wandb_log.log(folder, spec.wandb, say)
        try:
            shown = report(folder, path, brief=brief)
        finally:
            if stale:
                say(stale)  # last: above a table it would be out of sight
        return shown if spec.run.objective is None else objective(folder, spec.run.objective)


def work(spec, system, dataset, protocol, plan, folder, overrides) -> None:
    """Build, ask, aggregate, write. Leaves status.json telling how it ended, whatever happens."""
    from eval.aggregate import aggregate, failures, memory_totals
    from eval.run_report import table_facts, table_options
    from eval.table import markdown
    from harness.libraries import load
    from harness.llm.address import is_unpriced
    from harness.run_facts import code_lines, overall_usage

    status = partial(folder.write_status, total=dataset.n_questions * spec.trials)
    status("running")
    load(spec.backbone)
    try:
        built, facts = asyncio.run(session(spec, system, dataset, protocol, plan, folder))
        records = [
            folder.answers[(q.sample_id, q.qa_index, trial)]
            for sample in dataset.samples
            for q in sample.questions
            for trial in range(spec.trials)
        ]
        usage = overall_usage(built, records)
        metrics = aggregate(
            records,
            memory=memory_totals({one["sample_id"]: one for one in built}),
            usage=usage,
            wall_s=folder.status.elapsed_s,
        )
        reasons = failures(metrics, spec.run.max_error_rate)
        metrics["table"] = table_facts(spec, system, dataset, built, facts, overrides) | {"failures": list(reasons)}
        metrics["table"]["lines"] += code_lines(records)
        if is_unpriced(spec.backbone) and usage["computed_calls"]:
            metrics["table"]["unpriced"] = spec.backbone.model
        folder.write_results(metrics, markdown(metrics, **table_options(metrics)))
        status("failed" if reasons else "finished", "; ".join(reasons))
    except (KeyboardInterrupt, asyncio.CancelledError):
        status("stopped", "interrupted; start it again to go on")
        raise KeyboardInterrupt from None
    except BenchError as error:
        status("stopped", str(error))
        raise
    except Exception as error:
        status("stopped", f"unexpected {type(error).__name__}")
        raise


async def session(spec, system, dataset, protocol, plan, folder) -> tuple[list[dict], dict[str, Any]]:
    """One process's share of a run: start what must be started, run, close it again."""
    from eval.evidence import score_evidence
    from eval.sanity import SANITY
    from eval.score import score_answer
    from harness.built import shared_memories
    from harness.embed import build_embedder
    from harness.llm.build import build_chat
    from harness.llm.cache import ReplyCache
    from harness.llm.kept import serve
    from harness.llm.servers import Endpoint
    from harness.progress import Progress
    from harness.runner import Parts, run
    from harness.status import Said, digests

    def score(question, answer, items) -> dict[str, float]:
        # Pages and sessions name no turns: recall over them would be another measure.
        exact = system.evidence_of(spec.memory) == "exact"
        return score_answer(question, answer) | (score_evidence(question.evidence, items) if exact else {})

    oracle = None if system.oracle is None else SANITY[system.oracle]
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    # Without the shared cache the replies still stand in the run's own folder: a killed run pays nothing twice.
    shared = Path(spec.cache.path)
    cache = ReplyCache(folder.path / "replies" if spec.cache.mode == "off" else shared, spec.cache.mode, folder.run_id)
    embedder = await asyncio.to_thread(build_embedder, spec.embedder, shared, readonly=spec.cache.mode == "replay")
    memories = shared_memories(spec, system, folder.run_id, folder.path.name)
    try:
        replay = spec.cache.mode == "replay"  # starts nothing and needs no key
        server = nullcontext(Endpoint(None, None)) if replay else serve(spec.backbone, folder.path / "logs", say)
        async with server as endpoint:
            chat = build_chat(
                spec.backbone,
                cache,
                base_url=endpoint.base_url,
                api_key=endpoint.api_key,
                seed=spec.seed,
                max_usd=spec.run.max_usd,
            )
            progress = Progress(
                len(dataset.samples),
                dataset.n_questions * spec.trials,
                chat.live,
                quiet=not spec.run.progress,
                turns=sum(len(sample.conversation.turns) for sample in dataset.samples),
                building=plan.building.calls,
                asking=plan.asking.calls,
                elsewhere=lambda: cache.awaited,
            )
            progress.start()
            said = (chat.notices, cache.notices, embedder.notices, memories.notices if memories else ())
            folder.status.watch(lambda: Said(tuple(chain(*said)), digests(embedder.too_long)))
            try:
                if not replay:
                    await chat.meet()
                parts = Parts(spec, dataset, system, protocol, chat, embedder, score, oracle, memories)
                built = await run(parts, folder, progress)
            finally:
                progress.stop()
                await chat.aclose()
            every = folder.status.said()  # what processes that were killed have said as well
            return built, {
                "notices": every.notices,
                "tokenizer": chat.tokenizer_name,
                "truncated": len(every.too_long),
            }
    finally:
        await embedder.aclose()
        cache.close()
        loop.remove_signal_handler(signal.SIGTERM)


def grid_command() -> str:
    """The command that was given, as a sweep."""
    return shlex.join([Path(sys.argv[0]).name, "-m", *sys.argv[1:]])


_failure: list[BaseException] = []
"""The error of a single run: Hydra prints an extra line for one that leaves the job, so it is carried past it."""


register_defaults()


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def task(cfg: DictConfig) -> str | float:
    values = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    hydra_config = HydraConfig.get()
    sweep = hydra_config.mode == RunMode.MULTIRUN
    if not sweep and hydra_config.sweeper.params:
        _failure.append(ConfigError(f"this is a grid of runs, not a run; start it with: python {grid_command()}"))
        return ""
    if sweep:
        say(f"\n#{hydra_config.job.num} {' '.join(hydra_config.overrides.task)}")
    try:
        return execute(values, list(hydra_config.overrides.task), brief=sweep)
    except BenchError as error:
        if sweep:
            say(f"run.py: {error}")
            raise
        _failure.append(error)
        return ""


def main() -> int:
    """Exit status: 0 done, 1 finished above its error threshold, 2 an error to mend, 130 interrupted."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises its errors instead of printing and exiting itself
    if fault := fault_of_command(sys.argv[1:]):  # refused before Hydra writes the command line anywhere
        say(f"run.py: {fault}")
        return 2
    try:
        task()
        if _failure:
            raise _failure[0]
    except ThresholdError as error:
        say(f"run.py: {error}")
        return 1
    except (BenchError, HydraException, OmegaConfBaseException) as error:
        say(f"run.py: {plain(error)}")
        return 2
    except KeyboardInterrupt:
        say("run.py: interrupted; everything so far is kept, start it again to go on")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
