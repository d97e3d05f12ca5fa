"""Run folders written by hand for the tests of what reads them."""

import json

from eval.aggregate import aggregate


def record(sample_id, qa_index, category, *, f1=0.0, error=None, trial=0, **more):
    """One line of answers.jsonl; `f1` stands for every answer metric unless `scores` says otherwise."""
    scores = {"f1_amem": f1, "f1_locomo": f1, "bleu1": f1, "abstained": 0.0}
    values = {
        "sample_id": sample_id,
        "qa_index": qa_index,
        "trial": trial,
        "category": category,
        "question": f"question {qa_index}?",
        "gold": "gold",
        "gold_evidence": ["D1:1"],
        "reply": "reply",
        "answer": "answer",
        "options": None,
        "evidence": [],
        "context_tokens": 10,
        "trace": {},
        "scores": {} if error else scores,
        "usage": {"calls": 1, "computed_calls": 1, "cached_calls": 0, "prompt_tokens": 90, "completion_tokens": 10, "usd": 0.0},
        "fallbacks": {},
        "call_errors": 0,
        "latency_s": 0.1,
        "error": {"kind": error, "message": error} if error else None,
    }  # fmt: skip
    return values | more


def write_run(
    folder,
    records,
    *,
    memory="memfly",
    ablation="none",
    backbone="scripted",
    protocol="amem",
    state="finished",
    memory_options=None,
    seed=0,
    data_sha="d" * 64,
    identity=None,
    comparable=False,
    metrics=True,
    protocol_options=None,
):
    """A run folder as run.py leaves it. Returns its path."""
    folder.mkdir(parents=True)
    label = memory if ablation == "none" else f"{memory}-{ablation}"
    spec = {
        "memory_name": memory,
        "system": f"x:{memory}",
        "ablation": ablation,
        "memory": memory_options or {},
        "backbone": {"name": backbone, "model": backbone, "revision": None},
        "dataset": {"name": "sample", "path": None, "subset": "all", "gold": "raw", "max_sessions": None},
        "embedder": {"name": "minilm", "model": "minilm"},
        "protocol": {"name": protocol, "temperature": 0.7, **(protocol_options or {})},
        "seed": seed,
        "trials": 1 + max((r["trial"] for r in records), default=0),
        "cache": {"mode": "use"},
        "run": {},
    }
    manifest = {
        "format": 1,
        "identity": identity or f"{label}-{backbone}-{seed}-{json.dumps(memory_options)}",
        "run_id": folder.name,
        "spec": spec,
        "versions": {"bench": "abc"},
        "data": {"content_sha256": data_sha, "is_locomo10": comparable},
        "prompts": {"harness/prompts/amem.j2": "p" * 64, f"{memory}/prompts/x.j2": memory},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "status.json").write_text(json.dumps({"state": state, "message": "" if state == "finished" else "why"}))
    (folder / "answers.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    if metrics:
        usage = {
            "calls": 9,
            "computed_calls": 6,
            "cached_calls": 3,
            "prompt_tokens": 900,
            "completion_tokens": 100,
            "usd": 0.5,
        }
        values = aggregate(records, memory={"turns": 50, "notes": 40, "collapsed": False}, usage=usage, wall_s=2.0)  # fmt: skip
        facts = {"backbone": backbone, "label": label, "protocol": protocol, "full_locomo10": comparable}
        values["table"] = {"title": label, "lines": [f"memory: {label}"], "comparable": facts, "failures": []}
        (folder / "metrics.json").write_text(json.dumps(values))
    return folder
