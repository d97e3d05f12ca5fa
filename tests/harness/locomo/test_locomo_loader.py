"""Finding a data set, what a loaded one holds, its repairs and its fingerprint."""

import hashlib
import json
import subprocess
import sys
from collections import Counter
from datetime import datetime

import pytest

from harness.errors import DataError
from harness.locomo import loader, repairs
from harness.locomo.fingerprint import content_sha256
from harness.locomo.loader import load_dataset, load_file, shape
from harness.locomo.repairs import mend_answer, mend_gold, resolve_evidence
from harness.locomo.report import report
from harness.locomo.schema import Question
from harness.spec import DatasetSpec


def load(file, **options):
    return load_dataset(DatasetSpec(name="locomo10", path=str(file), **options))


def test_values_of_a_clean_file(tree, write):
    data = load(write(tree))
    first, second = data.samples
    assert (first.sample_id, first.conversation.speaker_a, first.conversation.speaker_b) == ("one", "Ann", "Bob")
    assert [(s.number, s.date_time) for s in first.conversation.sessions] == [
        (1, datetime(2023, 5, 8, 13, 56)),
        (2, datetime(2023, 5, 9, 0, 5)),
        (3, datetime(2023, 6, 1, 9, 0)),
    ]
    assert first.conversation.sessions[1].date_raw == "12:05 am on 9 May, 2023"
    assert [t.dia_id for t in first.conversation.turns] == ["D1:1", "D1:2", "D1:3", "D2:1", "D2:2", "D3:1"]
    captioned = first.conversation.turns[1]
    assert (captioned.speaker, captioned.session, captioned.date_time) == ("Bob", 1, datetime(2023, 5, 8, 13, 56))
    assert captioned.full_text == "Nice! [image: a kite over a beach]"  # it has no img_url
    assert first.conversation.turns[2].full_text == "Let us fly it."  # an image without a caption
    assert first.conversation.sessions[0].summary == "A kite is bought."
    assert first.conversation.sessions[2].summary is None
    assert [(o.speaker, o.text, o.dia_ids) for o in first.conversation.sessions[0].observations] == [
        ("Ann", "Ann bought a kite.", ("D1:1",)),
        ("Ann", "Ann wants to fly it.", ("D1:3",)),
        ("Bob", "Bob likes it.", ("D1:2",)),
    ]
    assert [(q.qa_index, q.category, q.reference) for q in first.questions[:4]] == [
        (0, 4, "a red kite"),
        (1, 2, "8 May 2023"),
        (2, 1, "bought, torn"),
        (3, 5, "a red kite"),
    ]
    assert first.questions[3].answer is None
    assert first.questions[2].evidence == ("D1:1", "D2:2")
    assert second.conversation.sessions[0].observations == ()
    assert data.fingerprint.repairs == {}
    assert data.n_questions == 9


def test_sessions_are_ordered_by_number_and_not_as_strings(tree, write):
    conversation = {"speaker_a": "Cy", "speaker_b": "Di"}
    for number in (10, 2, 1, 9, 3, 8, 4, 11, 5, 7, 6):
        conversation[f"session_{number}"] = [{"dia_id": f"D{number}:1", "speaker": "Cy", "text": "x"}]
        conversation[f"session_{number}_date_time"] = f"1:00 pm on {number} May, 2023"
    tree[1]["conversation"] = conversation
    tree[1]["qa"][1]["evidence"] = ["D11:1"]
    sessions = load(write(tree)).samples[1].conversation.sessions
    assert [session.number for session in sessions] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert [session.date_time.day for session in sessions] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


