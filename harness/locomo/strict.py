"""Reading JSON strictly, and saying what is wrong with a data file in one line.

Python's json accepts NaN, keeps the last of two equal keys, and lets lone surrogates through: each would change
what a run means without a word, so each is refused here, with its place.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.errors import DataError

_SHOWN = 60
_SURROGATE = re.compile("[\ud800-\udfff]")
_ADVICE = {
    "missing": "add it",
    "extra_forbidden": "this key is not of the schema: remove it or correct its name",
    "string_type": "give text",
    "string_pattern_mismatch": "give text that is not blank",
    "list_type": "give a list",
    "tuple_type": "give a list",
    "dict_type": "give an object",
    "model_type": "give an object",
    "too_short": "give at least one entry",
    "too_long": "remove what is too much",
    "bool_type": "give true or false",
}
"""What to do for each pydantic error type; the types defined in models.py carry their own advice."""


class _Refused:
    """Stands in the parsed tree where JSON held something the standard, or a data file, has no place for."""

    def __init__(self, found: str, advice: str):
        self.found = found
        self.advice = advice


class Place:
    """A file and a sample, as far as they are known, to name in a message."""

    def __init__(self, file: Path, sample: str | None = None):
        self.file = file
        self.sample = sample

    def error(self, path: str, found: str, advice: str) -> DataError:
        """One line: file, sample, path inside it ("" is all of it), what was found, what to do."""
        sample = f"sample {self.sample}: " if self.sample else ""
        path = path or ("the sample" if self.sample else "the file")
        return DataError(f"{self.file}: {sample}{path}: found {found}; {advice}")

    def validate(self, adapter: TypeAdapter[Any], value: Any, path: str) -> Any:
        """`value` as the adapter's type. Raises DataError for the first thing that does not fit."""
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            found = "nothing" if first["type"] == "missing" else describe(first["input"])
            advice = _ADVICE.get(first["type"], first["msg"])
            raise self.error(join(path, *first["loc"]), found, advice) from None


def describe(value: Any) -> str:
    """What was found, in a few words on one line (control characters are escaped)."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if not value.strip():
            return "blank text"
        return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}..."
    if isinstance(value, int | float):
        text = str(value)
        return f"the number {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    return "an object" if value else "an empty object"


def join(path: str, *parts: str | int) -> str:
    """Extend a path: join("qa", 3, "category") is "qa[3].category"."""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[\w-]+", part) else repr(part)
            path = f"{path}.{name}" if path else name
    return path


def read_json(file: Path) -> tuple[Any, str]:
    """The parsed file and the sha256 (hex) of its bytes.

    Raises DataError when the file cannot be read, is not UTF-8 or not JSON, ends in the middle, repeats a key, or
    holds NaN, an infinite number or half a character (a lone surrogate).
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read ({error.strerror}); give another file with dataset.path=FILE"
        ) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: found a byte that is not UTF-8 at offset {error.start}; save it as UTF-8") from None
    try:
        tree = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite)
        refusal = next(_refusals(tree), None)
    except json.JSONDecodeError as error:
        raise DataError(f"{file}: {_broken(text, error)}") from None
    except RecursionError:
        raise DataError(f"{file}: found lists or objects nested too deep; this is not a LoCoMo file") from None
    except ValueError:
        raise DataError(f"{file}: found a number of thousands of digits; this is not a LoCoMo file") from None
    if refusal is not None:
        raise _refused_at(file, tree, *refusal)
    return tree, hashlib.sha256(data).hexdigest()


def _refused_at(file: Path, tree: Any, keys: tuple[str | int, ...], refused: _Refused) -> DataError:
    """The error for something refused at `keys`, its sample named where the tree has one."""
    place = Place(file)
    if isinstance(tree, list) and keys and isinstance(keys[0], int):
        place, keys = Place(file, name_sample(tree[keys[0]], keys[0])), keys[1:]
    return place.error(join("", *keys), refused.found, refused.advice)


def name_sample(sample: Any, position: int) -> str:
    """Its sample_id, or its place in the file where it has none that can be used."""
    sample_id = sample.get("sample_id") if isinstance(sample, dict) else None
    return repr(sample_id)[1:-1] if isinstance(sample_id, str) and sample_id.strip() else f"number {position + 1}"


def _unique(pairs: list[tuple[str, Any]]) -> Any:
    """An object; a key given twice is kept as a refusal in that key's place."""
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                values[key] = _Refused("the key a second time", "keep one: which of the two is meant is unclear")
            seen.add(key)
    return values


def _constant(name: str) -> _Refused:
    return _Refused(name, "JSON has no such number; give a number or text")


def _finite(digits: str) -> float | _Refused:
    value = float(digits)
    return value if math.isfinite(value) else _Refused(f"the number {digits[:_SHOWN]}", "it is too large; correct it")


def _refusals(node: Any) -> Iterator[tuple[tuple[str | int, ...], _Refused]]:
    """Places of what must be refused, in the file's order."""
    if isinstance(node, _Refused):
        yield (), node
    elif isinstance(node, str):
        if not node.isascii() and _SURROGATE.search(node):
            yield (), _Refused("half a character (a lone surrogate)", "write the whole character")
    elif isinstance(node, dict | list):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(child, str) and child.isascii():
                continue
            for keys, refused in _refusals(child):
                yield (key, *keys), refused


def _broken(text: str, error: json.JSONDecodeError) -> str:
    body = text.strip()
    if not body:
        return "found an empty file; give a JSON list of samples"
    where = f"line {error.lineno}, column {error.colno}"
    if body[0] in "[{" and (body[-1] not in "]}" or error.pos >= len(text.rstrip())):
        return f"truncated: the JSON ends in the middle ({where}); fetch the file again"
    if body[0] not in "[{":
        return f"not JSON: found {describe(body[:20])} at the start; give a JSON list of samples"
    return f"not JSON: {error.msg.lower()} at {where}; correct it there or fetch the file again"
