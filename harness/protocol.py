"""How a question is put to the reader, and how its reply becomes an answer. Scoring is eval's business.

`amem` asks as arXiv:2502.12110 does: JSON replies, temperature 0.7 (category 5: 0.5), category 5 a choice between
abstaining and the trap. `locomo` asks as arXiv:2402.17753 does: plain text, greedy, 32 tokens, category 5 a choice
between (a) and (b). The wording is ours. Sampling values come from ProtocolSpec (conf/protocol/*.yaml).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from harness.llm.types import Message, Reply
from harness.locomo.schema import CATEGORIES, Question
from harness.prompts import load_prompt
from harness.spec import ProtocolSpec

ABSTAIN = "Not mentioned in the conversation"
"""The option of category 5 that abstains, in both protocols."""

TEMPORAL, ADVERSARIAL = 2, 5
FRAME_TOKENS = 8
"""What a chat template wraps around one message, at most (our choice, ChatML takes 5 to 7)."""

_LETTER = re.compile(
    r"(?:answer|option)?[\s:]*(?:\(([ab])\)|([ab])(?=$|[).:]))[).:]*\s*(.*)", re.IGNORECASE | re.DOTALL
)


class Answer(BaseModel):
    """A reply under `amem`. A bare number is taken as its text (years are often replied as numbers)."""

    model_config = ConfigDict(coerce_numbers_to_str=True)
    answer: str = Field(
        json_schema_extra={"x-scripted": {"rule": "answer", "question": "question", "context": "context"}}
    )


@dataclass(frozen=True)
class AnswerRequest:
    """One question as it goes to the reader. `options` is the order shown, in category 5 only."""

    messages: list[Message]
    schema: type[BaseModel] | None
    temperature: float
    max_tokens: int
    options: tuple[str, str] | None


def shown_options(question: Question, *, seed: int, trial: int) -> tuple[str, str]:
    """Abstaining and the trap, in an order that is a hash of (seed, sample_id, qa_index, trial).

    No random stream is shared, so the order depends neither on timing nor on which questions are asked.
    """
    key = json.dumps([seed, question.sample_id, question.qa_index, trial])
    options = (ABSTAIN, question.adversarial_answer or "")
    return options if hashlib.sha256(key.encode()).digest()[0] % 2 == 0 else options[::-1]


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", text.lower()).split())


def resolve_letter(text: str, options: tuple[str, str]) -> str:
    """The option's text for a reply that is a letter ("a", "(b)", "b.") or a letter with (part of) its option's text.

    Anything else is returned as it was written: a text that begins with the article "a", a letter that contradicts
    the text behind it, a reply that repeats both options.
    """
    match = _LETTER.fullmatch(text.strip().strip("*`\"'").strip())
    if match is None:
        return text
    option = options["ab".index((match[1] or match[2]).lower())]
    said, whole = _plain(match[3]), _plain(option)
    return option if whole.startswith(said) else text


class Protocol:
    """A protocol of the specification. `prompt_files` are relative to the repository root."""

    def __init__(self, spec: ProtocolSpec):
        self.spec = spec
        self.name = spec.name
        self._files = {kind: f"harness/prompts/{spec.name}_{kind}.j2" for kind in ("short", "temporal", "choice")}
        self.prompt_files: tuple[str, ...] = tuple(self._files.values())
        self._schema = Answer if spec.name == "amem" else None

    def request(self, question: Question, context: str, *, seed: int, trial: int) -> AnswerRequest:
        """Ask `question` over `context`. Of the question the prompt takes text and category, and in category 5 the
        two options; never the gold or the evidence. An unknown category is a ValueError."""
        if question.category not in CATEGORIES:
            raise ValueError(f"{question.sample_id} question {question.qa_index}: no category {question.category}")
        adversarial = question.category == ADVERSARIAL
        options = shown_options(question, seed=seed, trial=trial) if adversarial else None
        return AnswerRequest(
            messages=self._messages(question.category, question.question, context, options),
            schema=self._schema,
            temperature=self.spec.temperature_adversarial if adversarial else self.spec.temperature,
            max_tokens=self.spec.max_tokens,
            options=options,
        )

    def parse(self, reply: Reply, request: AnswerRequest) -> str:
        """The answer to score. The raw reply is the record's to keep.

        A text reply is stripped; with options on show a bare letter becomes its option's text. A system that
        answers by itself may reply in plain text under `amem` too.
        """
        if isinstance(reply.value, Answer):
            return reply.value.answer.strip()
        text = reply.text.strip()
        return resolve_letter(text, request.options) if request.options else text

    def overhead_tokens(self, count: Callable[[str], int], questions: Iterable[Question] = ()) -> int:
        """Tokens of the longest prompt without its context: what a window must hold beside context and reply.

        `count` is the backbone's token counter. `questions` are those that will be asked; without any, the
        question and the options are counted as empty. The reply schema is counted too (an endpoint that ignores
        response_format gets it in the prompt), and FRAME_TOKENS for each message.
        """
        longest = 0
        for category, text, options in [(c, "", ("", "")) for c in CATEGORIES] + [
            (q.category, q.question, (ABSTAIN, q.adversarial_answer or "")) for q in questions
        ]:
            messages = self._messages(category, text, "", options if category == ADVERSARIAL else None)
            longest = max(longest, sum(count(message["content"]) + FRAME_TOKENS for message in messages))
        return longest + (count(json.dumps(self._schema.model_json_schema())) if self._schema else 0)

    def _messages(self, category: int, question: str, context: str, options: tuple[str, str] | None) -> list[Message]:
        if options is not None:
            return load_prompt(self._files["choice"]).messages(context=context, question=question, options=options)
        kind = "temporal" if category == TEMPORAL else "short"
        return load_prompt(self._files[kind]).messages(context=context, question=question)


def build_protocol(spec: ProtocolSpec) -> Protocol:
    return Protocol(spec)
