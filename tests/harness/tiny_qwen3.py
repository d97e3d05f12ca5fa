"""A Qwen3 of some hundred thousand parameters for tests of a real vLLM: configuration and tokenizer, no weights.

`build(hub, model, revision)` lays it out as the Hugging Face cache would hold a download, so that the backbones'
own model names and pinned revisions find it with the hub switched off; vLLM fills in weights with
`--load-format dummy`. As a script: `python tests/harness/tiny_qwen3.py <folder>` makes both backbones' copies.

The tokenizer is trained here on the shipped sample's text. The chat template is our own, after the published
behaviour of Qwen3's: ChatML, function declarations in the system part, and an empty think block in front of the
reply when enable_thinking is false.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
VOCABULARY = 400
WINDOW = 40960
"""max_position_embeddings of Qwen3's own configuration."""

CHAT_TEMPLATE = """\
{%- set parts = namespace(system='') -%}
{%- if messages and messages[0].role == 'system' -%}{%- set parts.system = messages[0].content -%}{%- endif -%}
{%- if parts.system or tools -%}
<|im_start|>system
{{ parts.system }}
{%- if tools %}

Functions:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
To call one, write <tool_call>{"name": ..., "arguments": ...}</tool_call>
{%- endif -%}
<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if not (loop.first and message.role == 'system') -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking -%}
<think>

</think>

{% endif -%}
{%- endif -%}
"""

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "max_position_embeddings": WINDOW,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}

SAMPLING = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
"""Defaults that the published models carry too: a server may take them for what a request leaves open."""


def build(hub: Path, model: str, revision: str) -> Path:
    """Write `model` at `revision` into the cache folder `hub`; the snapshot's folder."""
    repository = hub / f"models--{model.replace('/', '--')}"
    snapshot = repository / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    tokenizer = train()
    tokenizer.save(str(snapshot / "tokenizer.json"))
    ids = {name: tokenizer.token_to_id(name) for name in SPECIAL}
    ends = {"bos_token_id": ids["<|endoftext|>"], "eos_token_id": ids["<|im_end|>"]}
    files = {
        "config.json": {**CONFIG, **ends, "vocab_size": -(-tokenizer.get_vocab_size() // 64) * 64},
        "generation_config.json": {**SAMPLING, **ends, "pad_token_id": ids["<|endoftext|>"]},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": WINDOW,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, value in files.items():
        (snapshot / name).write_text(json.dumps(value, indent=1))
    return snapshot


def train():
    """A byte-level BPE tokenizer in Qwen's manner: every text has tokens, and the marks are one token each."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([(ROOT / "harness/locomo/sample.json").read_text()], trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in MARKS])
    return tokenizer


def main() -> None:
    import yaml

    for name in ("qwen3-8b", "qwen3-14b"):
        backbone = yaml.safe_load((ROOT / f"conf/backbone/{name}.yaml").read_text())
        print(build(Path(sys.argv[1]), backbone["model"], backbone["revision"]))


if __name__ == "__main__":
    main()
