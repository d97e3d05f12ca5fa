"""An export's folder: whole or absent."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import RecordError


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `target` when all is written; after an error nothing is left of it.

    RecordError: the target holds something already, or cannot be made.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RecordError(f"{target}: holds something already; give --out a new folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise RecordError(f"{target}: cannot be made ({error.strerror}); give --out a writable place") from error
    try:
        yield made
        made.chmod(0o755)  # mkdtemp's folders are for their maker alone
        made.replace(target)
    except OSError as error:
        raise RecordError(f"{target}: cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
