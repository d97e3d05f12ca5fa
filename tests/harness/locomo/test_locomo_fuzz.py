"""A data file that is damaged in any way is refused in one line, or read as what it is: no other error comes out."""

import copy
import json

import pytest
from fuzz import damaged, damaged_bytes, examples
from hypothesis import given

from harness.errors import DataError
from harness.locomo.loader import SAMPLE_FILE, load_dataset, shape
from harness.spec import DatasetSpec

NUMBERED = ("session_1", "session_1_date_time", "session_2", "session_2_date_time", "speaker_a", "speaker_b")


def small():
    """The first sample: two sessions of three turns, and as many questions of each category as there are."""
    sample = copy.deepcopy(json.loads(SAMPLE_FILE.read_text(encoding="utf-8"))[0])
    talk = sample["conversation"]
    sample["conversation"] = {key: talk[key][:3] if isinstance(talk[key], list) else talk[key] for key in NUMBERED}
    sample["qa"] = [next(q for q in sample["qa"] if q["category"] == category) for category in (1, 2, 3, 4, 5)]
    for name in ("event_summary", "observation", "session_summary"):
        keep = [key for key in sample.get(name, {}) if key.split("_")[1] in "12" or key.endswith(("_1", "_2"))]
        sample[name] = {key: sample[name][key] for key in keep}
    return sample


TREE = [small()]


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    file = tmp_path_factory.mktemp("fuzz") / "data.json"

    def load(content):
        file.write_bytes(content)
        try:
            dataset = load_dataset(DatasetSpec(name="sample", path=str(file), max_turns=4, max_questions=4))
        except DataError as error:
            assert str(error).startswith(f"{file}: ") and len(str(error).splitlines()) == 1
            return None
        assert shape(dataset).turns <= 4 * len(dataset.samples)
        return dataset

    return load


def encoded(tree):
    return json.dumps(tree).encode()


def test_what_is_damaged_here_is_sound_before(read):
    assert read(encoded(TREE)).samples


@examples(200)
@given(tree=damaged(TREE))
def test_any_value_may_be_wrong(read, tree):
    read(encoded(tree))


@examples(200)
@given(content=damaged_bytes(encoded(TREE)))
def test_any_byte_may_be_wrong(read, content):
    read(content)


@pytest.mark.slow
@examples(10_000)
@given(tree=damaged(TREE, most=6))
def test_any_values_may_be_wrong(read, tree):
    read(encoded(tree))
