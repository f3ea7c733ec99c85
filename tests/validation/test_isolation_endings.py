"""Libraries that end their process in every way there is: the report is complete, and says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from onnx import helper

from deployops.validation import validate
from deployops.validation.record import Report

SOURCE = Path(__file__).parents[1] / "ort_ops" / "twice.cc"
COMPUTE = "static void* compute(void*, void* context) {"
# what is done: at the beginning of the kernel, or where the library is loaded or unloaded
FAULTS = {
    "abort": ("kernel", "std::abort();"),
    "exit": ("kernel", "std::exit(0);"),
    "fast exit": ("kernel", "_exit(0);"),
    "throw": ("kernel", 'throw std::runtime_error("a throw of the library");'),
    "segfault": ("kernel", "*static_cast<volatile int*>(nullptr) = 1;"),
    "overflow": ("kernel", "struct F { static int f(int n) { volatile char a[4096] = {}; return a[0] + f(n + 1); } }; F::f(0);"),
    "closes its files": ("kernel", "for (int fd = 0; fd < 64; ++fd) close(fd);"),
    "writes to every file": ("kernel", "for (int fd = 0; fd < 64; ++fd) (void)!write(fd, \"not a message at all\\n\", 21);"),
    "writes much to its output": ("kernel", "for (int k = 0; k < 20000; ++k) std::puts(\"0123456789 0123456789 0123456789\");"),
    "forks": ("kernel", "if (fork() == 0) { for (;;) pause(); }"),
    "hangs when loaded": ("load", "for (;;) pause();"),
    "exits when loaded": ("load", "_exit(0);"),
    "prints when loaded": ("load", 'std::puts("{\\"ms\\": 0}"); std::fflush(stdout);'),
    "segfault when unloaded": ("unload", "*static_cast<volatile int*>(nullptr) = 1;"),
    "hangs when unloaded": ("unload", "for (;;) pause();"),
    "dies on its fortieth run": ("kernel", "static int runs; if (++runs == 40) std::abort();"),
}  # fmt: skip
ATTRIBUTE = {"load": "constructor", "unload": "destructor"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("not checked: no g++ to build a custom-operator library with")
    folder = tmp_path_factory.mktemp("endings")

    def build(fault: str) -> Path:
        where, code = FAULTS[fault]
        text = SOURCE.read_text()
        assert COMPUTE in text
        if where == "kernel":
            text = text.replace(COMPUTE, f"{COMPUTE}\n  {code}\n")
        else:
            text += f"\n__attribute__(({ATTRIBUTE[where]})) static void at_{where}() {{ {code} }}\n"
        text = "#include <cstdlib>\n#include <stdexcept>\n" + text
        source = folder / f"{fault.replace(' ', '_')}.cc"
        source.write_text(text)
        path = source.with_suffix(".so")
        subprocess.run([compiler, "-std=c++17", "-fPIC", "-shared", "-o", path, source], check=True)
        return path

    return build


@pytest.fixture
def twice(build: Callable[..., Path]) -> Path:
    node = helper.make_node("Twice", ["x"], ["y"], domain="acme")
    return build([node], [("x", "float", ["n", 3])], [("y", "float", ["n", 3])], domains={"acme": 3})


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def report_of(twice: Path, library: Path, **options: Any) -> Report:
    x = torch.arange(6.0).reshape(2, 3)
    options = {"latency": False, "limit_s": 60.0, **options}
    return validate(double, twice, (x,), libraries=[library], backends=["onnxruntime+library"], **options)


def complete(report: Report) -> None:
    """A cell for each sample, a verdict, and every rendering of it."""
    from deployops.validation.reports.html import html
    from deployops.validation.reports.json_file import dumps, loads
    from deployops.validation.reports.junit import junit

    assert len({c.sample for c in report.cells}) == 3
    assert loads(dumps(report).encode()) == report
    assert html(report)
    assert junit(report)
    assert report.text()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("abort", "crash, SIGABRT"),
        ("exit", "a library in it called exit"),
        ("fast exit", "exit code 0, in the middle of a run: a library in it called exit"),
        ("segfault", "crash, SIGSEGV"),
        ("overflow", "crash, SIGSEGV"),
        ("closes its files", "the runtime's process"),
        ("writes to every file", "sent something that is no answer"),
        ("exits when loaded", "exit code 0"),
    ],
)
def test_it_has_failed_and_the_report_says_how(
    twice: Path, library: Callable[[str], Path], fault: str, words: str
) -> None:
    report = report_of(twice, library(fault))
    complete(report)
    assert report.exit_code == 1
    assert not [c for c in report.cells if c.verdict == "passed"]
    assert words in report.cells[0].reason
    assert [f.kind for f in report.findings if f.severity == "failed"][:1] == ["crash"]


def test_an_exception_of_the_library_is_told(twice: Path, library: Callable[[str], Path]) -> None:
    report = report_of(twice, library("throw"))
    complete(report)
    assert report.exit_code == 1
    assert "a throw of the library" in report.cells[0].reason


def test_one_that_never_comes_back_from_being_loaded_is_stopped(
    twice: Path, library: Callable[[str], Path]
) -> None:
    report = report_of(twice, library("hangs when loaded"), limit_s=15.0)
    complete(report)
    assert report.exit_code == 1
    assert {f.kind for f in report.findings if f.severity == "failed"} == {"hang"}
    assert "did not answer within 15 s" in report.cells[0].reason


@pytest.mark.parametrize("fault", ["prints when loaded", "writes much to its output", "forks"])
def test_what_it_prints_or_starts_disturbs_nothing(
    twice: Path, library: Callable[[str], Path], fault: str
) -> None:
    report = report_of(twice, library(fault))
    complete(report)
    assert report.exit_code == 0, report.text()


def test_a_crash_at_its_unloading_is_no_failure_and_is_said(
    twice: Path, library: Callable[[str], Path]
) -> None:
    report = report_of(twice, library("segfault when unloaded"))
    complete(report)
    assert report.exit_code == 0, report.text()
    (finding,) = [f for f in report.findings if f.kind == "crash"]
    assert finding.severity == "note"
    assert "ended badly: crash, SIGSEGV" in finding.text


def test_one_that_hangs_at_its_unloading_is_ended(twice: Path, library: Callable[[str], Path]) -> None:
    report = report_of(twice, library("hangs when unloaded"))
    complete(report)
    assert report.exit_code == 0, report.text()


def test_a_crash_while_it_is_timed_has_failed(twice: Path, library: Callable[[str], Path]) -> None:
    """Every sample was right; a server would have died within the second."""
    report = report_of(twice, library("dies on its fortieth run"), latency=True)
    complete(report)
    assert all(c.verdict == "passed" for c in report.cells)
    assert report.exit_code == 1
    (finding,) = [f for f in report.findings if f.kind == "crash"]
    assert "to be timed" in finding.where
