"""Leiden beside the bench: the same communities in whichever process, none lost with it, and nothing waits for it."""

import asyncio
import multiprocessing
import os
import threading

import leidenalg
import numpy as np
import pytest
from memfly_fakes import FakeChat, conversation, services

import memfly.topics
from memfly import leiden
from memfly.builder import Builder
from memfly.config import MemFlyConfig
from memfly.system import MemFly


def graph(seed, size=150, edges=900):
    rng = np.random.default_rng(seed)
    rows = np.unique(np.sort(rng.integers(0, size, (edges, 2)), axis=1), axis=0)
    rows = rows[rows[:, 0] != rows[:, 1]]
    return size, rows, rng.integers(1, 9, len(rows)).astype(float)


def groups_of(owner):
    return [[v for v, g in enumerate(owner.tolist()) if g == group] for group in range(int(owner.max()) + 1)]


@pytest.mark.parametrize("seed", range(3))
def test_the_other_process_finds_what_this_one_would(seed):
    size, pairs, weights = graph(seed)
    groups = leiden.partition(size, pairs, weights, 20, seed)
    assert groups == groups_of(leiden.membership(size, pairs, weights, 20, seed))
    assert sorted(v for group in groups for v in group) == list(range(size))


def test_a_graph_without_edges():
    groups = leiden.partition(3, np.empty((0, 2), dtype=np.int64), np.empty(0), 50, 0)
    assert groups == [[0], [1], [2]]


def test_a_large_graph_gets_two_iterations_and_another_as_many_as_change_it(monkeypatch):
    asked = []

    class Optimiser(leidenalg.Optimiser):
        def optimise_partition(self, partition, n_iterations):
            asked.append(n_iterations)
            return super().optimise_partition(partition, n_iterations=n_iterations)

    monkeypatch.setattr(leidenalg, "Optimiser", Optimiser)
    size, pairs, weights = graph(4)
    monkeypatch.setattr(leiden, "MANY", len(pairs))
    leiden.membership(size, pairs, weights, 20, 0)
    monkeypatch.setattr(leiden, "MANY", len(pairs) - 1)
    owner = leiden.membership(size, pairs, weights, 20, 0)
    assert asked == [-1, 2]
    assert np.bincount(owner).max() <= 20


def test_a_process_that_was_lost_changes_nothing(monkeypatch):
    monkeypatch.setattr(leiden, "_CHILD", leiden._Child())
    size, pairs, weights = graph(5)
    first = leiden.partition(size, pairs, weights, 20, 1)
    lost = leiden._CHILD._process
    lost.kill()
    lost.wait()
    assert leiden.partition(size, pairs, weights, 20, 1) == first  # found here
    assert leiden.partition(size, pairs, weights, 20, 1) == first  # by a new one
    assert leiden._CHILD._process not in (None, lost)
    leiden._CHILD.end()
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert leiden.partition(size, pairs, weights, 20, 1) == first
    assert leiden._CHILD._process is None


def _in_a_fork(answers):
    answers.put((leiden.partition(*graph(2), 20, 0), leiden._CHILD._process.pid))
    leiden._CHILD.end()


def test_a_fork_has_its_own():
    here = leiden.partition(*graph(2), 20, 0)
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    process = fork.Process(target=_in_a_fork, args=(answers,))
    process.start()
    there, pid = answers.get(timeout=60)
    process.join()
    assert there == here and pid != leiden._CHILD._process.pid
    assert leiden._CHILD._owner == os.getpid() and leiden.partition(*graph(2), 20, 0) == here


def test_the_bench_gone_ends_it():
    child = leiden._Child()
    child.membership(*graph(1), 20, 0)
    child._process.stdin.close()
    assert child._process.wait(timeout=60) == 0
    child._process.stdout.close()


WORDS = ["kiln", "bowl", "boat", "lamp", "faro", "mia", "glaze"]
TALK = conversation([f"The {a} and the {b} again." for a in WORDS for b in WORDS if a < b])


def test_ingestion_goes_on_while_topics_are_found(monkeypatch):
    """The first topics are found only once the last turn is committed, and still count from the turn that asked."""
    config = MemFlyConfig(scoring="embedding", merge=False, topic_every=12, topic_min=1)
    asked, all_committed = [], threading.Event()
    found = memfly.topics.partition

    def late(*graph):
        asked.append(graph[0])
        assert all_committed.wait(60)
        return found(*graph)

    def build():
        system = MemFly(config, services(FakeChat()))
        asyncio.run(system.ingest(TALK))
        return system.export()

    plain = build()
    topics = [row["topics"] for row in plain["growth"]]
    assert topics[:11] == [0] * 11 and topics[11:20] == [topics[11]] * 9 and topics[11] > 0
    monkeypatch.setattr("memfly.topics.partition", late)
    made = Builder._size

    def size(self, turn):
        if turn is TALK.turns[-1]:
            all_committed.set()
        return made(self, turn)

    monkeypatch.setattr(Builder, "_size", size)
    assert build() == plain
    assert len(asked) == 2
