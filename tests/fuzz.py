"""What the fuzz tests share: JSON of any kind, sound values that are damaged somewhere, bytes that are. No luck: the same
examples each time, and nothing is left on the disk."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


def examples(number: int) -> settings:
    return settings(max_examples=number, derandomize=True, deadline=None, database=None, suppress_health_check=SLOW)


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 1, 2**63, 10**30])
    | st.floats()
    | st.text(st.characters(), max_size=12)  # halves of surrogate pairs included
    | st.sampled_from(["", " ", "\u2028", "\x00", "\ud800", "1", "nan", "D1:1", "1:56 pm on 8 May, 2023"])
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The path of every value inside `value`."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in inner for place in places(child, (*path, key)))]


@st.composite
def damaged(draw: st.DrawFn, sound: Any, most: int = 3) -> Any:
    """`sound` with up to `most` values replaced, removed, moved to another key or given twice."""
    value = copy.deepcopy(sound)
    for _ in range(draw(st.integers(1, most))):
        path = draw(st.sampled_from(places(value)))
        if not path:
            if draw(st.integers(0, 9)) == 0:
                return draw(JSON)
            continue
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        how = draw(st.sampled_from(["replace", "remove", "rename", "twice"]))
        if how == "remove":
            del holder[path[-1]]
        elif how == "rename" and isinstance(holder, dict):
            holder[draw(st.sampled_from([*holder, "x"]) | st.text(max_size=8))] = holder.pop(path[-1])
        elif how == "twice" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[path[-1]]))
        else:
            holder[path[-1]] = draw(JSON)
    return value


@st.composite
def damaged_bytes(draw: st.DrawFn, sound: bytes) -> bytes:
    """`sound` cut off, or with bytes replaced, removed or put in."""
    content = bytearray(sound)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        how = draw(st.sampled_from(["cut", "put", "drop", "flip"]))
        if how == "cut":
            del content[at:]
        elif how == "put":
            content[at:at] = draw(
                st.binary(min_size=1, max_size=4)
                | st.sampled_from([b"[" * 5000, b"9" * 5000, b"NaN", b"\n", b'"', b"{"])
            )
        elif how == "drop":
            del content[at : at + draw(st.integers(1, 8))]
        elif at < len(content):
            content[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(content)