KNOWN = {"D1:1", "D1:2", "D2:5", "D11:26"}
EVIDENCE = [
    (["D1:1", "D1:2"], ("D1:1", "D1:2"), {}),
    (["D1:2; D1:1"], ("D1:2", "D1:1"), {"evidence_split": 1}),
    (["D1:1 D1:2 D2:5", "D1:1"], ("D1:1", "D1:2", "D2:5"), {"evidence_split": 1, "evidence_repeated": 1}),
    (["D:11:26"], ("D11:26",), {"evidence_rewritten": 1}),
    (["D2:05"], ("D2:5",), {"evidence_rewritten": 1}),
    (["D1:3", "D1:1"], ("D1:1",), {"evidence_dangling": 1}),
    (["D", "D1:1"], ("D1:1",), {"evidence_without_id": 1}),
    (["D1:1", "D1:1", "D1:1"], ("D1:1",), {"evidence_repeated": 2}),
    (["D9:1 D9:2"], (), {"evidence_split": 1, "evidence_dangling": 2}),
    ([], (), {}),
]


@pytest.mark.parametrize(("raw", "ids", "counts"), EVIDENCE)
def test_evidence_rules(raw, ids, counts):
    made = Counter()
    assert resolve_evidence(raw, KNOWN, made) == ids
    assert made == counts


def test_repairs_are_counted_and_raw_values_kept(tree, write):
    one = tree[0]
    one["qa"][0]["evidence"] = ["D1:1; D1:03", "D7:7", "D"]
    one["qa"][1]["answer"] = 2022
    one["qa"][2]["answer"] = "\u200bbought,\u200b torn\ufeff"
    one["qa"][3]["answer"] = "nothing"
    one["conversation"]["session_4_date_time"] = "whenever"
    one["observation"]["session_1_observation"]["Ann"] = [
        ["Ann bought a kite.", ["D1:1", "D1:3"]],
        ["Ann flies.", "D1:3, D1:1"],
        ["Ann dreams.", "D8:1"],
    ]
    data = load(write(tree))
    assert data.fingerprint.repairs == {
        "answer_int": 1,
        "answer_zero_width": 1,
        "date_without_session": 1,
        "evidence_dangling": 1,
        "evidence_split": 1,
        "evidence_without_id": 1,
        "observation_evidence_dangling": 1,
        "observation_evidence_split": 1,
        "observation_list": 1,
    }
    first, second, third, fourth = data.samples[0].questions[:4]
    assert (first.evidence, first.evidence_raw) == (("D1:1", "D1:3"), ("D1:1; D1:03", "D7:7", "D"))
    assert (second.answer, second.answer_raw) == ("2022", 2022)
    assert (third.answer, third.answer_raw) == ("bought, torn", "\u200bbought,\u200b torn\ufeff")
    assert (fourth.answer, fourth.reference) == ("nothing", "a red kite")
    observations = data.samples[0].conversation.sessions[0].observations
    assert [(seen.dia_ids, seen.evidence_raw) for seen in observations[:3]] == [
        (("D1:1", "D1:3"), ("D1:1", "D1:3")),
        (("D1:3", "D1:1"), ("D1:3, D1:1",)),
        ((), ("D8:1",)),
    ]
    assert "evidence_dangling 1" in data.notices[0]


def test_joiners_inside_emoji_are_no_zero_width_spaces():
    made = Counter()
    assert mend_answer("\U0001f9d8\u200d\u2640\ufe0f", made) == "\U0001f9d8\u200d\u2640\ufe0f"
    assert not made.total()


def test_a_gold_is_mended_only_where_its_hash_is_listed(monkeypatch):
    raw = "Most catz,dogs  here"
    digest = hashlib.sha256(raw.encode()).hexdigest()
    # z -> s, a space after the comma, one of two spaces deleted
    monkeypatch.setattr(
        repairs, "_gold_edits", lambda: {("one", 3): (digest, [[8, 1, "s"], [10, 0, " "], [14, 1, ""]])}
    )

    def ask(answer, index=3):
        return Question("one", index, 4, "?", answer, None, (), (), answer_raw=answer)

    assert mend_gold(ask(raw)).answer == "Most cats, dogs here"
    assert mend_gold(ask(raw)).answer_raw == raw
    for other in (ask(raw + "."), ask(raw, index=4), ask(None)):
        assert mend_gold(other) is other


