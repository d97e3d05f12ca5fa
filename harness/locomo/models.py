"""The schema of a LoCoMo file, strictly typed: what pydantic checks, one value at a time.

Rules that need more than one value (sessions in order, ids in sequence, answers by category) are in loader.py.
event_summary, observation and session_summary are derived data: a file may lack them (our choice), but when they
are there they must fit.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, StringConstraints, TypeAdapter
from pydantic_core import PydanticCustomError

from harness.locomo.schema import CATEGORIES


def _category(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or value not in CATEGORIES:
        names = ", ".join(f"{number} ({name})" for number, name in CATEGORIES.items())
        raise PydanticCustomError("category", f"the categories are {names}")
    return value


def _answer(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise PydanticCustomError("answer", "give text or a whole number")
    return value


def _texts(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(entry, str) for entry in value)):
        return value
    raise PydanticCustomError("texts", "give text or a list of texts")


def _sample_id(value: Any) -> Any:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
        raise PydanticCustomError("sample_id", "files are named after it: give letters, digits, '.', '_' and '-'")
    return value


Text = Annotated[str, StringConstraints(strict=True, pattern=r"\S")]
Texts = Annotated[Any, BeforeValidator(_texts)]
Observed = Annotated[tuple[Text, Texts], Strict(False)]
"""[statement, evidence]: JSON has no tuples, so a list is let in here."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class RawTurn(_Strict):
    speaker: Text
    dia_id: Text
    text: Text
    blip_caption: Text = Field(default=None)
    img_url: list[Text] = Field(default=None, min_length=1)
    query: str = Field(default=None)
    re_download: bool = Field(default=None, alias="re-download")


class RawQuestion(_Strict):
    question: Text
    evidence: list[str]
    category: Annotated[int, BeforeValidator(_category)]
    answer: Annotated[Any, BeforeValidator(_answer)] = None
    adversarial_answer: Text = Field(default=None)


class RawSample(_Strict):
    """A sample's outer form. The conversation's numbered keys are no fixed fields: build.py checks them."""

    sample_id: Annotated[str, BeforeValidator(_sample_id)]
    conversation: dict[str, Any]
    qa: list[RawQuestion] = Field(min_length=1)
    event_summary: dict[str, dict[str, Texts]] = Field(default_factory=dict)
    observation: dict[str, dict[str, list[Observed]]] = Field(default_factory=dict)
    session_summary: dict[str, Text] = Field(default_factory=dict)


SAMPLES = TypeAdapter(Annotated[list[Any], Field(strict=True, min_length=1)])
SAMPLE = TypeAdapter(RawSample)
TEXT = TypeAdapter(Text)
TURNS = TypeAdapter(Annotated[list[RawTurn], Field(strict=True, min_length=1)])
