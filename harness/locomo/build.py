"""From parsed JSON to validated, repaired samples: the rules that need more than one value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.locomo.models import SAMPLE, SAMPLES, TEXT, TURNS, RawQuestion, RawSample, RawTurn
from harness.locomo.repairs import mend_answer, resolve_evidence
from harness.locomo.schema import DATE_FORMAT, Conversation, Observation, Question, Sample, Session, Turn
from harness.locomo.strict import Place, describe, join, name_sample

_SESSION_KEY = re.compile(r"session_([1-9]\d{0,8})(_date_time)?", re.ASCII)
_DATE_EXAMPLE = "'1:56 pm on 8 May, 2023'"


def build_samples(tree: Any, file: Path) -> tuple[tuple[Sample, ...], dict[str, int]]:
    """Validate and repair a parsed file.

    Returns the samples in the file's order and the number of times each repair rule was used (only those used;
    names in repairs.py). Raises DataError for the first thing that is wrong.
    """
    repairs: Counter[str] = Counter()
    samples: dict[str, Sample] = {}
    for position, values in enumerate(Place(file).validate(SAMPLES, tree, "")):
        place = Place(file, name_sample(values, position))
        raw = place.validate(SAMPLE, values, "")
        if raw.sample_id in samples:
            raise place.error("sample_id", f"{raw.sample_id!r} a second time", "give every sample its own id")
        samples[raw.sample_id] = _sample(raw, place, repairs)
    return tuple(samples.values()), {name: count for name, count in sorted(repairs.items()) if count}


def _sample(raw: RawSample, place: Place, repairs: Counter[str]) -> Sample:
    speakers = _speakers(raw.conversation, place)
    turns, dates = _numbered(raw.conversation, place)
    repairs["date_without_session"] += len(dates.keys() - turns.keys())
    times = _times(turns, dates, place)
    for number, entries in turns.items():
        _check_turns(number, entries, speakers, place)
    known = frozenset(turn.dia_id for entries in turns.values() for turn in entries)
    summaries = {
        number: text for number, _, text in _by_session(raw, "session_summary", "session_{}_summary", turns, place)
    }
    observations = _observations(raw, turns, speakers, known, place, repairs)
    for _, key, events in _by_session(raw, "event_summary", "events_session_{}", turns, place):
        _check_speakers(events, {*speakers, "date"}, join("event_summary", key), place)
    sessions = tuple(
        Session(
            number=number,
            date_time=times[number],
            date_raw=dates[number],
            turns=tuple(
                Turn(
                    dia_id=turn.dia_id,
                    session=number,
                    speaker=turn.speaker,
                    text=turn.text,
                    caption=turn.blip_caption,
                    date_time=times[number],
                )
                for turn in entries
            ),
            summary=summaries.get(number),
            observations=observations.get(number, ()),
        )
        for number, entries in turns.items()
    )
    return Sample(
        conversation=Conversation(raw.sample_id, *speakers, sessions),
        questions=tuple(
            _question(raw.sample_id, index, question, known, place, repairs) for index, question in enumerate(raw.qa)
        ),
    )


def _speakers(conversation: Mapping[str, Any], place: Place) -> tuple[str, str]:
    names = []
    for key in ("speaker_a", "speaker_b"):
        path = join("conversation", key)
        if key not in conversation:
            raise place.error(path, "nothing", "add it")
        names.append(place.validate(TEXT, conversation[key], path))
    if names[0] == names[1]:
        raise place.error("conversation.speaker_b", f"{names[1]!r}, as speaker_a", "give two different names")
    return names[0], names[1]


def _numbered(conversation: Mapping[str, Any], place: Place) -> tuple[dict[int, list[RawTurn]], dict[int, str]]:
    """Turns and date strings by session number, in the order of the numbers (session_10 comes after session_2)."""
    turns: dict[int, list[RawTurn]] = {}
    dates: dict[int, str] = {}
    for key, value in conversation.items():
        if key in ("speaker_a", "speaker_b"):
            continue
        path = join("conversation", key)
        match = _SESSION_KEY.fullmatch(key)
        if match is None:
            raise place.error(
                path, describe(value), "the keys here are speaker_a, speaker_b, session_N, session_N_date_time"
            )
        number = int(match[1])
        if match[2]:
            dates[number] = place.validate(TEXT, value, path)
        else:
            turns[number] = place.validate(TURNS, value, path)
    for expected, number in enumerate(sorted(turns), start=1):
        if number != expected:
            raise place.error(
                join("conversation", f"session_{expected}"), "nothing", "number the sessions 1, 2, 3, ..."
            )
    if not turns:
        raise place.error("conversation", "no session", "give at least session_1 and session_1_date_time")
    return dict(sorted(turns.items())), dates


def _times(turns: Mapping[int, Any], dates: Mapping[int, str], place: Place) -> dict[int, datetime]:
    times: dict[int, datetime] = {}
    for number in turns:
        path = join("conversation", f"session_{number}_date_time")
        if number not in dates:
            raise place.error(path, "nothing", f"every session needs its date and time, as in {_DATE_EXAMPLE}")
        try:
            times[number] = datetime.strptime(dates[number], DATE_FORMAT)
        except ValueError:
            raise place.error(path, describe(dates[number]), f"give a date and time as in {_DATE_EXAMPLE}") from None
        if number > 1 and times[number] <= times[number - 1]:
            raise place.error(
                path, describe(dates[number]), f"it must be later than session_{number - 1}'s {dates[number - 1]!r}"
            )
    return times


def _check_turns(number: int, turns: Sequence[RawTurn], speakers: tuple[str, str], place: Place) -> None:
    seen: set[str] = set()
    for index, turn in enumerate(turns):
        path = join("conversation", f"session_{number}", index)
        expected = f"D{number}:{index + 1}"
        if turn.dia_id != expected:
            again = " a second time" if turn.dia_id in seen else ""
            raise place.error(
                join(path, "dia_id"), f"{describe(turn.dia_id)}{again}", f"this turn's id is {expected!r}"
            )
        seen.add(turn.dia_id)
        if turn.speaker not in speakers:
            raise place.error(
                join(path, "speaker"), describe(turn.speaker), f"the speakers are {speakers[0]!r} and {speakers[1]!r}"
            )


def _by_session(raw: RawSample, field: str, form: str, turns: Mapping[int, Any], place: Place):
    """(session number, key, value) of a derived object whose keys are numbered by `form`."""
    numbers = {form.format(number): number for number in turns}
    for key, value in getattr(raw, field).items():
        if key not in numbers:
            raise place.error(join(field, key), describe(value), f"the keys here are {form.format('N')}, N a session")
        yield numbers[key], key, value


def _check_speakers(values: Mapping[str, Any], allowed: set[str], path: str, place: Place) -> None:
    for key, value in values.items():
        if key not in allowed:
            names = ", ".join(repr(name) for name in sorted(allowed))
            raise place.error(join(path, key), describe(value), f"the keys here are {names}")


def _observations(
    raw: RawSample,
    turns: Mapping[int, Any],
    speakers: tuple[str, str],
    known: frozenset[str],
    place: Place,
    repairs: Counter[str],
) -> dict[int, tuple[Observation, ...]]:
    by_session: dict[int, tuple[Observation, ...]] = {}
    for number, key, by_speaker in _by_session(raw, "observation", "session_{}_observation", turns, place):
        _check_speakers(by_speaker, set(speakers), join("observation", key), place)
        built = []
        for speaker, entries in by_speaker.items():
            for text, evidence in entries:
                repairs["observation_list"] += isinstance(evidence, list)
                strings = tuple(evidence) if isinstance(evidence, list) else (evidence,)
                ids = resolve_evidence(strings, known, repairs, "observation_")
                built.append(Observation(number, speaker, text, ids, strings))
        by_session[number] = tuple(built)
    return by_session


def _question(
    sample_id: str, index: int, raw: RawQuestion, known: frozenset[str], place: Place, repairs: Counter[str]
) -> Question:
    path = join("qa", index)
    adversarial = raw.category == 5
    if adversarial and raw.adversarial_answer is None:
        raise place.error(join(path, "adversarial_answer"), "nothing", "category 5 needs one")
    if not adversarial and raw.answer is None:
        raise place.error(join(path, "answer"), "nothing", f"category {raw.category} needs one")
    if not adversarial and raw.adversarial_answer is not None:
        raise place.error(
            join(path, "adversarial_answer"), describe(raw.adversarial_answer), "only category 5 has one: remove it"
        )
    mended = {}
    for field in ("answer", "adversarial_answer"):
        value = getattr(raw, field)
        mended[field] = None if value is None else mend_answer(value, repairs)
        if mended[field] is not None and not mended[field].strip():
            raise place.error(join(path, field), "blank text", "give text that is not blank")
    return Question(
        sample_id=sample_id,
        qa_index=index,
        category=raw.category,
        question=raw.question,
        evidence=resolve_evidence(raw.evidence, known, repairs),
        evidence_raw=tuple(raw.evidence),
        answer_raw=raw.answer,
        adversarial_answer_raw=raw.adversarial_answer,
        **mended,
    )
