"""How data travels inside the page: JSON, gzipped, base64. No text of theirs is markup there, whatever it holds."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Chunk:
    """One `<script type="application/octet-stream" id="chunk-<name>">`, unpacked by the page when it needs it.

    data: base64 of gzipped UTF-8 JSON. size: bytes of the JSON.
    """

    name: str
    data: str
    size: int


def pack(name: str, value: Any) -> Chunk:
    """The same value gives the same bytes. A lone surrogate becomes a question mark; NaN is a ValueError."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
    return Chunk(name, base64.b64encode(gzip.compress(text, compresslevel=9, mtime=0)).decode("ascii"), len(text))


def unpack(chunk: Chunk) -> Any:
    """What the page reads from a chunk."""
    return json.loads(gzip.decompress(base64.b64decode(chunk.data)))


class Pool:
    """Values kept once: `pool.place(value)` is its position in `pool.values`. Values are hashable."""

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}

    def place(self, value: Any) -> int:
        return self._places.setdefault(value, len(self._places))

    @property
    def values(self) -> list[Any]:
        return list(self._places)

    def __len__(self) -> int:
        return len(self._places)
