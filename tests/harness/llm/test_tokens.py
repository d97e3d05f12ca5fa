import builtins

import pytest
from llm_fakes import backbone

from harness.errors import ConfigError
from harness.llm.tokens import counter, estimate
from harness.spec import BackboneSpec


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("Where is Ann?", 4),
        ("conversation", 3),  # twelve letters: three pieces
        ("7 May 2023", 6),  # digits one by one
        ("a\n\nb", 3),
        ("it's", 3),
        ("café", 3),  # caf, é and its second byte
        ("😀", 4),
        ("中文", 6),
    ],
)
def test_the_estimate(text, tokens):
    assert estimate(text) == tokens


def test_the_estimate_is_not_below_wordpiece_on_what_a_note_looks_like():
    # counted with the WordPiece vocabulary of all-MiniLM-L6-v2, which splits names and punctuation much as others do
    counted = {
        "Caroline went to the LGBTQ support group on 7 May 2023.": 15,
        "Melanie painted a lake sunrise last year; she calls it therapeutic.": 14,
    }
    for text, tokens in counted.items():
        assert tokens <= estimate(text) <= 2 * tokens


@pytest.mark.parametrize("tokenizer", ["estimate", "tiktoken:o200k_base", "hf:nobody/nothing", "llamacpp"])
def test_what_is_not_at_hand_falls_back_to_the_estimate_by_name(tokenizer, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] in ("tiktoken", "transformers"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    counted = counter(backbone(tokenizer=tokenizer, model="nowhere.gguf"))
    assert counted.name == "estimate" and counted("Where is Ann?") == 4


def test_the_vocabulary_of_the_weights_counts(monkeypatch):
    monkeypatch.setattr("harness.llm.server_llamacpp.vocab_counter", lambda spec: len)
    counted = counter(backbone(kind="llamacpp", tokenizer="llamacpp"))
    assert counted.name == "llamacpp" and counted("abc") == 3


def test_an_unknown_counter_is_refused():
    with pytest.raises(ConfigError, match=r"backbone.tokenizer='titktoken:o200k_base' is none of estimate"):
        counter(BackboneSpec(name="b", kind="openai", model="m", window=10, tokenizer="titktoken:o200k_base"))
