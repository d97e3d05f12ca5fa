"""The pages of `make bench`: the right figure in the right column."""

from scripts.benches import client, scale, start, tokens, waiting


def lines(page):
    return [line for line in page.splitlines() if line.startswith("| ")]


def test_waiting():
    ingest = {"seconds": 3.0, "calls": 1200, "waited_s": 240.0, "cpu_s": 2.4, "best_s": 2.5, "chain_s": 2.0}
    answer = {"seconds": 0.6, "calls": 50, "waited_s": 10.0, "cpu_s": 0.1, "best_s": 0.4, "chain_s": 0.0}
    row = {"system": "amem", "turns": 58, "questions": 25, "merges": 7, "ingest": ingest, "answer": answer}
    figures = {"data": "A", "latency_s": 0.2, "places": 64, "together": ["a"], "slice": [row], "whole": [row]}
    page = waiting.page(figures)
    assert lines(page)[2] == (
        "| amem | 7 | 1,200 | 240.0 | 2.0 | 2.5 | 3.0 | 1.50 | 1.20 | 50 | 10.0 | 0.0 | 0.4 | 0.6 | - | 1.50 |"
    )
    assert "3.0 s for 1200 ingestion calls, 0.6 s for 50 question calls, 2 ms of CPU a call" in page
    assert "measured elsewhere" in page


def test_client():
    clients = {"ours": {"calls_per_s": 304.0, "cpu_ms": 0.934}, "bare": {"calls_per_s": 160.0, "cpu_ms": 1.2}}
    page = client.page({"latency_s": 0.2, "at_once": 64, "calls": 1600, "rounds": 3, "clients": clients})
    assert lines(page)[2:] == ["| ours | 304 | 95.0% | 0.93 |", "| bare | 160 | 50.0% | 1.20 |"]
    assert "ideal 320" in page


def test_scale():
    row = {
        "notes": 20000,
        "keywords": 11000,
        "longest_postings": 10300,
        "retrieve_ms": 4.62,
        "flat_ms": 1.0,
        "commit_ms": 1.0,
        "merges": 700,
    }
    large = row | {"notes": 100000, "commit_ms": 1.1, "flat_ms": 5.0, "retrieve_ms": 9.0}
    topics = {"topics": 248, "topics_s": 13.94, "topics_ms_per_note": 13.9}
    figures = {
        "data": "locomo10",
        "turns": 5882,
        "window": 1000,
        "exact_index": 20000,
        "sizes": [row | topics, large],
        "recall_texts": {"texts": 19743, "recall": 0.998},
        "recall_notes": 0.99,
        "recall_keywords": 0.98,
        "dead": 0.024,
    }
    page = scale.page(figures)
    assert lines(page)[2:] == [
        "| 20,000 | 11,000 | 10,300 | 4.6 | 1.00 | 1.00 | 248 | 13.9 | 13.9 |",
        "| 100,000 | 11,000 | 10,300 | 9.0 | 5.00 | 1.10 | - | - | - |",
    ]
    assert "9.0 ms; twice the flat search plus 5 ms is 15.0 ms" in page
    # ln 100000 / ln 20000 = 11.513 / 9.903
    assert "1.10 times one at 20,000; the logarithm of the size grew 1.16-fold" in page


def test_start():
    assert lines(start.page({"rounds": 5, "commands": {"run.py --help": 0.614}}))[-1] == "| `run.py --help` | 0.61 |"


def test_tokens():
    def row(way, prompt):
        turn = {"calls": 10.052, "prompt_tokens": prompt, "completion_tokens": 324.4}
        return {"system": f"memfly, {way}", "turn": turn, "question": turn | {"calls": 5.0}}

    figures = {"data": "A", "turns": 58, "questions": 25, "rows": [row("pairwise", 3000.0), row("listwise", 1200.0)]}
    page = tokens.page(figures)
    assert lines(page)[2] == "| memfly, pairwise | 10.05 | 3,000 | 324 | 5.00 | 3,000 | 324 |"
    assert "sends 40% of the prompt tokens" in page
