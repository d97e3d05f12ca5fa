"""Keys in a configuration: refused by the command line's look and by the composed values, and never repeated."""

from pathlib import Path

import pytest
import yaml

from harness import private
from harness.compose import build_spec
from harness.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
KEY = "mf/planted+backbone=7f3ad91c"
BAD = {
    "address": [
        f"backbone.base_url=http://user:{KEY}@127.0.0.1:1/v1",
        f"+backbone.base_url='http://{KEY}@127.0.0.1:1/v1'",
        f"backbone.base_url=http://127.0.0.1:1/v1?key={KEY}",
        f"backbone.base_url=http://127.0.0.1:1/v1#{KEY}",
        f"backbone.base_url=http://127.0.0.1:1/v1,http://u:{KEY}@127.0.0.1:2/v1",
        f"backbone={{base_url: 'http://user:{KEY}@127.0.0.1:1/v1'}}",
    ],
    "variable": [
        f"backbone.api_key_env={KEY}",
        "backbone.api_key_env=sk-planted-openai-55d0a7",
        "backbone={api_key_env: hf_abc}",
    ],
    "server": [f"backbone.server.args=[--api-key,{KEY}]", f"backbone.server.args=[--hf_token={KEY}]"],
}
SAID = {"address": private.ADDRESS, "variable": private.VARIABLE, "server": private.ARGUMENTS}


@pytest.mark.parametrize(("kind", "argument"), [(kind, one) for kind, every in BAD.items() for one in every])
def test_a_key_is_found_however_it_is_given(kind, argument):
    assert private.fault_of_command(["seed=0", argument]) == SAID[kind]


@pytest.mark.parametrize(
    "argument",
    [
        "backbone.base_url=http://127.0.0.1:8000/v1",
        "backbone.base_url=http://[::1]:8000/v1,https://host/a/b",
        "backbone.base_url=${oc.env:ADDRESS}",
        "backbone.api_key_env=OPENAI_API_KEY,MY_KEY2",
        "backbone.api_key_env=null",
        "backbone.api_key_env=${oc.env:NAME}",
        "backbone.server.args=[--max-num-seqs,'64']",
        "dataset.path=/data/a@b?.json",
    ],
)
def test_what_holds_no_key_is_taken(argument):
    assert private.fault_of_command([argument]) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": f"http://u:{KEY}@host/v1"}, private.ADDRESS),
        ({"base_url": "http://u:a/b@host/v1"}, private.ADDRESS),
        (
            {"base_url": "host:80/v1"},
            "backbone.base_url must be an http or https address such as http://127.0.0.1:8000/v1",
        ),
        ({"api_key_env": KEY}, private.VARIABLE),
        ({"server": {"args": ["--api_key", KEY]}}, private.ARGUMENTS),
        ({"server": {"args": ["--host", "0.0.0.0"]}}, private.ARGUMENTS),
        ({"server": {"args": ["--ho=0.0.0.0"]}}, private.ARGUMENTS),
        ({"server": {"args": ["--port=1"]}}, private.ARGUMENTS),
    ],
)
def test_a_composed_configuration_with_a_key_is_refused(options, message):
    values = composed(backbone=options)
    with pytest.raises(ConfigError) as caught:
        build_spec(values)
    assert str(caught.value) == message


def test_a_composed_configuration_without_one_is_taken():
    options = {"api_key_env": "A_KEY", "server": {"args": ["--headless", "--max-num-seqs", "4", "-O3"]}}
    spec, _ = build_spec(composed(backbone=options))
    assert spec.backbone.server.args == options["server"]["args"]


def composed(backbone):
    """A configuration as it is composed, of the groups' own files."""

    def group(name, choice):
        return yaml.safe_load((ROOT / f"conf/{name}/{choice}.yaml").read_text())

    return {
        "backbone": group("backbone", "qwen3-8b") | backbone,
        "memory": group("memory", "rag"),
        "ablation": "none",
        "dataset": group("dataset", "sample"),
        "embedder": group("embedder", "hashing"),
        "protocol": group("protocol", "amem"),
        "cache": {},
        "run": {},
        "seed": 0,
        "trials": 1,
    }
