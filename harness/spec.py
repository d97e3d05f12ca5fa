"""A run, frozen and hashed. Every field says whether it changes results (identity) or not (runtime).

The same dataclasses validate the composed configuration: pydantic reads their types and bounds, an unknown key
is refused, and the error is one line that names the key, what was found and what is allowed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from harness.errors import ConfigError

REFUSE_UNKNOWN = ConfigDict(extra="forbid")


def identity(*, stage: Literal["build", "recall"] = "build", **kwargs: Any) -> Any:
    """A dataclass field that can change results: it is hashed.

    stage, of a memory system's option: "recall" where it touches nothing but recall and answering, so that systems
    that differ in it alone share a built memory. What is not declared touches the building.
    """
    return dataclasses.field(metadata={"class": "identity", "stage": stage}, **kwargs)


def runtime(**kwargs: Any) -> Any:
    """A dataclass field that cannot change results: workers, paths, progress, prices."""
    return dataclasses.field(metadata={"class": "runtime"}, **kwargs)


Positive = Annotated[int, Field(ge=1, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0)]
Temperature = Annotated[float, Field(ge=0.0, le=2.0)]


@dataclass(frozen=True, kw_only=True)
class PriceSpec:
    """US dollars per million tokens, and the day the price was read."""

    __pydantic_config__ = REFUSE_UNKNOWN
    prompt: Annotated[float, Field(ge=0)] = runtime(default=0.0)
    completion: Annotated[float, Field(ge=0)] = runtime(default=0.0)
    date: str | None = runtime(default=None)


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """A server the bench starts by itself. Ignored when base_url is given.

    threads: CPU threads of llama.cpp. slots: requests it serves at once. command: the vllm program (PATH is
    searched). args: further arguments of `vllm serve`. startup_s: how long it may take to become healthy.
    """

    __pydantic_config__ = REFUSE_UNKNOWN
    threads: Positive = runtime(default=2)
    slots: Positive = runtime(default=2)
    command: str = runtime(default="vllm")
    args: list[str] = identity(default_factory=list)
    tensor_parallel: Positive = runtime(default=1)
    data_parallel: Positive = runtime(default=1)
    dtype: str = identity(default="auto")
    startup_s: Seconds = runtime(default=1800.0)


@dataclass(frozen=True, kw_only=True)
class BackboneSpec:
    """One language model behind an OpenAI-compatible endpoint (or the scripted stand-in)."""

    __pydantic_config__ = REFUSE_UNKNOWN
    name: str = identity()
    kind: Literal["openai", "llamacpp", "vllm", "scripted"] = identity()
    model: str = identity()
    """The model id sent on the wire."""
    revision: str | None = identity(default=None)
    """Weights: a hub commit, or the sha256 of the file."""
    package: str | None = runtime(default=None)
    """The installed distribution that carries the weights (llamacpp)."""
    window: Positive = identity()
    """Context window in tokens, prompt and reply together."""
    can_judge: bool = identity(default=True)
    """False: the gate's default scoring is by embeddings (memory.scoring=auto)."""
    structured: Literal["auto", "schema", "prompt"] = identity(default="auto")
    """How a JSON schema reaches the model: response_format, in the prompt, or the first until it proves ignored."""
    tools: bool = identity(default=False)
    """The endpoint takes `tools`: function calls are asked for that way, not by a schema (systems that call functions)."""
    thinking: Literal["none", "qwen3"] = identity(default="none")
    """qwen3: thinking is switched off in the request (chat_template_kwargs.enable_thinking=false)."""
    sampling: dict[str, float | int] = identity(default_factory=dict)
    """Sent with every request beside temperature and max_tokens, e.g. frequency_penalty."""
    attempts: Positive = identity(default=3)
    """Replies asked for before a call counts as unparsable."""
    tokenizer: str = identity(default="estimate")
    """estimate | llamacpp | tiktoken:<encoding> | hf:<name>: who counts context tokens."""
    base_url: str | None = runtime(default=None)
    api_key_env: str | None = runtime(default=None)
    """Name of the environment variable that holds the key; never the key."""
    concurrency_start: Positive = runtime(default=8)
    concurrency_max: Positive = runtime(default=64)
    timeout_s: Seconds = runtime(default=120.0)
    retries: Count = runtime(default=6)
    latency_s: Annotated[float, Field(ge=0)] = runtime(default=0.0)
    """scripted only: seconds a reply takes."""
    price: PriceSpec = runtime(default_factory=PriceSpec)
    server: ServerSpec = identity(default_factory=ServerSpec)
    """Runtime but for what changes replies: its arguments and dtype."""
    speed_prompt_tps: Annotated[float, Field(gt=0)] = runtime(default=5000.0)
    speed_completion_tps: Annotated[float, Field(gt=0)] = runtime(default=500.0)
    """Tokens a second over all slots, for the plan's minutes only."""
    download_gb: Annotated[float, Field(gt=0)] | None = runtime(default=None)
    """Size of the weights that a server started here downloads when they are not on this machine; for the plan only."""


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """Which conversations and questions. The file's content hash joins the identity when it is loaded."""

    __pydantic_config__ = REFUSE_UNKNOWN
    name: Literal["sample", "locomo10"] = identity()
    path: str | None = runtime(default=None)
    """A local file; None: the shipped sample, or LOCOMO_PATH / `make data` for locomo10."""
    conversations: list[str] | None = identity(default=None)
    max_sessions: Positive | None = identity(default=None)
    max_questions: Positive | None = identity(default=None)
    max_turns: Positive | None = identity(default=None)
    """Turns per conversation, counted from the first (our choice: a slice for demonstrations)."""
    subset: Literal["all", "clean"] = identity(default="all")
    gold: Literal["raw", "repaired"] = identity(default="raw")


