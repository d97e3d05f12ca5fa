"""The memories of a MemFly run as a graph: GraphML, or the CSV files of Neo4j's bulk import (docs/exports.md).

    python scripts/export_graph.py RUN --format graphml --out results/graph
    python scripts/export_graph.py RUN --conversation conv-26 --format neo4j --out results/neo4j

The files hold the data set's text: LoCoMo's (CC BY-NC 4.0) is not to be published.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from eval.collection import load_runs
from eval.export import graphml, neo4j
from eval.export.folder import new_folder
from eval.export.graph import MemoryGraph
from harness.errors import RecordError, exit_status


def load(path: Path, conversations: list[str]) -> MemoryGraph:
    """The graph of a run's memories: of the given conversations, or of all."""
    runs = load_runs([path])
    if len(runs) != 1:
        raise RecordError(f"{path}: holds {len(runs)} runs; give one run folder")
    run = runs[0]
    has = run.sample_ids()
    unknown = [name for name in conversations if name not in has]
    if unknown or not has:
        raise RecordError(
            f"{path}: no memory of {', '.join(unknown) or 'any conversation'}; it has: "
            f"{', '.join(has) or 'none that is complete'}"
        )
    graph = MemoryGraph()
    for name, memory in run.memories():
        if name in (conversations or has):
            graph.add(name, memory["tables"], f"{run.path.name}, {name}")
    return graph


def export(path: Path, conversations: list[str], form: str, out: Path) -> None:
    graph = load(path, conversations)
    with new_folder(out) as folder:
        files = neo4j.write(graph, folder) if form == "neo4j" else [graphml.write(graph, folder)]
    print(", ".join(f"{count} {name}" for name, count in graph.counts().items()))
    if graph.replaced:
        print(f"{graph.replaced} characters that no such file can hold were replaced by U+FFFD", file=sys.stderr)
    if form == "neo4j":
        print(f"\n# in {out}, with the database not there yet (docs/exports.md: Community Edition):")
        print("\n".join([f"cd {shlex.quote(str(out.resolve()))}", *neo4j.commands(files)]))
    else:
        print(f"{out / files[0].name}: networkx.read_graphml({str(out / files[0].name)!r})")


def main() -> int:
    parser = argparse.ArgumentParser(description="The memories of a MemFly run as a graph.")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "--conversation",
        action="append",
        default=[],
        metavar="ID",
        help="only this one (may be repeated; default: all)",
    )
    parser.add_argument("--format", choices=("graphml", "neo4j"), required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    options = parser.parse_args()
    conversations = list(dict.fromkeys(options.conversation))
    return exit_status("export_graph.py", lambda: export(options.run, conversations, options.format, options.out))


if __name__ == "__main__":
    sys.exit(main())
