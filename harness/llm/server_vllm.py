"""vLLM: the command of a `vllm serve` that listens on loopback alone."""

from __future__ import annotations

import shutil

from harness.errors import ConfigError
from harness.spec import BackboneSpec


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
    return [*arguments, *server.args], {"VLLM_API_KEY": api_key}
