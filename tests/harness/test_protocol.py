"""How questions are asked: what the reader sees, in which order, with which sampling, and what a reply becomes."""

import dataclasses
import json
import subprocess
import sys

import pytest
import yaml

from harness.llm.types import Reply, Usage
from harness.locomo.schema import Question
from harness.prompts import ROOT
from harness.protocol import ABSTAIN, FRAME_TOKENS, Answer, build_protocol, resolve_letter, shown_options
from harness.spec import ProtocolSpec, validate

CONTEXT = "[1:56 pm on 8 May, 2023] Ada: I went to the lake yesterday."


def protocol(name):
    values = yaml.safe_load((ROOT / f"conf/protocol/{name}.yaml").read_text())
    return build_protocol(validate(ProtocolSpec, values, "protocol"))


def question(category, index=0, sample="conv-1", text=None):
    text = text or f"What did Ada do in question {index}?"
    answer = None if category == 5 else f"gold{index}"
    trap = f"trap{index}" if category == 5 else None
    return Question(sample, index, category, text, answer, trap, (f"D{index + 1}:7",), (f"D{index + 1}:7",))


def reply(text, value=None):
    return Reply(text, value, Usage(), False, 1, (), 0.0, "stop")


def text_of(request):
    return "\n".join(message["content"] for message in request.messages)


@pytest.mark.parametrize(
    ("name", "category", "temperature", "max_tokens", "schema"),
    [
        ("amem", 1, 0.7, 1000, Answer),
        ("amem", 2, 0.7, 1000, Answer),
        ("amem", 3, 0.7, 1000, Answer),
        ("amem", 4, 0.7, 1000, Answer),
        ("amem", 5, 0.5, 1000, Answer),
        ("locomo", 1, 0.0, 32, None),
        ("locomo", 2, 0.0, 32, None),
        ("locomo", 3, 0.0, 32, None),
        ("locomo", 4, 0.0, 32, None),
        ("locomo", 5, 0.0, 32, None),
    ],
)
def test_sampling_and_schema_of_each_category(name, category, temperature, max_tokens, schema):
    request = protocol(name).request(question(category), CONTEXT, seed=0, trial=0)
    assert (request.temperature, request.max_tokens, request.schema) == (temperature, max_tokens, schema)


@pytest.mark.parametrize("name", ["amem", "locomo"])
def test_prompt_holds_its_inputs_once_between_tags_and_the_variable_text_last(name):
    for category in range(1, 6):
        request = protocol(name).request(question(category), CONTEXT, seed=0, trial=0)
        system, user = request.messages
        assert (system["role"], user["role"]) == ("system", "user")
        assert user["content"].count(f"<context>\n{CONTEXT}\n</context>\n<question>What did Ada do") == 1
        assert "Ada" not in system["content"] and "<" not in system["content"]
        assert user["content"].endswith("</options>" if category == 5 else "</question>")


@pytest.mark.parametrize("name", ["amem", "locomo"])
def test_only_category_2_gets_the_date_instruction_and_only_5_gets_options(name):
    texts = {c: text_of(protocol(name).request(question(c), CONTEXT, seed=0, trial=0)) for c in range(1, 6)}
    assert [c for c, text in texts.items() if "date of the conversation" in text] == [2]
    assert [c for c, text in texts.items() if "approximate date" in text] == [2]
    assert [c for c, text in texts.items() if "<option>" in text] == [5]
    assert texts[1] == texts[3] == texts[4]


def test_options_are_shown_in_the_order_of_the_request():
    for name, first, second in [("amem", "{}", "{}"), ("locomo", "(a) {}", "(b) {}")]:
        for index in range(8):
            request = protocol(name).request(question(5, index), CONTEXT, seed=3, trial=0)
            assert sorted(request.options) == sorted([ABSTAIN, f"trap{index}"])
            shown = "<options>\n<option>{}</option>\n<option>{}</option>\n</options>"
            assert shown.format(first, second).format(*request.options) in text_of(request)
    assert protocol("amem").request(question(4), CONTEXT, seed=3, trial=0).options is None


def test_option_order_is_balanced_and_moves_with_each_part_of_its_key():
    def abstain_first(**key):
        asked = question(5, key.pop("qa_index", 0), key.pop("sample", "conv-1"))
        return shown_options(asked, **{"seed": 0, "trial": 0} | key)[0] == ABSTAIN

    for part in ("seed", "trial", "qa_index"):
        count = sum(abstain_first(**{part: value}) for value in range(2000))
        assert 900 < count < 1100, part  # binomial(2000, 1/2): 4.5 standard deviations
    assert 900 < sum(abstain_first(sample=f"conv-{value}") for value in range(2000)) < 1100


def test_option_order_is_the_same_in_every_process():
    code = (
        "from harness.protocol import shown_options, ABSTAIN\n"
        "from harness.locomo.schema import Question\n"
        "asked = [Question('conv-1', i, 5, 'q', None, 't', (), ()) for i in range(64)]\n"
        "print(''.join(str(int(shown_options(q, seed=1, trial=2)[0] == ABSTAIN)) for q in asked))"
    )
    here = "".join(str(int(shown_options(question(5, i), seed=1, trial=2)[0] == ABSTAIN)) for i in range(64))
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == here


