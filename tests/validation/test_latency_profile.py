"""Where the time goes: real traces of both sides, joined by module, and traces whose numbers are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from deployops.ort_ops.engine import Engine
from deployops.validation.latency.analysis import explained, values_of
from deployops.validation.latency.gpus import GPUS
from deployops.validation.latency.graph_cost import model_cost
from deployops.validation.latency.joined import joined
from deployops.validation.latency.machine import Bandwidth, Machine
from deployops.validation.latency.measurement import timing_of
from deployops.validation.latency.record import LatencyRecord, NodeTime, Profile
from deployops.validation.latency.roofline import of_profile
from deployops.validation.latency.runtime_profile import common_module, cuts, runtime_profile
from deployops.validation.latency.runtime_trace import read_trace
from deployops.validation.latency.torch_profile import torch_profile, traced
from deployops.validation.latency.values import Value

MACHINE = Machine("", (Bandwidth(0, 1e9, 1e9),), {"float32": 1e9})


def event(name: str, start: float, dur: float, op: str, shapes: Any = None) -> dict[str, Any]:
    args = {"op_name": op, "provider": "CPUExecutionProvider"}
    if shapes:
        args |= {"input_type_shape": shapes[0], "output_type_shape": shapes[1]}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": start, "dur": dur, "args": args}


def run(start: float, dur: float) -> dict[str, Any]:
    return {"cat": "Session", "name": "model_run", "ts": start, "dur": dur, "args": {}}


def test_runs_are_averaged_and_the_first_is_left_out() -> None:
    events = [
        event("a", 0, 900, "MatMul"), run(0, 1000),
        event("a", 2000, 100, "MatMul"), event("b", 2150, 40, "Relu"), run(2000, 200),
        event("a", 3000, 200, "MatMul"), event("b", 3250, 20, "Relu"), run(3000, 300),
    ]  # fmt: skip
    found = read_trace(json.dumps(events))
    assert [(n.name, n.time, n.calls) for n in found.nodes] == [
        ("a", 0.15, 1.0),
        ("b", 0.03, 1.0),
    ]  # medians of two
    assert (found.total, found.runs) == (0.25, 2)
    assert read_trace(json.dumps(events[:2])).total == 1.0  # better than none


def test_a_node_s_time_is_its_own_and_not_that_of_the_graph_in_it() -> None:
    events = [
        run(0, 100), event("loop", 10, 80, "Loop"), event("inner", 20, 25, "MatMul"), event("inner", 50, 25, "MatMul"),
        event("after", 90, 5, "Relu"),
    ]  # fmt: skip
    found = {n.name: (n.time, n.calls) for n in read_trace(json.dumps(events)).nodes}
    assert found == {"loop": (0.03, 1.0), "inner": (0.05, 2.0), "after": (0.005, 1.0)}


def test_a_matrix_that_the_runtime_packed_is_put_back() -> None:
    shapes = ([{"float": [2, 16]}, {"float": [10]}], [{"float": [2, 10]}])
    (node,) = read_trace(json.dumps([run(0, 10), event("g", 0, 5, "Gemm", shapes)])).nodes
    assert node.inputs is not None
    assert node.inputs[1].shape == (16, 10)


@pytest.mark.parametrize("text", ["", "{}", "[]", '[{"cat": "Node"}]', "not json"])
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="trace"):
        read_trace(text)
    with pytest.raises(ValueError, match="trace"):
        torch_profile(text, "pytorch", "s")


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.act = torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.norm(self.conv(x))) + x


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(), Block())
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Net, torch.Tensor, Path]:
    import deployops

    net, x = Net().eval(), torch.randn(2, 8, 16, 16)
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    deployops.export_model(net, (x,), out=path)
    return net, x, path


def trace_of(path: Path, x: np.ndarray[Any, Any], folder: Path, runs: int = 4) -> str:
    engine = Engine(path, threads=1, optimize=True, profile=str(folder / "trace"))
    for _ in range(runs):
        engine.run({engine.inputs[0][0]: x})
    return engine.end_profiling().read_text()


def test_both_sides_by_module(exported: tuple[Net, torch.Tensor, Path], tmp_path: Path) -> None:
    net, x, path = exported
    with torch.no_grad():
        theirs = torch_profile(traced(net, lambda: net(x), runs=3), "pytorch", "s")
    ours = runtime_profile(
        read_trace(trace_of(path, x.numpy(), tmp_path)), onnx.load(str(path)), "onnxruntime", "s"
    )
    assert {n.module for n in theirs.nodes if n.op_type == "aten::conv2d"} == {
        "blocks.0.conv",
        "blocks.1.conv",
    }
    # convolution and norm have become one node, which lies in the module that both lie in
    assert {n.module for n in ours.nodes if n.op_type == "Conv"} <= {"blocks.0", "blocks.1"}
    for profile, runs in ((theirs, 3), (ours, 3)):
        assert profile.runs == runs
        assert profile.total == pytest.approx(sum(n.time for n in profile.nodes) + profile.overhead)
        assert sum(n.share for n in profile.nodes) == pytest.approx(1 - profile.overhead / profile.total)
        assert [n.time for n in profile.nodes] == sorted((n.time for n in profile.nodes), reverse=True)
    rows = {m.module: m.times for m in joined([theirs, ours])}
    for module in ("", "blocks", "blocks.0", "blocks.1", "head"):
        assert set(rows[module]) == {"pytorch", "onnxruntime"}
    assert rows["blocks"]["onnxruntime"] >= rows["blocks.0"]["onnxruntime"]


def test_the_hooks_of_a_trace_are_gone_afterwards(exported: tuple[Net, torch.Tensor, Path]) -> None:
    net, x, _ = exported
    with pytest.raises(ZeroDivisionError):
        traced(net, lambda: (net(x), 1 / 0))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_a_body_that_the_runtime_expanded_is_one_custom_entry(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    inner = [
        helper.make_node("Mul", ["a", "a"], ["s"], name="m"),
        helper.make_node("Erf", ["s"], ["b"], name="e"),
    ]
    opset = helper.make_opsetid("", 20)
    path = build(
        [helper.make_node("Square", ["x"], ["y"], domain="acme", name="square")],
        [("x", "float", [4, 8])],
        [("y", "float", [4, 8])],
        domains={"acme": 1},
        functions=[helper.make_function("acme", "Square", ["a"], ["b"], inner, [opset])],
    )
    trace = read_trace(trace_of(path, np.ones((4, 8), np.float32), tmp_path))
    found = runtime_profile(trace, onnx.load(str(path)), "onnxruntime", "s")
    (entry,) = found.nodes
    assert (entry.name, entry.op_type, entry.custom) == ("square", "acme::Square (its body)", True)
    assert entry.time == pytest.approx(sum(n.time for n in trace.nodes))
    graph = model_cost(onnx.load(str(path)), {"x": Value("float32", (4, 8))})
    (floor,) = of_profile(found, trace, MACHINE, graph)
    assert (floor.subject, floor.op_type, floor.bytes, floor.flops) == ("square", "acme::Square", 256, 64)
    assert floor.share == pytest.approx(floor.floor / entry.time)


def test_several_nodes_of_one_body_are_one_entry_with_the_floor_of_all(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    inner = [helper.make_node("Erf", ["a"], ["b"], name="e")]
    nodes = [
        helper.make_node("F", ["x"], ["h"], domain="acme", name="f1"),
        helper.make_node("F", ["h"], ["y"], domain="acme", name="f2"),
    ]
    function = helper.make_function("acme", "F", ["a"], ["b"], inner, [helper.make_opsetid("", 20)])
    values = [[("x", "float", [4, 8])], [("y", "float", [4, 8])]]
    path = build(nodes, *values, domains={"acme": 1}, functions=[function])
    trace = read_trace(trace_of(path, np.ones((4, 8), np.float32), tmp_path))
    found = runtime_profile(trace, onnx.load(str(path)), "onnxruntime", "s")
    (floor,) = of_profile(
        found, trace, MACHINE, model_cost(onnx.load(str(path)), {"x": Value("float32", (4, 8))})
    )
    assert (floor.subject, floor.bytes, floor.flops) == ("2 × acme::F", 512, 64)


def test_what_a_custom_node_cuts_is_shown_with_it(build: Callable[..., Path]) -> None:
    """ONNX Runtime makes a convolution and the Relu behind it one node, but for the custom node between them."""
    path = build(
        [
            helper.make_node("Conv", ["x", "w"], ["h"], name="conv"),
            helper.make_node("Mystery", ["h"], ["m"], domain="acme", name="mystery"),
            helper.make_node("Relu", ["m"], ["y"], name="relu"),
        ],
        [("x", "float", [1, 3, 8, 8])],
        [("y", "float", [1, 4, 6, 6])],
        constants={"w": np.ones((4, 3, 3, 3), np.float32)},
        domains={"acme": 1},
    )
    model = onnx.load(str(path))
    inferred = model.graph.value_info
    inferred.extend(
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 4, 6, 6]) for n in ("h", "m")
    )
    found = cuts(model)
    assert set(found) == {"mystery"}
    assert "stands between" in found["mystery"]
    events = [
        run(0, 30),
        event("conv", 0, 10, "Conv"),
        event("mystery", 10, 10, "Mystery"),
        event("relu", 20, 5, "Relu"),
    ]
    profile = runtime_profile(read_trace(json.dumps(events)), model, "onnxruntime+library", "s")
    shown = {n.name: (n.custom, bool(n.cuts), n.op_type) for n in profile.nodes}
    assert shown == {
        "mystery": (True, True, "acme::Mystery"), "conv": (False, False, "Conv"), "relu": (False, False, "Relu"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("modules", "common"),
    [
        (["a.b.conv", "a.b.norm"], "a.b"),
        (["a.b"], "a.b"),
        (["a.b", ""], "a.b"),
        (["a.b", "c"], ""),
        (["layer1.x", "layer10.x"], ""),
        ([], ""),
    ],
)
def test_the_module_that_all_lie_in(modules: list[str], common: str) -> None:
    assert common_module(modules) == common


def _graph(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in ("x", "y")]
    return helper.make_model(helper.make_graph(list(nodes), "g", values[:1], values[1:]), ir_version=10)


@pytest.mark.parametrize(
    ("ran", "module"),
    [
        ("/body/body.0/act/Relu", "body.0.act"),
        ("fused /body/body.0/act/Relu", "body.0.act"),
        ("/body/body.0/act/Relu/GeluFusion/", "body.0.act"),
        ("t_nchwc", "body.0.act"),
        ("Relu_token_3", ""),  # put in by the runtime
        ("Relu", ""),
    ],
)
def test_nodes_under_the_runtime_s_own_names(ran: str, module: str) -> None:
    model = _graph(
        helper.make_node("Relu", ["x"], ["t"], name="/body/body.0/act/Relu"),
        helper.make_node("Relu", ["t"], ["y"], name="/body/body.1/act/Relu"),
    )
    trace = read_trace(json.dumps([run(0, 10), event(ran, 0, 5, "Relu")]))
    assert runtime_profile(trace, model, "onnxruntime", "s").nodes[0].module == module


def test_one_run_in_which_another_process_had_the_core_counts_for_no_node() -> None:
    events = []
    for k in range(6):
        late = 5000 if k == 3 else 0
        events += [event("a", 10_000 * k, 100 + late, "MatMul"), run(10_000 * k, 200 + late)]
    found = read_trace(json.dumps(events))
    assert (found.nodes[0].time, found.total) == (0.1, 0.2)


def test_modules_include_their_submodules_and_name_only_who_has_nodes_there() -> None:
    def profile(candidate: str, *nodes: tuple[str, float]) -> Profile:
        return Profile(candidate, "s", tuple(NodeTime("n", "op", t, 0.0, module=m) for m, t in nodes), 1.0)

    rows = joined([profile("pytorch", ("a.x", 1.0), ("a.y", 2.0)), profile("onnxruntime", ("a", 1.5))])
    assert [(r.module, r.times) for r in rows] == [
        ("", {"pytorch": 3.0, "onnxruntime": 1.5}),
        ("a", {"pytorch": 3.0, "onnxruntime": 1.5}),
        ("a.y", {"pytorch": 2.0}),
        ("a.x", {"pytorch": 1.0}),
    ]


def test_a_record_with_everything_explained(exported: tuple[Net, torch.Tensor, Path], tmp_path: Path) -> None:
    net, x, path = exported
    model = onnx.load(str(path))
    timings = tuple(timing_of(c, "s", [2.0] * 20) for c in ("pytorch", "onnxruntime"))
    with torch.no_grad():
        theirs = traced(net, lambda: net(x), runs=2)
    found = explained(
        LatencyRecord(1, timings),
        "s",
        model,
        values_of({model.graph.input[0].name: x}),
        MACHINE,
        runtime_traces={"onnxruntime": trace_of(path, x.numpy(), tmp_path)},
        torch_traces={"pytorch": theirs},
    )
    wholes = {r.candidate: r for r in found.rooflines if not r.subject}
    assert set(wholes) == {"pytorch", "onnxruntime"}
    whole = wholes["onnxruntime"]
    assert whole.share == pytest.approx(whole.floor / 2.0)
    convolutions = [r for r in found.rooflines if r.op_type == "Conv"]
    assert len(convolutions) == 2
    assert all(r.flops >= 2 * 2 * 8 * 256 * 72 for r in convolutions)
    assert [p.candidate for p in found.profiles] == ["pytorch", "onnxruntime"]
    assert found.modules
    assert found.notes == ()


def test_inputs_under_other_names_are_taken_in_their_order(exported: tuple[Net, torch.Tensor, Path]) -> None:
    _, x, path = exported
    record = LatencyRecord(1, (timing_of("onnxruntime", "s", [2.0] * 20),))
    model = onnx.load(str(path))
    right = explained(record, "s", model, values_of({model.graph.input[0].name: x}), MACHINE, gpus=GPUS)
    other = explained(record, "s", model, values_of({"pixels": x}), MACHINE, gpus=GPUS)
    assert right.rooflines == other.rooflines
    assert {r.machine for r in right.rooflines} == {"", *GPUS}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("?", "[]"), ('[{"cat": 1, "name": 2, "ts": "x", "dur": null}]', '{"traceEvents": 1}')],
)
def test_a_trace_that_cannot_be_read_is_a_note(
    exported: tuple[Net, torch.Tensor, Path], ours: str, theirs: str
) -> None:
    model = onnx.load(str(exported[2]))
    record = LatencyRecord(1, (timing_of("onnxruntime", "s", [2.0] * 20),))
    found = explained(
        record, "s", model, {}, MACHINE, runtime_traces={"onnxruntime": ours}, torch_traces={"p": theirs}
    )
    assert len(found.notes) == 3
    assert found.timings == record.timings