@dataclass(frozen=True, kw_only=True)
class EmbedderSpec:
    """The sentence encoder. Vectors are unit length, float32, shape (dim,)."""

    __pydantic_config__ = REFUSE_UNKNOWN
    name: str = identity()
    kind: Literal["sentence_transformers", "hashing"] = identity()
    """hashing is a stand-in for tests: hashed words, no model."""
    model: str = identity()
    package: str | None = runtime(default=None)
    """Installed distribution that carries the weights; looked at before the hub."""
    sha256: str | None = identity(default=None)
    dim: Positive = identity()
    max_tokens: Positive = identity()
    threads: Positive = runtime(default=2)


@dataclass(frozen=True, kw_only=True)
class ProtocolSpec:
    """How a category is asked (spec: amem, arXiv:2502.12110; locomo, arXiv:2402.17753)."""

    __pydantic_config__ = REFUSE_UNKNOWN
    name: Literal["amem", "locomo"] = identity()
    temperature: Temperature = identity()
    temperature_adversarial: Temperature = identity()
    max_tokens: Positive = identity()
    max_context_tokens: Positive | None = identity(default=None)
    """Cut of the context handed to the reader; None: what the window leaves."""


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """The reply cache. Modes: use, refresh, off, replay. off and refresh still resume a killed run."""

    __pydantic_config__ = REFUSE_UNKNOWN
    mode: Literal["use", "refresh", "off", "replay"] = runtime(default="use")
    path: str = runtime(default="results/cache")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    __pydantic_config__ = REFUSE_UNKNOWN
    fresh: bool = runtime(default=False)
    """Set an earlier folder of the same run aside and run again."""
    dir: str = runtime(default="results/runs")
    conversations_at_once: Positive = runtime(default=10)
    questions_at_once: Positive = runtime(default=128)
    """More than an endpoint takes calls at once, so that its places stay filled while some questions are retrieved for."""
    max_error_rate: Fraction = runtime(default=0.01)
    progress: bool = runtime(default=True)
    max_usd: Annotated[float, Field(ge=0)] | None = runtime(default=None)
    """Dollars that one command may spend; a run stops before the call that would pass it, and can be resumed."""
    assume_yes: bool = runtime(default=False)
    """Do not ask before the first paid call."""
    share_memory: bool = runtime(default=True)
    """With cache.mode=use, memories that differ in recall alone are built once (a system that can be restored)."""
    objective: str | None = runtime(default=None)
    """A micro average (f1_amem, recall_700w, ...) that the job returns, for a sweeper that optimises (optuna)."""