def test_option_order_is_pinned():
    """Worked out with hashlib alone: sha256 of '[0, "conv-1", i, 0]', first byte even: abstain first."""
    first = [shown_options(question(5, i), seed=0, trial=0)[0] == ABSTAIN for i in range(8)]
    assert first == [False, True, True, False, True, False, False, True]


@pytest.mark.parametrize("name", ["amem", "locomo"])
def test_no_gold_and_no_evidence_reaches_a_prompt(name):
    asked = [question(c, i, f"conv-{s}") for s in range(3) for i, c in enumerate([1, 2, 3, 4, 5] * 4)]
    swapped = [
        dataclasses.replace(
            q,
            answer=None if q.answer is None else f"another gold of {q.qa_index}",
            adversarial_answer=None if q.answer else f"another trap of {q.qa_index}",
            evidence=other.evidence,
            evidence_raw=other.evidence_raw,
        )
        for q, other in zip(asked, asked[1:] + asked[:1], strict=True)
    ]
    built = protocol(name)
    for before, after in zip(asked, swapped, strict=True):
        one, two = (built.request(q, CONTEXT, seed=0, trial=1) for q in (before, after))
        if before.category == 5:
            assert text_of(two) != text_of(one)
            assert one.options.index(ABSTAIN) == two.options.index(ABSTAIN)
            assert text_of(two).replace(after.adversarial_answer, before.adversarial_answer) == text_of(one)
        else:
            assert one == two


TRAP = "a necklace"
OPTIONS = (ABSTAIN, TRAP)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("a", ABSTAIN),
        ("A", ABSTAIN),
        ("(a)", ABSTAIN),
        ("a)", ABSTAIN),
        ("a.", ABSTAIN),
        ("a:", ABSTAIN),
        ("(a) Not mentioned...", ABSTAIN),
        ("(a) Not mentioned in the conv", ABSTAIN),
        ("(a) not mentioned in the conversation.", ABSTAIN),
        ("b", TRAP),
        ("b.", TRAP),
        ("(B)", TRAP),
        ("(b).", TRAP),
        ("**(b)**", TRAP),
        ("'b'", TRAP),
        ("Answer: (b)", TRAP),
        ("Option b", TRAP),
        ("(b) A necklace", TRAP),
        ("b. a neck", TRAP),
        # not a letter, or a letter that its own text contradicts: left as it was written
        ("a necklace", "a necklace"),
        ("a silver ring", "a silver ring"),
        ("b necklace", "b necklace"),
        ("both", "both"),
        ("c", "c"),
        ("", ""),
        ("(a) necklace", "(a) necklace"),
        ("(b) Not mentioned in the conversation", "(b) Not mentioned in the conversation"),
        ("(a) or (b)", "(a) or (b)"),
        (
            "(a) Not mentioned in the conversation (b) a necklace",
            "(a) Not mentioned in the conversation (b) a necklace",
        ),
        ("Not mentioned in the conversation", ABSTAIN),
    ],
)
def test_a_bare_option_letter_becomes_its_text(said, answer):
    assert resolve_letter(said, OPTIONS) == answer


def test_parse_reads_json_under_amem_and_text_under_locomo():
    amem, locomo = protocol("amem"), protocol("locomo")
    asked = amem.request(question(4), CONTEXT, seed=0, trial=0)
    assert amem.parse(reply('{"answer": " the lake "}', Answer(answer=" the lake ")), asked) == "the lake"
    assert amem.parse(reply(" the lake\n"), asked) == "the lake"
    asked = locomo.request(question(4), CONTEXT, seed=0, trial=0)
    assert locomo.parse(reply(" (a)\n"), asked) == "(a)"  # no options on show: a letter is no choice
    asked = locomo.request(question(5, 4), CONTEXT, seed=0, trial=0)
    assert [locomo.parse(reply(letter), asked) for letter in ("(a)", " b. ")] == list(asked.options)


def test_a_number_is_an_answer():
    assert Answer.model_validate_json('{"answer": 2022}').answer == "2022"


def test_answer_schema_carries_the_rule_of_the_stand_in():
    rule = Answer.model_json_schema()["properties"]["answer"]["x-scripted"]
    assert rule == {"rule": "answer", "question": "question", "context": "context"}


def test_prompt_files_are_named_so_that_they_can_be_hashed():
    for name in ("amem", "locomo"):
        files = protocol(name).prompt_files
        assert sorted(files) == sorted(
            str(p.relative_to(ROOT)) for p in (ROOT / "harness/prompts").glob(f"{name}_*.j2")
        )
        assert len(files) == 3


@pytest.mark.parametrize("name", ["amem", "locomo"])
def test_overhead_covers_every_prompt_without_its_context(name):
    def count(text):
        return len(text.split())

    built = protocol(name)
    asked = [question(c, text="what " * (10 * c)) for c in range(1, 6)]
    schema = count(json.dumps(Answer.model_json_schema())) if name == "amem" else 0
    need = []
    for q in asked:
        messages = built.request(q, "", seed=0, trial=0).messages
        need.append(sum(count(m["content"]) for m in messages) + 2 * FRAME_TOKENS + schema)
    assert built.overhead_tokens(count, asked) == max(need)
    assert max(need) - 60 < built.overhead_tokens(count) < max(need)


def test_an_unknown_category_is_refused():
    with pytest.raises(ValueError, match="conv-1 question 0: no category 6"):
        protocol("amem").request(question(6), CONTEXT, seed=0, trial=0)
