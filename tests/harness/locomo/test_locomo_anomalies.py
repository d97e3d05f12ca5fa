"""The loader's own report against the published list of LoCoMo-10's irregularities, entry by entry.

Skipped where the data set is not there; test_locomo_loader.py holds the same rules against small files.
"""

import re
from collections import Counter

import pytest

from harness.locomo.loader import load_dataset
from harness.locomo.report import report
from harness.locomo.schema import CATEGORIES
from harness.locomo.slices import audit_verdicts
from harness.spec import DatasetSpec

PLACE = ("sample_id", "qa")


@pytest.fixture(scope="module")
def found(locomo):
    return report(locomo)


def pick(rows, *keys):
    return [{key: row[key] for key in keys if key in row} for row in rows]


def test_no_entry_of_the_list_is_forgotten(anomalies):
    """A new entry needs a test here."""
    assert set(anomalies) == {
        "dataset", "category_names", "per_conversation", "totals", "non_string_answers",
        "category5_with_both_answer_and_adversarial_answer", "category5_without_answer_key",
        "non_category5_missing_answer", "non_category5_with_adversarial_answer", "evidence_malformed_or_dangling",
        "evidence_repair_rule", "evidence_empty", "evidence_duplicated_within_list",
        "non_adversarial_question_names_one_speaker_but_all_evidence_is_by_the_other", "duplicate_questions",
        "date_time_without_session", "session_without_date_time", "date_time_format", "turn_checks_clean",
        "turn_optional_key_combinations", "img_url_without_query", "blip_caption_without_img_url",
        "turn_text_leading_or_trailing_whitespace", "turn_text_control_chars", "turn_text_max", "turn_text_shortest",
        "turn_text_placeholders", "turn_text_backtick_as_apostrophe", "unusual_unicode", "qa_whitespace",
        "gold_answers_with_fused_words_or_typos", "gold_semicolons", "wrong_or_misspelt_names_in_questions",
        "category5_defects", "observation_irregularities",
    }  # fmt: skip


def test_file_and_counts(found, anomalies):
    assert found["is_locomo10"]
    assert (found["file_sha256"], found["bytes"]) == (anomalies["dataset"]["sha256"], anomalies["dataset"]["bytes"])
    assert found["per_conversation"] == anomalies["per_conversation"]
    assert found["totals"] == anomalies["totals"]


def test_category_names(anomalies):
    assert {str(number): name for number, name in CATEGORIES.items()} == anomalies["category_names"]


def test_answers(found, anomalies):
    keys = (*PLACE, "category", "answer", "repair", "adversarial_answer")
    for name in ("non_string_answers", "category5_with_both_answer_and_adversarial_answer"):
        assert found[name] == pick(anomalies[name], *keys)
    assert found["category5_without_answer"] == anomalies["category5_without_answer_key"]["count"]
    assert found["repairs"]["answer_int"] == len(anomalies["non_string_answers"])
    # The loader refuses a file that has any of these, and it has loaded this one.
    for name in (
        "non_category5_missing_answer",
        "non_category5_with_adversarial_answer",
        "session_without_date_time",
    ):
        assert anomalies[name] == []


def test_evidence(found, anomalies):
    keys = (*PLACE, "category", "raw_list", "repaired_list")
    for name in ("evidence_malformed_or_dangling", "evidence_duplicated_within_list"):
        assert pick(found[name], *keys[:2], *keys[3:]) == pick(anomalies[name], *keys[:2], *keys[3:])
    assert pick(found["evidence_empty"], *PLACE) == pick(anomalies["evidence_empty"], *PLACE)
    strings, ids = re.search(r"([\d,]+) raw strings -> ([\d,]+) ids", anomalies["evidence_repair_rule"]).groups()
    assert found["evidence_strings"] == int(strings.replace(",", ""))
    assert found["evidence_ids"] == int(ids.replace(",", ""))
    assert found["repairs"]["evidence_dangling"] == 2
    assert found["repairs"]["evidence_without_id"] == 1
    name = "non_adversarial_question_names_one_speaker_but_all_evidence_is_by_the_other"
    assert found[name] == pick(anomalies[name], *PLACE, "category", "evidence", "evidence_speakers")


def test_dates(found, anomalies):
    assert found["date_time_without_session"] == anomalies["date_time_without_session"]
    assert found["repairs"]["date_without_session"] == len(anomalies["date_time_without_session"])
    listed = anomalies["date_time_format"]
    assert found["date_time_format"] == {key: listed[key] for key in ("matching", "non_matching")}
    assert listed["strictly_increasing_within_sample"]  # else the file would not have loaded


