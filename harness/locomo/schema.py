"""What a loaded data set is, after validation and repair. Plain frozen values; no file access here."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

CATEGORIES = {1: "multi_hop", 2: "temporal", 3: "open_domain", 4: "single_hop", 5: "adversarial"}
"""Category id -> name, as LoCoMo's own code numbers them. Half of the public harnesses permute these."""

DATE_FORMAT = "%I:%M %p on %d %B, %Y"


@dataclass(frozen=True)
class Turn:
    """One utterance. `dia_id` is "D<session>:<position>"; `text` is as in the file."""

    dia_id: str
    session: int
    speaker: str
    text: str
    caption: str | None
    date_time: datetime

    @property
    def full_text(self) -> str:
        """The text, with ` [image: <caption>]` behind it wherever a caption exists (with or without a URL)."""
        return f"{self.text} [image: {self.caption}]" if self.caption else self.text


@dataclass(frozen=True)
class Observation:
    """A statement the data set derived from a session, with the turns it cites (may be empty after repair).

    `evidence_raw` is the file's own string or strings.
    """

    session: int
    speaker: str
    text: str
    dia_ids: tuple[str, ...]
    evidence_raw: tuple[str, ...] = ()


@dataclass(frozen=True)
class Session:
    """One sitting of a conversation, in the file's order. `date_raw` is the file's own string."""

    number: int
    date_time: datetime
    date_raw: str
    turns: tuple[Turn, ...]
    summary: str | None = None
    observations: tuple[Observation, ...] = ()


@dataclass(frozen=True)
class Conversation:
    """All that a memory system may see of a sample: no question, no gold, no evidence."""

    sample_id: str
    speaker_a: str
    speaker_b: str
    sessions: tuple[Session, ...]

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(turn for session in self.sessions for turn in session.turns)


@dataclass(frozen=True)
class Question:
    """One question with its gold. `qa_index` is the 0-based position in the sample's qa list.

    `evidence` holds the repaired, existing dia_ids; `evidence_raw` the file's strings.
    `answer` is the gold of categories 1-4 (and of 2 items of category 5); `adversarial_answer` is
    category 5's trap. `answer_raw` and `adversarial_answer_raw` are the file's own values, before any repair.
    """

    sample_id: str
    qa_index: int
    category: int
    question: str
    answer: str | None
    adversarial_answer: str | None
    evidence: tuple[str, ...]
    evidence_raw: tuple[str, ...]
    answer_raw: str | int | None = None
    adversarial_answer_raw: str | None = None

    @property
    def reference(self) -> str:
        """What the `amem` protocol scores against: the trap in category 5, the answer elsewhere."""
        return (self.adversarial_answer if self.category == 5 else self.answer) or ""


@dataclass(frozen=True)
class Sample:
    conversation: Conversation
    questions: tuple[Question, ...]

    @property
    def sample_id(self) -> str:
        return self.conversation.sample_id


@dataclass(frozen=True)
class Fingerprint:
    """Which data this is. `content_sha256` is over the canonical JSON, so a re-serialised equal file agrees."""

    file_sha256: str
    content_sha256: str
    is_locomo10: bool
    samples: int
    sessions: int
    turns: int
    questions: int
    by_category: dict[int, int]
    repairs: dict[str, int]


@dataclass(frozen=True)
class Dataset:
    """`notices` are the lines that must stand above a table: slices, subsets, what was left out, foreign data."""

    name: str
    samples: tuple[Sample, ...]
    fingerprint: Fingerprint
    notices: tuple[str, ...] = field(default=())

    @property
    def n_questions(self) -> int:
        return sum(len(sample.questions) for sample in self.samples)
