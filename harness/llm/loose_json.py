"""Reads JSON that a language model got wrong. Every liberty taken is named, so that it can be counted.

Kinds: "quotes" (single, typographic or missing quotes), "trailing_comma", "literal" (True, None and their like),
"truncated" (closed by us; a key without a value is dropped), "missing_comma", "line_break" (a raw one in a string),
"comment", "inner_quotes" (unescaped ones in a string).
"""

from __future__ import annotations

import re
from typing import Any

_SPACE = re.compile(r"\s+")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?")
_BARE = re.compile(r"[^\s,:{}\[\]\"']+")
_BARE_TEXT = re.compile(r"[^,}\]\n]+")
_CLOSERS = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`"}
_AFTER_STRING = frozenset(",:}]/") | _CLOSERS.keys()
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_LITERALS = {"true": True, "false": False, "null": None}
_WORDS = {"none": None, "nan": None, "undefined": None, "nil": None}
MAX_DEPTH = 50


def _whole(text: str) -> str:
    """Escaped surrogate pairs become the sign they stand for; half a pair becomes a replacement sign."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def without_halves(value: Any) -> Any:
    """A parsed value in whose texts half a surrogate pair, which nothing can store or send, is a replacement sign."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, list):
        return [without_halves(child) for child in value]
    if isinstance(value, dict):
        return {_whole(key): without_halves(child) for key, child in value.items()}
    return value


class NotJson(ValueError):
    """No reading of the text as a JSON object or list was found."""


class _Missing:
    """A value that the text ends before."""


_MISSING = _Missing()


class _Reader:
    def __init__(self, text: str, start: int):
        self.text = text
        self.at = start
        self.kinds: dict[str, None] = {}

    def note(self, kind: str) -> None:
        self.kinds[kind] = None

    def peek(self) -> str:
        """The next sign that is neither white space nor comment; "" at the end."""
        while True:
            if space := _SPACE.match(self.text, self.at):
                self.at = space.end()
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                return self.text[self.at : self.at + 1]
            self.note("comment")
            self.at = comment.end()

    def value(self, depth: int) -> Any:
        sign = self.peek()
        if depth > MAX_DEPTH:
            raise NotJson("nested too deeply")
        if sign == "":
            self.note("truncated")
            return _MISSING
        if sign == "{":
            return self.members(depth)
        if sign == "[":
            return self.elements(depth)
        if sign in _CLOSERS:
            return self.string()
        return self.scalar()

    def members(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        comma_due = False
        self.at += 1
        while True:
            sign = self.peek()
            if sign == "}":
                self.at += 1
                return found
            if sign == "":
                self.note("truncated")
                return found
            if sign == ",":
                self.comma("}")
                comma_due = False
                continue
            if comma_due:
                self.note("missing_comma")
            comma_due = True
            key = self.key()
            if self.peek() != ":":
                if self.peek() == "":
                    self.note("truncated")
                    return found
                raise NotJson(f"no colon after the key {key!r}")
            self.at += 1
            if self.peek() in ("}", ","):
                raise NotJson(f"no value after the key {key!r}")
            value = self.value(depth + 1)
            if value is not _MISSING:
                found[key] = value

    def elements(self, depth: int) -> list[Any]:
        found: list[Any] = []
        comma_due = False
        self.at += 1
        while True:
            sign = self.peek()
            if sign == "]":
                self.at += 1
                return found
            if sign == "":
                self.note("truncated")
                return found
            if sign == ",":
                self.comma("]")
                comma_due = False
                continue
            if sign in "}:":
                raise NotJson("a list that does not end")
            if comma_due:
                self.note("missing_comma")
            comma_due = True
            value = self.value(depth + 1)
            if value is not _MISSING:
                found.append(value)

    def comma(self, closer: str) -> None:
        self.at += 1
        if self.peek() == closer:
            self.note("trailing_comma")

    def key(self) -> str:
        if self.text[self.at] in _CLOSERS:
            return self.string()
        bare = _BARE.match(self.text, self.at)
        if bare is None:
            raise NotJson(f"no key at {self.text[self.at : self.at + 10]!r}")
        self.at = bare.end()
        self.note("quotes")
        return bare.group()

    def string(self) -> str:
        opener = self.text[self.at]
        closer = _CLOSERS[opener]
        if opener != '"':
            self.note("quotes")
        self.at += 1
        parts: list[str] = []
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign == closer:
                if self.ends_here():
                    self.at += 1
                    return _whole("".join(parts))
                self.note("inner_quotes")
            if sign == "\\":
                parts.append(self.escape())
                continue
            if sign == "\n":
                self.note("line_break")
            parts.append(sign)
            self.at += 1
        self.note("truncated")
        return _whole("".join(parts).rstrip())

    def ends_here(self) -> bool:
        """A quote ends a string only before a sign that can follow one: the others stand inside the text."""
        after = _SPACE.match(self.text, self.at + 1)
        place = after.end() if after else self.at + 1
        return place >= len(self.text) or self.text[place] in _AFTER_STRING

    def escape(self) -> str:
        code = self.text[self.at + 1 : self.at + 2]
        if code == "u":
            digits = self.text[self.at + 2 : self.at + 6]
            if re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                self.at += 6
                return chr(int(digits, 16))
        self.at = min(self.at + 2, len(self.text))
        return _ESCAPES.get(code, code)

    def scalar(self) -> Any:
        start = self.at
        found = _BARE_TEXT.match(self.text, start)
        if found is None:
            raise NotJson(f"no value at {self.text[start : start + 10]!r}")
        token = found.group().strip()
        self.at = found.end()
        ended = self.at >= len(self.text)
        if ended:
            self.note("truncated")
        if _NUMBER.fullmatch(token):
            try:
                return float(token) if set(token) & set(".eE") else int(token)
            except ValueError:  # thousands of digits
                raise NotJson("a number without end") from None
        lowered = token.lower()
        if lowered in _LITERALS or lowered in _WORDS:
            if token not in _LITERALS:
                self.note("literal")
            return {**_LITERALS, **_WORDS}[lowered]
        if ended:
            whole = [word for word in _LITERALS if word.startswith(lowered)]
            return _LITERALS[whole[0]] if whole else _MISSING
        self.note("quotes")
        return token


def read_loose(text: str, start: int) -> tuple[Any, tuple[str, ...], int]:
    """The JSON object or list that starts at `start`, the kinds of liberties taken, and where it ends.

    Raises NotJson.
    """
    reader = _Reader(text, start)
    value = reader.value(0)
    return value, tuple(reader.kinds), reader.at
