"""`deployops inspect` on what is hardly a model: one line or a finding each, no traceback, and an end."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from deployops import inspect_model
from deployops.errors import ModelFileError

F32 = TensorProto.FLOAT


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, F32, [2])


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
    stored: Sequence[str] = (),
    opsets: Sequence[tuple[str, int]] = (("", 18),),
) -> onnx.ModelProto:
    weights = [helper.make_tensor(n, F32, [2], [1.0, 2.0]) for n in stored]
    graph = helper.make_graph(list(nodes), "g", list(map(value, inputs)), list(map(value, outputs)), weights)
    made = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid(*o) for o in opsets])
    if not opsets:
        del made.opset_import[:]
    return made


def relu(domain: str = "", op_type: str = "Relu") -> onnx.NodeProto:
    return helper.make_node(op_type, ["x"], ["y"], domain=domain)


def untyped() -> onnx.ModelProto:
    made = model([relu()])
    made.graph.input[0].ClearField("type")
    return made


ODD = {
    "nothing in it": (model([], (), ()), "empty-graph"),
    "only an input": (model([], ("x",), ()), "empty-graph"),
    "only an initializer": (model([], (), (), ("w",)), "empty-graph"),
    "an initializer as output": (model([], (), ("w",), ("w",)), ""),
    "an input as output": (model([], ("x",), ("x",)), ""),
    "no outputs": (model([relu()], outputs=()), ""),
    "an input without a type": (untyped(), "input-type"),
    "a domain that is not imported": (model([relu("acme", "Foo")]), "domain-not-imported"),
    "a node that is no operator": (model([relu("", "")]), "no-operator"),
    "an opset of minus five": (model([relu()], opsets=[("", -5)]), "operator-too-new"),
    "an opset of two to the 62": (model([relu()], opsets=[("", 2**62)]), "opset-too-new"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_onnxruntime_refuses_is_found(name: str, tmp_path: Path) -> None:
    made, kind = ODD[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    found = inspect_model(path, runtime="onnxruntime==1.32.0", tensorrt="10.8")
    found.summary()
    assert found.checked is not None
    kinds = {f.kind for f in found.checked.findings if f.severity == "would fail"}
    assert kind in kinds if kind else not kinds
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception:
        assert kinds
    else:
        assert not kinds


def test_a_node_without_anything_has_a_place(tmp_path: Path) -> None:
    made = model([relu(), helper.make_node("Foo", [], [], domain="acme")], opsets=[("", 18), ("acme", 1)])
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    assert "a node without a name: acme::Foo" in inspect_model(path).summary()


def test_no_engine_without_outputs(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(ODD["no outputs"][0].SerializeToString())
    found = inspect_model(path, tensorrt="10.8").tensorrt
    assert found is not None
    assert [f.kind for f in found.findings if f.severity == "would fail"] == ["no-outputs"]


def test_a_function_that_calls_itself(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    for calls in ({"A": "A"}, {"A": "B", "B": "A"}):
        made = model([relu("acme", "A")], opsets=[("", 18), ("acme", 1)])
        made.functions.extend(
            helper.make_function("acme", n, ["x"], ["y"], [relu("acme", c)], opsets) for n, c in calls.items()
        )
        path = tmp_path / "m.onnx"
        path.write_bytes(made.SerializeToString())
        found = inspect_model(path, runtime="onnxruntime==1.32.0", tensorrt="10.8")
        for checked in (found.checked, found.tensorrt):
            assert checked is not None
            assert "function-recursive" in {f.kind for f in checked.findings if f.severity == "would fail"}


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def external(location: str | None) -> bytes:
    made = model([helper.make_node("Add", ["x", "w"], ["y"])])
    weight = made.graph.initializer.add(name="w", data_type=F32, dims=[2], data_location=TensorProto.EXTERNAL)
    if location is not None:
        weight.external_data.add(key="location", value=location)
    return made.SerializeToString()


GRAPH = b"\x08\x08\x3a"  # ir_version 8, and the key of the graph
BAD_FILES = {
    "no opset": (model([relu()], opsets=()).SerializeToString(), "names no opset"),
    "a graph of 2 GB that is not there": (GRAPH + varint(2**31 - 10) + bytes(100), "damaged"),
    "a graph of 2**63 bytes": (GRAPH + varint(2**63 - 1) + bytes(100), "damaged"),
    "a graph of a negative size": (GRAPH + b"\xff" * 9 + b"\x01" + bytes(100), "damaged"),
    "millions of versions": (b"\x08\x08" * 3_000_000, "damaged"),
    "weights that are missing": (external("gone.bin"), "needs the side file gone.bin"),
    "weights in no file": (external(None), "weights are missing"),
    "weights in a device": (external("/dev/zero"), "outside its folder"),
    "weights in a folder": (external("."), "weights are missing"),
    "nothing": (b"", "empty"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    content, told = BAD_FILES[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        inspect_model(path)
    [line] = str(caught.value).splitlines()
    assert told in line
    assert "m.onnx" in line


def test_files_that_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    wanted = {
        tmp_path: "is a directory",
        tmp_path / "pipe": "not a regular file",
        tmp_path / "link": "not a regular file",
        tmp_path / "loop": "cannot be read",
        tmp_path / ("n" * 300): "cannot be read",
        tmp_path / "gone": "does not exist",
        Path("/dev/zero"): "not a regular file",
        Path("/proc/self/mem"): "cannot be read",
    }
    for path, told in wanted.items():
        with pytest.raises(ModelFileError, match=told):
            inspect_model(path)


def test_a_file_of_more_than_2_gib_is_not_read(tmp_path: Path) -> None:
    """In a process that could not hold it."""
    path = tmp_path / "large.onnx"
    size = (1 << 31) + 1000
    with path.open("wb") as file:
        file.write(GRAPH + varint(size))
        file.truncate(file.tell() + size)
    limit = 2 << 30

    def little_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    command = [sys.executable, "-m", "deployops.cli", "inspect", str(path)]
    done = subprocess.run(
        command, preexec_fn=little_memory, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "more than 2 GiB" in done.stderr
    assert "Traceback" not in done.stderr
