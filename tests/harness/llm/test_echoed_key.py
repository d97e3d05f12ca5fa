"""What an endpoint sends back: our key in any form, and replies of a form that no chat completion has."""

import json
from urllib.parse import quote

import pytest
from test_openai_transport import GOOD, KEY, ask, completion, error

from harness.llm.transport import OpenAITransport

ODD_KEY = 'mf/b+1f"7<3=a&secret'


def kept(tmp_path):
    return b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_a_key_in_a_reply_is_not_kept(tmp_path):
    echo = completion(f"You sent {KEY}.", finish_reason=f"stop {KEY}", reasoning_content=f"the key is {KEY}")
    reply, *_ = ask([{**echo, "id": KEY, "model": KEY, "system_fingerprint": KEY}], tmp_path, schema=None)
    assert (reply.text, reply.finish_reason) == ("You sent [key].", "stop [key]")
    assert KEY.encode() not in kept(tmp_path) and b"the key is [key]" in kept(tmp_path)


@pytest.mark.parametrize(
    "form",
    [
        ODD_KEY,
        "mf%2Fb%2B1f%227%3C3%3Da%26secret",
        "mf/b%2B1f%227%3C3%3Da%26secret",
        r"mf/b+1f\"7<3=a&secret",
        "mf/b+1f&quot;7&lt;3=a&amp;secret",
    ],
)
def test_a_key_is_known_as_it_stands_in_an_address_in_json_and_in_html(tmp_path, form):
    reply, *_ = ask([completion(f"You sent {form}.")], tmp_path, schema=None, key=ODD_KEY)
    assert reply.text == "You sent [key]."
    failure, *_ = ask([error(400, f"sent {form}, not valid")], tmp_path, key=ODD_KEY)
    assert "sent [key], not valid" in str(failure) and "secret" not in str(failure)
    assert quote(ODD_KEY, safe="") == "mf%2Fb%2B1f%227%3C3%3Da%26secret" and json.dumps(ODD_KEY) != f'"{ODD_KEY}"'


@pytest.mark.parametrize("key", ["EMPTY", "none", "test", "dummy"])
def test_a_placeholder_is_a_word_that_replies_may_hold(tmp_path, key):
    reply, *_ = ask([completion(f"a {key} box")], tmp_path, schema=None, key=key)
    assert reply.text == f"a {key} box"


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("Authorization: Basic dXNlcjpwYXNz is wrong", "[key] is wrong"),
        ("{'Authorization': 'Bearer abc.def'} is wrong", "{'[key] is wrong"),
        ("token hf_abcdefghij, gsk_abcdefghij, sk-abcdefghij", "token [key], [key], [key]"),
        (
            "basic authentication is off, key_value_cache is full",
            "basic authentication is off, key_value_cache is full",
        ),
    ],
)
def test_what_looks_like_a_key_is_scrubbed_from_messages(said, left):
    assert OpenAITransport("m", "http://127.0.0.1:1/v1", KEY).scrub(said) == left


FOREIGN = (
    [{"type": "text", "text": "parts"}],
    5,
    True,
    {"text": "t"},
)
CALLS = ([{}], [None], "call", {"function": 1}, [{"function": {"name": 5, "arguments": 7}}])


@pytest.mark.parametrize(
    "reply",
    [
        *(completion(content) for content in FOREIGN),
        *(completion(None, tool_calls=calls) for calls in CALLS),
        *({**GOOD, "choices": choices} for choices in ({}, {"0": 1}, "abc", [[]], [5], 7)),
    ],
    ids=lambda reply: json.dumps(reply["choices"])[-60:],
)
def test_a_reply_of_another_form_is_a_failed_try(tmp_path, reply):
    good, _, chat, _ = ask([reply, GOOD], tmp_path)
    assert good.value.score == 0.5 and chat.live.prompt_tokens == 22
    failure, *_ = ask([reply, reply], tmp_path / "again", retries=1)
    assert failure.kind == "server" and "sent what is no chat completion" in str(failure)


@pytest.mark.parametrize("reason", [5, ["stop"], {"why": 1}])
def test_a_finish_reason_of_another_form_is_none(tmp_path, reason):
    reply, *_ = ask([completion("hi", finish_reason=reason)], tmp_path, schema=None)
    assert (reply.text, reply.finish_reason) == ("hi", "")


@pytest.mark.parametrize("code", [["insufficient_quota"], {"a": 1}, 5])
def test_an_error_code_of_another_form_is_no_quota(tmp_path, code):
    reply, *_ = ask([error(429, "slow down", code=code), GOOD], tmp_path)
    assert reply.value.score == 0.5
