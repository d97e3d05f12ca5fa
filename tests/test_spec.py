"""Every config field is classed, and the identity hash follows the classes."""

import dataclasses
import re
import typing
from pathlib import Path

import pytest

from harness import spec as spec_module
from harness.errors import ConfigError
from harness.memory import load_system
from harness.spec import (
    BackboneSpec,
    DatasetSpec,
    RunOptions,
    ServerSpec,
    identity,
    identity_hash,
    identity_values,
    runtime,
    validate,
)


def specs():
    return [
        value
        for value in vars(spec_module).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == spec_module.__name__
    ]


@pytest.mark.parametrize("cls", specs(), ids=lambda cls: cls.__name__)
def test_every_field_is_classed(cls):
    assert {
        f.name: f.metadata.get("class")
        for f in dataclasses.fields(cls)
        if f.metadata.get("class") not in ("identity", "runtime")
    } == {}


def test_every_system_config_is_classed():
    texts = [path.read_text() for path in (Path(__file__).parent.parent / "conf/memory").glob("*.yaml")]
    systems = {name for text in texts for name in re.findall(r"^system: (\S+)", text, re.MULTILINE)}
    assert "memfly.system:MemFly" in systems
    for name in systems:
        for field in dataclasses.fields(load_system(name).Config):
            assert field.metadata.get("class") in ("identity", "runtime"), f"{name}: {field.name}"


def test_an_unclassed_field_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Forgotten:
        named: int = identity(default=1)
        forgotten: int = 2

    with pytest.raises(ConfigError, match=r"Forgotten.forgotten is classed neither"):
        identity_hash(Forgotten())


def test_hash_covers_identity_alone():
    @dataclasses.dataclass(frozen=True)
    class Inner:
        depth: int = identity(default=1)
        workers: int = runtime(default=2)

    @dataclasses.dataclass(frozen=True)
    class Outer:
        inner: Inner = identity(default=Inner())
        names: typing.Any = identity(default=("a", "b"))
        path: str = runtime(default="x")

    assert identity_values(Outer()) == {"inner": {"depth": 1}, "names": ["a", "b"]}
    base = identity_hash(Outer())
    assert identity_hash(Outer(path="y", inner=Inner(workers=9))) == base
    assert identity_hash(Outer(inner=Inner(depth=2))) != base
    assert identity_hash(Outer(), data="d") != base
    # printf '{"spec":{"inner":{"depth":1},"names":["a","b"]}}' | sha256sum
    assert base == "06239294323e7384521452d4c3fc409ae005c4c1d731bfe836c68ff60120f5f2"


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (DatasetSpec, {"name": "locomo11"}, "dataset.name='locomo11' is refused: Input should be 'sample' or 'locomo10'"),
        (DatasetSpec, {"name": "sample", "max_sessions": 0}, "dataset.max_sessions=0 is refused: Input should be greater than or equal to 1"),
        (DatasetSpec, {"name": "sample", "max_sessions": True}, "dataset.max_sessions=True is refused: Input should be a valid integer"),
        (DatasetSpec, {"name": "sample", "conversations": "conv-26"}, "dataset.conversations='conv-26' is refused: Input should be a valid list"),
        (DatasetSpec, {}, "dataset.name is missing; give it a value"),
        (RunOptions, {"max_error_rate": float("nan")}, "dataset.max_error_rate=nan is refused: Input should be less than or equal to 1"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_line(cls, values, message):
    with pytest.raises(ConfigError) as caught:
        validate(cls, values, "dataset")
    assert str(caught.value) == message


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"^dataset has no option 'pth'; it has: name, path, conversations"):
        validate(DatasetSpec, {"name": "sample", "pth": "x"}, "dataset")


def test_what_a_started_server_is_told_is_part_of_the_identity():
    told = BackboneSpec(name="q", kind="vllm", model="m", window=10, server=ServerSpec(args=["--quantization=fp8"]))
    plain = dataclasses.replace(told, server=ServerSpec())
    moved = dataclasses.replace(
        told, server=ServerSpec(args=["--quantization=fp8"], tensor_parallel=2, command="/other/vllm")
    )
    assert identity_hash(told) != identity_hash(plain)
    assert identity_hash(told) == identity_hash(moved)
