"""From a backbone's spec to its chat client. A missing key or an impossible address is said here, before any work."""

from __future__ import annotations

import os

from harness.errors import ConfigError
from harness.llm.address import OPENAI_URL
from harness.llm.cache import ReplyCache
from harness.llm.client import Chat
from harness.llm.tokens import counter
from harness.llm.transport import OpenAITransport, ScriptedTransport, Transport
from harness.private import fault_of_address
from harness.spec import BackboneSpec


def build_chat(
    spec: BackboneSpec,
    cache: ReplyCache,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    seed: int = 0,
    max_usd: float | None = None,
) -> Chat:
    """The chat client of a backbone.

    `base_url` and `api_key` are those of a server that was started for it; else the spec's address and the key in the
    environment variable it names. A replay needs neither. ConfigError: no key, no address, or a bad one.
    """
    address = base_url or spec.base_url
    transport: Transport
    if spec.kind == "scripted" and address is None:
        transport = ScriptedTransport(spec.latency_s)
    elif cache.mode == "replay":
        transport = OpenAITransport(spec.model, address or OPENAI_URL, None, timeout_s=spec.timeout_s)
    else:
        transport = OpenAITransport(
            spec.model, _address(spec, address), api_key or _key(spec), timeout_s=spec.timeout_s
        )
    return Chat(spec, cache, transport, counter(spec), seed=seed, max_usd=max_usd)


def _address(spec: BackboneSpec, address: str | None) -> str:
    if address is None:
        if spec.kind != "openai":
            raise ConfigError(f"backbone {spec.name}: no server was started; give backbone.base_url")
        return OPENAI_URL
    if fault := fault_of_address(address):
        raise ConfigError(fault)
    return address


def _key(spec: BackboneSpec) -> str | None:
    """The key from the environment; None where the spec names no variable (a local server without a key)."""
    if spec.api_key_env is None:
        return None
    key = os.environ.get(spec.api_key_env, "").strip()
    if not key:
        raise ConfigError(f"backbone {spec.name} needs a key: set the environment variable {spec.api_key_env}")
    return key
