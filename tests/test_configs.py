"""Every configuration the groups can form composes, and an ablation does what its name says."""

import itertools
from pathlib import Path

import pytest
from hydra import compose
from omegaconf import OmegaConf

from harness.compose import build_spec, folder_name
from harness.errors import ConfigError
from harness.spec import identity_hash, identity_values

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
GROUPS = {
    group: sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    for group in ("backbone", "memory", "ablation", "dataset", "embedder", "protocol", "limits")
}
ABLATED = ("memfly", "memfly_plus")
"""The systems that ablations are for."""
ABLATIONS = [name for name in GROUPS["ablation"] if name != "none"]


pytestmark = pytest.mark.usefixtures("hydra_context")


def composed(*overrides):
    values = OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True)
    values.pop("plan")
    return build_spec(values)[0]


def valid(choice):
    return choice.get("ablation", "none") == "none" or choice.get("memory", "memfly") in ABLATED


def test_the_promised_groups_are_there():
    assert GROUPS["backbone"] == ["gpt-4o", "gpt-4o-mini", "qwen3-14b", "qwen3-8b", "scripted", "smollm2"]
    assert {"memfly", "memfly_plus"} <= set(GROUPS["memory"])
    assert GROUPS["ablation"] == sorted(
        ["none", "no_update", "no_denoise", "no_merge", "no_link", "no_topic", "no_keyword", "no_neighbor", "no_ier"]
    )
    assert GROUPS["dataset"] == ["locomo10", "sample"]
    assert GROUPS["protocol"] == ["amem", "locomo"]
    assert GROUPS["limits"] == ["none", "small"]


def test_defaults():
    spec = composed()
    assert (spec.backbone.name, spec.memory_name, spec.ablation, spec.dataset.name, spec.protocol.name) == (
        "smollm2", "memfly", "none", "sample", "amem",
    )  # fmt: skip
    assert (spec.cache.mode, spec.seed, spec.trials, spec.run.fresh) == ("use", 0, 1, False)
    assert (spec.protocol.temperature, spec.protocol.temperature_adversarial, spec.protocol.max_tokens) == (
        0.7,
        0.5,
        1000,
    )
    assert (spec.memory.tau_merge, spec.memory.tau_link) == (0.7, 0.5)


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(GROUPS, 2)])
def test_all_pairs_compose(first, second):
    for a, b in itertools.product(GROUPS[first], GROUPS[second]):
        choice = {first: a, second: b}
        if valid(choice):
            composed(f"{first}={a}", f"{second}={b}")
        else:
            with pytest.raises(ConfigError, match="is not one of memory="):
                composed(f"{first}={a}", f"{second}={b}")


@pytest.mark.slow
def test_the_full_product_composes():
    for names in itertools.product(*GROUPS.values()):
        choice = dict(zip(GROUPS, names, strict=True))
        if valid(choice):
            composed(*(f"{group}={name}" for group, name in choice.items()))


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "experiment").glob("*.yaml")))
def test_experiments_compose(name):
    composed(f"experiment={name}")


@pytest.mark.parametrize("memory", ABLATED)
def test_every_ablation_changes_the_memory_and_the_identity(memory):
    specs = {name: composed(f"memory={memory}", f"ablation={name}") for name in ("none", *ABLATIONS)}
    assert len({identity_hash(spec) for spec in specs.values()}) == 9
    base = identity_values(specs["none"].memory)
    for name in ABLATIONS:
        changed = {key for key, value in identity_values(specs[name].memory).items() if value != base[key]}
        assert changed, name


def test_an_ablation_wins_whatever_the_order_on_the_command_line():
    before = composed("ablation=no_link", "memory=memfly_plus")
    after = composed("memory=memfly_plus", "ablation=no_link")
    assert identity_hash(before) == identity_hash(after) != identity_hash(composed("memory=memfly_plus"))


