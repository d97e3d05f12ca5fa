"""What each prompt must reply. `x-scripted` is the rule of the rule-based stand-in; other backbones never see it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

Score = Annotated[float, Field(ge=0.0, le=1.0)]


def _rule(rule: str, **parts: Any) -> dict[str, Any]:
    return {"x-scripted": {"rule": rule, **parts}}


MAX_KEYWORDS = 24
"""A bound for runaway lists; the prompt asks for 8 to 12."""


def _at_most(characters: int) -> dict[str, Any]:
    """A bound for runaway texts, far above what is asked for; only servers that decode by grammar are sent it."""
    return {"maxLength": characters}


Keyword = Annotated[str, Field(json_schema_extra=_at_most(32))]


class Extraction(BaseModel):
    """Phase 1: a turn as a note."""

    context: str = Field(json_schema_extra=_at_most(600) | _rule("copy", tag="turn"))
    keywords: list[Keyword] = Field(
        json_schema_extra={"maxItems": MAX_KEYWORDS, **_rule("keywords", tag="turn", max=MAX_KEYWORDS)}
    )


class PairScore(BaseModel):
    """Eq. 6's two scores of one pair."""

    s_red: Score = Field(json_schema_extra=_rule("overlap", tags=["new", "old"]))
    s_comp: Score = Field(json_schema_extra=_rule("complement", tags=["new", "old"]))


class ListedScore(BaseModel):
    """The scores of one candidate in a listwise reply."""

    id: int
    s_red: Score
    s_comp: Score


class ListScores(BaseModel):
    """The scores of all candidates of a note."""

    scores: list[ListedScore] = Field(
        json_schema_extra=_rule(
            "each",
            tag="old",
            item={
                "id": {"rule": "attribute", "name": "id"},
                "s_red": {"rule": "overlap", "tags": ["new", "."]},
                "s_comp": {"rule": "complement", "tags": ["new", "."]},
            },
        )
    )


class Merged(BaseModel):
    """F_merge: one context for two."""

    context: str = Field(json_schema_extra=_at_most(1000) | _rule("join", tags=["old", "new"]))


class Parsed(BaseModel):
    """F_theta: a query as a topic sentence and entities."""

    topic: str = Field(json_schema_extra=_at_most(200) | _rule("copy", tag="question"))
    entities: list[Keyword] = Field(json_schema_extra={"maxItems": 8, **_rule("entities", tag="question", max=8)})


class Judged(BaseModel):
    """Does the pool suffice, and if not, what to look for next."""

    sufficient: bool = Field(json_schema_extra=_rule("covers", question="question", context="evidence"))
    sub_query: str = Field(json_schema_extra=_at_most(160) | _rule("missing", question="question", context="evidence"))
