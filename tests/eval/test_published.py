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
