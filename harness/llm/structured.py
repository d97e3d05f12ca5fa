"""Replies by JSON schema: the schema on the wire, and the way from a reply's text to a validated instance.

`parse_reply` takes a clean reply as it is. Else it looks for the object: behind `<think>` blocks ("think",
"think_unclosed"), in the reasoning field when the content is empty ("reasoning_field"), inside a fence ("fence"), amid
prose ("prose"), and reads it loosely (harness/llm/loose_json.py); then it mends what does not fit the schema
(harness/llm/coerce.py). Each kind of repair is named once per reply.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError

from harness.llm.coerce import coerce
from harness.llm.loose_json import MAX_DEPTH, NotJson, read_loose, without_halves

_THINK = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_THINK_END = re.compile(r"^.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_THINK_START = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_FENCE = re.compile(r"```[ \t]*[A-Za-z0-9]*[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_BRACKETS = re.compile(r"\[*")
_DROPPED = ("title", "default", "examples", "uniqueItems")
"""Keywords that strict endpoints refuse, or that say nothing of the reply's form."""


@dataclass(frozen=True)
class Parsed:
    """A validated instance and the kinds of repair that led to it; empty for a clean reply."""

    value: BaseModel
    repairs: tuple[str, ...]


class Unusable(Exception):
    """A reply that no repair makes fit. `kind`: "empty" or "unparsable"; the message says what is wrong with it."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


@lru_cache(maxsize=256)
def _schema(model: type[BaseModel], rules: bool, lengths: bool) -> dict[str, Any]:
    raw = model.model_json_schema()
    return _strict(raw, raw.get("$defs", {}), rules, lengths)


def wire_schema(model: type[BaseModel], *, rules: bool = False, lengths: bool = False) -> dict[str, Any]:
    """The model's JSON schema as strict endpoints want it: references inlined, every property required, none beside
    them. `rules` keeps the x- keys, which only the scripted stand-in reads. `lengths` keeps maxLength, which servers
    that decode by grammar enforce (a small model else rambles to its token limit) and strict endpoints may refuse.
    Do not change the dictionary.

    A model that contains itself is refused (ValueError): no reply of the bench is recursive.
    """
    return _schema(model, rules, lengths)


def _strict(node: Any, definitions: dict[str, Any], rules: bool, lengths: bool, inside: tuple[str, ...] = ()) -> Any:
    if isinstance(node, list):
        return [_strict(child, definitions, rules, lengths, inside) for child in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[-1]
        if name in inside:
            raise ValueError(f"the reply model {name} contains itself; a reply schema must not be recursive")
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _strict({**definitions[name], **beside}, definitions, rules, lengths, (*inside, name))
    strict: dict[str, Any] = {}
    for key, child in node.items():
        if key == "properties":
            strict[key] = {name: _strict(value, definitions, rules, lengths, inside) for name, value in child.items()}
        elif key.startswith("x-"):
            if rules:
                strict[key] = child
        elif key != "$defs" and key not in _DROPPED and (lengths or key != "maxLength"):
            strict[key] = _strict(child, definitions, rules, lengths, inside)
    if "properties" in strict:
        strict["required"] = list(strict["properties"])
        strict["additionalProperties"] = False
    return strict


@lru_cache(maxsize=256)
def _instruction(model: type[BaseModel]) -> str:
    return "Reply with one JSON object that fits this JSON schema. Write nothing before or after it.\n" + json.dumps(
        wire_schema(model), ensure_ascii=False
    )


def with_schema_in_prompt(messages: list[dict[str, str]], model: type[BaseModel]) -> list[dict[str, str]]:
    """The messages with the schema at the end of the system part (static text: prefix caches go on working)."""
    if messages and messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{_instruction(model)}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": _instruction(model)}, *messages]


def visible_text(text: str | None, reasoning: str | None) -> tuple[str, tuple[str, ...]]:
    """What the model said to us: thinking cut off; the reasoning field where nothing else was said.

    A block left open is cut off as a whole where a schema-less answer is wanted; `parse_reply` looks inside it.
    """
    shown, repairs = _strip_thinking(text or "")
    if repairs == ["think_unclosed"]:
        shown = _THINK_START.split(text or "", maxsplit=1)[0]
    if not shown.strip() and reasoning and reasoning.strip():
        shown, _ = _strip_thinking(reasoning)
        repairs.append("reasoning_field")
    return shown.strip(), tuple(repairs)


def _strip_thinking(text: str) -> tuple[str, list[str]]:
    if "think" not in text.lower():
        return text, []
    cut = _THINK_END.sub("", _THINK.sub("", text))
    repairs = ["think"] if cut != text else []
    if _THINK_START.search(cut):
        return _THINK_START.sub("", cut), ["think_unclosed"]
    return cut, repairs


def parse_reply(text: str | None, reasoning: str | None, model: type[BaseModel]) -> Parsed:
    """A validated instance of `model` out of a reply. Raises Unusable."""
    try:
        return Parsed(model.model_validate_json(text or "", strict=True, extra="forbid"), ())
    except ValidationError:
        pass
    shown, thinking = (text or "", []) if _is_one_object(text or "") else _strip_thinking(text or "")
    if not shown.strip() and reasoning and reasoning.strip():
        shown, inner = _strip_thinking(reasoning)
        thinking = [*thinking, *inner, "reasoning_field"]
    if not shown.strip():
        raise Unusable("empty", "it was empty")
    candidates = _candidates(shown)
    if {"think_unclosed", "reasoning_field"} & set(thinking):
        candidates.reverse()  # drafts come first in thinking, the conclusion last
    problem: Unusable | None = None
    escaped = "\\u" in shown  # Python's reader makes halves of characters of them; ours does not
    for value, kinds in candidates:
        try:
            return _fit(without_halves(value) if escaped else value, [*thinking, *kinds], model)
        except Unusable as error:
            problem = problem or error
    raise problem or Unusable("unparsable", "it held no JSON object")


def _is_one_object(text: str) -> bool:
    """Whether the text is an object from its first sign to its last: marks of thinking are then words inside it."""
    text = text.strip()
    if not text.startswith("{"):
        return False
    try:
        _, kinds, end = _read(text, 0)
    except NotJson:
        return False
    return end == len(text) and "truncated" not in kinds


def _candidates(text: str) -> list[tuple[Any, tuple[str, ...]]]:
    """Readings of a text as JSON, each with the kinds of liberties it took; the likeliest first."""
    text = text.strip().lstrip("\ufeff")
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        pass
    else:
        if isinstance(value, str) and value.strip()[:1] in ("{", "["):
            return [(inner, ("json_as_text", *kinds)) for inner, kinds in _candidates(value)]
        return [(value, ())]
    fenced = [found for body in _FENCE.findall(text) for found in _scan(body.strip())]
    return [(value, ("fence", *kinds)) for value, kinds in fenced] or _scan(text)


def _scan(text: str) -> list[tuple[Any, tuple[str, ...]]]:
    """Every outermost object or list in a text; words around it are "prose". Objects come before lists.
    Numbers in brackets amid prose are a reference such as [1], no reply."""
    found: list[tuple[Any, tuple[str, ...]]] = []
    at = 0
    while (start := _next_opening(text, at)) >= 0:
        try:
            value, kinds, at = _read(text, start)
        except NotJson:
            # Of brackets opened one after the other, those too deep to be read need no try each.
            at = max(start + 1, _BRACKETS.match(text, start).end() - MAX_DEPTH - 1)
            continue
        around = text[:start].strip() or text[at:].strip()
        if value and not (around and isinstance(value, list) and isinstance(value[0], int | float)):
            found.append((value, (*kinds, "prose") if around else kinds))
    return sorted(found, key=lambda candidate: not isinstance(candidate[0], dict))


def _next_opening(text: str, at: int) -> int:
    places = [place for sign in "{[" if (place := text.find(sign, at)) >= 0]
    return min(places, default=-1)


def _no_number(name: str) -> None:
    """NaN and Infinity, which Python's reader would let through."""


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def _read(text: str, start: int) -> tuple[Any, tuple[str, ...], int]:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return read_loose(text, start)
    return value, (), end


def _fit(value: Any, kinds: list[str], model: type[BaseModel]) -> Parsed:
    noted = dict.fromkeys(kinds)
    mended = coerce(value, wire_schema(model), lambda kind: noted.setdefault(kind))
    try:
        return Parsed(model.model_validate(mended), tuple(noted))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise Unusable("unparsable", f"{place}: {first['msg'].lower()}") from None
