"""The scripted stand-in: answers a schema from the prompt itself, by rule. No language model, knows no system.

A JSON schema carries its rules under "x-scripted" (on a property, or on the whole: one rule for the whole value, or
an object of rules by property). Inputs are read between tags in the user messages.

    {"rule": "const", "value": v}
    {"rule": "copy", "tag": t}                  text of the tag
    {"rule": "lead", "tag": t, "words": n}      the first n words, cut after the last whole sentence among them
    {"rule": "keywords", "tag": t, "max": n}    capitalised runs, then content words
    {"rule": "entities", "tag": t, "max": n}    the same of a question (its question words are function words)
    {"rule": "overlap", "tags": [a, b]}         Jaccard of content words, 2 decimals
    {"rule": "complement", "tags": [a, b]}      shared content words / smaller set x (1 - overlap), 2 decimals
    {"rule": "join", "tags": [a, b]}            sentences of a, then those of b not already there
    {"rule": "covers", "question": q, "context": c}    every content word of q occurs in c
    {"rule": "missing", "question": q, "context": c}   the content words that do not, joined by spaces
    {"rule": "answer", "question": q, "context": c}    see `_answer`
    {"rule": "each", "tag": t, "item": {property: rule}}  one item per repeated tag; inside, tag "." is its text and
    {"rule": "attribute", "name": "id"}                   its attribute (a number where it is one)
    {"rule": "last", "tag": t}                  text of the last of a repeated tag (a number where it is one)
    {"rule": "closest", "question": q, "tag": t, "max": n}  ids of the items of a repeated tag that share most content
                                                words with q, most first; without "max" the first one alone, or null
    {"rule": "similar", "tag": t, "to": a, "least": x, "name": "id"}  that attribute of each repeated tag whose overlap
                                                                      with tag a is at least x
    {"rule": "any", "of": rule}                 whether that rule gives anything
    {"rule": "if", "of": rule, "then": x, "else": y}    x or y (a rule, or a value) by whether that rule gives anything

"each" with "inside": true looks its item's tags up inside the item alone.

A property without a rule gets its type's empty value. Without a schema the reply is the "answer" rule's text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from harness.llm.types import Message
from harness.llm.words import content_list, content_set, is_function, names_and_words, sentences, words

VERSION = "scripted-4"
"""Stands in the cache key in place of a model's revision: raise it when a rule changes what it replies."""

RULE_KEY = "x-scripted"
UNKNOWN = "unknown"
_MAX_ANSWER_WORDS = 8
_INTEGER = re.compile(r"-?\d+\Z")


class _Item(NamedTuple):
    attributes: dict[str, str]
    text: str


class _Scope(NamedTuple):
    """What rules can see: the user messages' text, and inside `each` the item at hand."""

    text: str
    item: _Item | None = None

    def tag(self, name: str) -> str:
        if name == ".":
            return self.item.text if self.item else ""
        start = _open_tag(name).search(self.text)
        if start is None:
            return ""
        end = self.text.rfind(f"</{name}>", start.end())
        return self.text[start.end() : end if end >= 0 else len(self.text)].strip()

    def items(self, name: str) -> list[_Item]:
        """Every `<name ...>`, each up to its last close before the next opening."""
        starts = list(_open_tag(name).finditer(self.text))
        found = []
        for index, start in enumerate(starts):
            stop = starts[index + 1].start() if index + 1 < len(starts) else len(self.text)
            end = self.text.rfind(f"</{name}>", start.end(), stop)
            if end >= 0:
                attributes = dict(_ATTRIBUTE.findall(start.group(1) or ""))
                found.append(_Item(attributes, self.text[start.end() : end].strip()))
        return found


_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')


@lru_cache(maxsize=256)
def _open_tag(name: str) -> re.Pattern[str]:
    return re.compile(rf"<{re.escape(name)}(\s[^<>]*)?>")


def reply_for(messages: list[Message], schema: dict[str, Any] | None) -> str:
    """The stand-in's reply: JSON text for a schema, plain text without one. Deterministic."""
    scope = _Scope("\n".join(message["content"] for message in messages if message["role"] == "user"))
    if schema is None:
        return _answer(scope.tag("question"), scope.tag("context"), scope)
    return json.dumps(_value(schema, schema, scope), ensure_ascii=False)


def _value(node: dict[str, Any], root: dict[str, Any], scope: _Scope) -> Any:
    """The value of a schema node: by its rule, else of its type, empty."""
    rule = node.get(RULE_KEY)
    if rule is not None:
        return _apply(rule, scope)
    if "$ref" in node:
        return _value(_resolve(node["$ref"], root), root, scope)
    if "const" in node:
        return node["const"]
    if "enum" in node:
        return node["enum"][0]
    if "anyOf" in node:
        options = node["anyOf"]
        return None if {"type": "null"} in options else _value(options[0], root, scope)
    kind = node.get("type")
    if kind == "object" or "properties" in node:
        return {name: _value(child, root, scope) for name, child in node.get("properties", {}).items()}
    if kind in ("number", "integer"):
        return max(node.get("minimum", 0), 0)
    return {"array": [], "boolean": False, "string": ""}.get(kind)


