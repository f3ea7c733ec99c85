"""The benchmarks start, and those that need no GPU measure something tiny: what they use of deployops is still there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
PROGRAMS = [p for p in sorted(BENCHMARKS.glob("*.py")) if '__name__ == "__main__"' in p.read_text()]
PARTS = sorted(set(BENCHMARKS.glob("*.py")) - set(PROGRAMS))


def run(file: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(file), *arguments], capture_output=True, text=True, timeout=600, cwd=BENCHMARKS
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda p: p.stem)
def test_a_benchmark_says_how_it_is_used(file: Path) -> None:
    assert f"usage: {file.name}" in run(file, "--help")


@pytest.mark.parametrize("file", PARTS, ids=lambda p: p.stem)
def test_what_benchmarks_share_is_imported(file: Path) -> None:
    assert run(file) == ""


def test_the_emulation_is_measured() -> None:
    table = run(BENCHMARKS / "bench_emulation.py", "--ops", "relu", "--side", "32")
    assert re.search(r"^\| relu, float32 \| \d+ ms \| \d+ ms \|$", table, re.MULTILINE)
    assert re.search(r"^\| parity of 1 operators, [1-9]\d* runs, 1 passed \| ", table, re.MULTILINE)


def test_a_comparison_is_measured() -> None:
    lines = run(BENCHMARKS / "bench_compare.py", "10000").splitlines()
    assert [line.split()[0] for line in lines] == 2 * ["float32"] + 2 * ["float16"] + 2 * ["bfloat16"]
    assert all("10,000 elements" in line for line in lines)


def test_a_bisection_is_measured() -> None:
    assert re.search(r"\d+ nodes: .* 1 of 1 right$", run(BENCHMARKS / "bench_bisect.py", "1").strip())
