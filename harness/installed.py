"""Weights that came inside an installed distribution: found without importing it, checked by sha256."""

from __future__ import annotations

import functools
import hashlib
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path


def installed_file(distribution: str, ending: str) -> Path | None:
    """The distribution's first file whose name ends so; None when there is no such file or distribution.

    The package is not imported: importing a third party's repackaging can pull in what nobody asked for.
    """
    try:
        listed = files(distribution) or []
    except PackageNotFoundError:
        return None
    found = sorted(Path(str(f.locate())) for f in listed if f.name.endswith(ending))
    return next((path for path in found if path.is_file()), None)


@functools.cache
def sha256_of(path: Path) -> str:
    """sha256 (hex) of a file, read once per process."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
