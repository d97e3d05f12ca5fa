"""Which data a run used: a hash of the file, a hash of its content, and counts."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.locomo.schema import CATEGORIES, Fingerprint, Sample

LOCOMO10_FILE_SHA256 = "79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4"
"""data/locomo10.json of snap-research/locomo at commit 3eb6f2c, byte for byte."""
LOCOMO10_CONTENT_SHA256 = "2a3e6d2b16dfda22767a532d8f7d6f386ef23b1acdc8045a2bff4507af87e0a0"
"""`content_sha256` of the same: any re-serialisation of it has this hash."""


def content_sha256(tree: Any) -> str:
    """sha256 (hex) of the canonical JSON: keys sorted, no spaces, ASCII. The order of lists counts."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def fingerprint(tree: Any, file_sha256: str, samples: Sequence[Sample], repairs: Mapping[str, int]) -> Fingerprint:
    """The fingerprint of a whole file, before slices and subsets."""
    content = content_sha256(tree)
    by_category = Counter(question.category for sample in samples for question in sample.questions)
    return Fingerprint(
        file_sha256=file_sha256,
        content_sha256=content,
        is_locomo10=content == LOCOMO10_CONTENT_SHA256,
        samples=len(samples),
        sessions=sum(len(sample.conversation.sessions) for sample in samples),
        turns=sum(len(sample.conversation.turns) for sample in samples),
        questions=sum(len(sample.questions) for sample in samples),
        by_category={category: by_category[category] for category in CATEGORIES},
        repairs=dict(repairs),
    )
