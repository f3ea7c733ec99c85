"""What a bisection says where no single node of the file explains the failure, and whose fault a node is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import deployops
from deployops.validation.backends.onnxruntime import OnnxRuntime

from .bisected_models import (
    Blocks,
    attribute,
    bisected,
    dropped,
    edited,
    exported,
    node,
    op_type,
    opener,
    seeded,
    weight,
    x,
)

File = tuple[nn.Module, Path]


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> File:
    net = seeded(Blocks(3))
    return net, exported(net, x(2, 7, 16), tmp_path_factory.mktemp("limits") / "blocks.onnx")


def rewriting(change: Callable[[onnx.ModelProto], None]) -> Callable[[Path], OnnxRuntime]:
    """A backend that computes something else than the file says: what it is given is changed first."""

    def opened(path: Path) -> OnnxRuntime:
        model = onnx.load(str(path), load_external_data=False)
        change(model)
        path = path.with_name(f"{path.stem}_as_the_backend_sees_it.onnx")
        path.write_bytes(model.SerializeToString())
        return opener()(path)

    return opened


def wrong_fusion(model: onnx.ModelProto) -> None:
    """Softmax and the MatMul after it become one, with an error, where nobody else reads the value between."""
    outputs = {o.name for o in model.graph.output}
    for softmax in [n for n in model.graph.node if n.op_type == "Softmax" and "softmax_1" in n.output[0]]:
        readers = [n for n in model.graph.node if softmax.output[0] in n.input]
        if len(readers) == 1 and softmax.output[0] not in outputs:
            softmax.op_type = "LogSoftmax"


def test_a_fusion_of_the_backend_is_told_from_a_node(blocks: File) -> None:
    net, path = blocks
    found = bisected(net, path, x(3, 7, 16), backend=rewriting(wrong_fusion))
    assert found.culprit is None
    assert "gone when the values between the nodes are asked for" in found.text
    assert "Softmax `node_softmax_1`, MatMul `node_matmul_3`" in found.text
    assert found.runs <= 12


def test_errors_that_add_up_are_told_from_a_node(blocks: File) -> None:
    """The user's tolerance is narrower than what sound steps add up to."""
    net, path = blocks
    found = bisected(net, path, x(3, 7, 16), atol=1e-9)
    assert found.culprit is None
    assert "the errors add up" in found.text


def test_a_fault_of_the_backend_is_told_from_one_of_the_file(blocks: File) -> None:
    def wrong_kernel(model: onnx.ModelProto) -> None:
        for at in model.graph.node:
            if at.op_type == "LayerNormalization" and at.output[0].endswith("layer_norm_2"):
                next(a for a in at.attribute if a.name == "epsilon").f = 0.1

    net, path = blocks
    found = bisected(net, path, x(3, 7, 16), backend=rewriting(wrong_kernel))
    assert found.culprit is not None
    assert found.culprit.output == "layer_norm_2"
    assert "the backend, or its library, computes another" in found.text


@deployops.operator("bisected::soft_sign", onnx="bisected::SoftSign", dtypes="float32")
def soft_sign(v: torch.Tensor, k: float = 1.0) -> torch.Tensor:
    """x / (k + |x|)."""
    return v / (k + v.abs())


@soft_sign.fake
def _(v: torch.Tensor, k: float = 1.0) -> torch.Tensor:
    return torch.empty_like(v)


@soft_sign.body
def _(op: Any, v: Any, k: float) -> Any:
    return op.Div(v, op.Add(op.Abs(v), k))


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return self.last(soft_sign(self.first(v), 0.5))


def wrong_body(model: onnx.ModelProto) -> None:
    (function,) = model.functions
    next(n for n in function.node if n.op_type == "Abs").op_type = "Relu"


