"""Which code and which packages a number comes from."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from importlib import metadata
from pathlib import Path

from harness.prompts import ROOT

PACKAGES = (
    "openai",
    "sentence-transformers",
    "torch",
    "faiss-cpu",
    "leidenalg",
    "igraph",
    "xllamacpp",
    "numpy",
    "nltk",
    "pydantic",
    "hydra-core",
)
"""Packages whose version can change a number."""


@cache
def source_hash(*packages: str) -> str:
    """sha256 over path and content of every Python file of these top-level packages or modules.

    A file that changes under a running process is not looked at again: the process runs what it read.
    """
    digest = hashlib.sha256()
    for name in sorted(set(packages)):
        found = importlib.util.find_spec(name)
        roots = list(found.submodule_search_locations or ()) if found else []
        files = [(root, path) for root in roots for path in Path(root).rglob("*.py")]
        if found and found.origin and not roots:
            files = [(str(Path(found.origin).parent), Path(found.origin))]
        for place, path in sorted((path.relative_to(root).as_posix(), path) for root, path in files):
            content = path.read_bytes()
            digest.update(f"{name}/{place}:{len(content)}\n".encode() + content)
    return digest.hexdigest()


def package_of(system: str) -> str:
    """The top-level package of a registry string "module:Class"."""
    return system.partition(":")[0].partition(".")[0]


def code_version(system: str) -> str:
    """Short name of the code that builds, answers and scores: this repository's packages and that of the system."""
    ours = (file.parent.name for file in ROOT.glob("*/__init__.py"))
    return source_hash(*ours, package_of(system))[:12]


@cache
def package_versions() -> dict[str, str]:
    """Version of each of PACKAGES, "absent" where it is not installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found
