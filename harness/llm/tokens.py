"""Who counts tokens. Where the backbone's own tokenizer is not at hand, an estimate that errs on the high side."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from harness.errors import BenchError, ConfigError
from harness.spec import BackboneSpec

_PIECE = re.compile(r"[A-Za-z]{1,5}|[0-9]|\n+|[^\sA-Za-z0-9]")


@lru_cache(maxsize=4096)
def estimate(text: str) -> int:
    """Tokens of a text, on the high side for English (our choice: a context that is cut a little early is better
    than a request that is refused): one per five letters begun of a word, per digit, per other sign, per run of line
    breaks, and one more for every further UTF-8 byte of a sign outside ASCII."""
    extra = 0 if text.isascii() else len(text.encode("utf-8", "replace")) - len(text)
    return len(_PIECE.findall(text)) + extra


class TokenCounter:
    """Counts tokens of a text. `name` says who counts: "estimate", "llamacpp", "tiktoken:<encoding>" or "hf:<name>"."""

    def __init__(self, name: str, count: Callable[[str], int]):
        self.name = name
        self._count = count

    def __call__(self, text: str) -> int:
        return self._count(text)


def counter(spec: BackboneSpec) -> TokenCounter:
    """The counter that `spec.tokenizer` names, if it can be had offline; else the estimate.

    ConfigError: a kind of counter that is not known. No endpoint is asked: a /tokenize request per count would cost more than many of the calls it measures.
    """
    kind, _, name = spec.tokenizer.partition(":")
    makers = {"llamacpp": lambda _: _llamacpp(spec), "tiktoken": _tiktoken, "hf": _hf, "estimate": lambda _: None}
    if kind not in makers:
        raise ConfigError(
            f"backbone.tokenizer={spec.tokenizer!r} is none of estimate, llamacpp, tiktoken:<encoding>, hf:<name>"
        )
    count = makers[kind](name)
    return TokenCounter("estimate", estimate) if count is None else TokenCounter(spec.tokenizer, count)


def with_counter(spec: BackboneSpec) -> BackboneSpec:
    """The backbone with the counter that it will have: "estimate" where the named one cannot be had here.

    How much context fits is decided by it, so it belongs to the run's identity as it is and not as it was wished.
    """
    return replace(spec, tokenizer=counter(spec).name)


def _llamacpp(spec: BackboneSpec) -> Callable[[str], int] | None:
    """The vocabulary inside the weights' file; None where the file is elsewhere (a base URL) or of another kind."""
    from harness.llm.server_llamacpp import vocab_counter

    try:
        return vocab_counter(spec)
    except (BenchError, ImportError):
        return None


def _tiktoken(name: str) -> Callable[[str], int] | None:
    """Only with TIKTOKEN_CACHE_DIR set, tiktoken's own way to name a local copy: without one it downloads."""
    if not os.environ.get("TIKTOKEN_CACHE_DIR"):
        return None
    try:
        import tiktoken

        encoding = tiktoken.get_encoding(name)
    except Exception:  # not installed, unknown, or the copy is not there: the estimate stands in
        return None
    return lru_cache(maxsize=4096)(lambda text: len(encoding.encode(text, disallowed_special=())))


def _hf(name: str) -> Callable[[str], int] | None:
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=True)
    except Exception:  # not installed, or not on this machine: the estimate stands in
        return None
    return lru_cache(maxsize=4096)(lambda text: len(tokenizer.encode(text, add_special_tokens=False)))
