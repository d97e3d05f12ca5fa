"""A file that is wrong is refused with one line: file, sample, path inside it, what was found, what to do."""

import json
import re

import pytest

from harness.errors import DataError
from harness.locomo.loader import load_dataset
from harness.spec import DatasetSpec

CATEGORIES = "the categories are 1 (multi_hop), 2 (temporal), 3 (open_domain), 4 (single_hop), 5 (adversarial)"
DATE = "'1:56 pm on 8 May, 2023'"
LIST = "give a JSON list of samples"


def refusal(file):
    with pytest.raises(DataError) as caught:
        load_dataset(DatasetSpec(name="sample", path=str(file)))
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert len(message.splitlines()) == 1
    return message.removeprefix(f"{file}: ")


TEXTS = {
    "empty": ("", f"found an empty file; {LIST}"),
    "blank": (" \n", f"found an empty file; {LIST}"),
    "page": ("<html>404</html>", f"not JSON: found '<html>404</html>' at the start; {LIST}"),
    "cut in a string": (
        '[{"sample_id": "on',
        "truncated: the JSON ends in the middle (line 1, column 16); fetch the file again",
    ),
    "cut after a comma": ("[1,\n", "truncated: the JSON ends in the middle (line 2, column 1); fetch the file again"),
    "cut after an object": (
        '[{"a": {"b": 1}',
        "truncated: the JSON ends in the middle (line 1, column 16); fetch the file again",
    ),
    "two values": ("[] []", "not JSON: extra data at line 1, column 4; correct it there or fetch the file again"),
    "not UTF-8": (b'["\xff"]', "found a byte that is not UTF-8 at offset 2; save it as UTF-8"),
    "deep": ("[" * 100_000 + "]" * 100_000, "found lists or objects nested too deep; this is not a LoCoMo file"),
    "long number": ("[" + "9" * 5000 + "]", "found a number of thousands of digits; this is not a LoCoMo file"),
    "an object": ('{"sample_id": "one"}', "the file: found an object; give a list"),
    "text": ('"abc"', "the file: found 'abc'; give a list"),
    "no samples": ("[]", "the file: found an empty list; give at least one entry"),
    "a number for a sample": ("[3]", "sample number 1: the sample: found the number 3; give an object"),
    "only NaN": ("[NaN]", "sample number 1: the sample: found NaN; JSON has no such number; give a number or text"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_files_that_are_no_list_of_samples(case, write):
    content, message = TEXTS[case]
    assert refusal(write(content)) == message


def test_broken_json_names_line_and_column(write):
    message = refusal(write("[1,\n 2 3]"))
    assert re.fullmatch(r"not JSON: .* at line 2, column 4; correct it there or fetch the file again", message)


def put(path, value):
    """A change of the small data set: set what is at `path`."""

    def change(tree):
        node = tree
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value

    return change


def drop(*path):
    def change(tree):
        node = tree
        for key in path[:-1]:
            node = node[key]
        del node[path[-1]]

    return change


CONV = (0, "conversation")
TURN = (*CONV, "session_1", 1)
QA = (0, "qa")
CHANGES = {
    "no sample_id": (drop(1, "sample_id"), "sample number 2: sample_id: found nothing; add it"),
    "sample_id a number": (
        put((0, "sample_id"), 26),
        "sample number 1: sample_id: found the number 26; files are named after it: give letters, digits, '.', '_' and '-'",
    ),
    "sample_id a path": (
        put((0, "sample_id"), "../one"),
        "sample ../one: sample_id: found '../one'; files are named after it: give letters, digits, '.', '_' and '-'",
    ),
    "sample_id twice": (
        put((1, "sample_id"), "one"),
        "sample one: sample_id: found 'one' a second time; give every sample its own id",
    ),
    "no conversation": (drop(*CONV), "sample one: conversation: found nothing; add it"),
    "conversation a list": (put(CONV, []), "sample one: conversation: found an empty list; give an object"),
    "no qa": (drop(*QA), "sample one: qa: found nothing; add it"),
    "empty qa": (put(QA, []), "sample one: qa: found an empty list; give at least one entry"),
    "qa an object": (put(QA, {"a": 1}), "sample one: qa: found an object; give a list"),
    "unknown key": (
        put((0, "notes"), "x"),
        "sample one: notes: found 'x'; this key is not of the schema: remove it or correct its name",
    ),
    "no speaker": (drop(*CONV, "speaker_b"), "sample one: conversation.speaker_b: found nothing; add it"),
    "blank speaker": (
        put((*CONV, "speaker_a"), " "),
        "sample one: conversation.speaker_a: found blank text; give text that is not blank",
    ),
    "equal speakers": (
        put((*CONV, "speaker_b"), "Ann"),
        "sample one: conversation.speaker_b: found 'Ann', as speaker_a; give two different names",
    ),
    "unknown conversation key": (
        put((*CONV, "session_03"), []),
        "sample one: conversation.session_03: found an empty list; the keys here are speaker_a, speaker_b, session_N, "
        "session_N_date_time",
    ),
    "no session": (
        put((1, "conversation"), {"speaker_a": "Cy", "speaker_b": "Di"}),
        "sample two: conversation: found no session; give at least session_1 and session_1_date_time",
    ),
    "a gap in the sessions": (
        drop(*CONV, "session_2"),
        "sample one: conversation.session_2: found nothing; number the sessions 1, 2, 3, ...",
    ),
    "empty session": (
        put((*CONV, "session_2"), []),
        "sample one: conversation.session_2: found an empty list; give at least one entry",
    ),
    "session an object": (
        put((*CONV, "session_2"), {"D2:1": "x"}),
        "sample one: conversation.session_2: found an object; give a list",
    ),
    "session without a date-time": (
        drop(*CONV, "session_2_date_time"),
        f"sample one: conversation.session_2_date_time: found nothing; every session needs its date and time, as in {DATE}",
    ),
    "unparsable date": (
        put((*CONV, "session_2_date_time"), "2023-05-09 00:05"),
        f"sample one: conversation.session_2_date_time: found '2023-05-09 00:05'; give a date and time as in {DATE}",
    ),
    "a day that does not exist": (
        put((*CONV, "session_3_date_time"), "9:00 am on 31 June, 2023"),
        f"sample one: conversation.session_3_date_time: found '9:00 am on 31 June, 2023'; give a date and time as in {DATE}",
    ),
    "date a number": (
        put((*CONV, "session_3_date_time"), 2023),
        "sample one: conversation.session_3_date_time: found the number 2023; give text",
    ),
    "dates that stand still": (
        put((*CONV, "session_3_date_time"), "12:05 am on 9 May, 2023"),
        "sample one: conversation.session_3_date_time: found '12:05 am on 9 May, 2023'; it must be later than session_2's "
        "'12:05 am on 9 May, 2023'",
    ),
    "duplicate dia_id": (
        put((*TURN, "dia_id"), "D1:1"),
        "sample one: conversation.session_1[1].dia_id: found 'D1:1' a second time; this turn's id is 'D1:2'",
    ),
    "dia_id out of sequence": (
        put((*TURN, "dia_id"), "D1:4"),
        "sample one: conversation.session_1[1].dia_id: found 'D1:4'; this turn's id is 'D1:2'",
    ),
    "dia_id of another session": (
        put((*CONV, "session_3", 0, "dia_id"), "D2:1"),
        "sample one: conversation.session_3[0].dia_id: found 'D2:1'; this turn's id is 'D3:1'",
    ),
    "unknown speaker": (
        put((*TURN, "speaker"), "Bobby"),
        "sample one: conversation.session_1[1].speaker: found 'Bobby'; the speakers are 'Ann' and 'Bob'",
    ),
    "no text": (drop(*TURN, "text"), "sample one: conversation.session_1[1].text: found nothing; add it"),
    "empty text": (
        put((*TURN, "text"), ""),
        "sample one: conversation.session_1[1].text: found blank text; give text that is not blank",
    ),
    "text null": (put((*TURN, "text"), None), "sample one: conversation.session_1[1].text: found null; give text"),
    "caption a list": (
        put((*TURN, "blip_caption"), ["a kite"]),
        "sample one: conversation.session_1[1].blip_caption: found a list of 1; give text",
    ),
    "misspelt caption key": (
        put((*TURN, "blip_captions"), "a kite"),
        "sample one: conversation.session_1[1].blip_captions: found 'a kite'; this key is not of the schema: remove it or "
        "correct its name",
    ),
    "img_url text": (
        put((*TURN, "img_url"), "http://x.example"),
        "sample one: conversation.session_1[1].img_url: found 'http://x.example'; give a list",
    ),
    "re-download a number": (
        put((*TURN, "re-download"), 1),
        "sample one: conversation.session_1[1].re-download: found the number 1; give true or false",
    ),
    "turn a text": (put(TURN, "Nice!"), "sample one: conversation.session_1[1]: found 'Nice!'; give an object"),
    "unknown category": (put((*QA, 2, "category"), 6), f"sample one: qa[2].category: found the number 6; {CATEGORIES}"),
    "category text": (put((*QA, 2, "category"), "1"), f"sample one: qa[2].category: found '1'; {CATEGORIES}"),
    "category true": (put((*QA, 2, "category"), True), f"sample one: qa[2].category: found true; {CATEGORIES}"),
    "category 1.0": (put((*QA, 2, "category"), 1.0), f"sample one: qa[2].category: found the number 1.0; {CATEGORIES}"),
    "no question": (drop(*QA, 0, "question"), "sample one: qa[0].question: found nothing; add it"),
    "blank question": (
        put((*QA, 0, "question"), "\t"),
        "sample one: qa[0].question: found blank text; give text that is not blank",
    ),
    "missing answer": (drop(*QA, 1, "answer"), "sample one: qa[1].answer: found nothing; category 2 needs one"),
    "answer null": (put((*QA, 1, "answer"), None), "sample one: qa[1].answer: found null; give text or a whole number"),
    "answer a fraction": (
        put((*QA, 1, "answer"), 2.5),
        "sample one: qa[1].answer: found the number 2.5; give text or a whole number",
    ),
    "answer true": (put((*QA, 1, "answer"), True), "sample one: qa[1].answer: found true; give text or a whole number"),
    "answer of nothing but zero-width spaces": (
        put((*QA, 1, "answer"), "\u200b\u200b"),
        "sample one: qa[1].answer: found blank text; give text that is not blank",
    ),
    "no trap": (
        drop(*QA, 3, "adversarial_answer"),
        "sample one: qa[3].adversarial_answer: found nothing; category 5 needs one",
    ),
    "a trap elsewhere": (
        put((*QA, 0, "adversarial_answer"), "a blue kite"),
        "sample one: qa[0].adversarial_answer: found 'a blue kite'; only category 5 has one: remove it",
    ),
    "no evidence": (drop(*QA, 0, "evidence"), "sample one: qa[0].evidence: found nothing; add it"),
    "evidence text": (put((*QA, 0, "evidence"), "D1:1"), "sample one: qa[0].evidence: found 'D1:1'; give a list"),
    "evidence a number": (
        put((*QA, 0, "evidence"), ["D1:1", 2]),
        "sample one: qa[0].evidence[1]: found the number 2; give text",
    ),
    "half a character": (
        put((*QA, 0, "answer"), "\ud83d"),
        "sample one: qa[0].answer: found half a character (a lone surrogate); write the whole character",
    ),
    "infinite answer": (
        put((*QA, 0, "answer"), float("-inf")),
        "sample one: qa[0].answer: found -Infinity; JSON has no such number; give a number or text",
    ),
    "NaN answer": (
        put((*QA, 0, "answer"), float("nan")),
        "sample one: qa[0].answer: found NaN; JSON has no such number; give a number or text",
    ),
    "summary of no session": (
        put((0, "session_summary", "session_9_summary"), "x"),
        "sample one: session_summary.session_9_summary: found 'x'; the keys here are session_N_summary, N a session",
    ),
    "observation of a stranger": (
        put((0, "observation", "session_1_observation", "Cy"), []),
        "sample one: observation.session_1_observation.Cy: found an empty list; the keys here are 'Ann', 'Bob'",
    ),
    "observation without evidence": (
        put((0, "observation", "session_1_observation", "Ann", 0), ["Ann bought a kite."]),
        "sample one: observation.session_1_observation.Ann[0][1]: found nothing; add it",
    ),
    "observation evidence a number": (
        put((0, "observation", "session_1_observation", "Ann", 0, 1), 11),
        "sample one: observation.session_1_observation.Ann[0][1]: found the number 11; give text or a list of texts",
    ),
    "events of a stranger": (
        put((0, "event_summary", "events_session_1", "Cy"), []),
        "sample one: event_summary.events_session_1.Cy: found an empty list; the keys here are 'Ann', 'Bob', 'date'",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_samples_that_break_the_schema(case, tree, write):
    change, message = CHANGES[case]
    change(tree)
    assert refusal(write(tree)) == message


def test_repeated_key_is_refused_with_its_place(tree, write):
    text = json.dumps(tree).replace('"answer": "a red kite"', '"answer": "a red kite", "answer": "a blue kite"', 1)
    assert refusal(write(text)) == (
        "sample one: qa[0].answer: found the key a second time; keep one: which of the two is meant is unclear"
    )


def test_number_too_large_for_a_float_is_refused(tree, write):
    text = json.dumps(tree).replace('"answer": "Rex"', '"answer": 1e999')
    assert refusal(write(text)) == "sample two: qa[0].answer: found the number 1e999; it is too large; correct it"


def test_odd_keys_and_long_values_stay_on_one_line(tree, write):
    tree[0]["qa"][0]["bad\nkey\x1b"] = "\n" * 3 + "x" * 200
    assert refusal(write(tree)) == (
        "sample one: qa[0].'bad\\nkey\\x1b': found '\\n\\n\\n" + "x" * 57 + "'...; this key is not of the schema: "
        "remove it or correct its name"
    )


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(DataError, match=rf"^dataset\.path={re.escape(str(tmp_path))}: no such file; "):
        load_dataset(DatasetSpec(name="locomo10", path=str(tmp_path)))
