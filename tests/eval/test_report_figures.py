import re
from xml.etree import ElementTree

import pytest
from report_fakes import ATTRIBUTE, ODD, SCRIPT

from eval.cells import Cell
from eval.report import figures, figures_grid
from eval.report.numbers import Cost
from eval.report.svg import log_ticks, short, spread, ticks


def shapes(picture, tag, kind):
    """Attributes of the elements of a tag whose first class is `kind`."""
    root = ElementTree.fromstring(str(picture))
    return [dict(one.attrib) for one in root.iter(tag) if kind in one.get("class", "").split()]


def texts(picture):
    return ["".join(one.itertext()) for one in ElementTree.fromstring(str(picture)).iter("text")]


def test_ticks_are_round_and_reach_the_highest_value():
    assert ticks(0.93, 4) == [0, 0.25, 0.5, 0.75, 1.0]
    assert ticks(26.6, 5) == [0, 10, 20, 30]
    assert ticks(0.0, 5)[0] == 0
    assert log_ticks(1500, 9000) == [1000, 2000, 5000, 10000]
    assert log_ticks(3, 4_000_000) == [2, 10, 100, 1000, 10_000, 100_000, 1_000_000, 5_000_000]
    assert [short(value) for value in (0.25, 950, 12_345, 3_000_000)] == ["0.25", "950", "12.3k", "3M"]


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([10, 50, 90], [10, 50, 90]),
        ([50, 50, 50], [50, 60, 70]),
        ([99, 98, 97], [100, 90, 80]),
        ([20, 10, 12], [30, 10, 20]),
    ],
)
def test_labels_are_spread_in_their_order(places, expected):
    assert spread(places, 10, 0, 100) == expected


def cell(row, value, **more):
    return Cell("f1_amem", row, value, more.pop("n", 10), 0, **more)


def test_bars_are_as_long_as_their_values_and_the_base_is_continued():
    cells = {
        "memfly": {"1": cell("1", 0.4, low=0.3, high=0.5, published=45.0), "micro": cell("micro", 0.2)},
        "memfly-no_link": {"1": cell("1", 0.2), "micro": cell("micro", None)},
    }
    figure = figures.bars("x", "F1", "about", cells, "memfly")
    assert len(figure.pictures) == 2
    first, second = shapes(figure.pictures[0], "rect", "bar")
    assert float(first["width"]) == pytest.approx(2 * float(second["width"]), abs=0.02)
    assert first["class"] == "bar base" and second["class"] == "bar"
    (line,) = shapes(figure.pictures[0], "line", "reference")
    assert float(line["x1"]) == pytest.approx(float(first["x"]) + float(first["width"]), abs=0.02)
    assert len(shapes(figure.pictures[0], "path", "published")) == 1
    assert len(shapes(figure.pictures[0], "path", "whisker")) == 1
    assert len(shapes(figure.pictures[1], "rect", "bar")) == 1  # an unknown figure has no bar, not one of 0
    assert figure.grid.columns == ("system", "1 multi_hop", "micro")
    assert figure.grid.rows == (
        ("memfly", "40.00 (30.00–50.00); publ. 45.00", "20.00"),
        ("memfly-no_link", "20.00", ""),
    )
    assert {"1 multi_hop", "n = 10", "40.00", "20.00"} <= set(texts(figure.pictures[0]))


def test_a_heat_map_has_a_cell_a_pair_and_a_gap_where_none_was_run():
    figure = figures_grid.heat("x", "t", "a", {(0.5, 0.3): 0.1, (0.5, 0.5): 0.2, (0.7, 0.3): 0.15})
    opacity = [float(one["fill-opacity"]) for one in shapes(figure.pictures[0], "rect", "heat")]
    assert opacity == [0.08, 0.9, 0.49]
    assert len(shapes(figure.pictures[0], "rect", "empty")) == 1
    assert figure.grid.rows == (("0.5", "10.00", "20.00"), ("0.7", "15.00", ""))


def test_curves_end_at_their_labels_and_list_their_numbers():
    figure = figures.curves("x", "t", "a", {"a": [0.1, 0.2], "b": [0.5, 0.4]}, ("k", "recall"))
    assert len(shapes(figure.pictures[0], "path", "line")) == 2
    assert {"a", "b", "k", "recall"} <= set(texts(figure.pictures[0]))
    assert figure.grid.columns == ("system", "1", "2")
    assert figure.grid.rows == (("a", "10.00", "20.00"), ("b", "50.00", "40.00"))
    counts = figures.curves("x", "t", "a", {"a": [1, 7]}, ("turns", "notes"), as_percent=False)
    assert counts.grid.rows == (("a", "1.00", "7.00"),)


def test_cost_has_a_ring_only_where_a_memory_was_paid_for():
    costs = {"full": Cost(1000.0, 0.0), "built": Cost(100.0, 900.0), "free": Cost(0.0, 0.0)}
    figure = figures.cost_plot("x", "t", "a", costs, {"full": 0.3, "built": 0.4, "free": 0.1})
    assert len(shapes(figure.pictures[0], "circle", "dot")) == 2
    assert len(shapes(figure.pictures[0], "circle", "ring")) == 1
    (full, built) = shapes(figure.pictures[0], "circle", "dot")
    (ring,) = shapes(figure.pictures[0], "circle", "ring")
    assert float(ring["cx"]) == float(full["cx"])  # 100 + 900 tokens stand where 1,000 do
    assert float(built["cy"]) < float(full["cy"])  # the higher F1 is higher
    assert figure.grid.rows[1] == ("built", "40.00", "100", "900", "1,000")
    assert figures.cost_plot("x", "t", "a", {"free": Cost(0.0, 0.0)}, {"free": 0.1}).pictures == ()


def test_decisions_share_a_turn_out():
    assert figures_grid.split({"merges": 2, "notes": 8, "appends": 5, "links": 4}) == {
        "merges": 2,
        "linked": 3,
        "appends": 5,
    }
    figure = figures_grid.decisions("x", "t", "a", {"memfly": {"merges": 2, "notes": 8, "appends": 5, "links": 4}})
    widths = [float(one["width"]) for one in shapes(figure.pictures[0], "rect", "part") if float(one["width"]) != 11]
    assert widths == [74.0, 111.0, 185.0]
    assert figure.grid.rows == (("memfly", "2", "3", "5", "4", "8"),)


def test_names_of_any_kind_stay_text():
    for name in (SCRIPT, ATTRIBUTE, ODD):
        made = [
            figures.bars(name, name, name, {name: {"1": cell("1", 0.4)}}, name),
            figures.curves(name, name, name, {name: [0.1, 0.2]}, (name, name)),
            figures.cost_plot(name, name, name, {name: Cost(10.0, 5.0)}, {name: 0.3}),
            figures_grid.heat(name, name, name, {(0.5, 0.3): 0.1}),
            figures_grid.decisions(name, name, name, {name: {"merges": 2, "notes": 8, "appends": 5, "links": 4}}),
        ]
        for figure in made:
            for picture in figure.pictures:
                tags = {one.tag for one in ElementTree.fromstring(str(picture)).iter()}
                assert tags <= {"svg", "title", "desc", "g", "text", "line", "rect", "path", "circle"}
                assert not {"<img", "<script", "<!--"} & set(re.findall(r"<[a-z!-]+", str(picture)))


def test_a_layer_that_never_grows_is_a_line_at_nought():
    from eval.report.figures import curves

    curves("edges", "Edges", "", {"memfly-no_link": [0, 0, 0]}, ("turn", "edges"), as_percent=False)
