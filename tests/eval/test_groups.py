"""Which runs may share a table, and that no two of them share a name."""

import json

import pytest
from run_folders import record, write_run

from eval.collection import load_runs
from eval.comparison import paired
from eval.groups import copies, group, identity_part
from eval.tables import collect
from harness.errors import RecordError

LINES = [record(f"c{number}", 0, 1, f1=0.5) for number in range(5)]


def edit(folder, change):
    """Change a run's manifest in place."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))
    return folder


def backbone(**values):
    return lambda manifest: manifest["spec"]["backbone"].update(values)


def test_an_option_an_older_run_did_not_know_is_an_option_not_given(tmp_path):
    write_run(tmp_path / "a", LINES)
    older = write_run(tmp_path / "b", LINES, memory="rag")
    edit(older, lambda manifest: manifest["spec"]["dataset"].pop("max_sessions"))
    edit(older, lambda manifest: manifest["spec"]["protocol"].update(max_tokens=None))
    assert len(group(load_runs([tmp_path]))) == 1
    edit(older, lambda manifest: manifest["spec"]["dataset"].update(max_sessions=3))
    with pytest.raises(RecordError, match=r"slice.max_sessions not given.*slice.max_sessions 3"):
        group(load_runs([tmp_path]))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"revision": "other"}, "backbone.scripted.revision"),
        ({"sampling": {"top_p": 0.5}}, "backbone.scripted.sampling.top_p"),
        ({"server": {"args": ["--quantization=fp8"], "threads": 9}}, "backbone.scripted.server.args"),
    ],
)
def test_one_backbone_read_by_two_models_is_two_tables(tmp_path, values, says):
    write_run(tmp_path / "a", LINES)
    write_run(tmp_path / "else", LINES, backbone="gpt-4o")
    edit(write_run(tmp_path / "b", LINES, memory="rag"), backbone(**values))
    runs = load_runs([tmp_path])
    with pytest.raises(RecordError, match=says.replace(".", r"\.")):
        group(runs)
    assert [[run.path.name for run in one.runs] for one in group(runs, split=True)] == [["a", "else"], ["b"]]


def test_how_a_backbone_is_served_is_no_difference(tmp_path):
    write_run(tmp_path / "a", LINES)
    edit(write_run(tmp_path / "b", LINES, memory="rag"), backbone(base_url="http://x/v1", server={"threads": 9}))
    assert len(group(load_runs([tmp_path]))) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m["prompts"].update({"harness/prompts/amem.j2": "new"}), "prompts.harness/prompts/amem.j2"),
        (lambda m: m["prompts"].update({"harness/prompts/more.j2": "p"}), "prompts.harness/prompts/more.j2 not given"),
        (lambda m: m["spec"]["embedder"].update(sha256="e" * 64), "embedder.sha256"),
        (lambda m: m["spec"].update(trials=3), "trials"),
    ],
)
def test_what_a_table_must_share(tmp_path, change, says):
    write_run(tmp_path / "a", LINES)
    edit(write_run(tmp_path / "b", LINES, memory="rag"), change)
    with pytest.raises(RecordError) as refused:
        group(load_runs([tmp_path]))
    assert says in str(refused.value) and "\n" not in str(refused.value)
    first, second = group(load_runs([tmp_path]), split=True)
    assert [text.split()[0] for text in first.apart] == [text.split()[0] for text in second.apart] == [says.split()[0]]


def test_a_copy_counts_once_and_a_repetition_is_a_row_of_its_own(tmp_path):
    for machine in ("one", "two"):
        write_run(tmp_path / machine / "same", LINES)  # run_id is the folder's name
    runs = load_runs([tmp_path])
    assert [(copy.path.parent.name, of.path.parent.name) for copy, of in copies(runs)] == [("two", "one")]
    assert [len(one.runs) for one in group(runs)] == [1]

    write_run(tmp_path / "other", [record(f"c{number}", 0, 1, f1=1.0) for number in range(5)])
    write_run(tmp_path / "rag", LINES, memory="rag")
    (block,) = collect(load_runs([tmp_path]))
    names = [one.name for one in block.systems]
    assert len(set(names)) == 3 and sorted(name.partition(" run ")[2] for name in names) == ["", "other", "same"]
    _, found = paired(block.systems, ["f1_amem"])
    assert len([name for name, *_ in found]) == 2


def test_names_say_what_changes_results_alone(tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        folder = write_run(tmp_path / name, LINES, seed=seed)
        edit(folder, lambda m, name=name: m["spec"]["dataset"].update(path=f"/data/{name}"))
        edit(folder, backbone(timeout_s=seed + 1.0, server={"threads": seed + 1}))
    (one,) = group(load_runs([tmp_path]))
    assert one.names == ("memfly (seed 0)", "memfly (seed 1)")
    kept = identity_part(one.runs[0].spec)
    assert "path" not in kept["dataset"] and "run" not in kept and not kept["backbone"]["server"]
