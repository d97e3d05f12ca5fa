"""A prepared run's identity knows what this machine makes of the configuration."""

import pytest
from hydra import compose
from omegaconf import OmegaConf

from harness.prepare import prepare, sweep_total

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
