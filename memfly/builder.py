"""From a conversation to a memory: drafts made at once, notes committed strictly in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.calls import Caller, abandon
from harness.llm.words import sentences
from harness.locomo.schema import Conversation, Turn
from harness.memory import Services
from memfly.calls import MERGE
from memfly.candidates import candidates, keyword_overlap
from memfly.config import MemFlyConfig
from memfly.gate import Candidate, decide
from memfly.hierarchy import Hierarchy, Topic
from memfly.ingest import draft
from memfly.note import Draft, Note, embedding_text
from memfly.replies import Merged
from memfly.scoring import Content, Scores, embedding_scores, fitted, score_list
from memfly.speculate import Speculation
from memfly.topics import KeywordGraph, evolving


@dataclass
class Counts:
    """What the gate did. s_red and s_comp: every score given, in order."""

    merges: int = 0
    links: int = 0
    appends: int = 0
    adjacent: int = 0
    """Edges between neighbouring turns that no link decision had made."""
    too_long: int = 0
    """Texts the embedder saw only the beginning of."""
    s_red: list[float] = field(default_factory=list)
    s_comp: list[float] = field(default_factory=list)


class Builder:
    """One conversation's ingestion. The result depends on the replies alone, never on their timing."""

    def __init__(self, config: MemFlyConfig, services: Services, caller: Caller):
        self.config = config
        self.services = services
        self.caller = caller
        self.scoring = config.resolve_scoring(services.chat.can_judge)
        self.hierarchy = Hierarchy(services.embedder.dim, config.exact_index)
        self.speculation = Speculation(self.hierarchy, config, caller, services.meter)
        self.counts = Counts()
        self.growth: list[dict[str, int | str]] = []
        """The memory's size after each turn."""
        self._since_topics = 0
        self._topics: tuple[int, asyncio.Future[list[Topic]]] | None = None
        """Topics being found, and the row of `growth` from which on they count."""

    async def build(self, conversation: Conversation) -> None:
        """Ingest every turn. The chat model limits how many extraction calls are in flight."""
        jobs = [
            asyncio.ensure_future(
                draft(turn, history, self.config, self.caller, self.services.embedder, self.services.meter)
            )
            for turn, history in with_history(conversation, self.config.history_turns)
        ]
        depth = self.config.speculation if self.config.update and self.scoring == "pairwise" else 1
        try:
            previous: Note | None = None
            session = 0
            for place in range(len(jobs)):
                upcoming = [await job for job in jobs[place : place + depth]]
                same = previous if upcoming[0].turn.session == session else None
                previous, session = await self.commit(upcoming, same), upcoming[0].turn.session
                self.services.took_in(1)
                await asyncio.sleep(0)  # where no call is waited for, many commits in a row would hold up the loop
            await self._evolve(of_row=len(self.growth) - 1)
            await self.speculation.finish()
            await self._topics_found()
        finally:
            await abandon([*jobs, *([self._topics[1]] if self._topics else [])])
            await self.speculation.close()

    async def commit(self, upcoming: Sequence[Draft], previous: Note | None) -> Note:
        """Score, gate, merge or add, link the first of the upcoming drafts; the others are scored ahead.
        previous: the note of the session's previous turn."""
        new = upcoming[0]
        self._measure(new.context)
        scored = await self._score(upcoming, previous) if self.config.update else []
        decision = decide(scored, self.config)
        if decision.merge_into is None:
            note = self.hierarchy.add(new)
            self._since_topics += 1
            self.counts.appends += decision.is_append
        else:
            note = self.hierarchy.notes[decision.merge_into]
            await self._merge(note, new)
            self.counts.merges += 1
        for other, weight in decision.links:
            self.counts.links += self.hierarchy.link(note.id, other, weight)
        if self.config.adjacent_edges and self.config.link and previous is not None and previous is not note:
            self.counts.adjacent += self.hierarchy.link(previous.id, note.id, self.config.adjacent_weight)
        if self._since_topics >= self.config.topic_interval(len(self.hierarchy.notes)):
            await self._evolve(of_row=len(self.growth))
        self.growth.append(self._size(new.turn))
        return note

    def _size(self, turn: Turn) -> dict[str, int | str]:
        hierarchy, counts = self.hierarchy, self.counts
        return {
            "turn": len(self.growth) + 1,
            "dia_id": turn.dia_id,
            "notes": len(hierarchy.notes),
            "keywords": len(hierarchy.keywords),
            "edges": counts.links + counts.adjacent,
            "topics": len(hierarchy.topics),
            "merges": counts.merges,
            "links": counts.links,
            "appends": counts.appends,
        }

    async def _score(self, upcoming: Sequence[Draft], previous: Note | None) -> list[Candidate]:
        new = upcoming[0]
        found = candidates(self.hierarchy, new, None if previous is None else previous.id, self.config)
        olds = [self.hierarchy.notes[note] for note in found]
        if self.scoring == "embedding":
            scores = [self._by_embedding(new, old) for old in olds]
        elif self.scoring == "pairwise":
            scores = await self.speculation.scores(found, upcoming)
        else:
            contents = [Content.of_note(old) for old in olds]
            scores = await score_list(Content.of_draft(new), contents, self.caller, self.services.meter)
        self.counts.s_red.extend(s.s_red for s in scores)
        self.counts.s_comp.extend(s.s_comp for s in scores)
        return [Candidate(note, s) for note, s in zip(found, scores, strict=True)]

    def _by_embedding(self, new: Draft, old: Note) -> Scores:
        cosine = float(new.vector @ old.vector)
        return embedding_scores(cosine, keyword_overlap(self.hierarchy, new, old), self.config)

    async def _merge(self, note: Note, new: Draft) -> None:
        """F_merge, then h re-embedded. Fallback "merge_concat": the distinct sentences of both contexts."""
        old_content, new_content = fitted(
            [Content.of_note(note), Content.of_draft(new)], self.caller.room(MERGE), self.caller
        )
        value = await self.caller.ask(MERGE, Merged, self.services.meter, old=old_content, new=new_content)
        context = " ".join(value.context.split()) if value else ""
        if not context:
            self.services.meter.fallback("merge_concat")
            context = " ".join(dict.fromkeys([*sentences(note.context), *sentences(new.context)]))
        turns = [*note.turns, new.turn]
        text = embedding_text(context, turns) if self.config.embed_raw else context
        self._measure(text)
        vector = (await self.services.embedder.encode([text]))[0]
        self.hierarchy.merge(note, new, context, vector)

    def _measure(self, text: str) -> None:
        """Count a text that exceeds the embedder's window (a token is at least a character)."""
        embedder = self.services.embedder
        if len(text) > embedder.max_tokens and embedder.count_tokens(text) > embedder.max_tokens:
            self.counts.too_long += 1

    async def _evolve(self, of_row: int) -> None:
        """Find the topics of the memory as it is now while ingestion goes on: the gate does not read them.

        of_row: of `growth`, the first that counts them.
        """
        await self._topics_found()
        config = self.config
        graph = await asyncio.to_thread(KeywordGraph.of, self.hierarchy)  # nothing is committed meanwhile
        run = evolving(graph, smallest=config.topic_min, largest=config.topic_max, seed=self.services.seed)
        self._topics = max(0, of_row), run
        self._since_topics = 0

    async def _topics_found(self) -> None:
        if self._topics is None:
            return
        of_row, run = self._topics
        self.hierarchy.topics = await run
        self._topics = None
        for row in self.growth[of_row:]:
            row["topics"] = len(self.hierarchy.topics)


def with_history(conversation: Conversation, turns: int) -> list[tuple[Turn, Sequence[Turn]]]:
    """Every turn with at most `turns` turns before it in its session, oldest first."""
    return [
        (turn, session.turns[max(0, place - turns) : place])
        for session in conversation.sessions
        for place, turn in enumerate(session.turns)
    ]
