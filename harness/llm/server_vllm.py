"""vLLM: the command of a `vllm serve` that listens on loopback alone."""

from __future__ import annotations

import os
import re
import shutil
import sys

from harness import hub
from harness.errors import ConfigError
from harness.spec import BackboneSpec

_STAMP = re.compile(r"^(?:\(\S+ pid=\d+\) )?(?:(?:INFO|WARNING|ERROR) \S+ \S+ \[[^\]]*\] ?)?")
_CAUSE = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)|[\w ]+: error): \S")
_NO_CAUSE = "root cause"
"""Processes that only report that another one failed say so with these words."""


def find_program(spec: BackboneSpec) -> str:
    """Path of the vllm program. ConfigError with what to do when there is none."""
    found = shutil.which(spec.server.command)
    if found is None:
        raise ConfigError(
            f"backbone {spec.name!r}: the program {spec.server.command!r} is not there; `pip install vllm` in an "
            "environment of its own and set backbone.server.command=/its/bin/vllm, or give a running server's "
            "backbone.base_url"
        )
    return found


def download_note(spec: BackboneSpec) -> str | None:
    """One line on what starting the server would download; None when the weights are here."""
    if hub.has_weights(spec.model, spec.revision):
        return None
    size = f"about {spec.download_gb:g} GB" if spec.download_gb else "its weights"
    at = f" at {spec.revision[:7]}" if spec.revision else ""
    missing = f"{spec.model}{at} is not in {hub.cache_folder()}"
    if hub.is_forbidden():
        return f"{missing}, and HF_HUB_OFFLINE keeps vllm from downloading {size}"
    return f"{missing}: vllm downloads {size} before the first call"


def command(spec: BackboneSpec, port: int, api_key: str) -> tuple[list[str], dict[str, str]]:
    """The arguments and the environment of `vllm serve`.

    The key travels in the environment: argument lists are readable by every user of a machine.
    """
    server = spec.server
    arguments = [find_program(spec), "serve", spec.model, "--host", "127.0.0.1", "--port", str(port)]
    if spec.revision:
        arguments += ["--revision", spec.revision, "--tokenizer-revision", spec.revision]
    arguments += [
        "--max-model-len",
        str(spec.window),
        "--dtype",
        server.dtype,
        "--seed",
        "0",
        "--enable-prefix-caching",
    ]
    if server.tensor_parallel > 1:
        arguments += ["--tensor-parallel-size", str(server.tensor_parallel)]
    if server.data_parallel > 1:
        arguments += ["--data-parallel-size", str(server.data_parallel)]
    return [*arguments, *server.args], {"VLLM_API_KEY": api_key, **_defaults()}


def _defaults() -> dict[str, str]:
    """What a person's own environment may set otherwise: its processes talk to each other on loopback alone (they
    would listen at the machine's outward address), and nothing is reported to the makers of vLLM."""
    chosen = {"VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1"}
    if sys.platform == "linux":
        chosen |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    return {name: value for name, value in chosen.items() if name not in os.environ}


def plain(line: str) -> str:
    """A line of vLLM's log without process, level, time and place."""
    return _STAMP.sub("", line.strip()).strip()


def cause(lines: list[str]) -> str | None:
    """The error that ended vLLM, out of its log: the last one that does not point at another process's.

    A validation error says what is wrong in the line behind it, which is added.
    """
    for at in range(len(lines) - 1, -1, -1):
        line = plain(lines[at])
        if _CAUSE.match(line) and _NO_CAUSE not in line:
            detail = plain(lines[at + 1]) if "validation error" in line and at + 1 < len(lines) else ""
            return f"{line} {detail}".rstrip()
    return None
