"""The small parts of a build: sizes and archs as people write them, TensorRT's texts, the process that does the work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from deployops.errors import NotCheckedError, UsageError
from deployops.trt_plugins.engines.advice import advice_for
from deployops.trt_plugins.engines.child import WorkerEnd
from deployops.trt_plugins.engines.flavor import TensorRT, find_tensorrt, normal_archs
from deployops.trt_plugins.engines.log_text import errors_in, plain
from deployops.trt_plugins.engines.messages import explain_crash
from deployops.trt_plugins.engines.workspace import byte_count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2GiB", 2 * 2**30), ("2 gib", 2 * 2**30), ("512MB", 512_000_000), ("1.5KiB", 1536), ("4096", 4096), (7, 7),
        (None, None), ("1B", 1), ("3TiB", 3 * 2**40),
    ],
)  # fmt: skip
def test_sizes_are_read(text: Any, count: int | None) -> None:
    assert byte_count(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1", "0", "2GB2", "1e9", True, "99999999TiB", 2.5e300])
def test_what_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(UsageError, match="workspace"):
        byte_count(text)


def test_archs_are_read_as_people_write_them() -> None:
    assert normal_archs(["sm_89", "8.6", 120, "SM86", "12.1"]) == ("sm86", "sm89", "sm120", "sm121")


@pytest.mark.parametrize("text", ["ampere", "", "8", "sm8999", "8.6.1"])
def test_what_is_no_arch_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no compute capability"):
        normal_archs([text])


# --- which TensorRT ----------------------------------------------------------------------------------------------


def package(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise AssertionError('not to be imported')")
    return folder


def test_tensorrt_comes_before_tensorrt_rtx_and_neither_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "tensorrt" not in p])
    monkeypatch.syspath_prepend(str(package(tmp_path / "rtx", "tensorrt_rtx")))
    assert find_tensorrt().flavor == "tensorrt-rtx"
    with pytest.raises(NotCheckedError, match="TensorRT is not installed"):
        find_tensorrt("tensorrt")
    monkeypatch.syspath_prepend(str(package(tmp_path / "full", "tensorrt")))
    assert find_tensorrt().flavor == "tensorrt"
    assert find_tensorrt("tensorrt-rtx").folder == tmp_path / "rtx" / "tensorrt_rtx"
    with pytest.raises(UsageError, match="there is no flavor 'trt'"):
        find_tensorrt("trt")  # type: ignore[arg-type]


def test_the_library_that_the_package_names_wrongly_is_found_by_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "site" / "tensorrt_rtx_libs" / "libtensorrt_rtx.so.1"
    real.parent.mkdir(parents=True)
    real.touch()
    tensorrt = TensorRT("tensorrt-rtx", "tensorrt_rtx", "1.7.1", tmp_path / "site" / "tensorrt_rtx")
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    assert tensorrt.environment(links)["LD_LIBRARY_PATH"] == f"{links}:/opt/lib"
    assert (links / "libtensorrt_rtx.so").resolve() == real
    assert not (real.parent / "libtensorrt_rtx.so").exists()  # nothing is written into the package
    (real.parent / "libtensorrt_rtx.so").touch()  # a package that is repaired needs none
    assert "LD_LIBRARY_PATH" not in tensorrt.environment(tmp_path)


# --- TensorRT's texts --------------------------------------------------------------------------------------------
# As TensorRT 8 to 11 and TensorRT-RTX 1.7 wrote them, from public threads and from builds.


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "[network.cpp::validate::2684] Error Code 4: Internal Error (Network has dynamic or shape inputs, but no "
            "optimization profile has been defined.)",
            "Network has dynamic or shape inputs, but no optimization profile has been defined.",
        ),
        (
            "IBuilder::buildSerializedNetwork: Error Code 1: Myelin ([pass.cpp:337: check] Cannot compile 'mm'. In "
            "compileGraph at /_src/optimizer/myelin/codeGenerator.cpp:2012)",
            "Cannot compile 'mm'",
        ),
        (
            'ModelImporter.cpp:151: ERROR: x\nAssertion failed: convertDtype(a, &b) && "Failed to convert it."',
            "ERROR: x Failed to convert it.",
        ),
        (
            "Tactic Selection: no tactics within the limit.; [tactic.cpp:264: run] Error during tactic selection",
            "Tactic Selection: no tactics within the limit.; Error during tactic selection",
        ),
        ("Assertion failed: toposort(graph): Failed to sort the model.", "Failed to sort the model."),
        ("a text nobody knows (yet)", "a text nobody knows (yet)"),
    ],
)
def test_places_in_tensorrt_s_sources_are_left_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_the_first_error_comes_first_and_what_goes_with_it_is_left_out() -> None:
    said = [
        ("error", 'ModelImporter.cpp:140: While parsing node number 0 [Add -> "y"]:'),
        ("warning", "slow"),
        ("error", "[a.cpp::b::1] Error Code 2: Internal Error (the cause)"),
        ("error", "[c.cpp::d::2] Error Code 2: Internal Error (the cause)"),
        ("error", "[checkMacros.cpp::e::3] Error Code 1: Cuda Runtime (cudaError 35: CUDA driver version)"),
        ("error", "[f.cpp::g::4] Error Code 2: Internal Error (Assertion enginePtr != nullptr failed. )"),
        ("error", "what follows"),
    ]
    assert errors_in(said) == ["the cause", "what follows"]
    assert errors_in(said[4:5]) == ["cudaError 35: CUDA driver version"]  # alone, it is the error


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("Could not find any implementation for node {ForeignNode[a...b]}.", "--workspace"),
        ("Network has dynamic or shape inputs, but no optimization profile has been defined.", "--profile"),
        ("Assertion failed: (input) != nullptr", "give a tensor in its place"),
        ("std::bad_alloc", "memory ran out"),
        ("This version of TensorRT only supports int32, int64, and float input types for Range!", ""),
        ("a text nobody knows", ""),
    ],
)
def test_known_texts_come_with_what_to_do(text: str, advice: str) -> None:
    found = advice_for(text)
    assert advice in found
    assert bool(advice) == bool(found)


@pytest.mark.parametrize(
    "text",
    [
        "Requested size was 512000896 bytes.",
        "Tactic Selection: no tactics to implement the operation within workspace limit.",
        "Could not find any implementation for node {ForeignNode[a...b]}.",
    ],
)
def test_a_workspace_that_may_be_too_small_is_said_where_it_was_limited(text: str) -> None:
    assert "--workspace of 1.0 kB may be too small" in advice_for(text, 1024)
    assert "may be too small" not in advice_for(text)


def test_memory_that_ran_out_below_the_limit_is_not_put_down_to_it() -> None:
    text = "Requested size was 512000896 bytes."
    assert "more than 512.0 MB" in advice_for(text, 512_000_000)
    assert "memory ran out" in advice_for(text, 1 << 30)
    assert "memory ran out" in advice_for(text)


def test_a_crash_is_one_line_with_what_was_done_and_said_last() -> None:
    end = WorkerEnd(
        said=[("error", "[a.cpp::b::1] Error Code 2: Internal Error (out of tactics)")],
        step="building m.engine",
        ending="SIGSEGV",
        log="first\n\nlast\n",
    )
    text = explain_crash(end, TensorRT("tensorrt-rtx", "tensorrt_rtx", "1.7.1", Path()))
    assert text.startswith("the process of TensorRT-RTX 1.7.1 ended while building m.engine: SIGSEGV.")
    assert text.endswith("Its last words: out of tactics / first / last")
    assert "\n" not in text
    end.ending = "SIGKILL"
    assert "where memory runs out" in explain_crash(end, TensorRT("tensorrt", "tensorrt", "10.13", Path()))
