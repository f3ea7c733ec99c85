"""How many threads are right: affinity, control groups of both versions, and pools that do not fit (case 33)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deployops.validation.backends.cores import quota, thread_findings, usable_cores


def group(root: Path, path: str, **files: str) -> None:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    path = tmp_path / "cgroup"
    path.write_text("0::/pod/container\n")
    return path


@pytest.mark.parametrize(
    ("text", "cores"),
    [("150000 100000\n", 1.5), ("max 100000\n", None), ("50000 100000\n", 0.5), ("garbage\n", None)],
)
def test_version_2(tmp_path: Path, membership: Path, text: str, cores: float | None) -> None:
    group(tmp_path, "pod/container", cpu__max=text)
    assert quota(tmp_path, membership) == cores


def test_the_tightest_of_all_groups_above_counts(tmp_path: Path, membership: Path) -> None:
    group(tmp_path, "pod/container", cpu__max="400000 100000")
    group(tmp_path, "pod", cpu__max="200000 100000")
    group(tmp_path, "", cpu__max="max 100000")
    assert quota(tmp_path, membership) == 2


def test_a_container_sees_its_group_as_the_root(tmp_path: Path, membership: Path) -> None:
    group(tmp_path, "", cpu__max="300000 100000")
    assert quota(tmp_path, membership) == 3


def test_version_1(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/a\n3:cpu,cpuacct:/a\n")
    group(tmp_path, "cpu/a", **{"cpu__cfs_quota_us": "250000", "cpu__cfs_period_us": "100000"})
    assert quota(tmp_path, tmp_path / "cgroup") == 2.5
    group(tmp_path, "cpu/a", **{"cpu__cfs_quota_us": "-1"})
    assert quota(tmp_path, tmp_path / "cgroup") is None


def test_no_control_groups_at_all(tmp_path: Path) -> None:
    assert quota(tmp_path, tmp_path / "absent") is None


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="not checked: this system has no affinity")
def test_the_affinity_counts_and_one_core_is_the_least(tmp_path: Path, membership: Path) -> None:
    before = os.sched_getaffinity(0)
    group(tmp_path, "pod/container", cpu__max="10000 100000")
    assert usable_cores(tmp_path, membership) == 1
    os.sched_setaffinity(0, {min(before)})
    try:
        assert usable_cores(tmp_path / "none", membership) == 1
    finally:
        os.sched_setaffinity(0, before)
    assert usable_cores(tmp_path / "none", membership) == len(before)


def test_pools_that_fit_are_no_finding() -> None:
    assert (
        thread_findings(
            {"pytorch": {"torch intra-op": 2}, "onnxruntime": {"onnxruntime intra-op": 2}}, cores=2
        )
        == []
    )


def test_a_pool_of_more_threads_than_cores() -> None:
    (finding,) = thread_findings({"onnxruntime": {"onnxruntime intra-op": 8}}, cores=2)
    assert finding.kind == "threads"
    assert "onnxruntime intra-op: 8" in finding.text
    assert "2 cores" in finding.text
    assert "--threads 2" in finding.advice


def test_different_numbers_do_not_compare() -> None:
    (finding,) = thread_findings({"a": {"p": 2}, "b": {"p": 1}, "gpu": {}}, cores=4)
    assert finding.kind == "threads"
    assert "a: 2, b: 1" in finding.text
