"""English words and sentences for the scripted stand-in: no data to download, no model.

The list of function words is our own: articles, pronouns, prepositions, conjunctions, auxiliaries, question words,
and the interjections of chat. It decides what a content word is, nothing else.
"""

from __future__ import annotations

import re
from functools import lru_cache

_LIST = """
a an the this that these those some any each every either neither both all another other others such same own
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves one ones someone somebody something anyone anybody anything
everyone everybody everything nobody nothing none
of in on at by for with without within about against between among into onto through during before after above
below to from up down out off over under again further near since until till toward towards upon across along
around behind beside besides beyond despite except inside outside past per than via like as
and or but nor so yet if because although though while whereas unless whether then else
am is are was were be been being do does did doing done have has had having will would shall should can could may
might must ought need let lets get gets got getting gotten
what which who whom whose when where why how
not no only just also too very really quite rather almost even still already ever never always often sometimes
here there now today once twice more most much many few less least lot lots bit enough several
yes yeah yep nope okay ok oh ah wow hey hi hello bye goodbye please thanks thank sorry well sure maybe perhaps
haha lol hmm gonna wanna gotta
"""
FUNCTION_WORDS = frozenset(_LIST.split())

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SENTENCE_END = re.compile(r"(?<!\bMr\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bMrs\.)(?<=[.!?])[\"'”’)\]]*\s+|\s*\n\s*")
_IMAGE = re.compile(r"\[image:\s*([^\]]*)\]")
_MIN_LETTERS = 3


def _base(word: str) -> str:
    """The word without a possessive or contracted ending: Caroline's -> Caroline, don't -> don."""
    return word if word.isalnum() else word.partition("'")[0].partition("’")[0]


def is_function(word: str) -> bool:
    """A function word or a contraction of one. "May" with a capital is the month."""
    return (_base(word).casefold() in FUNCTION_WORDS and word != "May") or word.replace("’", "'").endswith("n't")


def _is_content(word: str) -> bool:
    return len(_base(word)) >= _MIN_LETTERS and not is_function(word)


def words(text: str) -> list[str]:
    """The words of a text in order, as written; a caption `[image: ...]` gives its words."""
    return _WORD.findall(_IMAGE.sub(r" \1 ", text))


@lru_cache(maxsize=16384)
def content_list(text: str) -> tuple[str, ...]:
    """Content words (no function word, at least 3 letters or digits), case-folded, first occurrences in order."""
    return tuple(dict.fromkeys(_base(word).casefold() for word in words(text) if _is_content(word)))


@lru_cache(maxsize=16384)
def content_set(text: str) -> frozenset[str]:
    """The content words of a text as a set."""
    return frozenset(content_list(text))


@lru_cache(maxsize=16384)
def sentences(text: str) -> tuple[str, ...]:
    """Sentences and lines of a text, stripped, empty ones left out."""
    return tuple(part.strip() for part in _SENTENCE_END.split(text) if part and part.strip())


@lru_cache(maxsize=16384)
def names_and_words(text: str) -> tuple[str, ...]:
    """Runs of capitalised words first (function words at their ends cut off, question words with them), then the
    content words no run covers; original order and spelling, case-insensitively distinct."""
    text = _IMAGE.sub(r". \1. ", text)
    runs: list[list[str]] = []
    plain: list[str] = []
    end = -1
    for match in _WORD.finditer(text):
        word = match.group()
        plain.append(word)
        if word[0].isupper():
            if runs and end >= 0 and text[end : match.start()] == " ":
                runs[-1].append(_base(word))
            else:
                runs.append([_base(word)])
            end = match.end() if _base(word) == word else -1
        else:
            end = -1
    found: dict[str, str] = {}
    covered: set[str] = set()
    for run in runs:
        while run and is_function(run[0]):
            run.pop(0)
        while run and is_function(run[-1]):
            run.pop()
        if run and (len(run) > 1 or len(run[0]) > 1):
            found.setdefault(" ".join(run).casefold(), " ".join(run))
            covered.update(part.casefold() for part in run)
    for word in plain:
        base = _base(word)
        if _is_content(word) and base.casefold() not in covered:
            found.setdefault(base.casefold(), base)
    return tuple(found.values())