def test_an_ablation_on_a_system_that_lacks_it_is_refused():
    values = OmegaConf.to_container(compose("config", overrides=["ablation=no_link"]), resolve=True)
    values.pop("plan")
    values["memory"] = {"system": "tests.stub_system:Stub", "name": "stub", "k": 2, "link": False}
    with pytest.raises(ConfigError) as caught:
        build_spec(values)
    assert str(caught.value) == ("ablation=no_link is not one of memory=stub: it has no option link; use ablation=none")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("memory.tau_merge=1.5", "memory.tau_merge=1.5 is refused: Input should be less than or equal to 1"),
        ("memory.tau_merge=often", "memory.tau_merge='often' is refused: Input should be a valid number"),
        ("dataset.max_sessions=-1", "dataset.max_sessions=-1 is refused: Input should be greater than or equal to 1"),
        ("dataset.conversations=conv-26", "dataset.conversations='conv-26' is refused: Input should be a valid list"),
        ("cache.mode=false", "cache.mode=False is refused: Input should be 'use', 'refresh', 'off' or 'replay'"),
        ("trials=0", "trials=0 is refused: Input should be greater than or equal to 1"),
        ("+memory.tua_link=0.5", "memory=memfly has no option tua_link; it has: "),
        ("+run.frehs=true", "run has no option 'frehs'; it has: "),
        ("+backbone.server.thread=1", "backbone.server has no option 'thread'; it has: threads, slots"),
        ("+extra=1", "the configuration has no option 'extra'; it has: backbone, "),
        ("memory.system=nowhere:Nobody", "memory.system='nowhere:Nobody' cannot be loaded"),
        ("memory.system=harness.spec:RunSpec", "memory.system='harness.spec:RunSpec' is not a MemorySystem class"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_line(override, message):
    with pytest.raises(ConfigError) as caught:
        composed(override)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_every_option_of_the_spec_can_be_set_without_a_plus_sign():
    spec = composed("backbone.base_url=http://127.0.0.1:1/v1", "backbone.server.threads=1", "embedder.threads=1")
    assert (spec.backbone.base_url, spec.backbone.server.threads, spec.embedder.threads) == (
        "http://127.0.0.1:1/v1",
        1,
        1,
    )


def test_off_is_a_mode_and_no_boolean_on_the_command_line():
    assert composed("cache.mode=off").cache.mode == "off"


def test_folder_names_are_deterministic_and_tell_the_run():
    spec = composed("backbone=scripted", "ablation=no_ier")
    assert folder_name(spec, "ab" * 32) == "memfly-no_ier-scripted-sample-amem-abababababab"


def test_small_limits_cut_the_system_the_sample_and_the_prompts():
    small = composed("limits=small", "memory=amem")
    assert (small.memory.k, small.memory.neighbours) == (4, 2)
    assert (small.dataset.conversations, small.dataset.max_sessions, small.dataset.max_questions) == (
        ["sample-1"], 3, 15,
    )  # fmt: skip
    assert (small.protocol.max_tokens, small.protocol.max_context_tokens) == (48, 500)
    assert composed("limits=small", "dataset=locomo10").dataset.conversations is None
    assert composed("limits=small", "memory.k_final=9").memory.k_final == 9  # the command line has the last word
    assert composed("limits=small", "ablation=no_ier").memory.i_max == 0, "an ablation is applied after the limits"


def test_full_context_keeps_its_window_under_small_limits():
    assert composed("limits=small", "memory=locomo").protocol.max_context_tokens is None
    assert composed("limits=small", "memory=rag").protocol.max_context_tokens == 500


def test_an_experiment_that_only_lists_runs_changes_none_of_them():
    """Published values stay beside the runs of a grid, and leave those of an experiment that sets something."""
    from eval.run_report import is_grid

    grids = [path.stem for path in (CONF / "experiment").glob("*.yaml") if is_grid(f"experiment={path.stem}")]
    assert sorted(grids) == ["i_max", "k_cand", "k_final", "table1", "table2", "table3", "thresholds"]
    assert not is_grid("experiment=no_such") and not is_grid("memory=table1")
