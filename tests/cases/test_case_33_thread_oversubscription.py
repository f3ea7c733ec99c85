"""Case 33: thread counts are pinned and recorded, pools do not spin, and more threads than cores are told. No time is asserted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from deployops.ort_ops.engine import Engine
from deployops.ort_ops.session import session
from deployops.validation.backends.cores import thread_findings, usable_cores
from deployops.validation.backends.runner import Request
from deployops.validation.latency.fingerprint import fingerprint
from deployops.validation.latency.limits import judge
from deployops.validation.latency.measurement import measure
from deployops.validation.record import Limits


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    path = tmp_path / "relu.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))
    return path


@pytest.mark.parametrize("threads", [1, 2])
def test_the_runtime_s_pool_has_the_threads_asked_for_and_does_not_spin(relu: Path, threads: int) -> None:
    options = session(relu, threads=threads).get_session_options()
    assert options.intra_op_num_threads == threads
    for pool in ("intra_op", "inter_op"):
        assert options.get_session_config_entry(f"session.{pool}.allow_spinning") == "0"


def test_both_sides_threads_are_recorded(relu: Path) -> None:
    engine = Engine(relu, threads=1, optimize=True)
    engine.run({"x": np.ones(4, np.float32)})
    record = measure(
        {"pytorch": lambda: 1.0, "onnxruntime": engine.time},
        "s",
        threads=1,
        pools={"pytorch": 1, "onnxruntime": 1},
        fingerprint=fingerprint(1),
        most_runs=30,
        most_seconds=5,
    )
    assert record.threads == 1
    assert record.fingerprint["threads"] == "1"
    assert [t.threads for t in record.timings] == [1, 1]


def test_records_of_other_thread_counts_are_not_compared() -> None:
    def record(threads: int) -> Any:
        candidates: dict[str, Callable[[], float]] = {"pytorch": lambda: 1.0, "onnxruntime": lambda: 1.0}
        return measure(
            candidates, "s", threads=threads, fingerprint={"processor": "P"}, most_runs=30, seconds=0
        )

    (found,) = [r for r in judge(record(1), Limits(), record(8)).ratios if r.against == "baseline"]
    assert found.verdict == "not checked"
    assert "threads is 1, in the baseline 8" in found.reason


@pytest.mark.parametrize("times", [2, 4])
def test_more_threads_than_usable_cores_are_told(times: int) -> None:
    cores = usable_cores()
    (finding,) = thread_findings({"onnxruntime": {"intra-op": times * cores}}, cores)
    assert finding.kind == "threads"
    assert f"the {cores} cores" in finding.text
    assert thread_findings({"onnxruntime": {"intra-op": cores}, "pytorch": {"intra-op": cores}}, cores) == []


def test_sides_with_different_threads_are_told() -> None:
    (finding,) = thread_findings({"onnxruntime": {"intra-op": 1}, "pytorch": {"intra-op": 2}}, 8)
    assert "do not compare" in finding.text


def test_backends_are_measured_in_a_process_of_their_own() -> None:
    assert Request().isolate
