"""Malformed replies, each with the value it must give and the kinds of repair that must be counted."""

import json
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from harness.llm.structured import Unusable, parse_reply, visible_text, wire_schema, with_schema_in_prompt


class Note(BaseModel):
    context: str
    keywords: list[str] = Field(max_length=4)


class Score(BaseModel):
    s_red: float = Field(ge=0, le=1)
    s_comp: float = Field(ge=0, le=1)


class One(BaseModel):
    score: float = Field(ge=0, le=1)


class Answer(BaseModel):
    answer: str = Field(min_length=1)


class Judge(BaseModel):
    sufficient: bool
    query: str | None
    level: Literal["low", "high"] = "low"
    count: int = Field(default=0, ge=0, le=5)


class Pair(BaseModel):
    id: int
    score: float = Field(ge=0, le=1)


class Pairs(BaseModel):
    pairs: list[Pair]


NOTE = {"context": "Ann moved to Oslo.", "keywords": ["Ann", "Oslo"]}
CLEAN = json.dumps(NOTE)

# what the model wrote, the reply model, the value, the kinds
REPLIES = [
    (CLEAN, Note, NOTE, ()),
    (f"  {CLEAN}\n", Note, NOTE, ()),
    (f"```json\n{CLEAN}\n```", Note, NOTE, ("fence",)),
    (f"```\n{CLEAN}", Note, NOTE, ("fence",)),
    (f"Here it is:\n```json\n{CLEAN}\n```\nHope this helps!", Note, NOTE, ("fence",)),
    (f"Sure! {CLEAN} Let me know.", Note, NOTE, ("prose",)),
    (f"As in [1], {CLEAN}", Note, NOTE, ("prose",)),
    (f"<think>Is {{it}} this? {{'context': 'no'}}</think>\n{CLEAN}", Note, NOTE, ("think",)),
    (f"she moved, so...</think>{CLEAN}", Note, NOTE, ("think",)),
    (f'{{"context": "no"}}</think>{CLEAN}', Note, NOTE, ("think",)),
    ('{"answer": "a raw \x07 and </think> quoted"}', Answer, {"answer": "a raw \x07 and </think> quoted"}, ()),
    (f"<think>a draft {{\"context\": \"x\", \"keywords\": []}} but better {CLEAN}", Note, NOTE, ("think_unclosed", "prose")),
    ('{"context": "Ann moved to Oslo.", "keywords": ["Ann", "Oslo"', Note, NOTE, ("truncated",)),
    ('{"context": "Ann moved to Oslo.", "keywords": ["Ann", "Os', Note, {**NOTE, "keywords": ["Ann", "Os"]}, ("truncated",)),
    ('{"keywords": ["Ann", "Oslo"], "context": "Ann moved to Oslo.', Note, NOTE, ("truncated",)),
    ('{"s_red": 0.25, "s_comp": 0.5, "reason": ', Score, {"s_red": 0.25, "s_comp": 0.5}, ("truncated",)),
    ('{"s_red": 0.25, "s_comp": 0.5, "rea', Score, {"s_red": 0.25, "s_comp": 0.5}, ("truncated",)),
    ('{"sufficient": tr', Judge, None, None),
    ('{"query": null, "sufficient": tr', Judge, {"sufficient": True, "query": None}, ("truncated",)),
    ("{'context': 'Ann moved to Oslo.', 'keywords': ['Ann', 'Oslo']}", Note, NOTE, ("quotes",)),
    ("{'context': 'Ann's dog moved', 'keywords': ['Ann']}", Note, {"context": "Ann's dog moved", "keywords": ["Ann"]}, ("quotes", "inner_quotes")),
    ("{“context”: “Ann moved to Oslo.”, “keywords”: [“Ann”, “Oslo”]}", Note, NOTE, ("quotes",)),
    ('{context: "Ann moved to Oslo.", keywords: ["Ann", "Oslo"]}', Note, NOTE, ("quotes",)),
    ('{"context": "Ann moved to Oslo.", "keywords": ["Ann", "Oslo",],}', Note, NOTE, ("trailing_comma",)),
    ('{"context": "Ann moved to Oslo." "keywords": ["Ann" "Oslo"]}', Note, NOTE, ("missing_comma",)),
    ('{"context": "She said "hi" to me", "keywords": ["hi"]}', Note, {"context": 'She said "hi" to me', "keywords": ["hi"]}, ("inner_quotes",)),
    ('{"context": "Ann\nmoved", "keywords": []}', Note, {"context": "Ann\nmoved", "keywords": []}, ("line_break",)),
    ('{"s_red": 0.25, // low\n "s_comp": 0.5}', Score, {"s_red": 0.25, "s_comp": 0.5}, ("comment",)),
    ("{'sufficient': True, 'query': None}", Judge, {"sufficient": True, "query": None}, ("quotes", "literal")),
    ('{"s_red": "0.25", "s_comp": "about 0.5"}', Score, {"s_red": 0.25, "s_comp": 0.5}, ("number_as_text",)),
    ('{"s_red": "85%", "s_comp": "5 %"}', Score, {"s_red": 0.85, "s_comp": 0.05}, ("percent",)),
    ('{"s_red": 85%, "s_comp": 0.5}', Score, {"s_red": 0.85, "s_comp": 0.5}, ("quotes", "percent")),
    ('{"s_red": "0.8/1", "s_comp": "8 out of 10"}', Score, {"s_red": 0.8, "s_comp": 0.8}, ("ratio",)),
    ('{"s_red": 8, "s_comp": 0.5}', Score, {"s_red": 0.8, "s_comp": 0.5}, ("scale_10",)),
    ('{"s_red": 10, "s_comp": 1}', Score, {"s_red": 1.0, "s_comp": 1.0}, ("scale_10",)),
    ('{"s_red": 85, "s_comp": 1.5}', Score, {"s_red": 0.85, "s_comp": 0.15}, ("scale_100", "scale_10")),
    ('{"s_red": "85", "s_comp": 100}', Score, {"s_red": 0.85, "s_comp": 1.0}, ("number_as_text", "scale_100")),
    ('{"s_red": -0.25, "s_comp": 250}', Score, {"s_red": 0.0, "s_comp": 1.0}, ("clipped",)),
    (f'{{"s_red": 1{"0" * 400}, "s_comp": 0.5}}', Score, {"s_red": 1.0, "s_comp": 0.5}, ("clipped",)),  # no float holds it
    (f'{{"pairs": [{{"id": 1{"0" * 400}, "score": 2}}]}}', Pairs, {"pairs": [{"id": 10**400, "score": 0.2}]}, ("scale_10",)),
    ('{"s_red": true, "s_comp": 0.5}', Score, {"s_red": 1.0, "s_comp": 0.5}, ("bool_as_number",)),
    ('[{"id": 1, "score": 0.5}]', Pairs, {"pairs": [{"id": 1, "score": 0.5}]}, ("bare_list",)),
    ('[{"id": 1, "score": 5}, {"id": "2", "score": 0.5}]', Pairs, {"pairs": [{"id": 1, "score": 0.5}, {"id": 2, "score": 0.5}]}, ("bare_list", "scale_10", "number_as_text")),
    ('{"pairs": {"id": 1, "score": 0.5}}', Pairs, {"pairs": [{"id": 1, "score": 0.5}]}, ("lone_item",)),
    (f"[{CLEAN}]", Note, NOTE, ("wrapped_object",)),
    (f'{{"result": {CLEAN}}}', Note, NOTE, ("wrapped_object",)),
    (json.dumps(CLEAN), Note, NOTE, ("json_as_text",)),
    ('{"s_red": 0.25, "s_comp": 0.5, "why": "x"}', Score, {"s_red": 0.25, "s_comp": 0.5}, ("extra_key",)),
    ('{"S_Red": 0.25, "sComp": 0.5}', Score, {"s_red": 0.25, "s_comp": 0.5}, ("key_case",)),
    ('{"context": "Ann moved to Oslo.", "keywords": "Ann, Oslo"}', Note, NOTE, ("list_as_text",)),
    ('{"context": ["Ann moved", "to Oslo."], "keywords": null}', Note, {"context": "Ann moved, to Oslo.", "keywords": []}, ("text_as_list", "null")),
    ('{"context": "x", "keywords": ["a", null, 7, "b", "c", "d"]}', Note, {"context": "x", "keywords": ["a", "7", "b", "c"]}, ("null", "value_as_text", "too_many")),
    ('{"answer": 2019}', Answer, {"answer": "2019"}, ("value_as_text",)),
    ('"May 2019"', Answer, {"answer": "May 2019"}, ("bare_value",)),
    ("0.5", One, {"score": 0.5}, ("bare_value",)),
    ('{"sufficient": "Yes.", "query": "where?"}', Judge, {"sufficient": True, "query": "where?"}, ("bool_as_text",)),
    ('{"sufficient": 0, "query": null, "level": "HIGH", "count": 2.6}', Judge, {"sufficient": False, "query": None, "level": "high", "count": 3}, ("bool_as_text", "enum_case", "rounded")),
    ('{"sufficient": false, "query": null, "count": 9}', Judge, {"sufficient": False, "query": None, "count": 5}, ("clipped",)),
    (r"{'answer': 'caf\u00e9 \ud83d\ude00'}", Answer, {"answer": "café 😀"}, ("quotes",)),
    # not to be mended: another attempt is due
    ("Blue.", Answer, None, None),
    ("I cannot judge this.", Score, None, None),
    ('{"s_red": 0.25}', Score, None, None),
    ('{"s_red": "high", "s_comp": 0.5}', Score, None, None),
    ('{"s_red": NaN, "s_comp": 0.5}', Score, None, None),
    ('{"s_red": 0.25, "s_comp": ', Score, None, None),
    ('{"answer": ""}', Answer, None, None),
    ('{"answer": {"text": "x"}}', Answer, None, None),
    ("[[[[" * 200, Pairs, None, None),
    ("{" * 500, Note, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "model", "value", "kinds"), REPLIES, ids=[text[:40] for text, *_ in REPLIES])
