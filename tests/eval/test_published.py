"""Published numbers: what is known is found with its source, what is not stays None."""

import pytest

from eval.published import Cell, lookup, reference_for


def test_a_cell_comes_with_source_and_status():
    assert lookup("GPT-4o-mini", "A-MEM", "multi_hop", "f1_amem") == Cell(27.02, "arXiv:2502.12110 Table 1", "verified")
    assert lookup("Qwen3-8B", "MemFly", "average", "f1_amem") == Cell(
        38.62, "arXiv:2602.07885 Tables 1-2", "second-hand"
    )


@pytest.mark.parametrize(
    "key",
    [
        ("Qwen3-8B", "MemFly", "temporal", "bleu1"),  # the cell is there, its BLEU is not
        ("Qwen3-8B", "MemFly", "average", "f1_locomo"),  # no paper prints it
        ("Qwen3-8B", "Nobody", "average", "f1_amem"),
        ("SmolLM2", "MemFly", "average", "f1_amem"),
        ("Qwen3-8B", "MemFly", "no such category", "f1_amem"),
    ],
)
def test_an_unknown_cell_is_none(key):
    assert lookup(*key) is None


def test_a_run_finds_its_published_counterpart():
    full = reference_for("qwen3-8b", "memfly", protocol="amem", full_locomo10=True)
    assert [full.cell(row, "f1_amem").value for row in ("1", "2", "3", "4", "5", "micro")] == [
        28.24,
        38.39,
        15.43,
        42.09,
        43.79,
        38.62,
    ]
    assert (full.cell("micro", "recall").value, full.cell("micro", "hit").value) == (62.22, 67.12)
    assert [cell.value for cell in full.cells("micro", "bleu1")] == [34.51, 36.85]  # printed twice, differently
    for row in ("micro4", "macro", "macro4"):
        assert full.cell(row, "f1_amem") is None
    ablated = reference_for("qwen3-8b", "memfly-no_link", protocol="amem", full_locomo10=True)
    assert ablated.cell("micro", "f1_amem").value == 33.57 and ablated.cell("4", "f1_amem") is None


@pytest.mark.parametrize(
    ("backbone", "label", "protocol", "full"),
    [
        ("qwen3-8b", "memfly", "locomo", True),
        ("qwen3-8b", "memfly", "amem", False),
        ("scripted", "memfly", "amem", True),
        ("qwen3-8b", "memfly_plus", "amem", True),
    ],
)
def test_no_counterpart_where_the_two_may_not_be_compared(backbone, label, protocol, full):
    assert reference_for(backbone, label, protocol=protocol, full_locomo10=full) is None


def test_figures_of_another_protocol_are_marked_and_say_why():
    mem0 = reference_for("gpt-4o-mini", "mem0", protocol="amem", full_locomo10=True)
    cell = mem0.cell("1", "f1_amem")
    assert cell.value == 38.72 and cell.status == "verified, another protocol"
    assert mem0.cell("5", "f1_amem") is None and mem0.cell("micro", "f1_amem") is None
    (said,) = mem0.sources("12345", {"f1_amem": "F1", "bleu1": "BLEU"})
    assert "(verified, another protocol: its own prompts asked" in said and "cat4='Open Domain'" in said


def test_sources_name_what_is_printed_twice():
    full = reference_for("qwen3-8b", "memfly", protocol="amem", full_locomo10=True)
    headers = {"f1_amem": "F1", "bleu1": "BLEU", "recall": "recall", "hit": "hit"}
    assert full.sources(("1", "micro"), headers) == [
        "arXiv:2602.07885 Tables 1-2 (second-hand)",
        "BLEU of micro also printed as 36.85 in arXiv:2602.07885 Table 3 (second-hand)",
        "arXiv:2602.07885 Table 3 (second-hand)",
    ]


@pytest.mark.parametrize(
    ("backbone", "label", "value", "status"),
    [
        ("gpt-4o-mini", "locomo", 25.02, "verified"),
        ("gpt-4o-mini", "readagent", 9.15, "verified"),
        ("gpt-4o-mini", "memorybank", 5.0, "verified"),
        ("gpt-4o-mini", "memgpt", 26.65, "verified"),
        ("gpt-4o-mini", "amem", 27.02, "verified"),
    ],
)
def test_the_compared_systems_have_counterparts(backbone, label, value, status):
    cell = reference_for(backbone, label, protocol="amem", full_locomo10=True).cell("1", "f1_amem")
    assert (cell.value, cell.status) == (value, status)


def test_no_paper_printed_rag():
    assert reference_for("gpt-4o-mini", "rag", protocol="amem", full_locomo10=True) is None
