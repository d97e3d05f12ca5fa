"""Finding and loading a data set: the one function a run calls, and the sizes a plan is made from."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from harness.errors import DataError
from harness.locomo.build import build_samples
from harness.locomo.fingerprint import fingerprint
from harness.locomo.repairs import mend_golds
from harness.locomo.schema import Dataset, Fingerprint, Sample
from harness.locomo.slices import audit_verdicts, take
from harness.locomo.strict import read_json
from harness.memory import DataShape
from harness.spec import DatasetSpec

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_FILE = Path(__file__).with_name("sample.json")
LOCOMO10_FILE = ROOT / "data" / "locomo10.json"
"""Where `make data` puts the file. It is CC BY-NC 4.0 and never part of the repository."""


def find_file(spec: DatasetSpec) -> Path:
    """The file a spec means: dataset.path, else the shipped sample, else LOCOMO_PATH, else what `make data` fetched.

    Raises DataError, in one line that says what to do, when it is not there.
    """
    if spec.path is not None:
        return _existing(spec.path, "dataset.path")
    if spec.name == "sample":
        return SAMPLE_FILE
    if named := os.environ.get("LOCOMO_PATH"):
        return _existing(named, "LOCOMO_PATH")
    if not LOCOMO10_FILE.is_file():
        raise DataError(
            "LoCoMo-10 is not here: run `make data` to fetch it, or name a copy with dataset.path=FILE "
            "or the environment variable LOCOMO_PATH"
        )
    return LOCOMO10_FILE


def _existing(name: str, source: str) -> Path:
    file = Path(name).expanduser()
    if not file.is_file():
        raise DataError(f"{source}={name}: no such file; name a LoCoMo file, or run `make data` to fetch LoCoMo-10")
    return file


def load_file(file: Path) -> tuple[tuple[Sample, ...], Fingerprint]:
    """All samples of a file, validated and repaired, and its fingerprint. Raises DataError."""
    tree, file_sha256 = read_json(file)
    samples, repairs = build_samples(tree, file)
    return samples, fingerprint(tree, file_sha256, samples, repairs)


def load_dataset(spec: DatasetSpec) -> Dataset:
    """Find, validate, repair and slice the data of a run.

    The fingerprint is of the whole file; notices say what of it a run leaves out. Raises DataError for a file that
    is missing or wrong, ConfigError for a slice that is.
    """
    file = find_file(spec)
    samples, whole = load_file(file)
    notices = []
    if whole.is_locomo10:
        name = "locomo10"
    elif spec.path is None and spec.name == "sample":
        name = "sample"
    else:
        name = file.stem
        made = ", ".join(f"{rule} {count}" for rule, count in whole.repairs.items())
        notices.append(
            f"{file.name} is not LoCoMo-10 (content sha256 {whole.content_sha256[:12]}): published figures do not apply to "
            f"it. Repairs made: {made or 'none'}."
        )
    if spec.gold == "repaired":
        samples, mended = mend_golds(samples)
        whole = replace(whole, repairs={**whole.repairs, "gold_repaired": mended})
        notices.append(
            f"Gold repaired: {mended} damaged answers of the whole file mended."
            if mended
            else "dataset.gold=repaired changes nothing: this file holds none of LoCoMo-10's damaged answers."
        )
    samples, left_out = take(samples, spec, audit_verdicts() if whole.is_locomo10 else None)
    return Dataset(name, samples, whole, (*notices, *left_out))


def shape(dataset: Dataset) -> DataShape:
    """Sizes of what a run will replay and ask. Words are of the turns' full text, captions included."""
    conversations = [sample.conversation for sample in dataset.samples]
    return DataShape(
        conversations=len(conversations),
        sessions=sum(len(conversation.sessions) for conversation in conversations),
        turns=sum(len(conversation.turns) for conversation in conversations),
        words=sum(len(turn.full_text.split()) for conversation in conversations for turn in conversation.turns),
        questions=dataset.n_questions,
        turn_words=tuple(
            tuple(len(turn.full_text.split()) for turn in session.turns)
            for conversation in conversations
            for session in conversation.sessions
        ),
    )
