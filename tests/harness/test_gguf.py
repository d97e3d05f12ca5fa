"""The head of a GGUF file, and counting with the vocabulary inside."""

import struct

import pytest

from harness.errors import DataError
from harness.llm.gguf import read_metadata, token_counter


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def strings(values):
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(string(value) for value in values)


def write(path, pairs, magic=b"GGUF"):
    body = b"".join(string(key) + value for key, value in pairs.items())
    path.write_bytes(struct.pack("<4sIQQ", magic, 3, 0, len(pairs)) + body)
    return path


def vocabulary(tokens, merges, model="gpt2", pre="smollm"):
    return {
        "tokenizer.ggml.model": struct.pack("<I", 8) + string(model),
        "tokenizer.ggml.pre": struct.pack("<I", 8) + string(pre),
        "tokenizer.ggml.tokens": strings(tokens),
        "tokenizer.ggml.merges": strings(merges),
    }


def test_values_of_every_kind(tmp_path):
    pairs = {
        "a.string": struct.pack("<I", 8) + string("SmolLM é"),
        "a.number": struct.pack("<II", 4, 8192),
        "a.float": struct.pack("<If", 6, 0.5),
        "a.flag": struct.pack("<I?", 7, True),
        "some.numbers": struct.pack("<IIQ3i", 9, 5, 3, -1, 0, 7),
        "some.strings": strings(["x", "yy"]),
    }
    assert read_metadata(write(tmp_path / "m.gguf", pairs)) == {
        "a.string": "SmolLM é",
        "a.number": 8192,
        "a.float": 0.5,
        "a.flag": True,
        "some.numbers": [-1, 0, 7],
        "some.strings": ["x", "yy"],
    }


def test_tokens_by_hand(tmp_path):
    # Ġ stands for a space in byte-level BPE. "ab" merges, then "Ġ" + "ab"; digits never merge.
    path = write(tmp_path / "m.gguf", vocabulary(["a", "b", "Ġ", "1", "ab", "Ġab", "11"], ["a b", "Ġ ab", "1 1"]))
    count = token_counter(path)
    assert [count(text) for text in ("ab", "ab ab", "aab", "11", "", "ab 1")] == [1, 2, 2, 2, 0, 3]


@pytest.mark.parametrize("kind", [{"model": "llama"}, {"pre": "qwen2"}])
def test_an_unknown_vocabulary_has_no_counter(tmp_path, kind):
    assert token_counter(write(tmp_path / "m.gguf", vocabulary(["a"], [], **kind))) is None


def test_damaged_files_are_one_line(tmp_path):
    whole = write(tmp_path / "m.gguf", vocabulary(["a", "b"], ["a b"])).read_bytes()
    for name, content in {
        "short": whole[:-3],
        "empty": b"",
        "kind": whole.replace(struct.pack("<I", 8), b"\x63\0\0\0"),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match="damaged GGUF"):
            read_metadata(tmp_path / name)
    with pytest.raises(DataError, match="not a GGUF file"):
        read_metadata(write(tmp_path / "other", {}, magic=b"GGML"))
    with pytest.raises(DataError, match="cannot be read"):
        read_metadata(tmp_path / "absent")
