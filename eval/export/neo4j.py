"""A memory graph as the CSV files of Neo4j's bulk import (`neo4j-admin database import full`, Neo4j 5 and later).

Each label and each relationship type is one header file and one data file. Fields are quoted and inner quotes doubled
(RFC 4180; a backslash is a plain character to Neo4j); texts span lines, which needs --multiline-fields; array elements
are separated by U+001F, which no exported text holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from eval.export.graph import CO_OCCURS, ENDS, KEYWORD, NOTE, RELATED, TOPIC, MemoryGraph

ARRAY = "\x1f"
DATABASE = "memfly"
WEIGHTED = (RELATED, CO_OCCURS)

PROPERTIES = {
    NOTE: {
        "conversation": "string",
        "number": "int",
        "date": "localdatetime",
        "context": "string",
        "raw": "string",
        "dia_ids": "string[]",
        "speakers": "string[]",
        "turns": "int",
    },
    KEYWORD: {"conversation": "string", "number": "int", "form": "string", "notes": "int"},
    TOPIC: {"conversation": "string", "number": "int", "keywords": "int"},
}
"""Label -> property -> its type in the header. The ids are strings, kept as the property `id`."""


def write(graph: MemoryGraph, folder: Path) -> list[Path]:
    """Write the files into the folder. Returns them, headers first of their pair."""
    written = []
    for label, properties in PROPERTIES.items():
        header = [f"id:ID({label})", *(f"{name}:{kind}" for name, kind in properties.items()), ":LABEL"]
        rows = ([row["id"], *(row[name] for name in properties), label] for row in graph.nodes[label])
        written += _pair(folder, f"nodes_{label.lower()}", header, rows)
    for kind, (start, end) in ENDS.items():
        weighted = kind in WEIGHTED
        header = [f":START_ID({start})", *(["weight:double"] if weighted else []), f":END_ID({end})", ":TYPE"]
        rows = ([source, *([weight] if weighted else []), target, kind] for source, target, weight in graph.edges[kind])
        written += _pair(folder, f"relationships_{kind.lower()}", header, rows)
    return written


def commands(files: Sequence[Path]) -> tuple[str, str]:
    """The two commands that load what `write` wrote: import (run in the folder, as the files are named without it, for
    a path would be read as a pattern), then make the imported database known to the running server."""
    pairs = [(a.name, b.name) for a, b in zip(files[::2], files[1::2], strict=True)]
    groups = [f"--{data.partition('_')[0]}={header},{data}" for header, data in pairs]
    options = f"--multiline-fields=true --array-delimiter=U+{ord(ARRAY):04X}"
    return (
        f"neo4j-admin database import full {DATABASE} {options} {' '.join(groups)}",
        f'cypher-shell -d system "CREATE DATABASE {DATABASE}"',
    )


def _pair(folder: Path, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[Path]:
    paths = [folder / f"{name}_header.csv", folder / f"{name}.csv"]
    paths[0].write_text(",".join(header) + "\n", encoding="utf-8", newline="\n")
    with paths[1].open("w", encoding="utf-8", newline="\n") as handle:
        handle.writelines(",".join(map(_field, row)) + "\n" for row in rows)
    return paths


def _field(value: Any) -> str:
    """A field. An empty one without quotes is no property, "" is an empty text; an empty array cannot be told from
    none (Neo4j's own limit)."""
    if isinstance(value, list):
        return _field(ARRAY.join(value)) if value else ""
    if isinstance(value, int | float):
        return repr(value)
    return '"' + value.replace('"', '""') + '"'
