"""Scoring by embeddings, calibrated on labelled pairs with the real encoder."""

import asyncio
import json
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from memfly_fakes import turn

from harness.embed import build_embedder
from harness.errors import DataError
from harness.llm.words import names_and_words
from harness.spec import EmbedderSpec, validate
from memfly.candidates import keyword_overlap
from memfly.config import MemFlyConfig
from memfly.hierarchy import Hierarchy
from memfly.keywords import note_keywords
from memfly.note import Draft
from memfly.scoring import embedding_scores

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    """label -> scores of its pairs; every text is a note of one memory, which the idf is taken from."""
    values = yaml.safe_load((HERE.parents[1] / "conf/embedder/minilm.yaml").read_text())
    try:
        embedder = build_embedder(validate(EmbedderSpec, values, "embedder"), tmp_path_factory.mktemp("vectors"))
    except DataError as error:
        pytest.skip(str(error))
    pairs = json.loads((HERE / "pairs.json").read_text(encoding="utf-8"))

    async def encode():
        drafts = []
        for place, text in enumerate([text for pair in pairs for text in (pair["a"], pair["b"])], start=1):
            words = names_and_words(text)
            keywords = note_keywords(words[1:], words[0])
            vectors = await embedder.encode([text, *keywords])
            drafts.append(Draft(turn(f"D1:{place}", text), text, keywords, vectors[0], vectors[1:]))
        await embedder.aclose()
        return drafts

    drafts = asyncio.run(encode())
    hierarchy = Hierarchy(embedder.dim)
    notes = [hierarchy.add(draft) for draft in drafts]
    found = defaultdict(list)
    for pair, new, old in zip(pairs, drafts[1::2], notes[::2], strict=True):
        cosine = float(new.vector @ old.vector)
        found[pair["label"]].append(embedding_scores(cosine, keyword_overlap(hierarchy, new, old), MemFlyConfig()))
    return found


def share(scores, test):
    return sum(map(test, scores)) / len(scores)


def test_redundant_pairs_mostly_merge_and_hardly_any_other_does(scores):
    def merges(s):
        return s.s_red > MemFlyConfig().tau_merge

    assert share(scores["redundant"], merges) >= 2 / 3
    assert share(scores["related"], merges) <= 1 / 16  # an updated fact in nearly the same words
    assert share(scores["unrelated"], merges) == 0


def test_links_go_mostly_to_related_pairs(scores):
    def links(s):
        return s.s_comp > MemFlyConfig().tau_link

    counts = {label: sum(map(links, found)) for label, found in scores.items()}
    assert counts["related"] >= 8
    assert counts["related"] > counts["unrelated"] + counts["redundant"]


def test_scores_rank_the_labels(scores):
    def mean(label, name):
        return sum(getattr(s, name) for s in scores[label]) / len(scores[label])

    assert mean("redundant", "s_red") > mean("related", "s_red") + 0.4
    assert mean("related", "s_red") > mean("unrelated", "s_red")
    assert mean("related", "s_comp") > 1.5 * mean("unrelated", "s_comp")
    assert mean("related", "s_comp") > 1.5 * mean("redundant", "s_comp")