def _resolve(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    node: Any = root
    for part in reference.removeprefix("#/").split("/"):
        node = node[part]
    return node


def _apply(rule: dict[str, Any], scope: _Scope) -> Any:
    if "rule" not in rule:
        return {name: _apply(child, scope) for name, child in rule.items()}
    try:
        return _RULES[rule["rule"]](rule, scope)
    except KeyError as error:
        raise ValueError(f"{RULE_KEY} rule {rule!r}: {error} is unknown or missing") from None


def _lead(rule: dict[str, Any], scope: _Scope) -> str:
    kept: list[str] = []
    for sentence in sentences(scope.tag(rule["tag"])):
        if kept and len(kept) + len(sentence.split()) > rule["words"]:
            break
        kept += sentence.split()
    return " ".join(kept[: rule["words"]])


def _keywords(rule: dict[str, Any], scope: _Scope) -> list[str]:
    return list(names_and_words(scope.tag(rule["tag"]))[: rule.get("max")])


def _overlap(rule: dict[str, Any], scope: _Scope) -> float:
    a, b = (content_set(scope.tag(name)) for name in rule["tags"])
    union = len(a | b)
    return round(len(a & b) / union, 2) if union else 0.0


def _complement(rule: dict[str, Any], scope: _Scope) -> float:
    a, b = (content_set(scope.tag(name)) for name in rule["tags"])
    if not a or not b:
        return 0.0
    shared = len(a & b)
    return round(shared / min(len(a), len(b)) * (1 - shared / len(a | b)), 2)


def _join(rule: dict[str, Any], scope: _Scope) -> str:
    distinct: dict[str, str] = {}
    for name in rule["tags"]:
        for sentence in sentences(scope.tag(name)):
            distinct.setdefault(" ".join(sentence.casefold().split()), sentence)
    return " ".join(distinct.values())


def _missing_words(rule: dict[str, Any], scope: _Scope) -> list[str]:
    known = content_set(scope.tag(rule["context"]))
    return [word for word in content_list(scope.tag(rule["question"])) if word not in known]


def _each(rule: dict[str, Any], scope: _Scope) -> list[Any]:
    inside = rule.get("inside", False)
    return [
        _apply(rule["item"], _Scope(item.text if inside else scope.text, item)) for item in scope.items(rule["tag"])
    ]


def _attribute(rule: dict[str, Any], scope: _Scope) -> Any:
    return _typed(scope.item.attributes.get(rule["name"], "") if scope.item else "")


def _typed(value: str) -> int | str:
    return int(value) if _INTEGER.match(value) else value


def _last(rule: dict[str, Any], scope: _Scope) -> int | str:
    items = scope.items(rule["tag"])
    return _typed(items[-1].text) if items else ""


def _closest(rule: dict[str, Any], scope: _Scope) -> Any:
    asked = content_set(scope.tag(rule["question"]))
    shared = [(len(content_set(item.text) & asked), item) for item in scope.items(rule["tag"])]
    ranked = sorted((pair for pair in shared if pair[0]), key=lambda pair: -pair[0])
    ids = [_typed(item.attributes.get("id", "")) for _, item in ranked]
    return ids[: rule["max"]] if "max" in rule else ids[0] if ids else None


def _similar(rule: dict[str, Any], scope: _Scope) -> list[Any]:
    inside = [_Scope(scope.text, item) for item in scope.items(rule["tag"])]
    alike = {"tags": [rule["to"], "."]}
    return [_attribute(rule, item) for item in inside if _overlap(alike, item) >= rule["least"]]


def _if(rule: dict[str, Any], scope: _Scope) -> Any:
    chosen = rule["then" if _apply(rule["of"], scope) else "else"]
    return _apply(chosen, scope) if isinstance(chosen, dict) else chosen


def _answer(question: str, context: str, scope: _Scope) -> str:
    """With an <options> tag: the option whose content words occur most in the context lines that share a word with
    the question, ties to the first. Else the sentence sharing most words with the question, less the question's own
    content words and the function words, at most 8 words. "unknown" where nothing is shared."""
    asked = content_set(question)
    options = _Scope(scope.tag("options")).items("option")
    if options:
        near = set().union(*(shown for line in context.splitlines() if (shown := content_set(line)) & asked))
        return max(options, key=lambda option: len(content_set(option.text) & near)).text
    best, best_shared = "", 0
    for sentence in sentences(context):
        shared = len(content_set(sentence) & asked)
        if shared > best_shared:
            best, best_shared = sentence, shared
    left = [word for word in words(best) if not is_function(word) and not content_set(word) & asked]
    return " ".join(left[:_MAX_ANSWER_WORDS]) or UNKNOWN


_RULES: dict[str, Callable[[dict[str, Any], _Scope], Any]] = {
    "const": lambda rule, scope: rule["value"],
    "copy": lambda rule, scope: scope.tag(rule["tag"]),
    "lead": _lead,
    "keywords": _keywords,
    "entities": _keywords,
    "overlap": _overlap,
    "complement": _complement,
    "join": _join,
    "covers": lambda rule, scope: not _missing_words(rule, scope),
    "missing": lambda rule, scope: " ".join(_missing_words(rule, scope)),
    "answer": lambda rule, scope: _answer(scope.tag(rule["question"]), scope.tag(rule["context"]), scope),
    "each": _each,
    "attribute": _attribute,
    "last": _last,
    "closest": _closest,
    "similar": _similar,
    "any": lambda rule, scope: bool(_apply(rule["of"], scope)),
    "if": _if,
}
