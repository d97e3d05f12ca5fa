"""What is slow the first time, done before the event loop runs: there it would hold up every call under way."""

from __future__ import annotations

import asyncio
import gc
import importlib
from contextlib import suppress

from harness.spec import BackboneSpec

ALWAYS = (
    "faiss",
    "filelock",
    "jinja2",
    "tokenizers",
    "nltk.stem.porter",
    "nltk.tokenize.destructive",
    "harness.built",
    "harness.embed",
    "harness.llm.build",
    "harness.llm.kept",
    "harness.runner",
)
"""Modules that a run imports in its loop otherwise. (Torch is imported in the embedder's own thread.)"""
NOWHERE = "http://127.0.0.1:1/v1"
"""Port 1 of this machine: nothing uses it, and a packet to it leaves nothing."""


def load(backbone: BackboneSpec) -> None:
    """Import them, and have the openai client build what it builds with its first request: half a second."""
    for name in ALWAYS:
        importlib.import_module(name)
    if backbone.kind != "scripted" or backbone.base_url is not None:
        asyncio.run(_first_request())
    gc.freeze()  # what was loaded stays: no collection need look at it again


async def _first_request() -> None:
    """One that nobody answers: nothing listens there."""
    from harness.llm.retry import Failure
    from harness.llm.transport import OpenAITransport, Outgoing

    transport = OpenAITransport("m", NOWHERE, None, timeout_s=5.0)
    with suppress(Failure):
        await transport.send(Outgoing([{"role": "user", "content": "?"}], {"type": "object"}))
    await transport.aclose()