def test_reply(text, model, value, kinds):
    if value is None:
        with pytest.raises(Unusable) as error:
            parse_reply(text, None, model)
        assert error.value.kind == "unparsable"
        return
    parsed = parse_reply(text, None, model)
    assert parsed.value == model.model_validate(value)
    assert set(parsed.repairs) == set(kinds) and len(parsed.repairs) == len(kinds)


def test_there_are_at_least_thirty_of_them():
    assert sum(1 for _, _, _, kinds in REPLIES if kinds) >= 30


@pytest.mark.parametrize("content", [None, "", "  \n", "<think>hm</think>"])
def test_the_reasoning_field_stands_in_for_empty_content(content):
    parsed = parse_reply(content, f'First {{"context": "x", "keywords": []}}, no: {CLEAN}', Note)
    assert parsed.value.model_dump() == NOTE
    assert set(parsed.repairs) - {"think"} == {"reasoning_field", "prose"}


@pytest.mark.parametrize(("text", "reasoning"), [(None, None), ("", " "), ("<think>only this</think>", None)])
def test_nothing_said_is_empty(text, reasoning):
    with pytest.raises(Unusable) as error:
        parse_reply(text, reasoning, Note)
    assert error.value.kind == "empty"


@pytest.mark.parametrize(
    ("text", "reasoning", "shown", "repairs"),
    [
        ("Oslo", None, "Oslo", ()),
        ("<think>hm</think> Oslo ", None, "Oslo", ("think",)),
        ("hm</think>Oslo", None, "Oslo", ("think",)),
        ("Oslo <think>or Bergen", None, "Oslo", ("think_unclosed",)),
        ("<think>never ends", None, "", ("think_unclosed",)),
        (None, "Oslo", "Oslo", ("reasoning_field",)),
        ("I think so", "why", "I think so", ()),
    ],
)
def test_plain_answers_are_freed_of_thinking(text, reasoning, shown, repairs):
    assert visible_text(text, reasoning) == (shown, repairs)