def test_custom_nodes_are_one_unit(tmp_path: Path) -> None:
    net = seeded(Custom())
    path = tmp_path / "custom.onnx"
    deployops.export_model(net, (x(2, 8),), out=path, dynamic={"v": {0: "batch"}})
    in_file = bisected(net, edited(path, wrong_body), x(5, 8))
    in_library = bisected(net, path, x(5, 8), backend=rewriting(wrong_body))
    for found in (in_file, in_library):
        assert found.culprit is not None
        assert (found.culprit.domain, found.culprit.op_type) == ("bisected", "SoftSign")
        assert "self.last(soft_sign(self.first(v), 0.5))" in found.culprit.line
    assert "the file says something else" in in_file.text
    assert "the backend, or its library, computes another" in in_library.text


def test_a_fault_inside_a_pattern_that_the_backend_fuses(tmp_path: Path) -> None:
    """GELU in five nodes, which the backend makes one of: any of them may be wrong."""
    net = seeded(Blocks(2))
    path = exported(net, x(2, 7, 16), tmp_path / "gelu.onnx", opset=18)
    assert any(n.op_type == "Erf" for n in onnx.load(str(path)).graph.node)

    def other_constant(model: onnx.ModelProto) -> None:
        at = [n for n in model.graph.node if n.op_type == "Erf"][1]
        before = next(n for n in model.graph.node if at.input[0] in n.output)
        model.graph.initializer.append(numpy_helper.from_array(np.float32(1.5), "not_the_root_of_two"))
        before.input[1] = "not_the_root_of_two"

    found = bisected(net, edited(path, other_constant), x(3, 7, 16))
    assert found.culprit is not None, found.text
    assert (found.culprit.output, found.culprit.module) == ("gelu_1", "blocks.1.act")
    assert "it may be any of" in found.text
    assert "Erf" in found.text


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_the_approximation_of_gelu(dtype: torch.dtype, tmp_path: Path) -> None:
    net = seeded(Blocks(2), dtype)
    path = exported(net, x(2, 7, 16, dtype=dtype), tmp_path / "gelu.onnx")
    faulty = edited(path, attribute("gelu", "approximate", "tanh"))
    found = bisected(net, faulty, x(64, 7, 16, dtype=dtype), atol=1e-7)
    assert found.culprit is not None, found.text
    assert (found.culprit.output, found.culprit.module) == ("gelu", "blocks.0.act")


def test_an_output_judged_as_a_choice(tmp_path: Path) -> None:
    """Another maximum is a failure, a small difference is none: the search judges as the failed cell was."""
    from deployops.validation.bisection import bisect
    from deployops.validation.original import Original
    from deployops.validation.record import Cell

    class Classes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.layer(x), -1)

    net = seeded(Classes())
    path = exported(net, x(3, 8), tmp_path / "classes.onnx")
    failed = Cell("here", "output", "onnxruntime", "failed", judged_as="argmax")
    sample = deployops.validation.Sample("here", (x(6, 8),))
    sound = edited(path, weight("linear", lambda w: w * np.float32(1.01)))
    found = bisect(Original(net), sound, sample, failed, opener())
    assert "did not fail again" in found.text
    found = bisect(Original(net), edited(path, weight("linear", lambda w: -w)), sample, failed, opener())
    assert found.culprit is not None
    assert found.culprit.output == "linear"


def test_a_node_that_the_backend_does_not_run(blocks: File) -> None:
    def missing(model: onnx.ModelProto) -> None:
        node(model, "gelu_1").domain = "nowhere"
        model.opset_import.append(helper.make_opsetid("nowhere", 1))

    net, path = blocks
    found = bisected(net, edited(path, missing), x(3, 7, 16))
    assert found.culprit is not None
    assert (found.culprit.output, found.culprit.module) == ("gelu_1", "blocks.1.act")
    assert "part_" not in found.text  # names that only the search knows
    assert found.runs <= 12


