"""A few SVG parts, built as a tree so that every text and attribute is escaped when it is written.

Colours are classes of report.css (series-0.., ink, faint), never attributes: they follow light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

SERIES = 8
"""Distinct series styles; a further series begins anew with another dash."""
CHAR = 7.0
"""Mean width of a label's character at the figures' 11 px (our estimate; only space depends on it)."""


def drawing(width: float, height: float, title: str, about: str, name: str) -> Element:
    """An <svg> with an accessible name and description; `name` makes their ids unique in the page."""
    root = Element(
        "svg",
        {
            "viewBox": f"0 0 {_n(width)} {_n(height)}",
            "width": _n(width),
            "height": _n(height),
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-about",
        },
    )
    SubElement(root, "title", {"id": f"{name}-title"}).text = title
    SubElement(root, "desc", {"id": f"{name}-about"}).text = about
    return root


def put(parent: Element, tag: str, kind: str = "", *, tip: str | None = None, **attributes: float | str) -> Element:
    """A shape or group of class `kind`; numbers are rounded; `tip` is its <title>, shown when pointed at."""
    named = {key.rstrip("_").replace("_", "-"): _n(value) for key, value in attributes.items()}
    child = SubElement(parent, tag, {"class": kind, **named} if kind else named)
    if tip is not None:
        SubElement(child, "title").text = tip
    return child


def text(parent: Element, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> Element:
    child = put(parent, "text", kind, x=x, y=y, text_anchor=anchor)
    child.text = words
    return child


def path(points: Sequence[tuple[float, float]]) -> str:
    """Path data of a polyline."""
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)


def markup(root: Element) -> Markup:
    """The tree as HTML text; all in it is escaped."""
    return Markup(tostring(root, encoding="unicode", short_empty_elements=False))  # noqa: S704 - ElementTree escapes


def ticks(highest: float, about: int = 5, lowest: float = 0.0) -> list[float]:
    """Round numbers from `lowest` to at least `highest`, about `about` of them."""
    span = max(highest - lowest, 1e-9)
    raw = span / about
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * (1 - 1e-9))
    start = math.floor(lowest / step + 1e-9)
    places = []
    for place in count(start):
        places.append(round(place * step, 10))
        if places[-1] >= highest - 1e-9:
            return places
    raise AssertionError


def log_ticks(lowest: float, highest: float) -> list[float]:
    """1, 2 and 5 times the powers of ten that lie around a positive range; powers alone where that is too many."""
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    every = [10.0**power * factor for power in range(first, last + 1) for factor in (1, 2, 5)]
    low = max(value for value in every if value <= lowest * (1 + 1e-9))
    high = min((value for value in every if value >= highest * (1 - 1e-9)), default=every[-1])
    kept = [value for value in every if low <= value <= high]
    return kept if len(kept) <= 7 else [v for v in kept if v in (low, high) or math.log10(v).is_integer()]


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places moved apart to at least `gap`, in their order, within low..high as far as there is room."""
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    moved = [min(max(places[i], low), high) for i in order]
    for place in range(1, len(moved)):
        moved[place] = max(moved[place], moved[place - 1] + gap)
    ceiling = high
    for place in reversed(range(len(moved))):
        if moved[place] <= ceiling:
            break
        moved[place] = ceiling
        ceiling -= gap
    back = [0.0] * len(places)
    for place, i in enumerate(order):
        back[i] = moved[place]
    return back


def series(place: int) -> str:
    """The classes of a series: a colour that is told apart by colour-blind readers too, and a dash beyond the eighth."""
    return f"series-{place % SERIES} dash-{place // SERIES % 4}"


def short(value: float) -> str:
    """12,345 -> 12.3k: for axes."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _n(value: float | str) -> str:
    return value if isinstance(value, str) else f"{round(value, 2):g}" if abs(value) < 1e5 else f"{value:.0f}"
