"""Texts to vectors: one encoder behind a cache, shared by all coroutines of a run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.encoders import Encoder, HashingEncoder, SentenceEncoder
from harness.spec import EmbedderSpec
from harness.vectors import Row, VectorStore

_WRITE_EVERY = 256  # vectors lost at most when a run is killed
TOGETHER = 512
"""Texts of waiting callers that are taken up at once (our choice: a second's work, enough to fill batches of every
length). If it were all that wait, nobody would ask the model until a whole conversation is encoded."""
FEW = 2
"""Texts up to which a request goes ahead of the others (our choice): a question or a merged note, which the rest of a run
waits for, is encoded between two batches of a conversation's turns. (Counted as asked: a turn most of whose keywords are
known already must not overtake those before it.)"""


@dataclass
class _Request:
    texts: list[str]
    done: Future = field(default_factory=Future)


class Embedder:
    """Unit vectors of texts, float32, shape (n, dim). Callable from many coroutines at once.

    A text's vector depends on the text and the model alone: bitwise the same alone, in any batch, from the cache. (On
    another processor the last bits may differ; the key knows the weights and shapes, not the machine.)
    One worker thread does tokenisation, forward and the disk cache; what callers ask for while it is busy is collected
    and encoded together next, some TOGETHER texts at a time, first come first served after those of a FEW texts. `too_long` holds the distinct
    texts longer than `max_tokens`, of which the model sees only the beginning; `computed` counts the vectors computed,
    `damaged` the cache rows that had to be dropped, which `notices` say.
    """

    def __init__(self, spec: EmbedderSpec, encoder: Encoder, cache_dir: Path | None, *, readonly: bool = False):
        self.dim = spec.dim
        self.max_tokens = spec.max_tokens
        self.computed = 0
        self.notices: list[str] = []
        self._encoder = encoder
        self._cache_dir = cache_dir
        self._readonly = readonly
        self._store: VectorStore | None = None
        self._known: dict[str, np.ndarray] = {}
        self.too_long: set[str] = set()
        self._queue: deque[_Request] = deque()
        self._ahead: deque[_Request] = deque()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed")

    @property
    def damaged(self) -> int:
        return self._store.damaged if self._store else 0

    def count_tokens(self, text: str) -> int:
        """Tokens of `text` as the model would see it untruncated: compare with `max_tokens`."""
        return self._encoder.count_tokens(text)

    async def encode(self, texts: Sequence[str]) -> np.ndarray:
        """(len(texts), dim) float32 unit rows, in the order of `texts`.

        ValueError for an empty text (it has no meaning to encode), DataError for unusable weights, RecordError for
        an unusable cache.
        """
        for place, text in enumerate(texts):
            if not text.strip():
                raise ValueError(f"text {place} of {len(texts)} to encode is empty")
        missing = list(dict.fromkeys(text for text in texts if text not in self._known))
        if missing:
            request = _Request(missing)
            (self._ahead if len(texts) <= FEW else self._queue).append(request)
            self._worker.submit(self._work)
            await asyncio.wrap_future(request.done)
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        return np.stack([self._known[text] for text in texts])

    def listener(self) -> Listener:
        """This embedder as one of its users, whose own `too_long` it keeps."""
        return Listener(self)

    async def aclose(self) -> None:
        """Let the worker finish and close the cache. No `encode` afterwards."""
        try:
            self._worker.submit(self._close)
        except RuntimeError:  # Python itself is ending (a second Ctrl-C), and has ended its threads before
            return
        await asyncio.to_thread(self._worker.shutdown)

    def _work(self) -> None:
        """In the worker thread: some of what waits. (Submitted once per request; a later one may find nothing left.)"""
        self._answer(self._take(self._ahead) or self._take(self._queue))

    def _take(self, queue: deque[_Request]) -> list[_Request]:
        waiting: list[_Request] = []
        while queue and sum(len(request.texts) for request in waiting) < TOGETHER:
            waiting.append(queue.popleft())
        return waiting

    def _answer(self, waiting: list[_Request]) -> None:
        try:
            texts = dict.fromkeys(text for request in waiting for text in request.texts)
            self._fill([text for text in texts if text not in self._known], waiting)
        except BaseException as error:
            for request in waiting:
                _settle(request.done, error)
        self._settle_known(waiting)

    def _settle_known(self, waiting: list[_Request]) -> None:
        """Let those go on whose texts all have their vectors."""
        for request in waiting:
            if not request.done.done() and all(text in self._known for text in request.texts):
                _settle(request.done)

    def _fill(self, texts: list[str], waiting: list[_Request]) -> None:
        if not texts:
            return
        if self._cache_dir is not None and self._store is None:
            self._store = VectorStore(
                self._cache_dir, self._encoder.identity, self.dim, self.notices, readonly=self._readonly
            )
        if self._store is not None:
            for text, row in self._store.read(texts).items():
                self._keep(text, row)
            texts = [text for text in texts if text not in self._known]
        unsaved: list[tuple[str, Row]] = []
        try:
            for batch in self._encoder.batches(texts) if texts else ():
                for position, vector, tokens in zip(batch.positions, batch.vectors, batch.tokens, strict=True):
                    row = Row(tokens, vector)
                    self._keep(texts[position], row)
                    self.computed += 1
                    unsaved.append((texts[position], row))
                if len(unsaved) >= _WRITE_EVERY:
                    self._save(unsaved)
                self._settle_known(waiting)
                if self._ahead:
                    self._answer(self._take(self._ahead))
                if all(request.done.done() for request in waiting):
                    return  # interrupted: nobody waits for the rest
        finally:
            self._save(unsaved)

    def _keep(self, text: str, row: Row) -> None:
        self._known[text] = row.vector
        if row.tokens > self.max_tokens:
            self.too_long.add(text)

    def _save(self, rows: list[tuple[str, Row]]) -> None:
        if self._store is not None and rows:
            self._store.write(rows)
        rows.clear()

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()


class Listener:
    """An embedder that keeps apart which of the texts asked through it were too long."""

    def __init__(self, embedder: Embedder):
        self._embedder = embedder
        self.too_long: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)

    async def encode(self, texts: Sequence[str]) -> np.ndarray:
        vectors = await self._embedder.encode(texts)
        self.too_long |= self._embedder.too_long.intersection(texts)
        return vectors


def _settle(done: Future, error: BaseException | None = None) -> None:
    try:
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
    except InvalidStateError:
        pass  # its caller was cancelled meanwhile


def build_embedder(spec: EmbedderSpec, cache_dir: Path, *, readonly: bool = False) -> Embedder:
    """The embedder of a run; its vectors are kept in `<cache_dir>/vectors.sqlite` (hashing needs no cache).

    `readonly`: the file is an archive and stays as it is.

    Cheap: the model loads with the first text that no cache holds. DataError when its weights are nowhere.
    """
    if spec.kind == "hashing":
        return Embedder(spec, HashingEncoder(spec), None)
    return Embedder(spec, SentenceEncoder(spec), cache_dir, readonly=readonly)