def test_gold_repaired_says_so_when_there_is_nothing_to_mend(tree, write):
    data = load(write(tree), gold="repaired")
    assert "dataset.gold=repaired changes nothing: this file holds none of LoCoMo-10's damaged answers." in data.notices
    assert data.fingerprint.repairs == {"gold_repaired": 0}


def test_fingerprint(tree, write):
    file = write(tree)
    print_ = load(file).fingerprint
    assert print_.file_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (print_.samples, print_.sessions, print_.turns, print_.questions) == (2, 4, 8, 9)
    assert print_.by_category == {1: 1, 2: 1, 3: 1, 4: 4, 5: 2}
    assert print_.is_locomo10 is False


def reversed_keys(node):
    if isinstance(node, dict):
        return {key: reversed_keys(node[key]) for key in reversed(node)}
    return [reversed_keys(child) for child in node] if isinstance(node, list) else node


def test_a_reserialised_equal_file_has_the_same_content_hash(tree, write):
    tree[0]["qa"][0]["answer"] = "a café — \U0001fa81"
    text = json.dumps(reversed_keys(tree), indent=3, ensure_ascii=False)
    first = load(write(tree)).fingerprint
    second = load(write("\ufeff" + text, "again.json")).fingerprint
    assert first.content_sha256 == second.content_sha256
    assert first.file_sha256 != second.file_sha256
    tree[0]["qa"][0]["answer"] = "a cafe — \U0001fa81"
    assert load(write(tree)).fingerprint.content_sha256 != first.content_sha256


def test_content_hash_by_hand():
    canonical = b'[{"a":1,"b":["\\u00e9"]}]'
    assert content_sha256([{"b": ["é"], "a": 1}]) == hashlib.sha256(canonical).hexdigest()


def test_another_file_loads_with_a_notice(tree, write):
    data = load(write(tree, "mine.json"))
    assert data.name == "mine"
    assert data.notices == (
        f"mine.json is not LoCoMo-10 (content sha256 {data.fingerprint.content_sha256[:12]}): "
        "published figures do not apply to it. Repairs made: none.",
    )


def test_locomo_is_found_by_variable_then_in_data(tree, write, monkeypatch, tmp_path):
    spec = DatasetSpec(name="locomo10")
    monkeypatch.setattr(loader, "LOCOMO10_FILE", tmp_path / "absent.json")
    monkeypatch.delenv("LOCOMO_PATH", raising=False)
    with pytest.raises(DataError) as caught:
        load_dataset(spec)
    assert str(caught.value) == (
        "LoCoMo-10 is not here: run `make data` to fetch it, or name a copy with dataset.path=FILE or the environment "
        "variable LOCOMO_PATH"
    )
    monkeypatch.setenv("LOCOMO_PATH", "/nowhere/locomo10.json")
    with pytest.raises(DataError) as caught:
        load_dataset(spec)
    assert str(caught.value) == (
        "LOCOMO_PATH=/nowhere/locomo10.json: no such file; name a LoCoMo file, or run `make data` to fetch LoCoMo-10"
    )
    monkeypatch.setenv("LOCOMO_PATH", str(write(tree, "variable.json")))
    monkeypatch.setattr(loader, "LOCOMO10_FILE", write(tree, "fetched.json"))
    assert load_dataset(spec).name == "variable"
    monkeypatch.setenv("LOCOMO_PATH", "")
    assert load_dataset(spec).name == "fetched"
    assert load(write(tree, "named.json")).name == "named"


def test_shape(tree, write):
    sizes = shape(load(write(tree)))
    assert (sizes.conversations, sizes.sessions, sizes.turns, sizes.questions) == (2, 4, 8, 9)
    # 5 + 1 + [image: a kite over a beach] 6 + 4 + 4 + 4 + 3, and 4 + 3
    assert sizes.words == 34


