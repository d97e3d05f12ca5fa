"""Prompts are files: one header that says purpose, inputs and output, then a system and a user part.

    {# purpose: ...
       inputs: ...
       output: ... #}
    === system
    static text
    === user
    static text first, then <tag>{{ variable }}</tag>, so that prefix caches work

Inputs stand between tags named after them: the scripted stand-in reads them there.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from harness.errors import ConfigError
from harness.llm.types import Message

ROOT = Path(__file__).resolve().parent.parent


class Prompt:
    """A parsed prompt file. `path` is relative to the repository root, with forward slashes."""

    def __init__(self, path: str):
        from jinja2 import Environment, StrictUndefined

        self.path = path
        raw = (ROOT / path).read_text(encoding="utf-8")
        self.sha256 = hashlib.sha256(raw.encode()).hexdigest()
        if not re.match(r"\{#.*purpose:.*inputs:.*output:.*?#\}", raw, re.DOTALL):
            raise ConfigError(f"{path}: a prompt file starts with a header {{# purpose: inputs: output: #}}")
        pieces = re.split(r"^=== (system|user)[ \t]*\n", raw, flags=re.MULTILINE)[1:]
        env = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701 - prompts are plain text
        self._parts = [
            (role, env.from_string(body.strip())) for role, body in zip(pieces[::2], pieces[1::2], strict=True)
        ]
        if not self._parts:
            raise ConfigError(f"{path}: a prompt file has '=== system' and '=== user' parts")

    def messages(self, **inputs: object) -> list[Message]:
        """Render the parts; a missing input is an error, never an empty string."""
        return [{"role": role, "content": part.render(**inputs)} for role, part in self._parts]


@cache
def load_prompt(path: str) -> Prompt:
    return Prompt(path)


def prompt_hashes(paths: tuple[str, ...]) -> dict[str, str]:
    """path -> sha256 of each prompt file: part of a run's identity."""
    return {path: load_prompt(path).sha256 for path in sorted(paths)}