def test_turns(found, anomalies):
    for name in ("turn_optional_key_combinations", "turn_text_max", "turn_text_shortest"):
        assert found[name] == anomalies[name]
    assert found["turn_text_control_chars"] == anomalies["turn_text_control_chars"]
    assert found["turn_text_backtick"] == anomalies["turn_text_backtick_as_apostrophe"]
    assert found["img_url_without_query"] == anomalies["img_url_without_query"]
    for name in ("blip_caption_without_img_url", "turn_text_leading_or_trailing_whitespace"):
        assert found[name] == anomalies[name]["ids"]
        assert len(found[name]) == anomalies[name]["count"]
    # The rule finds one pair of brackets more than the list: an aside, no placeholder.
    listed = [row["id"] for row in anomalies["turn_text_placeholders"]]
    assert sorted(found["turn_text_placeholders"]) == sorted([*listed, "conv-44/D8:3"])
    clean = anomalies["turn_checks_clean"]
    assert len(found["adjacent_turns_same_speaker"]) == clean["adjacent_turns_same_speaker"]
    assert (set(found["img_url_list_length"]) == {1}) is clean["img_url_list_length_always_1"]
    # What the loader itself asserts.
    assert clean["dia_id_is_D<session>:<1-based position>"] is True
    for name in ("duplicate_dia_ids", "speaker_not_a_or_b", "empty_text", "empty_sessions"):
        assert clean[name] == 0


def test_characters(found, anomalies):
    listed = anomalies["unusual_unicode"]
    counts = found["turn_text_non_ascii"]
    for code, times in re.findall(r"(U\+\w{4}) x(\d+)", listed["turn_text"]):
        assert counts[code] == int(times)
    assert counts["U+00E9"] == 1
    assert len(found["turn_text_emoji"]) == int(re.search(r"emoji in (\d+) turns", listed["turn_text"])[1])
    assert "conv-41/D10:8" in found["turn_text_emoji"]
    listed_places = {
        (row["sample_id"], index)
        for row in listed["qa"]
        for index in (row["qa"] if isinstance(row["qa"], list) else [row["qa"]])
    }
    assert {(row["sample_id"], row["qa"]) for row in found["qa_non_ascii"]} == listed_places
    assert pick(found["qa_zero_width"], *PLACE, "field") == pick(listed["qa"][:1], *PLACE, "field")
    assert found["repairs"]["answer_zero_width"] == 1


def test_questions(found, anomalies):
    assert pick(found["qa_whitespace"], *PLACE, "field", "value") == anomalies["qa_whitespace"]
    assert found["duplicate_questions"] == anomalies["duplicate_questions"]
    listed = anomalies["gold_semicolons"]
    expected = pick([*listed["category3"], *listed["other_categories"]], *PLACE, "answer")
    assert sorted(map(str, pick(found["gold_semicolons"], *PLACE, "answer"))) == sorted(map(str, expected))
    named = {
        (row["sample_id"], index)
        for row in anomalies["wrong_or_misspelt_names_in_questions"]
        for index in (row["qa"] if isinstance(row["qa"], list) else [row["qa"]])
    }
    # The rule finds Deb as well, a short form as Mel is.
    deb = {("conv-48", index) for index in (117, 120, 121, 122, 179)}
    assert {(row["sample_id"], row["qa"]) for row in found["wrong_or_misspelt_names_in_questions"]} == named | deb


def test_damaged_golds(found, anomalies):
    assert found["damaged_golds"] == anomalies["gold_answers_with_fused_words_or_typos"]


def test_category_5(found, anomalies):
    *answerable, void, both = anomalies["category5_defects"]
    assert pick(found["category5_answerable"], *PLACE) == pick(answerable, *PLACE)
    for name, row in (("trap_not_mentioned", void), ("with_both_answer_and_adversarial_answer", both)):
        assert pick(found[f"category5_{name}"], *PLACE) == [
            {"sample_id": row["sample_id"], "qa": index} for index in row["qa"]
        ]


def test_observations(found, anomalies):
    keys = ("sample_id", "key", "speaker", "index", "value", "repaired")
    assert pick(found["observation_irregularities"], *keys) == pick(anomalies["observation_irregularities"], *keys)
    issues = [row["issue"] for row in anomalies["observation_irregularities"]]
    assert found["repairs"]["observation_list"] == issues.count("evidence is a list")
    assert found["repairs"]["observation_evidence_split"] == issues.count("comma-joined ids in one string")


def test_audit_counts(locomo):
    """Verdicts of the shipped file, held against the specification's counts."""
    counts = Counter(audit_verdicts().values())
    assert counts == {
        "wrong": 24, "premise": 29, "metadata": 14, "answerable": 3, "void": 2, "debatable": 27, "reject": 7, "citation": 1,
    }  # fmt: skip


def test_golds_are_repaired_on_request_alone(locomo, anomalies):
    listed = anomalies["gold_answers_with_fused_words_or_typos"]

    def golds(gold):
        data = load_dataset(DatasetSpec(name="locomo10", path=str(locomo), gold=gold))
        return data, {(q.sample_id, q.qa_index): q.answer for sample in data.samples for q in sample.questions}

    raw, before = golds("raw")
    mended, after = golds("repaired")
    changed = {place: answer for place, answer in after.items() if answer != before[place]}
    assert changed == {(row["sample_id"], row["qa"]): row["repair"] for row in listed}
    assert mended.fingerprint.repairs == {**raw.fingerprint.repairs, "gold_repaired": len(listed)}
    assert mended.notices == (f"Gold repaired: {len(listed)} damaged answers of the whole file mended.",)
