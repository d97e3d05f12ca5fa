"""Scoring ahead changes nothing but the time: any depth and any timing build the memory that a depth of 1 builds."""

import asyncio
import json
import random
import re
import zlib
from collections import Counter
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memfly_fakes import UNUSABLE, FakeChat, TableEmbedder, conversation, services

import memfly.builder
from harness.errors import EndpointError, ReplyError
from harness.llm.types import Meter
from harness.memory import Query
from memfly.config import MemFlyConfig
from memfly.gate import decide
from memfly.system import MemFly

CONFIG = MemFlyConfig(scoring="pairwise", tau_merge=0.4, tau_link=0.15, topic_min=2, topic_every=4, k_cand=3)
GONE = EndpointError("refused", "filtered", fatal=False)
DEAD = EndpointError("unreachable", "no endpoint", fatal=True)
QUERIES = (Query("q/0", "Who has the kiln?", 4), Query("q/1", "Where is the blue bowl of Mia?", 1))


class Counted(FakeChat):
    """Counts errors as the client does."""

    async def complete(self, *args, meter, **kwargs):
        try:
            return await super().complete(*args, meter=meter, **kwargs)
        except (ReplyError, EndpointError) as error:
            meter.errors += 1
            meter.unanswered += isinstance(error, EndpointError)
            raise


class Faulty(Counted):
    """The scripted stand-in, some of whose requests always fail, and which takes up to 40 turns of the loop."""

    def __init__(self, faults: int, slowness: int):
        super().__init__({purpose: self._reply for purpose in ("extract", "score", "merge")})
        self._faults = faults
        self._slowness = random.Random(slowness)

    def _reply(self, text):
        kind = zlib.crc32(f"{self._faults} {text}".encode()) % 12 if self._faults else None
        return {0: UNUSABLE, 1: GONE}.get(kind)

    async def complete(self, *args, **kwargs):
        for _ in range(self._slowness.choice((0, 0, 1, 3, 9, 40))):
            await asyncio.sleep(0)
        return await super().complete(*args, **kwargs)


class Slow(TableEmbedder):
    def __init__(self, slowness: int):
        super().__init__()
        self._slowness = random.Random(slowness)

    async def encode(self, texts):
        for _ in range(self._slowness.randrange(6)):
            await asyncio.sleep(0)
        return await super().encode(texts)


class Built:
    """A memory, what its gate decided and what was spent on it."""

    def __init__(self, talk, config, chat, embedder=None):
        given = services(chat, embedder)
        self.system, self.chat, self.meter, self.decisions = MemFly(config, given), chat, given.meter, []

        def noted(candidates, config):
            self.decisions.append((candidates, decide(candidates, config)))
            return self.decisions[-1][1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memfly.builder, "decide", noted)
            asyncio.run(self._ingest(talk))
        self.sent = list(chat.sent)

    async def _ingest(self, talk):
        try:
            await self.system.ingest(talk)
        finally:
            assert len(asyncio.all_tasks()) == 1

    @property
    def extra(self):
        return self.system.stats().extra

    def memory(self):
        """All that a memory is, vectors and decisions included; not what was spent on it."""
        tables = json.dumps({name: list(rows) for name, rows in self.system.export().items()})
        vectors = [note.vector.tobytes() for note in self.system.hierarchy.notes]
        counts = asdict(self.system.stats())
        for name in ("speculative_calls", "wasted_calls"):
            del counts["extra"][name]
        return tables, vectors, counts, self.decisions, self.meter.fallbacks

    def recalled(self):
        async def ask():
            return [await self.system.recall(query, Meter()) for query in QUERIES]

        return asyncio.run(ask())


words = st.sampled_from(("kiln", "kiln", "bowl", "blue", "Mia", "Paul", "broke", "Lisbon"))
turns = st.lists(words, min_size=1, max_size=5).map(" ".join)
talks = st.lists(st.lists(turns, min_size=1, max_size=7), min_size=1, max_size=3)


def test_any_depth_and_any_timing_build_the_memory_of_depth_1():
    seen = Counter()

    @settings(max_examples=80, deadline=None, derandomize=True, database=None)
    @given(
        sessions=talks,
        depth=st.integers(2, 12),
        slowness=st.integers(0, 10**6),
        faults=st.sampled_from((0, 0, 1, 2)),
        merge=st.sampled_from((True, True, True, False)),
    )
    def holds(sessions, depth, slowness, faults, merge):
        talk, config = conversation(*sessions), replace(CONFIG, merge=merge)
        one = Built(talk, replace(config, speculation=1), Faulty(faults, 0))
        many = Built(talk, replace(config, speculation=depth), Faulty(faults, slowness), Slow(slowness))
        assert many.memory() == one.memory()
        assert many.recalled() == one.recalled()

        stats, wasted = many.system.stats(), many.extra["wasted_calls"]
        assert (one.extra["speculative_calls"], one.extra["wasted_calls"]) == (0, 0)
        assert wasted <= stats.merges * (depth - 1) * config.k_cand
        assert many.meter.calls == one.meter.calls + wasted
        assert (many.meter.errors, many.meter.unanswered) == (one.meter.errors, one.meter.unanswered)
        scored = [text for purpose, text in many.sent if purpose == "score"]
        assert len(scored) == len(set(scored))

        again = Built(talk, replace(config, speculation=depth), Faulty(faults, slowness + 1), Slow(slowness + 1))
        assert sorted(again.sent) == sorted(many.sent)
        assert (again.extra, again.meter) == (many.extra, many.meter)
        seen.update(merges=stats.merges, links=stats.links, wasted=wasted, failed=many.meter.errors)

    holds()
    assert min(seen[name] for name in ("merges", "links", "wasted", "failed")) > 50, seen


