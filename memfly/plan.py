"""What a run of MemFly will take in calls and tokens, before it starts."""

from __future__ import annotations

from harness.memory import CallPlan, DataShape
from harness.prompts import ROOT
from memfly.calls import EXTRACT, JUDGE, MERGE, PARSE, SCORE, SCORE_LIST
from memfly.config import MemFlyConfig

TOKENS_PER_WORD = 1.35
"""Our choice: English dialogue with common byte-pair tokenizers."""
CONTEXT_FACTOR = (1.0, 1.6)
"""Tokens of a context over those of its turn: as short, or with every reference spelled out (our choice)."""
REPLY = {EXTRACT: 110, SCORE: 20, MERGE: 90, PARSE: 60, JUDGE: 25}
"""Typical reply tokens (our choice)."""
MERGE_SHARE = (0.0, 0.3)
"""Share of turns that merge, lowest and highest (our choice)."""
WASTED_PAIRS = 2
"""Pairs that a merge makes useless for each turn scored ahead: with the draft that is no note, and with the note that changed
(our choice, above the 0.3 to 1.4 measured; at worst k_cand)."""
NOTE_FRAME = 25
"""Tokens of date, speaker and line breaks of a note in a prompt."""


def predict(config: MemFlyConfig, shape: DataShape, *, can_judge: bool) -> CallPlan:
    """Calls and tokens, lowest and highest. Per turn: one extraction, then k_cand pair scores, one list score or
    none, and a merge for some, with what it wastes of the scores asked ahead; per question: one parse and up to i_max times a judgement and a parse."""
    scoring = config.resolve_scoring(can_judge)
    turn = TOKENS_PER_WORD * shape.words / max(1, shape.turns)
    pairs = _pairs(config, shape) if config.update else 0
    scored = shape.turns - shape.conversations if config.update else 0
    calls, tokens, query_calls, query_tokens, context_tokens = [], [], [], [], []
    for i in (0, 1):
        context = turn * CONTEXT_FACTOR[i]
        merges = int(MERGE_SHARE[i] * shape.turns) if config.update and config.merge else 0
        n = shape.turns + merges
        t = shape.turns * (_frame(EXTRACT) + (config.history_turns + 1) * turn + REPLY[EXTRACT])
        t += merges * (_frame(MERGE) + 3 * context + REPLY[MERGE])
        if scoring == "pairwise":
            asked = pairs + merges * (config.speculation - 1) * min(WASTED_PAIRS, config.k_cand)
            n += asked
            t += asked * (_frame(SCORE) + 2 * context + REPLY[SCORE])
        elif scoring == "listwise":
            n += scored
            t += scored * (_frame(SCORE_LIST) + NOTE_FRAME) + pairs * (context + NOTE_FRAME + REPLY[SCORE])
        calls.append(n)
        tokens.append(int(t))
        raw_too = 2 if config.render == "context+raw" else 1
        notes = min(config.k_total or config.k_final * (1 + config.i_max), max(1, shape.turns))
        pool = notes * (raw_too * context + NOTE_FRAME)
        judge = _frame(JUDGE) + pool + REPLY[JUDGE]
        parse = _frame(PARSE) + 20 + REPLY[PARSE]
        least = min(1, config.i_max)
        judges, parses = (least, 1) if i == 0 else (config.i_max, 1 + config.i_max)
        query_calls.append(judges + parses)
        query_tokens.append(int(judges * judge + parses * parse))
        context_tokens.append(int(pool))
    return CallPlan(_pair(calls), _pair(tokens), _pair(query_calls), _pair(query_tokens), _pair(context_tokens))


def _pairs(config: MemFlyConfig, shape: DataShape) -> int:
    """Scored pairs: a conversation's first turns have fewer than k_cand older notes."""
    turns = shape.turns // max(1, shape.conversations)
    early = min(turns, config.k_cand)
    each = early * (early - 1) // 2 + (turns - early) * config.k_cand
    return each * shape.conversations


def _frame(prompt: str) -> float:
    """Tokens of a prompt without its inputs."""
    return TOKENS_PER_WORD * len((ROOT / prompt).read_text(encoding="utf-8").split())


def _pair(values: list[int]) -> tuple[int, int]:
    return values[0], values[1]
