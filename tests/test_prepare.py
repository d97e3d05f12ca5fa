"""A prepared run's identity knows what this machine makes of the configuration."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from harness.compose import register_defaults
from harness.prepare import prepare

CONF = Path(__file__).resolve().parent.parent / "conf"


@pytest.fixture(scope="module", autouse=True)
def hydra_context():
    register_defaults()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


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
