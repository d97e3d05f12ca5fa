import subprocess
import sys
from pathlib import Path

import pytest
from llm_fakes import backbone

from harness.errors import ConfigError
from harness.llm.build import build_chat
from harness.llm.cache import ReplyCache
from harness.llm.transport import OpenAITransport, ScriptedTransport


@pytest.fixture
def cache(tmp_path):
    return ReplyCache(tmp_path, "use", "r")


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_key_names_its_variable(cache, monkeypatch, value):
    monkeypatch.delenv("SOME_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("SOME_KEY", value)
    with pytest.raises(ConfigError, match=r"^backbone told needs a key: set the environment variable SOME_KEY$"):
        build_chat(backbone(api_key_env="SOME_KEY"), cache)


def test_the_key_comes_from_the_environment(cache, monkeypatch):
    monkeypatch.setenv("SOME_KEY", " k123\n")
    chat = build_chat(backbone(api_key_env="SOME_KEY"), cache)
    assert chat._transport._key == "k123"
    assert chat._transport.base_url == "https://api.openai.com/v1"


def test_a_started_server_brings_its_own_address_and_key(cache):
    spec = backbone(kind="vllm", api_key_env="SOME_KEY")
    chat = build_chat(spec, cache, base_url="http://127.0.0.1:5/v1", api_key="random")
    assert (chat._transport.base_url, chat._transport._key) == ("http://127.0.0.1:5/v1", "random")


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
def test_no_server_no_address(cache, kind):
    with pytest.raises(ConfigError, match="no server was started"):
        build_chat(backbone(kind=kind), cache)


@pytest.mark.parametrize("url", ["127.0.0.1:8000/v1", "ftp://host/v1", "http:///v1"])
def test_a_bad_address_is_said(cache, url):
    with pytest.raises(ConfigError, match="must be an http or https address"):
        build_chat(backbone(base_url=url), cache)


def test_a_password_in_the_address_is_refused_and_not_repeated(cache):
    with pytest.raises(ConfigError, match="must hold no password") as error:
        build_chat(backbone(base_url="http://u:pw123@host/v1"), cache)
    assert "pw123" not in str(error.value)


def test_a_replay_needs_no_key(tmp_path, monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    ReplyCache(tmp_path, "use", "r").close()
    chat = build_chat(backbone(kind="vllm", api_key_env="SOME_KEY"), ReplyCache(tmp_path, "replay", "r"))
    assert chat.name == "told"


def test_the_stand_in_answers_here_or_over_http(cache):
    here = build_chat(backbone(kind="scripted", can_judge=False), cache)
    assert isinstance(here._transport, ScriptedTransport)
    assert (here.window, here.can_judge, here.tokenizer_name) == (4096, False, "estimate")
    far = build_chat(backbone(kind="scripted", base_url="http://127.0.0.1:5/v1"), cache)
    assert isinstance(far._transport, OpenAITransport)


def test_nothing_heavy_is_imported():
    heavy = ("openai", "aiohttp", "torch", "transformers", "tiktoken")
    program = f"import sys, harness.llm.build; print([name for name in {heavy} if name in sys.modules])"
    root = Path(__file__).resolve().parents[3]
    shown = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