def test_random_numbers_are_said(blocks: File) -> None:
    def noise(model: onnx.ModelProto) -> None:
        at = node(model, "add_1")
        at.output[0] = "quiet"
        more = [
            helper.make_node("RandomNormalLike", ["quiet"], ["noise"]),
            helper.make_node("Add", ["quiet", "noise"], ["add_1"], name="noisy"),
        ]
        index = list(model.graph.node).index(at) + 1
        rest = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node[index:]]
        del model.graph.node[index:]
        model.graph.node.extend([*more, *rest])

    net, path = blocks
    found = bisected(net, edited(path, noise), x(3, 7, 16))
    assert found.culprit is not None
    assert found.culprit.node == "noisy"
    assert "draws random numbers" in found.text


def test_a_fault_at_one_size_only(tmp_path: Path) -> None:
    """A mean whose divisor was frozen at the example's size."""

    class Mean(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return torch.tanh(v * 2).mean(0)

    def frozen_divisor(model: onnx.ModelProto) -> None:
        at = next(n for n in model.graph.node if n.op_type == "ReduceMean")
        at.op_type = "ReduceSum"
        made, at.output[0] = at.output[0], "sum"
        model.graph.initializer.append(numpy_helper.from_array(np.float32(4), "count"))
        model.graph.node.append(helper.make_node("Div", ["sum", "count"], [made], name="divide"))

    path = tmp_path / "mean.onnx"
    deployops.export_model(Mean(), (x(4, 5),), out=path, dynamic={"v": {0: "n"}})
    fine = deployops.validation.Sample("n=4", (x(4, 5),))
    found = bisected(Mean(), edited(path, frozen_divisor), x(6, 5), passing=fine)
    assert found.culprit is not None
    assert found.culprit.node == "divide"
    assert "On n=4 it is within its budget: the fault depends on the size" in found.text


def test_what_tracing_fixed_is_in_no_node(tmp_path: Path) -> None:
    class Sometimes(nn.Module):
        """Python decides by a size, which a trace sees once."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, v: torch.Tensor) -> torch.Tensor:
            y = self.layer(v)
            return y + 1 if torch.compiler.is_exporting() else y

    net = seeded(Sometimes())
    path = tmp_path / "sometimes.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x(2, 4),), str(path), dynamo=True, verbose=False)
    found = bisected(net, path, x(2, 4))
    assert found.culprit is None
    assert "differs from the original on this sample" in found.text
    assert "in no node of the file" in found.text


def test_a_file_of_another_tool_is_matched_by_value(export: Callable[..., Path]) -> None:
    net = seeded(Blocks(3))
    path = export(net, (x(2, 7, 16),))

    def second_norm(model: onnx.ModelProto) -> None:
        at = [n for n in model.graph.node if n.op_type == "LayerNormalization"][1]
        next(a for a in at.attribute if a.name == "epsilon").f = 0.1

    found = bisected(net, edited(path, second_norm), x(2, 7, 16))
    assert found.culprit is not None, found.text
    assert (found.culprit.op_type, found.culprit.module) == ("LayerNormalization", "blocks.1.norm")
    assert "matched by value" in found.reference


def unlike(build: Callable[..., Path], factor: float) -> Path:
    """Two nodes that compute tanh of a product by exponentials: no value between is one of the model's."""
    constants = {"k": np.float32(2 * factor), "one": np.float32(1), "two": np.float32(2)}
    nodes = [
        helper.make_node("Mul", ["v", "k"], ["a"]),
        helper.make_node("Exp", ["a"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["s"]),
        helper.make_node("Div", ["two", "s"], ["q"]),
        helper.make_node("Sub", ["one", "q"], ["y"], name="last"),
    ]
    return build(nodes, [("v", "float", ["n", 8])], [("y", "float", ["n", 8])], constants)


class Chain(nn.Module):
    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return torch.tanh((v + v.sin() - v.sin()) * 1.5)


def test_a_file_that_cannot_be_matched_is_said_to_be_at_fault(build: Callable[..., Path]) -> None:
    found = bisected(Chain(), unlike(build, 1.25), x(5, 8))
    assert found.culprit is None
    assert "the fault is in the file" in found.text
    assert "not faults of the file" in found.reference


def test_a_file_that_cannot_be_matched_still_shows_a_fault_of_the_backend(build: Callable[..., Path]) -> None:
    def wrong(model: onnx.ModelProto) -> None:
        for at in model.graph.node:
            if at.op_type == "Exp":
                at.op_type = "Softplus"

    found = bisected(Chain(), unlike(build, 1.5), x(5, 8), backend=rewriting(wrong))
    assert found.culprit is not None, found.text
    assert found.culprit.op_type == "Exp"
    assert "the file itself, node by node" in found.reference


def test_a_branch_is_one_node(tmp_path: Path) -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            return torch.cond(y.sum() > 0, lambda t: t.sin() * 2, lambda t: t.cos() * 3, (y,)) + 1

    def other_branch(model: onnx.ModelProto) -> None:
        at = next(n for n in model.graph.node if n.op_type == "If")
        for branch in at.attribute:
            for inner in branch.g.node:
                inner.op_type = {"Sin": "Tanh", "Cos": "Tanh"}.get(inner.op_type, inner.op_type)

    net = seeded(Branch())
    path = exported(net, x(3, 4), tmp_path / "branch.onnx")
    found = bisected(net, edited(path, other_branch), x(5, 4))
    assert found.culprit is not None, found.text
    assert found.culprit.op_type == "If"


def test_a_model_that_writes_its_buffers(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return torch.relu(self.layer(x)) * (1 + self.calls)

    net = seeded(Counting())
    path = exported(net, x(3, 4), tmp_path / "counting.onnx")
    found = bisected(net, edited(path, op_type("relu", "Abs")), x(5, 4))
    assert found.culprit is not None, found.text
    assert found.culprit.output == "relu"
    assert float(net.calls) == 0


@pytest.mark.parametrize("inside", [True, False])
def test_weights_in_a_file_of_their_own(inside: bool, tmp_path: Path) -> None:
    net = seeded(Blocks(2))
    path = exported(net, x(2, 7, 16), tmp_path / "external.onnx", external_data=True)
    model = onnx.load(str(path), load_external_data=False)
    attribute("layer_norm_1", "epsilon", 0.1)(model)
    if not inside:
        entry = next(e for t in model.graph.initializer for e in t.external_data if e.key == "location")
        entry.value = "../elsewhere.bin"
        (tmp_path.parent / "elsewhere.bin").write_bytes(bytes(1 << 16))
    path.write_bytes(model.SerializeToString())
    before = sorted(p.name for p in tmp_path.iterdir())
    found = bisected(net, path, x(3, 7, 16))
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    if inside:
        assert found.culprit is not None
        assert found.culprit.output == "layer_norm_1"
    else:
        assert found.culprit is None
        assert "outside the model's folder" in found.text
        assert found.runs == 0


def test_in_a_child_process(blocks: File) -> None:
    net, path = blocks
    faulty = edited(path, weight("linear_5", lambda w: -w))
    found = bisected(net, faulty, x(3, 7, 16), backend=opener(isolate=True))
    assert found.culprit is not None
    assert found.culprit.output == "linear_5"


def test_no_more_runs_than_allowed(blocks: File) -> None:
    net, path = blocks
    faulty = edited(path, dropped("linear_2", 1))
    found = bisected(net, faulty, x(3, 7, 16), most_runs=1)
    assert (found.culprit, found.runs) == (None, 1)
    assert "within 1 runs" in found.text
    assert bisected(net, faulty, x(3, 7, 16), most_runs=2).culprit is not None


def test_only_the_failed_output_is_looked_into(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.left(x).sin(), self.right(x).cos()

    net = seeded(Two())
    path = exported(net, x(3, 4), tmp_path / "two.onnx")
    faulty = edited(path, op_type("output_0", "Tanh"), op_type("output_1", "Sin"))
    for output, line in (("output_0", "Tanh"), ("output_1", "Sin")):
        found = bisected(net, faulty, x(5, 4), output=output)
        assert found.culprit is not None
        assert (found.culprit.output, found.culprit.op_type) == (output, line)


def test_a_file_in_another_precision_than_the_original(blocks: File, tmp_path: Path) -> None:
    """float16 made from a float32 checkpoint: the steps are those of the original cast to float16."""
    from deployops.validation.bisection import bisect
    from deployops.validation.original import Original
    from deployops.validation.precision import in_the_files_precision
    from deployops.validation.record import Cell

    net, _ = blocks
    narrow = seeded(Blocks(3), torch.float16)
    path = exported(narrow, x(2, 7, 16, dtype=torch.float16), tmp_path / "half.onnx")
    faulty = edited(path, attribute("layer_norm_1", "epsilon", 0.1))
    sample = deployops.validation.Sample("here", (x(3, 7, 16),))
    original, samples = in_the_files_precision(Original(net), onnx.load(str(faulty)), [sample])
    assert original.apart
    found = bisect(original, faulty, samples[0], Cell("here", "*", "onnxruntime", "failed"), opener())
    assert found.culprit is not None, found.text
    assert (found.culprit.output, found.culprit.module) == ("layer_norm_1", "blocks.1.norm")
    assert found.culprit.inputs[0].dtype == "float16"


def test_integers_that_overflow(tmp_path: Path) -> None:
    class Hash(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 1_000_003).cumsum(1) % 97

    def narrow(model: onnx.ModelProto) -> None:
        at = next(n for n in model.graph.node if n.op_type == "CumSum")
        index = list(model.graph.node).index(at)
        rest = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node[index:]]
        del model.graph.node[index:]
        before, rest[0].input[0] = rest[0].input[0], "narrow"
        made, rest[0].output[0] = rest[0].output[0], "narrow_sum"
        cast = [helper.make_node("Cast", [before], ["narrow"], to=6)]
        back = [helper.make_node("Cast", ["narrow_sum"], [made], name="back", to=7)]
        model.graph.node.extend([*cast, rest[0], *back, *rest[1:]])

    given = torch.arange(40).reshape(4, 10) * 100
    path = tmp_path / "hash.onnx"
    deployops.export_model(Hash(), (given,), out=path, dynamic={"x": {0: "batch"}})
    found = bisected(Hash(), edited(path, narrow), given)
    assert found.culprit is not None, found.text
    assert found.culprit.node == "back"
    assert "must be equal" in found.text


@deployops.operator("bisected::twice", onnx="bisected::Twice", version=3, dtypes="float32")
def twice(v: torch.Tensor) -> torch.Tensor:
    """2 x."""
    return v * 2


@twice.fake
def _(v: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(v)


@twice.body
def _(op: Any, v: Any) -> Any:
    return op.Add(v, v)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return self.last(twice(self.first(v)))


def test_a_library_whose_kernel_is_wrong(tmp_path: Path) -> None:
    """Built from the source of the tests' library, with another factor: the body in the file is right."""
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("not checked: no g++ to build a custom-operator library with")
    text = (Path(__file__).parents[1] / "ort_ops" / "twice.cc").read_text()
    changes = (("= 2 * static_cast", "= 2.01f * static_cast"), ('"acme"', '"bisected"'))
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    source = tmp_path / "twice_and_a_bit.cc"
    source.write_text(text)
    library = source.with_suffix(".so")
    subprocess.run([compiler, "-std=c++17", "-fPIC", "-shared", "-o", library, source], check=True)

    net = seeded(Twice())
    path = tmp_path / "twice.onnx"
    deployops.export_model(net, (x(2, 8),), out=path, dynamic={"v": {0: "batch"}})
    assert "did not fail again" in bisected(net, path, x(5, 8)).text  # the body
    found = bisected(net, path, x(5, 8), backend=opener(libraries=[library], isolate=True))
    assert found.culprit is not None, found.text
    assert (found.culprit.domain, found.culprit.op_type) == ("bisected", "Twice")
    assert "the backend, or its library, computes another" in found.text
