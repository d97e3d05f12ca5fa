"""Any text a model may write is a reply that fits its schema, or Unusable; nothing else comes out."""

import json
from enum import Enum

import pytest
from fuzz import JSON, damaged, damaged_bytes, examples
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from harness.llm.coerce import coerce
from harness.llm.loose_json import NotJson, read_loose
from harness.llm.structured import Unusable, parse_reply, visible_text, wire_schema


class Kind(Enum):
    ADD = "add"
    UPDATE = "update"


class Pair(BaseModel):
    id: int = Field(ge=0, le=9)
    score: float = Field(ge=0, le=1)
    why: str | None = None


class Everything(BaseModel):
    keywords: list[str] = Field(max_length=3)
    kind: Kind
    done: bool
    pairs: list[Pair]
    note: str = Field(max_length=20)


class One(BaseModel):
    answer: str


class Numbers(BaseModel):
    ids: list[int]


class Optional(BaseModel):
    function: str = ""
    at: int = 0


MODELS = (Everything, One, Numbers, Optional, Pair)
SOUND = {
    "keywords": ["Ann", "lake"],
    "kind": "add",
    "done": True,
    "pairs": [{"id": 1, "score": 0.5, "why": "both"}, {"id": 2, "score": 1.0, "why": None}],
    "note": "a note",
}
TEXT = json.dumps(SOUND)
AROUND = [
    "",
    "```json\n",
    "```",
    "<think>",
    "</think>",
    "<think>{",
    "Sure: ",
    "[1] ",
    "'",
    "“",
    "/*",
    "//",
    "\ufeff",
    "\\u",
]


def read(text, reasoning=None):
    for model in MODELS:
        try:
            parsed = parse_reply(text, reasoning, model)
        except Unusable as problem:
            assert problem.kind in ("empty", "unparsable") and str(problem)
        else:
            again = model.model_validate_json(parsed.value.model_dump_json())  # it can be kept, and is what it was
            assert again == parsed.value
    visible, _ = visible_text(text, reasoning)
    assert visible == visible.strip()


def test_what_is_damaged_here_is_sound_before():
    assert parse_reply(TEXT, None, Everything).repairs == ()


@examples(300)
@given(value=damaged(SOUND), before=st.sampled_from(AROUND), after=st.sampled_from(AROUND))
def test_objects_of_any_form(value, before, after):
    read(f"{before}{json.dumps(value)}{after}")
    read(f"{before}{value}{after}")  # as Python writes it: single quotes, True, None


@examples(400)
@given(content=damaged_bytes(TEXT.encode()))
def test_texts_with_any_sign_wrong(content):
    read(content.decode("utf-8", "replace"))


@examples(300)
@given(text=st.none() | st.text(max_size=60), reasoning=st.none() | st.text(max_size=60))
def test_any_text(text, reasoning):
    read(text, reasoning)


SIGNS = st.text(st.sampled_from(list("{}[]:,\"'`“”‘’\\/*\n u0d8ce+-.%tfnN<>think")), max_size=40)


@examples(500)
@given(text=SIGNS)
def test_signs_that_mean_something(text):
    read(text)
    for opening in ("{", "["):
        try:
            value, _, end = read_loose(opening + text, 0)
        except NotJson:
            continue
        assert isinstance(value, dict | list) and 1 <= end <= len(text) + 1


@examples(300)
@given(value=JSON)
def test_any_value_under_any_schema(value):
    for model in MODELS:
        kinds = []
        coerce(value, wire_schema(model), kinds.append)
        assert all(isinstance(kind, str) for kind in kinds)


@pytest.mark.slow
@examples(10_000)
@given(text=SIGNS, reasoning=SIGNS)
def test_many_signs_that_mean_something(text, reasoning):
    read(text, reasoning)
    read("{" + text)
    read(f'{{"keywords": {text}')


@pytest.mark.parametrize(
    "piece", ["{", "[", "<think>", "```", '{"a":', "[1] ", "'", "/*", "\\", "“", "{'", "9", "9.", "-", "5/"]
)
def test_a_model_that_repeats_itself(piece):
    """Up to its token limit. What takes a power of the length would let the suite stand still here."""
    rambling = piece * (3000 // len(piece))
    read(rambling)
    read(f'{{"answer": {rambling}')
    read(json.dumps({"ids": [rambling], "id": rambling, "score": f"{rambling} of ten"}))


@pytest.mark.parametrize("text", ['{"answer": "a \\ud83d"}', '"a \\ud83d"', '```json\n{"answer": "a \\ud83d"}\n```'])
def test_half_a_character_is_a_replacement_sign(text):
    assert parse_reply(text, None, One).value.answer == "a \ufffd"


@pytest.mark.parametrize("opening", ['{"id": ', "{id: ", '{"ids": [', '{"id": "'])
def test_a_number_of_thousands_of_digits_is_unusable_and_no_crash(opening):
    read(opening + "9" * 5000)
    with pytest.raises(Unusable):
        parse_reply(f'{opening}{"9" * 5000}, "score": 1}}', None, Pair)
