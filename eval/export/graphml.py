"""A memory graph as GraphML: opens in networkx, Gephi, Cytoscape, yEd."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.export.graph import MemoryGraph

if TYPE_CHECKING:
    import networkx

FILE = "memory.graphml"


def build(graph: MemoryGraph) -> networkx.Graph:
    """The graph in networkx, undirected: RELATED and CO_OCCURS have no direction, the labels of the ends give that of
    HAS_KEYWORD and IN_TOPIC. Every node has `label`, every edge `type`; weighted ones have `weight`.

    GraphML knows no lists: they are joined by a space (dia_ids) or by "; " (speakers). A property without a value is
    left out, for a reader would leave it out too.
    """
    import networkx

    built = networkx.Graph()
    for label, rows in graph.nodes.items():
        for row in rows:
            built.add_node(row["id"], label=label, **{k: v for k, v in _flat(row).items() if v != ""})
    for kind, edges in graph.edges.items():
        for source, target, weight in edges:
            built.add_edge(source, target, type=kind, **({} if weight is None else {"weight": weight}))
    return built


def write(graph: MemoryGraph, folder: Path) -> Path:
    """Write FILE into the folder."""
    import networkx

    path = folder / FILE
    networkx.write_graphml_xml(build(graph), path, encoding="utf-8")
    return path


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    joined = {"dia_ids": " ", "speakers": "; "}
    return {k: joined[k].join(v) if k in joined else v for k, v in row.items() if k != "id"}