TALK = conversation(["First kiln.", "Second bowl.", "Third lamp.", "Fourth fig."])
DEPTH_3 = replace(CONFIG, speculation=3)


class Judge(Counted):
    """The second turn says what the first says, and the merge of both reads "Both."; nothing else is alike. `failing`:
    pairs whose scores end in an error. `rounds`: every call takes one of them, and nothing else takes time."""

    def __init__(self, failing=None, merging=True):
        super().__init__({"score": self._score, "merge": {"context": "Both."}})
        self.rounds = 0
        self._failing = failing or {}
        self._merging = merging
        self._round = None

    def _score(self, text):
        if error := self._failing.get(pair(text)):
            return error
        return {"s_red": float(self._merging and pair(text) == ("Second", "First")), "s_comp": 0.0}

    async def complete(self, *args, **kwargs):
        if self._round is None:
            self._round = asyncio.ensure_future(self._next())
        await asyncio.shield(self._round)
        return await super().complete(*args, **kwargs)

    async def _next(self):
        for _ in range(50):  # all that can go on without a reply does so meanwhile
            await asyncio.sleep(0)
        self.rounds += 1
        self._round = None


def pair(text):
    """The first words of the new and of the older note of a prompt."""
    return tuple(note.split(": ")[-1].split()[0].strip(".") for note in re.findall(r">([^<]+)<", text) if note.strip())


def pairs(chat):
    return [pair(text) for purpose, text in chat.sent if purpose == "score"]


def test_what_is_asked_ahead_and_what_a_merge_wastes():
    """Ahead of the first commit: all pairs of the second and third turn; of the second: those of the fourth. Then the
    second is merged into the first: both of the others are compared with that note anew, the third when its score is
    needed, the fourth ahead of it."""
    chat = Judge()
    built = Built(TALK, DEPTH_3, chat)
    asked = pairs(chat)
    assert asked[0] == ("Second", "First")
    assert set(asked[1:3]) == {("Third", "First"), ("Third", "Second")}
    assert set(asked[3:6]) == {("Fourth", "First"), ("Fourth", "Second"), ("Fourth", "Third")}
    assert asked[6:] == [("Third", "Both"), ("Fourth", "Both")]
    assert (built.extra["speculative_calls"], built.extra["wasted_calls"]) == (7, 4)


@pytest.mark.parametrize(
    ("depth", "merging", "rounds"),
    [
        (1, False, 4),  # extraction, then a round for each turn but the first
        (2, False, 3),  # the second and third turn in one
        (4, False, 2),  # all in one
        (1, True, 5),  # and one for the merge
        (3, True, 4),  # extraction, the second turn, its merge, all that has to be compared with the merged note
    ],
)
def test_time_is_the_longest_chain_of_calls_that_depend_on_one_another(depth, merging, rounds):
    chat = Judge(merging=merging)
    Built(TALK, replace(CONFIG, speculation=depth), chat)
    assert chat.rounds == rounds


@pytest.mark.parametrize("error", [DEAD, GONE, UNUSABLE])
def test_a_pair_asked_in_vain_fails_without_a_trace(error):
    calm, built = (Built(TALK, DEPTH_3, Judge(failing)) for failing in ({}, {("Third", "First"): error}))
    assert ("Third", "First") in pairs(built.chat)
    assert built.memory() == calm.memory()
    assert (built.meter.errors, built.meter.unanswered) == (0, 0)


@pytest.mark.parametrize("pair", [("Second", "First"), ("Third", "Both"), ("Fourth", "Third")])
def test_a_pair_that_is_used_fails_as_at_depth_1(pair):
    for depth in (1, 3):
        built = Built(TALK, replace(CONFIG, speculation=depth), Judge({pair: UNUSABLE}))
        assert (built.meter.fallbacks, built.meter.errors) == ({"score_missing": 1}, 1)
        with pytest.raises(EndpointError, match="no endpoint"):
            Built(TALK, replace(CONFIG, speculation=depth), Judge({pair: DEAD}))


def test_whenever_it_is_interrupted_nothing_is_left_running():
    async def interrupted(steps):
        ingesting = asyncio.ensure_future(MemFly(DEPTH_3, services(Faulty(0, steps))).ingest(TALK))
        for _ in range(steps):
            await asyncio.sleep(0)
        running = not ingesting.done()
        ingesting.cancel()
        await asyncio.gather(ingesting, return_exceptions=True)
        assert len(asyncio.all_tasks()) == 1
        return running

    assert sum(asyncio.run(interrupted(steps)) for steps in range(150)) > 60
