"""A run folder made by hand: two conversations, texts that break careless writers, one answer that is an error."""

import json

HOSTILE = 'He said "no", twice;\r\nthen\x1f left\x00 \U0001f9ed <b>&amp;</b> ]]> \\" end '
"""Quotes, a comma, a semicolon, line ends, control characters, emoji, markup, a backslash, outer white space."""
CLEAN = 'He said "no", twice;\nthen\ufffd left\ufffd \U0001f9ed <b>&amp;</b> ]]> \\" end '


def turn(dia_id, speaker, text, caption=None):
    return {"dia_id": dia_id, "session": 1, "speaker": speaker, "date": "2023-05-08T13:56:00", "text": text, "caption": caption}  # fmt: skip


def note(id, turns, context, keywords):
    dia_ids = [one["dia_id"] for one in turns]
    return {"id": id, "date": "2023-05-08T13:56:00", "dia_ids": dia_ids, "context": context, "keywords": keywords, "turns": turns}  # fmt: skip


def tables():
    """Three notes; "ann" is held by all, "kiln" by 0 and 1, "boat" by 1 and 2: only kiln and boat co-occur once, not twice."""
    return {
        "notes": [
            note(0, [turn("D1:1", "Ann", "I have a kiln."), turn("D1:2", "Bo", HOSTILE, "a kiln")], HOSTILE, ["ann", "kiln"]),
            note(1, [turn("D1:3", "Ann", "It is hot.")], "", ["ann", "kiln", "boat"]),
            note(2, [turn("D1:4", "Ann", "A boat!")], "Ann has a boat.", ["ann", "boat"]),
        ],
        "keywords": [
            {"id": 0, "form": "ann", "notes": [0, 1, 2]},
            {"id": 1, "form": "kiln", "notes": [0, 1]},
            {"id": 2, "form": "boat", "notes": [1, 2]},
        ],
        "topics": [{"id": 0, "keywords": ["ann", "kiln"]}, {"id": 1, "keywords": ["boat"]}],
        "edges": [{"source": 0, "target": 2, "weight": 0.625}],
    }  # fmt: skip


COUNTS = {"Note": 3, "Keyword": 3, "Topic": 2, "RELATED": 1, "HAS_KEYWORD": 7, "IN_TOPIC": 3, "CO_OCCURS": 3}


def record(qa_index, **changes):
    return {
        "sample_id": "conv-1",
        "qa_index": qa_index,
        "trial": 0,
        "category": 4,
        "question": "What has Ann?",
        "gold": "a kiln",
        "gold_evidence": ["D1:1"],
        "reply": '{"answer": "kiln"}',
        "answer": "kiln",
        "options": None,
        "evidence": [
            {
                "dia_ids": ["D1:1", "D1:2"],
                "paths": ["topic"],
                "rank": 1,
                "round": 0,
                "score": 0.25,
                "date": "2023-05-08T13:56:00",
                "ends": [4, 11],
                "text": HOSTILE,
            }
        ],
        "context_tokens": 12,
        "trace": {"stop": "covered"},
        "scores": {"f1_amem": 0.5, "f1_locomo": 1.0, "bleu1": 0.25, "abstained": 0.0, "judge": 1.0},
        "usage": {"calls": 2, "computed_calls": 1, "cached_calls": 1, "prompt_tokens": 90, "completion_tokens": 9, "usd": 0.001},
        "fallbacks": {"gate": 2},
        "call_errors": 1,
        "latency_s": 0.75,
        "error": None,
    } | changes  # fmt: skip


ERROR = {
    "reply": HOSTILE,
    "answer": None,
    "options": ["yes", "Not mentioned in the conversation"],
    "category": 5,
    "evidence": [],
    "scores": {},
    "error": {"kind": "unparsable", "message": "no JSON"},
}


def metrics():
    figures = {"f1_amem": 0.5, "f1_locomo": 1.0, "recall": None}
    return {
        "n_total": 2,
        "n_scored": 1,
        "n_error": 1,
        "errors_by_kind": {"unparsable": 1},
        "micro": figures,
        "micro4": figures,
        "macro": figures,
        "macro4": figures,
        "by_category": {"4": {"name": "single_hop", "n": 1, "n_error": 0, "n_evidence": 0, **figures}},
        "intervals": {"f1_amem": [0.25, 0.75], "recall": None},
        "interval_reason": "too few",
        "memory": {"notes": 3, "collapsed": False, "collapsed_conversations": []},
        "usage": {"calls": 2, "computed_calls": 1, "cached_calls": 1, "prompt_tokens": 90, "completion_tokens": 9, "usd": 0.001},
        "wall_s": 1.5,
        "table": {"title": "memfly-no_link", "lines": [], "comparable": {}, "failures": []},
    }  # fmt: skip


def manifest(run_id="1f" * 16):
    return {
        "format": 1,
        "identity": "ab" * 32,
        "run_id": run_id,
        "spec": {
            "backbone": {"name": "stub", "model": "stub-1"},
            "memory_name": "memfly",
            "memory": {"tau_link": 0.5},
            "ablation": "no_link",
            "dataset": {"name": "sample", "subset": "all", "gold": "raw"},
            "protocol": {"name": "amem"},
            "seed": 7,
            "trials": 1,
        },
        "versions": {"bench": "0"},
        "data": {"content_sha256": "cd" * 32},
        "prompts": {},
    }


def run_folder(path, *, state="finished", run_id="1f" * 16, memories=None, answers=None):
    """Write a run folder. memories: conversation -> tables (default: two of `tables()`)."""
    path.mkdir(parents=True)
    (path / "manifest.json").write_text(json.dumps(manifest(run_id)))
    (path / "status.json").write_text(json.dumps({"state": state, "message": ""}))
    (path / "metrics.json").write_text(json.dumps(metrics()))
    records = [record(0), record(1, **ERROR)] if answers is None else answers
    (path / "answers.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    for conversation, rows in ({"conv-1": tables(), "conv-2": tables()} if memories is None else memories).items():
        folder = path / "memory" / conversation
        folder.mkdir(parents=True)
        for name, table in rows.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
        (folder / "built.json").write_text(json.dumps({"sample_id": conversation, "turns": 4}))
    return path
