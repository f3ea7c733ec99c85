"""Whether an engine runs somewhere is told from its record by the documented rules, over every pair of engine and machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployops.trt_plugins.engines.portability import EngineFile, Host, doubts, problems
from deployops.trt_plugins.engines.record import PluginFile

from .records import SHA, engine_record

OTHER = "cd" * 32


HERE = Host("tensorrt", "10.13.3", "linux-x86_64", "sm86", "RTX 3080")

# What the documentation says, written out: the version of the engine, of the runtime, whether it loads (TensorRT 11.4's
# support matrix: "10 with 11, 8 with 10. No other combination across major versions"; from 8.6 on).
VERSIONS = [
    ("10.13.3", "10.13.3", False, True), ("10.13.3", "10.13.3.9", False, True), ("10.13.3.9", "10.13.3.10", False, False),
    ("10.13.2", "10.13.3", False, False), ("10.13.2", "10.13.3", True, True), ("10.0.0", "10.16.1", True, True),
    ("10.13.3", "10.13.2", True, False), ("10.9.0", "10.13.0", True, True), ("10.13.0", "10.9.0", True, False),
    ("10.13.3", "11.4.0", True, True), ("11.4.0", "10.13.3", True, False), ("8.6.1", "10.0.0", True, True),
    ("8.5.3", "8.6.1", True, False), ("8.6.1", "8.6.2", True, True), ("8.6.1", "11.4.0", True, False),
    ("9.1.0", "10.0.0", True, False), ("8.6.1", "10.0.0", False, False), ("11.0.0", "11.4.0", True, True),
]  # fmt: skip


@pytest.mark.parametrize(("built", "here", "compatible", "loads"), VERSIONS)
def test_versions(built: str, here: str, compatible: bool, loads: bool) -> None:
    found = problems(
        engine_record(tensorrt=built, version_compatible=compatible), replace(HERE, tensorrt=here)
    )
    assert (not found) == loads
    assert loads or (built in found[0] and here in found[0] and "build it again here" in found[0])


@pytest.mark.parametrize(
    ("built", "here", "loads"), [("1.7.1.116", "1.7.1.116", True), ("1.7.1", "1.8.0", False)]
)
def test_engines_of_tensorrt_rtx_run_with_their_release_alone(built: str, here: str, loads: bool) -> None:
    engine = engine_record(flavor="tensorrt-rtx", tensorrt=built, version_compatible=True)
    assert (not problems(engine, replace(HERE, flavor="tensorrt-rtx", tensorrt=here))) == loads


ARCHS = ["sm75", "sm80", "sm86", "sm89", "sm90", "sm100", "sm120"]


@given(
    built=st.lists(st.sampled_from(ARCHS), min_size=1, max_size=3, unique=True),
    here=st.sampled_from(ARCHS),
    compatible=st.sampled_from(["", "ampere+", "same compute capability"]),
)
def test_gpus(built: list[str], here: str, compatible: Any) -> None:
    found = problems(
        engine_record(archs=tuple(built), hardware_compatible=compatible), replace(HERE, arch=here)
    )
    loads = here in built or (compatible == "ampere+" and here != "sm75")
    assert (not found) == loads
    assert loads or here in found[0]


PLATFORMS = ["linux-x86_64", "win32-amd64", "linux-aarch64", "win-x86_64"]


@pytest.mark.parametrize("built", PLATFORMS)
@pytest.mark.parametrize("here", PLATFORMS)
@pytest.mark.parametrize("flavor", ["tensorrt", "tensorrt-rtx"])
def test_platforms(flavor: Any, built: str, here: str) -> None:
    found = problems(
        engine_record(flavor=flavor, platform=built), replace(HERE, flavor=flavor, platform=here)
    )
    portable = flavor == "tensorrt-rtx" and "linux-aarch64" not in (built, here)
    assert (not found) == (built == here or portable)


def test_the_other_flavor_is_the_one_thing_that_is_said_of_it() -> None:
    [line] = problems(engine_record(), Host("tensorrt-rtx", "1.7.1", "linux-x86_64", "sm120"))
    assert "built by TensorRT, not TensorRT-RTX" in line
    assert "--flavor tensorrt-rtx" in line


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (EngineFile(2052, SHA), ""),
        (EngineFile(0, OTHER), "empty"),
        (EngineFile(100, OTHER), "cut off: 100 of 2052 bytes"),
        (EngineFile(2052, OTHER), "not the file that its sidecar describes"),
        (EngineFile(3000, OTHER), "not the file that its sidecar describes"),
    ],
)
def test_the_file(file: EngineFile, text: str) -> None:
    found = problems(engine_record(), HERE, engine=file)
    assert (text in found[0] and len(found) == 1) if text else not found


def test_another_model() -> None:
    [line] = problems(engine_record(), HERE, model=OTHER)
    assert "built from another ONNX" in line
    assert not problems(engine_record(), HERE, model=SHA)


@pytest.mark.parametrize(
    ("given_", "embedded", "text"),
    [
        ({"libacme.so": SHA}, False, ""),
        ({"renamed.so": SHA}, False, ""),
        ({"libacme.so": OTHER}, False, "plugin library changed: libacme.so"),
        ({"libother.so": OTHER}, False, "plugin library missing: libacme.so (given: libother.so)"),
        ({}, False, "plugin library missing: libacme.so (given: none)"),
        ({}, True, ""),
        (None, False, ""),
    ],
)
def test_plugins(given_: dict[str, str] | None, embedded: bool, text: str) -> None:
    needs = engine_record(plugins=(PluginFile("libacme.so", SHA, embedded),))
    found = problems(needs, HERE, plugins=given_)
    assert (found[0].startswith(text) and len(found) == 1) if text else not found
    assert any("libacme.so" in line for line in doubts(needs, HERE, plugins=given_)) == (given_ is None)


def test_of_what_is_not_known_nothing_is_claimed_and_everything_is_said() -> None:
    assert not problems(engine_record(), Host())
    found = doubts(engine_record(), Host())
    for word in ("version", "platform", "GPU", "ONNX", "running", "read"):
        assert any(word in line for line in found), word


def test_another_gpu_of_the_same_kind_is_a_doubt() -> None:
    other = replace(HERE, gpu="RTX 3090")
    assert not problems(engine_record(), other)
    assert any("RTX 3090" in line for line in doubts(engine_record(), other))
    assert not any("RTX 3080" in line for line in doubts(engine_record(), HERE))


def test_every_line_says_what_to_do() -> None:
    bad = engine_record(plugins=(PluginFile("libacme.so", SHA, False),))
    host = Host("tensorrt", "8.2.1", "win32-amd64", "sm75", "T4")
    found = problems(bad, host, engine=EngineFile(1, OTHER), model=OTHER, plugins={})
    assert len(found) == 6
    assert all(": " in line and "\n" not in line for line in found)
    assert all(any(verb in line for verb in ("build", "give", "copy", "install")) for line in found)