class Inner(BaseModel):
    """A pair."""

    title: str
    x: float = Field(default=0.5, ge=0, le=1, json_schema_extra={"x-scripted": {"rule": "const", "value": 1}})


class Outer(BaseModel):
    inner: Inner
    many: list[Inner] = []


def test_the_schema_on_the_wire_is_strict_and_without_rules():
    inner = {
        "type": "object",
        "description": "A pair.",
        "properties": {"title": {"type": "string"}, "x": {"type": "number", "minimum": 0, "maximum": 1}},
        "required": ["title", "x"],
        "additionalProperties": False,
    }
    assert wire_schema(Outer) == {
        "type": "object",
        "properties": {"inner": inner, "many": {"type": "array", "items": inner}},
        "required": ["inner", "many"],
        "additionalProperties": False,
    }


def test_the_stand_in_is_given_the_rules():
    ruled = wire_schema(Outer, rules=True)
    assert ruled["properties"]["inner"]["properties"]["x"]["x-scripted"] == {"rule": "const", "value": 1}


class Tree(BaseModel):
    children: list["Tree"]


def test_a_recursive_reply_is_refused():
    with pytest.raises(ValueError, match="Tree contains itself"):
        wire_schema(Tree)


def test_the_schema_goes_to_the_end_of_the_system_part():
    messages = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "<a>x</a>"}]
    sent = with_schema_in_prompt(messages, One)
    assert sent[0]["content"].startswith("Judge.\n\nReply with one JSON object")
    assert json.loads(sent[0]["content"].splitlines()[-1]) == wire_schema(One)
    assert sent[1:] == messages[1:] and messages[0]["content"] == "Judge."
    assert [m["role"] for m in with_schema_in_prompt(messages[1:], One)] == ["system", "user"]