def test_report_of_a_small_file(tree, write):
    one = tree[0]
    one["qa"][0].update(evidence=["D1:1; D1:2"], question="What did Anna buy?")
    one["qa"][1].update(answer=2022, question=" When did Bob move?")
    one["qa"][5]["evidence"] = ["D2:1", "D2:1"]
    one["qa"].append(dict(one["qa"][6]))
    one["conversation"]["session_9_date_time"] = "later"
    one["conversation"]["session_1"][0]["text"] = "I bought\n a `red` kite. "
    found = report(write(tree))
    assert found["repairs"] == {"answer_int": 1, "date_without_session": 1, "evidence_repeated": 1, "evidence_split": 1}
    assert found["totals"]["text_words"] == 28
    assert found["date_time_without_session"] == [{"sample_id": "one", "key": "session_9_date_time", "value": "later"}]
    assert found["date_time_format"] == {"matching": 4, "non_matching": 1}
    assert found["turn_text_control_chars"] == found["turn_text_backtick"] == ["one/D1:1"]
    assert found["turn_text_leading_or_trailing_whitespace"] == ["one/D1:1"]
    assert found["blip_caption_without_img_url"] == ["one/D1:2"]
    assert found["adjacent_turns_same_speaker"] == []
    assert [(row["qa"], row["rules"]) for row in found["evidence_malformed_or_dangling"]] == [
        (0, {"evidence_split": 1})
    ]
    assert [row["qa"] for row in found["evidence_duplicated_within_list"]] == [5]
    assert [row["qa"] for row in found["evidence_empty"]] == [4]
    assert [row["qa"] for row in found["qa_whitespace"]] == [1]
    assert [(row["answer"], row["repair"]) for row in found["non_string_answers"]] == [(2022, "2022")]
    assert [row["qa"] for row in found["duplicate_questions"]] == [[6, 7]]
    assert [row["words"] for row in found["wrong_or_misspelt_names_in_questions"]] == [["Anna"]]
    key = "non_adversarial_question_names_one_speaker_but_all_evidence_is_by_the_other"
    assert [(row["qa"], row["evidence_speakers"]) for row in found[key]] == [(5, ["Bob"])]


def test_the_shipped_sample():
    if not loader.SAMPLE_FILE.is_file():
        pytest.skip("the sample data set is not written yet")
    data = load_dataset(DatasetSpec(name="sample"))
    assert data.name == "sample"
    assert data.notices == ()
    whole = data.fingerprint
    assert whole.repairs == {}
    assert whole.samples >= 2
    assert whole.sessions >= 12
    assert whole.turns >= 160
    assert whole.questions >= 60
    assert all(whole.by_category[category] > 0 for category in (1, 2, 3, 4, 5))
    assert any(turn.caption for sample in data.samples for turn in sample.conversation.turns)
    found = report(loader.SAMPLE_FILE)
    for key in ("qa_whitespace", "duplicate_questions", "observation_irregularities", "adjacent_turns_same_speaker"):
        assert found[key] == []


def test_loading_imports_nothing_heavy():
    heavy = "numpy pandas torch requests pooch openai faiss nltk"
    code = (
        "import sys; from harness.locomo.loader import load_dataset; from harness.spec import DatasetSpec; "
        f"print([name for name in '{heavy}'.split() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=loader.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_locomo10_itself(locomo):
    samples, whole = load_file(locomo)
    assert whole.is_locomo10
    assert (whole.samples, whole.sessions, whole.turns, whole.questions) == (10, 272, 5882, 1986)
    assert whole.by_category == {1: 282, 2: 321, 3: 96, 4: 841, 5: 446}
    data = load(locomo)
    assert (data.name, data.notices) == ("locomo10", ())
    assert data.samples == samples


def test_locomo10_reserialised_is_recognised_and_changed_is_not(locomo, write):
    tree = json.loads(locomo.read_text(encoding="utf-8"))
    assert load(write(json.dumps(reversed_keys(tree), indent=1, ensure_ascii=False))).fingerprint.is_locomo10
    url = next(t for t in tree[0]["conversation"]["session_1"] if "img_url" in t)["img_url"]
    url[0] = url[0][:-1] + ("x" if url[0][-1] != "x" else "y")
    assert not load(write(tree)).fingerprint.is_locomo10
