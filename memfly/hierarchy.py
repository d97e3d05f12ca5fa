"""The memory's state: notes, keywords with postings, RELATED edges, topics. Operations keep them consistent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from harness.index import EXACT, DenseIndex
from memfly.note import Draft, Note


@dataclass
class Keyword:
    """A normalised surface form. `id` is its position in order of insertion; `vector` e has unit length, shape (d,);
    `notes` its postings: ids of the notes that hold it, an ordered set."""

    id: int
    form: str
    vector: np.ndarray
    notes: dict[int, None] = field(default_factory=dict)
    _array: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False, compare=False)

    def postings(self) -> np.ndarray:
        """`notes` as an array, int64. Kept, and extended by what came since."""
        known, held = len(self._array), len(self.notes)
        if known < held:
            new = np.fromiter(islice(self.notes, known, None), dtype=np.int64, count=held - known)
            self._array = np.concatenate([self._array, new])
        return self._array


@dataclass(frozen=True)
class Topic:
    """A set of keywords C with its centroid mu_C (unit length, shape (d,))."""

    keywords: tuple[int, ...]
    centroid: np.ndarray


def idf(notes: int, keyword: Keyword | None) -> float:
    """ln(1 + N / df): our choice. None: a keyword no note holds yet, with df = 1 as it will have."""
    return math.log(1 + notes / (1 if keyword is None else len(keyword.notes)))


class Hierarchy:
    """The three layers of one conversation. `dim`: the embedder's. `exact`: how large an index may be that is searched
    exactly."""

    def __init__(self, dim: int, exact: int = EXACT):
        self.notes: list[Note] = []
        self.keywords: list[Keyword] = []
        self.topics: list[Topic] = []
        self.edges: dict[int, dict[int, float]] = {}
        """RELATED: note id -> neighbour id -> weight, kept in both directions."""
        self.note_index = DenseIndex(dim, exact)
        self.keyword_index = DenseIndex(dim, exact)
        self._keyword_ids: dict[str, int] = {}

    def fill(self, notes: Sequence[Note], keywords: Sequence[Keyword]) -> None:
        """Take over the notes and keywords of a stored memory, ids being positions, into an empty one."""
        self.notes, self.keywords = list(notes), list(keywords)
        self._keyword_ids = {keyword.form: keyword.id for keyword in keywords}
        for note in notes:
            self.note_index.add(note.id, note.vector)
        for keyword in keywords:
            self.keyword_index.add(keyword.id, keyword.vector)

    def add(self, draft: Draft) -> Note:
        """Append a note for a draft."""
        note = Note(len(self.notes), [draft.turn], draft.context, draft.vector)
        self.notes.append(note)
        self.note_index.add(note.id, note.vector)
        self._post(note, draft)
        return note

    def merge(self, into: Note, draft: Draft, context: str, vector: np.ndarray) -> None:
        """r := union, c := `context`, h := `vector`, K := union; the note's RELATED edges stay."""
        into.turns.append(draft.turn)
        into.context, into.vector = context, vector
        self.note_index.replace(into.id, vector)
        self._post(into, draft)

    def _post(self, note: Note, draft: Draft) -> None:
        for form, vector in zip(draft.keywords, draft.keyword_vectors, strict=True):
            keyword = self.keyword(form)
            if keyword is None:
                keyword = Keyword(len(self.keywords), form, vector)
                self._keyword_ids[form] = keyword.id
                self.keywords.append(keyword)
                self.keyword_index.add(keyword.id, vector)
            keyword.notes[note.id] = None
            note.keywords[keyword.id] = None

    def keyword(self, form: str) -> Keyword | None:
        """The keyword of a normalised form, if any note holds it."""
        index = self._keyword_ids.get(form)
        return None if index is None else self.keywords[index]

    def idf(self, keyword: Keyword | None) -> float:
        return idf(len(self.notes), keyword)

    def link(self, a: int, b: int, weight: float) -> bool:
        """Relate two notes; of two weights the higher stays. True when the edge is new."""
        if a == b:
            raise ValueError(f"note {a} cannot be related to itself")
        row = self.edges.setdefault(a, {})
        new = b not in row
        row[b] = max(weight, row.get(b, 0.0))
        self.edges.setdefault(b, {})[a] = row[b]
        return new

    @property
    def edge_count(self) -> int:
        return sum(len(row) for row in self.edges.values()) // 2
