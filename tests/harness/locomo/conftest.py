"""A small data set in LoCoMo's schema, fresh for every test, and a way to write it to a file."""

import json
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def turn(dia_id, speaker, text, **more):
    return {"dia_id": dia_id, "speaker": speaker, "text": text, **more}


def ask(category, question, evidence, answer=None, trap=None):
    row = {"question": question, "evidence": evidence, "category": category}
    if answer is not None:
        row["answer"] = answer
    if trap is not None:
        row["adversarial_answer"] = trap
    return row


@pytest.fixture
def tree():
    """Two samples: "one" has 3 sessions of 3, 2 and 1 turns and 7 questions, "two" 1 session of 2 turns and 2 questions."""
    one = {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            turn("D1:1", "Ann", "I bought a red kite."),
            turn("D1:2", "Bob", "Nice!", blip_caption="a kite over a beach"),
            turn(
                "D1:3",
                "Ann",
                "Let us fly it.",
                img_url=["http://x.example/1.jpg"],
                query="kite",
                **{"re-download": True},
            ),
        ],
        "session_2_date_time": "12:05 am on 9 May, 2023",
        "session_2": [turn("D2:1", "Bob", "I moved to Rome."), turn("D2:2", "Ann", "The kite is torn.")],
        "session_3_date_time": "9:00 am on 1 June, 2023",
        "session_3": [turn("D3:1", "Ann", "I mended it.")],
    }
    two = {
        "speaker_a": "Cy",
        "speaker_b": "Di",
        "session_1_date_time": "8:00 am on 2 January, 2022",
        "session_1": [turn("D1:1", "Cy", "My dog is Rex."), turn("D1:2", "Di", "Mine is Max.")],
    }
    return [
        {
            "sample_id": "one",
            "conversation": one,
            "qa": [
                ask(4, "What did Ann buy?", ["D1:1"], "a red kite"),
                ask(2, "When did Bob move?", ["D2:1"], "8 May 2023"),
                ask(1, "What became of the kite?", ["D1:1", "D2:2"], "bought, torn"),
                ask(5, "What did Bob buy?", ["D1:1"], trap="a red kite"),
                ask(3, "Does Ann like wind?", [], "Likely yes"),
                ask(4, "What did Ann mend?", ["D3:1"], "the kite"),
                ask(4, "What will they do?", ["D1:3"], "fly it"),
            ],
            "event_summary": {"events_session_1": {"Ann": ["Ann buys a kite."], "Bob": [], "date": "8 May, 2023"}},
            "observation": {
                "session_1_observation": {
                    "Ann": [["Ann bought a kite.", "D1:1"], ["Ann wants to fly it.", "D1:3"]],
                    "Bob": [["Bob likes it.", "D1:2"]],
                },
                "session_2_observation": {"Ann": [], "Bob": [["Bob moved.", "D2:1"]]},
            },
            "session_summary": {"session_1_summary": "A kite is bought.", "session_2_summary": "Bob moved."},
        },
        {
            "sample_id": "two",
            "conversation": two,
            "qa": [
                ask(4, "What is Cy's dog called?", ["D1:1"], "Rex"),
                ask(5, "What is Di's cat called?", ["D1:2"], trap="Max"),
            ],
        },
    ]


@pytest.fixture
def write(tmp_path):
    """Write a tree (as JSON), text or bytes to a file and return its path."""

    def save(content, name="data.json"):
        file = tmp_path / name
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return file

    return save


@pytest.fixture(scope="session")
def locomo():
    """The real LoCoMo-10, where a copy is found."""
    named = os.environ.get("LOCOMO_PATH")
    for file in (
        *([Path(named)] if named else []),
        ROOT / "data" / "locomo10.json",
        ROOT.parent / "shared" / "data" / "locomo10.json",
    ):
        if file.is_file():
            return file
    pytest.skip("LoCoMo-10 is not here (make data, or LOCOMO_PATH)")


@pytest.fixture(scope="session")
def anomalies(locomo):
    """The list of LoCoMo's irregularities, where a copy is found. It quotes the data set, so it is not committed."""
    for folder in (locomo.parent, ROOT.parent / "shared" / "data"):
        if (folder / "anomalies.json").is_file():
            return json.loads((folder / "anomalies.json").read_text(encoding="utf-8"))
    pytest.skip("anomalies.json is not beside LoCoMo-10")
