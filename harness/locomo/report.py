"""Every irregularity of a LoCoMo file, with its place: what was mended, and what was left as it is.

For a reader who wants to know what the data are like; loading needs none of it. A report quotes the data set, so
one on LoCoMo-10 is never committed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.locomo.build import build_samples
from harness.locomo.fingerprint import fingerprint
from harness.locomo.repairs import mend_answer, mend_gold, resolve_evidence
from harness.locomo.schema import CATEGORIES, Question, Sample
from harness.locomo.slices import audit_verdicts
from harness.locomo.strict import read_json

_DATE_KEY = re.compile(r"session_(\d+)_date_time")
_DATE = re.compile(r"\d{1,2}:\d{2} (am|pm) on \d{1,2} [A-Z][a-z]+, \d{4}")
_OPTIONAL = ("blip_caption", "img_url", "query", "re-download")
_WORD = re.compile(r"[^\W\d_]+(?:'s)*")


def report(path: str | Path) -> dict[str, Any]:
    """Counts and places of everything irregular in a file that loads.

    Places of turns are "<sample_id>/<dia_id>"; places of questions are {"sample_id", "qa"}, qa counted from 0.
    Raises DataError for a file that does not load.
    """
    tree, file_sha256 = read_json(Path(path))
    samples, repairs = build_samples(tree, Path(path))
    whole = fingerprint(tree, file_sha256, samples, repairs)
    per_conversation = [_counts(raw, sample) for raw, sample in zip(tree, samples, strict=True)]
    return {
        "file_sha256": file_sha256,
        "content_sha256": whole.content_sha256,
        "is_locomo10": whole.is_locomo10,
        "bytes": Path(path).stat().st_size,
        "repairs": repairs,
        "per_conversation": per_conversation,
        "totals": {
            key: sum(row[key] for row in per_conversation)
            for key, value in per_conversation[0].items()
            if isinstance(value, int)
        },
        **_conversation_findings(tree),
        **_turn_findings(tree),
        **_question_findings(samples),
        **_evidence_findings(samples),
        "observation_irregularities": [
            row for raw, sample in zip(tree, samples, strict=True) for row in _observed(raw, sample)
        ],
    }


def _sessions(raw: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    return ((key, value) for key, value in raw["conversation"].items() if isinstance(value, list))


def _turns(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (turn for _, turns in _sessions(raw) for turn in turns)


def _dates(raw: dict[str, Any]) -> dict[str, str]:
    return {key: value for key, value in raw["conversation"].items() if _DATE_KEY.fullmatch(key)}


def _counts(raw: dict[str, Any], sample: Sample) -> dict[str, Any]:
    turns = list(_turns(raw))
    by_category = Counter(question.category for question in sample.questions)
    return {
        "sample_id": sample.sample_id,
        "speaker_a": sample.conversation.speaker_a,
        "speaker_b": sample.conversation.speaker_b,
        "sessions": len(sample.conversation.sessions),
        "date_time_keys": len(_dates(raw)),
        "turns": len(turns),
        "text_words": sum(len(turn["text"].split()) for turn in turns),
        "text_chars": sum(len(turn["text"]) for turn in turns),
        "caption_words": sum(len(turn.get("blip_caption", "").split()) for turn in turns),
        **{key.replace("-", "_"): sum(key in turn for turn in turns) for key in _OPTIONAL},
        "qa": len(sample.questions),
        **{f"cat{category}": by_category[category] for category in CATEGORIES},
    }


def _conversation_findings(tree: list[dict[str, Any]]) -> dict[str, Any]:
    dates = [(raw["sample_id"], key, value) for raw in tree for key, value in _dates(raw).items()]
    orphans = [
        {"sample_id": raw["sample_id"], "key": key, "value": value}
        for raw in tree
        for key, value in _dates(raw).items()
        if key.removesuffix("_date_time") not in raw["conversation"]
    ]
    return {
        "date_time_without_session": orphans,
        "date_time_format": {
            "matching": sum(_DATE.fullmatch(value) is not None for _, _, value in dates),
            "non_matching": sum(_DATE.fullmatch(value) is None for _, _, value in dates),
        },
    }


def _turn_findings(tree: list[dict[str, Any]]) -> dict[str, Any]:
    turns = [(f"{raw['sample_id']}/{turn['dia_id']}", turn) for raw in tree for turn in _turns(raw)]

    def where(test: Callable[[dict[str, Any]], object]) -> list[str]:
        return [place for place, turn in turns if test(turn)]

    keys = Counter(tuple(key for key in _OPTIONAL if key in turn) for _, turn in turns)
    characters = Counter(char for _, turn in turns for char in turn["text"] if not char.isascii())
    by_length = sorted(((len(turn["text"]), place, turn["text"]) for place, turn in turns), key=lambda row: row[0])
    return {
        "adjacent_turns_same_speaker": [
            f"{raw['sample_id']}/{second['dia_id']}"
            for raw in tree
            for _, session in _sessions(raw)
            for first, second in pairwise(session)
            if first["speaker"] == second["speaker"]
        ],
        "img_url_list_length": dict(Counter(len(turn["img_url"]) for _, turn in turns if "img_url" in turn)),
        "turn_optional_key_combinations": [
            {"keys": list(names), "count": count} for names, count in keys.most_common()
        ],
        "img_url_without_query": where(lambda turn: "img_url" in turn and "query" not in turn),
        "blip_caption_without_img_url": where(lambda turn: "blip_caption" in turn and "img_url" not in turn),
        "turn_text_leading_or_trailing_whitespace": where(lambda turn: turn["text"] != turn["text"].strip()),
        "turn_text_control_chars": where(lambda turn: re.search(r"[\x00-\x1f\x7f]", turn["text"])),
        "turn_text_backtick": where(lambda turn: "`" in turn["text"]),
        "turn_text_placeholders": where(lambda turn: re.search(r"\[[^\]]*\]", turn["text"])),
        "turn_text_max": {"chars": by_length[-1][0], "where": by_length[-1][1]},
        "turn_text_shortest": [list(row) for row in by_length[:5]],
        "turn_text_non_ascii": {f"U+{ord(char):04X}": count for char, count in characters.most_common()},
        "turn_text_emoji": where(lambda turn: any(ord(char) >= 0x1F000 for char in turn["text"])),
    }


def _place(question: Question, **more: Any) -> dict[str, Any]:
    return {"sample_id": question.sample_id, "qa": question.qa_index, "category": question.category, **more}


def _question_findings(samples: Sequence[Sample]) -> dict[str, Any]:
    questions = [question for sample in samples for question in sample.questions]
    fields = [
        (question, field, value)
        for question in questions
        for field, value in (
            ("question", question.question),
            ("answer", question.answer_raw),
            ("adversarial_answer", question.adversarial_answer_raw),
        )
        if isinstance(value, str)
    ]
    golds = [(q, mended.answer) for q in questions if (mended := mend_gold(q)) is not q]
    adversarial = [question for question in questions if question.category == 5]
    return {
        "non_string_answers": [
            _place(q, answer=q.answer_raw, repair=q.answer) for q in questions if isinstance(q.answer_raw, int)
        ],
        "category5_with_both_answer_and_adversarial_answer": [
            _place(q, answer=q.answer, adversarial_answer=q.adversarial_answer)
            for q in adversarial
            if q.answer is not None
        ],
        "category5_without_answer": sum(q.answer is None for q in adversarial),
        "category5_trap_not_mentioned": [
            _place(q) for q in adversarial if "not mentioned" in (q.adversarial_answer or "").lower()
        ],
        "category5_answerable": [
            _place(q) for q in adversarial if audit_verdicts().get((q.sample_id, q.qa_index)) == "answerable"
        ],
        "duplicate_questions": [row for sample in samples for row in _duplicates(sample)],
        "wrong_or_misspelt_names_in_questions": [
            _place(q, words=words)
            for sample in samples
            for q in sample.questions
            if (words := _odd_names(q.question, (sample.conversation.speaker_a, sample.conversation.speaker_b)))
        ],
        "qa_whitespace": [
            _place(q, field=field, value=value)
            for q, field, value in fields
            if value != value.strip() or re.search(r"\s\s", value)
        ],
        "qa_zero_width": [
            _place(q, field=field) for q, field, value in fields if mend_answer(value, Counter()) != value
        ],
        "qa_non_ascii": [_place(q, field=field) for q, field, value in fields if not value.isascii()],
        "damaged_golds": [_place(q, answer=q.answer_raw, repair=mended) for q, mended in golds],
        "gold_semicolons": [_place(q, answer=q.answer) for q in questions if q.answer and ";" in q.answer],
    }


def _duplicates(sample: Sample) -> Iterator[dict[str, Any]]:
    groups: dict[str, list[Question]] = {}
    for question in sample.questions:
        groups.setdefault(question.question.strip().lower(), []).append(question)
    for group in groups.values():
        if len(group) > 1:
            yield {
                "sample_id": sample.sample_id,
                "qa": [question.qa_index for question in group],
                "categories": [question.category for question in group],
                "question": group[0].question,
                "answers": [question.reference for question in group],
            }


def _odd_names(text: str, names: tuple[str, str]) -> list[str]:
    """Capitalised words near a speaker's name without being it: one letter off, or a short form of three or more."""
    return [
        word
        for word in _WORD.findall(text)
        if word[0].isupper()
        and (base := re.sub(r"('s)+$", "", word)) not in names
        and any(_near(base, name) for name in names)
    ]


