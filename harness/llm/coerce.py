"""Brings parsed JSON nearer to a schema: the slips of models that mean the right thing. Every kind is named.

Scores: for a number bounded by [0, 1] a value above 1 up to 10 is read on a scale of ten ("scale_10"), above 10 up to
100 on a scale of a hundred ("scale_100"); beyond, or below 0, it is clipped ("clipped"). This is our choice: models
asked for a score in [0, 1] that leave it do so by another scale. A number with other bounds is clipped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

_FIGURE = r"((?:[-+]|(?<!\d))(?:\d++(?:\.\d++)?|\.\d++))"
"""Read once from its first digit on: models that repeat a digit up to their token limit take no time."""
_PERCENT = re.compile(rf"{_FIGURE}\s*%")
_RATIO = re.compile(rf"{_FIGURE}\s*(?:/|out of)\s*(\d*\.?\d+)")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_YES = {"true", "yes", "y", "1"}
_NO = {"false", "no", "n", "0"}

Note = Callable[[str], None]


def coerce(value: Any, node: dict[str, Any], note: Note) -> Any:
    """`value` as the schema node (references resolved) would have it, as far as a rule says how. What no rule mends
    comes back as it is, for pydantic to refuse."""
    if "anyOf" in node:
        if value is None and {"type": "null"} in node["anyOf"]:
            return None
        options = [option for option in node["anyOf"] if option != {"type": "null"}]
        return coerce(value, options[0], note) if len(options) == 1 else value
    if "enum" in node:
        return _enum(value, node["enum"], note)
    rule = _RULES.get(node.get("type"))
    return rule(value, node, note) if rule else value


def _enum(value: Any, allowed: list[Any], note: Note) -> Any:
    if value in allowed or not isinstance(value, str):
        return value
    for option in allowed:
        if isinstance(option, str) and _bare(option) == _bare(value):
            note("enum_case")
            return option
    return value


def _bare(key: str) -> str:
    return re.sub(r"[\s_-]+", "", key).casefold()


def _object(value: Any, node: dict[str, Any], note: Note) -> Any:
    properties: dict[str, Any] = node.get("properties", {})
    if not properties:
        return value
    value = _unwrapped(value, properties, note)
    if not isinstance(value, dict):
        return value
    names = {_bare(name): name for name in properties}
    found: dict[str, Any] = {}
    for key, content in value.items():
        name = key if key in properties else names.get(_bare(key))
        if name is None:
            note("extra_key")
        elif name == key or name not in value:
            if name != key:
                note("key_case")
            found[name] = coerce(content, properties[name], note)
    return found


def _unwrapped(value: Any, properties: dict[str, Any], note: Note) -> Any:
    """An object out of what stands in its place: its only list field bare, its only field bare, itself in a list of
    one, or itself under a key that is not its own."""
    known = {_bare(name) for name in properties}
    if isinstance(value, dict):
        inner = next(iter(value.values())) if len(value) == 1 else None
        if isinstance(inner, dict) and not known & {_bare(key) for key in value} and known & {_bare(k) for k in inner}:
            note("wrapped_object")
            return inner
        return value
    if isinstance(value, list):
        lists = [name for name, child in properties.items() if child.get("type") == "array"]
        if len(value) == 1 and isinstance(value[0], dict) and known & {_bare(key) for key in value[0]}:
            note("wrapped_object")
            return value[0]
        if len(lists) == 1:
            note("bare_list")
            return {lists[0]: value}
        return value
    if len(properties) == 1 and value is not None:
        note("bare_value")
        return {next(iter(properties)): value}
    return value


def _array(value: Any, node: dict[str, Any], note: Note) -> Any:
    item = node.get("items", {})
    if value is None:
        note("null")
        return []
    if isinstance(value, str) and item.get("type") in ("string", None):
        note("list_as_text")
        value = [part.strip(" \t-*•\"'") for part in re.split(r"[,;\n]", value)]
        value = [part for part in value if part]
    elif not isinstance(value, list):
        note("lone_item")
        value = [value]
    if None in value:
        note("null")
    items = [coerce(part, item, note) for part in value if part is not None]
    longest = node.get("maxItems")
    if longest is not None and len(items) > longest:
        note("too_many")
        items = items[:longest]
    return items


def _string(value: Any, node: dict[str, Any], note: Note) -> Any:
    if isinstance(value, str):
        return value
    if value is None:
        note("null")
        return ""
    if isinstance(value, bool | int | float):
        note("value_as_text")
        return str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        note("text_as_list")
        return ", ".join(value)
    return value


def _number(value: Any, node: dict[str, Any], note: Note) -> Any:
    low, high = node.get("minimum"), node.get("maximum")
    share = low == 0 and high == 1
    on_a_scale = False
    if isinstance(value, bool):
        note("bool_as_number")
        value = float(value)
    elif isinstance(value, str):
        if (ratio := _RATIO.search(value)) and share:
            whole = float(ratio[2])
            if not whole:
                return value
            note("ratio")
            value, on_a_scale = float(ratio[1]) / whole, True
        elif (percent := _PERCENT.search(value)) and share:
            note("percent")
            value, on_a_scale = float(percent[1]) / 100, True
        elif number := _NUMBER.search(value):
            note("number_as_text")
            value = float(number.group())
    if not isinstance(value, int | float) or (isinstance(value, float) and not math.isfinite(value)):
        return value
    if share and not on_a_scale and 1 < value <= 100:
        note("scale_10" if value <= 10 else "scale_100")
        value = value / (10 if value <= 10 else 100)
    clipped = min(value if low is None else max(value, low), math.inf if high is None else high)
    if clipped != value:
        note("clipped")
    return clipped


def _integer(value: Any, node: dict[str, Any], note: Note) -> Any:
    value = _number(value, node, note)
    if isinstance(value, float) and math.isfinite(value):
        if value != int(value):
            note("rounded")
        return round(value)
    return value


def _boolean(value: Any, node: dict[str, Any], note: Note) -> Any:
    if isinstance(value, bool):
        return value
    word = str(value).strip().strip(".!").lower()
    if word in _YES or word in _NO:
        note("bool_as_text")
        return word in _YES
    return value


_RULES: dict[str, Callable[[Any, dict[str, Any], Note], Any]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
}
