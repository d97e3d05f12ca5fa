"""Answer metrics. Each takes the prediction and the gold as text and returns a fraction in [0, 1].

Both F1s are needed because they differ on the same replies by as much as systems do: a figure names its scorer.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from functools import cache, lru_cache
from typing import Any

REFUSALS = ("no information available", "not mentioned")
"""What LoCoMo's own code takes for an abstention."""

_AMEM_SPACES = str.maketrans(".,!?", "    ")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the|and)\b")


def f1_amem(prediction: str, gold: str) -> float:
    """F1 over sets of lower-cased tokens, `. , ! ?` taken as spaces (A-MEM's scorer, arXiv:2502.12110).

    An empty side or no overlap is 0. In category 5 A-MEM's gold is the trap: 1 means that the trap was sprung.
    """
    predicted, wanted = (set(text.lower().translate(_AMEM_SPACES).split()) for text in (prediction, gold))
    return _f1(len(predicted & wanted), len(predicted), len(wanted))


def f1_locomo(prediction: str, gold: str, category: int) -> float:
    """LoCoMo's own score of one question (arXiv:2402.17753, evaluation.py): F1 over multisets of Porter stems.

    Category 1 splits both sides at commas and takes the mean over the gold's parts of the best part's F1.
    Category 3 scores against the gold up to its first ";". Category 5 ignores the gold: it is `abstained`.
    """
    if category == 5:
        return abstained(prediction)
    if category == 1:
        parts = prediction.split(",")
        best = [max(_stemmed_f1(part, wanted) for part in parts) for wanted in gold.split(",")]
        return sum(best) / len(best)
    return _stemmed_f1(prediction, gold.split(";")[0] if category == 3 else gold)


def bleu1(prediction: str, gold: str) -> float:
    """Clipped unigram precision times the brevity penalty, over NLTK's word tokens of the lower-cased texts.

    The tokenizer is the one that needs no data files. No shared token is 0 (NLTK's smoothing does not touch an
    empty unigram match).
    """
    predicted, wanted = _words(prediction), _words(gold)
    matches = sum((Counter(predicted) & Counter(wanted)).values())
    if matches == 0:
        return 0.0
    brevity = min(1.0, math.exp(1 - len(wanted) / len(predicted)))
    return brevity * matches / len(predicted)


def abstained(prediction: str) -> float:
    """1 if the lower-cased reply contains "no information available" or "not mentioned", else 0.

    The test of f1_locomo's category 5, for replies of every category: in 1 to 4 it counts answers refused.
    """
    lowered = prediction.lower()
    return float(any(phrase in lowered for phrase in REFUSALS))


def _f1(overlap: int, predicted: int, wanted: int) -> float:
    if overlap == 0:
        return 0.0
    precision, recall = overlap / predicted, overlap / wanted
    return 2 * precision * recall / (precision + recall)


def _stemmed_f1(prediction: str, gold: str) -> float:
    predicted, wanted = _stems(prediction), _stems(gold)
    return _f1(sum((predicted & wanted).values()), predicted.total(), wanted.total())


@lru_cache(maxsize=65536)
def _stems(text: str) -> Counter[str]:
    bare = text.lower().translate(_NO_PUNCTUATION)
    return Counter(_stem(word) for word in _ARTICLES.sub(" ", bare).split())


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    return _stemmer().stem(word)


@cache
def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


@cache
def _tokenizer() -> Any:
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer()


def _words(text: str) -> list[str]:
    return _tokenizer().tokenize(text.lower())
