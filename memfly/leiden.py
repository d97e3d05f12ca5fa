"""Leiden in a process of its own: the library keeps Python's lock while it works, a second for a long conversation, and
nothing else of the bench would move meanwhile, in whichever thread it ran.

Run as a script by its path it is that process: it answers requests on stdin until its end, which is also what it sees
when the bench is gone, however it went.
"""

from __future__ import annotations

import atexit
import os
import struct
import subprocess
import sys
import threading
from typing import IO

import numpy as np

_HEADER = struct.Struct("<4q")
"""Vertices, edges, largest community, seed. Edges (int64 pairs) and weights (float64) follow; the answer is one int64
a vertex."""


MANY = 200_000
"""Edges up to which Leiden is iterated until stable: LoCoMo's longest conversations have 40,000 with the words of their turns for
keywords. A larger graph gets two iterations, leidenalg's own default, so that a run costs in proportion to its edges
(our choice)."""


def partition(size: int, pairs: np.ndarray, weights: np.ndarray, largest: int, seed: int) -> list[list[int]]:
    """Communities of at most `largest` vertices, members in ascending order; deterministic for a seed.

    pairs: (m, 2) vertex ids; weights: (m,). It waits, so call it in a thread. Should the process be lost, the work is
    done here: the result is the same.
    """
    owner = _CHILD.membership(size, pairs, weights, largest, seed)
    if owner is None:
        owner = membership(size, pairs, weights, largest, seed)
    groups: list[list[int]] = [[] for _ in range(int(owner.max()) + 1)]
    for vertex, group in enumerate(owner.tolist()):
        groups[group].append(vertex)
    return groups


def membership(size: int, pairs: np.ndarray, weights: np.ndarray, largest: int, seed: int) -> np.ndarray:
    """Each vertex's community, from 0. Shape (size,), int64. Modularity."""
    import igraph
    import leidenalg

    graph = igraph.Graph(n=size, edges=pairs.tolist())
    optimiser = leidenalg.Optimiser()
    optimiser.set_rng_seed(seed)
    optimiser.max_comm_size = largest
    optimiser.community_constraint_enforcement = 1  # without it max_comm_size is not kept while aggregating
    found = leidenalg.ModularityVertexPartition(graph, weights=weights.tolist())
    optimiser.optimise_partition(found, n_iterations=-1 if len(pairs) <= MANY else 2)
    return np.array(found.membership, dtype=np.int64)


class _Child:
    """The process, started with the first request and shared by all that this process makes; one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def membership(
        self, size: int, pairs: np.ndarray, weights: np.ndarray, largest: int, seed: int
    ) -> np.ndarray | None:
        """As the function; None where the process cannot be started or was lost."""
        header = _HEADER.pack(size, len(pairs), largest, seed)
        with self._lock:
            try:
                process = self._running()
                assert process.stdin is not None and process.stdout is not None  # noqa: S101 - both are pipes
                process.stdin.write(header + pairs.astype("<i8").tobytes() + weights.astype("<f8").tobytes())
                process.stdin.flush()
                answer = process.stdout.read(8 * size)
            except OSError:
                answer = b""
            if len(answer) == 8 * size:
                return np.frombuffer(answer, dtype="<i8")
            self.end()
            return None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid():  # a fork has the pipes of its parent
            self._process = subprocess.Popen(  # noqa: S603 - this very file
                [sys.executable, "-P", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what fails there is done, and fails, here
                start_new_session=True,  # Ctrl-C goes to the bench, which decides
            )
            self._owner = os.getpid()
        return self._process

    def end(self) -> None:
        """End the process; another request starts another."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.communicate()


_CHILD = _Child()
atexit.register(_CHILD.end)


def _serve(asked: IO[bytes], answers: IO[bytes]) -> None:
    while len(header := asked.read(_HEADER.size)) == _HEADER.size:
        size, edges, largest, seed = _HEADER.unpack(header)
        pairs = np.frombuffer(asked.read(16 * edges), dtype="<i8").reshape(-1, 2)
        weights = np.frombuffer(asked.read(8 * edges), dtype="<f8")
        answers.write(membership(size, pairs, weights, largest, seed).astype("<i8").tobytes())
        answers.flush()


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