def _near(word: str, name: str) -> bool:
    if word == name or word[0] != name[0]:
        return False
    if len(word) >= 3 and name.startswith(word):
        return True
    shorter, longer = sorted((word, name), key=len)
    if len(longer) - len(shorter) > 1 or len(shorter) < 3:
        return False
    same = next((i for i, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(shorter))
    return shorter[same + (len(shorter) == len(longer)) :] == longer[same + 1 :]


def _evidence_findings(samples: Sequence[Sample]) -> dict[str, Any]:
    irregular, repeated, empty, other_speaker = [], [], [], []
    for sample in samples:
        speakers = {turn.dia_id: turn.speaker for turn in sample.conversation.turns}
        names = (sample.conversation.speaker_a, sample.conversation.speaker_b)
        for question in sample.questions:
            made: Counter[str] = Counter()
            resolve_evidence(question.evidence_raw, speakers, made)
            row = _place(question, raw_list=list(question.evidence_raw), repaired_list=list(question.evidence))
            if made.pop("evidence_repeated", 0):
                repeated.append(row)
            if made:
                irregular.append({**row, "rules": dict(made)})
            if not question.evidence_raw:
                empty.append(row)
            named = [name for name in names if re.search(rf"\b{re.escape(name)}\b", question.question)]
            by = {speakers[dia_id] for dia_id in question.evidence}
            if question.category != 5 and by and len(named) == 1 and named[0] not in by:
                other_speaker.append(_place(question, evidence=list(question.evidence), evidence_speakers=sorted(by)))
    questions = [question for sample in samples for question in sample.questions]
    return {
        "evidence_malformed_or_dangling": irregular,
        "evidence_duplicated_within_list": repeated,
        "evidence_empty": empty,
        "evidence_strings": sum(len(question.evidence_raw) for question in questions),
        "evidence_ids": sum(len(question.evidence) for question in questions),
        "non_adversarial_question_names_one_speaker_but_all_evidence_is_by_the_other": other_speaker,
    }


def _observed(raw: dict[str, Any], sample: Sample) -> Iterator[dict[str, Any]]:
    known = {turn.dia_id for turn in sample.conversation.turns}
    for key, by_speaker in raw.get("observation", {}).items():
        for speaker, entries in by_speaker.items():
            place = {"sample_id": sample.sample_id, "key": key, "speaker": speaker}
            if not entries:
                yield {**place, "issue": "empty list"}
            for index, (_, value) in enumerate(entries):
                made: Counter[str] = Counter()
                ids = resolve_evidence(value if isinstance(value, list) else [value], known, made)
                if made or isinstance(value, list):
                    yield {**place, "index": index, "value": value, "repaired": list(ids)}
