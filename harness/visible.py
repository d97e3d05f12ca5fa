"""Text of others (a data set, an endpoint, a copied run folder) as a terminal or a line of a table can show it."""

from __future__ import annotations

import re

_STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves a cursor, begins an escape sequence or a line, turns the reading direction of what follows, or is no character."""


def visible(text: str) -> str:
    """`text` on one line: what would steer what shows it stands as Python writes it, \\x1b or \\u202e."""
    return _STEERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def visible_lines(text: str) -> str:
    """As `visible`, but line ends are meant."""
    return "\n".join(map(visible, text.split("\n")))
