"""The vocabulary inside a GGUF file: to count tokens without starting a server.

File format: the GGUF specification, version 3 (ggml project): magic, version, counts, then typed key-value pairs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from harness.errors import DataError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def read_metadata(path: Path) -> dict[str, Any]:
    """The key-value pairs at the head of the file (the weights are not read). DataError when it is no GGUF file."""
    try:
        with path.open("rb") as file:
            magic, version, _tensors, pairs = struct.unpack("<4sIQQ", file.read(24))
            if magic != b"GGUF" or version not in (2, 3):
                raise DataError(f"{path} is not a GGUF file of version 2 or 3")
            return {_string(file): _value(file, _one(file, "I")) for _ in range(pairs)}
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except (struct.error, KeyError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is a damaged GGUF file") from error


@lru_cache(maxsize=2)
def token_counter(path: Path) -> Callable[[str], int] | None:
    """Tokens of a plain text by the file's own vocabulary, without special tokens.

    None for a vocabulary other than SmolLM's byte-level BPE: each has its own way of splitting text first.
    """
    facts = read_metadata(path)
    if (facts.get("tokenizer.ggml.model"), facts.get("tokenizer.ggml.pre")) != ("gpt2", "smollm"):
        return None
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {token: number for number, token in enumerate(facts["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return lru_cache(maxsize=4096)(lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids))


def _one(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", file.read(struct.calcsize(f"<{code}")))[0]


def _string(file: BinaryIO) -> str:
    length = _one(file, "Q")
    raw = file.read(length)
    if len(raw) != length:
        raise struct.error("cut short")
    return raw.decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        element, length = struct.unpack("<IQ", file.read(12))
        if element in _SCALARS:
            code = f"<{length}{_SCALARS[element]}"
            return list(struct.unpack(code, file.read(struct.calcsize(code))))
        return [_value(file, element) for _ in range(length)]
    return _one(file, _SCALARS[kind])
