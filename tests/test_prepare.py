"""A prepared run's identity knows what this machine makes of the configuration."""

import pytest
from hydra import compose
from omegaconf import OmegaConf

from eval.run_report import changes_system
from harness.errors import ConfigError
from harness.memory import load_system
from harness.prepare import bill, prepare, sweep_total

pytestmark = pytest.mark.usefixtures("hydra_context")


def prepared(*overrides):
    composed = compose("config", overrides=["backbone=scripted", "embedder=hashing", *overrides])
    return prepare(OmegaConf.to_container(composed, resolve=True))


def test_the_tokenizer_that_counts_is_the_one_in_the_identity(monkeypatch):
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    named = "backbone.tokenizer=tiktoken:o200k_base"
    estimated = prepared()
    assert prepared(named).identity == estimated.identity, "a counter that is not here is not the one that counts"
    assert prepared(named).spec.backbone.tokenizer == "estimate"
    monkeypatch.setattr("harness.llm.tokens._tiktoken", lambda name: len)
    assert prepared(named).spec.backbone.tokenizer == "tiktoken:o200k_base"
    assert prepared(named).path != estimated.path


def test_the_plan_counts_the_readers_calls_and_the_probe():
    """121 questions of the sample; a client that finds out about schemas asks one question more."""
    assert prepared("memory=locomo").plan.total.calls == (121, 121)
    assert prepared("memory=locomo", "trials=2").plan.total.calls == (242, 242)
    probing = ("memory=locomo", "backbone=gpt-4o-mini")
    assert prepared(*probing).plan.total.calls == (122, 122)
    assert prepared(*probing, "backbone.structured=schema").plan.total.calls == (121, 121)
    assert prepared(*probing, "protocol=locomo").plan.total.calls == (121, 122)
    assert prepared("memory=perfect_copy", "backbone=gpt-4o-mini").plan.total.calls == (0, 0)


def test_a_sweep_counts_a_shared_memory_once():
    paid = ("backbone=gpt-4o-mini", "memory=memfly")
    whole, narrow, other = prepared(*paid), prepared(*paid, "ablation=no_topic"), prepared(*paid, "ablation=no_link")
    total, shared = sweep_total([whole, narrow, other])
    assert shared == 1
    parts = (whole.plan.building, whole.plan.asking, narrow.plan.asking, other.plan.building, other.plan.asking)
    assert total.calls == tuple(sum(part.calls[i] for part in parts) for i in (0, 1))
    assert total.usd[1] == pytest.approx(sum(part.usd[1] for part in parts))


def test_a_run_is_paid_for_where_a_price_is_and_the_cache_may_miss():
    priced = ("backbone.price.prompt=1", "memory=rag")
    assert prepared(*priced).priced and prepared(*priced).plan.usd[1] > 0
    assert not prepared(*priced, "cache.mode=replay").priced
    assert not prepared("memory=rag").priced
    with pytest.raises(ConfigError, match=r"run.max_usd=1 cannot be kept: backbone gpt-4o-mini has no price"):
        prepared("backbone=gpt-4o-mini", *FREE, "run.max_usd=1")


FREE = ("backbone.price.prompt=0", "backbone.price.completion=0", "backbone.price.date=null")
HOSTED = ("backbone=gpt-4o-mini", "memory=rag", *FREE, "backbone.model=big-1")


@pytest.mark.parametrize(
    ("overrides", "unpriced"),
    [
        (HOSTED, True),
        ((*HOSTED, "backbone.base_url=https://models.example.org/v1"), True),
        ((*HOSTED, "backbone.base_url=http://127.evil.example/v1"), True),
        (("backbone=qwen3-8b", "backbone.base_url=http://10.0.0.7:8000/v1"), True),
        ((*HOSTED, "backbone.price.completion=0.1"), False),
        ((*HOSTED, "backbone.price.date=2026-12-01"), False),
        ((*HOSTED, "cache.mode=replay"), False),
        *(((*HOSTED, f"backbone.base_url='http://{host}:8000/v1'"), False)
          for host in ("127.0.0.1", "127.1.2.3", "localhost", "[::1]", "0.0.0.0")),
        *(((f"backbone={name}",), False) for name in ("scripted", "smollm2", "qwen3-8b", "gpt-4o")),
    ],
)  # fmt: skip
def test_what_leaves_this_machine_and_has_no_price_has_an_unknown_cost(overrides, unpriced):
    job = prepared(*overrides)
    assert job.unpriced is unpriced
    assert job.line.endswith(", cost unknown") is unpriced
    assert bill([job]).models == ((job.spec.backbone.model,) if unpriced else ())


def test_a_bill_keeps_apart_what_has_a_price():
    hosted, priced, free = prepared(*HOSTED), prepared("backbone=gpt-4o", "memory=rag"), prepared("memory=rag")
    whole = bill([hosted, priced, free, prepared(*HOSTED, "plan=true", "seed=3")])
    assert whole.unknown.calls == hosted.plan.total.calls and whole.unknown.usd is None
    assert whole.paid.usd == priced.plan.usd and whole.models == ("big-1",)
    assert bill([free]).paid.usd is None and bill([free]).unknown.calls == (0, 0)


def test_a_limit_needs_a_price_only_where_something_is_paid():
    for job in (HOSTED, ("backbone=qwen3-8b", "backbone.base_url=https://models.example.org/v1")):
        with pytest.raises(ConfigError, match=r"run.max_usd=1 cannot be kept: .* has no price; give backbone.price"):
            prepared(*job, "run.max_usd=1")
    assert prepared(*HOSTED, "backbone.base_url=http://127.0.0.1:8000/v1", "run.max_usd=1")


def test_without_a_shared_cache_every_job_builds():
    off = [prepared("memory=memfly", "cache.mode=off", f"memory.i_max={n}") for n in (0, 1)]
    total, shared = sweep_total(off)
    assert shared == 0 and total.calls[1] == sum(one.plan.total.calls[1] for one in off)


@pytest.mark.parametrize(
    ("override", "changes"),
    [
        ("backbone=gpt-4o", False), ("ablation=no_link", False), ("embedder=minilm", False), ("embedder=hashing", True),
        ("backbone.can_judge=false", True), ("backbone.name=gpt-4o", True), ("backbone.structured=prompt", True),
        ("backbone.tokenizer=estimate", True), ("backbone.server.args=[--quantization=fp8]", True),
        ("backbone.server.tensor_parallel=2", False), ("backbone.base_url=http://127.0.0.1:1/v1", False),
        ("backbone.price.prompt=1", False), ("memory.tau_merge=0.7", True), ("protocol.max_tokens=5", True),
        ("dataset.gold=repaired", True), ("dataset.max_sessions=1", False), ("run.dir=x", False), ("cache.path=x", False),
        ("limits=small", True), ("experiment=demo", True), ("experiment=table1", False), ("+nonsense.key=1", True),
        ("seed=3", False), ("trials=2", False), ("wandb.mode=offline", False), ("hydra.sweep.dir=x", False),
    ],
)  # fmt: skip
def test_what_makes_another_system_of_the_papers(override, changes):
    assert changes_system(override, load_system("memfly.system:MemFly")) is changes