@dataclass(frozen=True, kw_only=True)
class WandbSpec:
    """Logging of ended runs to Weights & Biases (make setup-wandb). The key comes from the environment alone."""

    __pydantic_config__ = REFUSE_UNKNOWN
    mode: Literal["off", "online", "offline"] = runtime(default="off")
    project: str = runtime(default="memfly-bench")
    entity: str | None = runtime(default=None)
    dir: str = runtime(default="results")
    """wandb makes its folder, wandb/, in it."""
    answers: bool = runtime(default=False)
    """Log the questions, golds and answers too: they are the data set's text (LoCoMo's is CC BY-NC)."""


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that determines a run. `memory` is the system's own frozen config (see MemorySystem.Config)."""

    __pydantic_config__ = REFUSE_UNKNOWN
    backbone: BackboneSpec = identity()
    system: str = identity()
    """Lazy registry string "module:Class"."""
    memory_name: str = runtime()
    memory: Any = identity()
    ablation: str = runtime()
    """A label; what an ablation changes is in `memory`, and that is hashed."""
    limits: str = runtime(default="none")
    """A label as well: conf/limits/ says what it cuts."""
    dataset: DatasetSpec = identity()
    embedder: EmbedderSpec = identity()
    protocol: ProtocolSpec = identity()
    cache: CacheSpec = runtime()
    run: RunOptions = runtime()
    wandb: WandbSpec = runtime(default_factory=WandbSpec)
    seed: Count = identity()
    trials: Positive = identity()

    @property
    def label(self) -> str:
        """memory name, with the ablation behind it where there is one."""
        return self.memory_name if self.ablation == "none" else f"{self.memory_name}-{self.ablation}"


def validate(cls: type, values: dict[str, Any], where: str) -> Any:
    """Build the frozen dataclass `cls` from plain values.

    Raises ConfigError with one line per run: the first wrong key, the value found, what is allowed.
    """
    try:
        return TypeAdapter(cls).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        *parents, last = (str(part) for part in first["loc"]) if first["loc"] else ("",)
        group = ".".join([where, *parents]).strip(".")
        key = f"{group}.{last}".strip(".")
        if first["type"] == "unexpected_keyword_argument":
            for parent in parents:
                cls = get_type_hints(cls)[parent]
            known = ", ".join(f.name for f in dataclasses.fields(cls))
            raise ConfigError(f"{group or 'the configuration'} has no option {last!r}; it has: {known}") from None
        if first["type"] == "missing":
            raise ConfigError(f"{key} is missing; give it a value") from None
        raise ConfigError(f"{key}={first['input']!r} is refused: {first['msg']}") from None


def identity_values(spec: Any) -> Any:
    """The identity fields of a spec as plain values, nested dataclasses included."""
    if dataclasses.is_dataclass(spec):
        picked = {}
        for f in dataclasses.fields(spec):
            kind = f.metadata.get("class")
            if kind not in ("identity", "runtime"):
                raise ConfigError(f"{type(spec).__name__}.{f.name} is classed neither identity nor runtime")
            if kind == "identity":
                picked[f.name] = identity_values(getattr(spec, f.name))
        return picked
    if isinstance(spec, list | tuple):
        return [identity_values(item) for item in spec]
    return spec


def build_values(config: Any) -> dict[str, Any]:
    """The identity fields of a memory system's config that touch the building of its memory."""
    recalled = {f.name for f in dataclasses.fields(config) if f.metadata.get("stage") == "recall"}
    return {name: value for name, value in identity_values(config).items() if name not in recalled}


def identity_hash(spec: Any, **extra: Any) -> str:
    """sha256 (hex) of the identity fields and of what else determines results (data content, prompt hashes)."""
    canonical = json.dumps(
        {"spec": identity_values(spec), **extra}, sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )
    return hashlib.sha256(canonical.encode()).hexdigest()
