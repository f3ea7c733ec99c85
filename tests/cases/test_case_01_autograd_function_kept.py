"""Case 01: an autograd.Function with a `symbolic` stays one node; torch's exporter drops it without a word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch.onnx import symbolic_helper

import deployops
from deployops.errors import ExportError

Function = torch.autograd.Function
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


class SoftThreshold(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, lam: float) -> torch.Tensor:
        return torch.sign(x) * torch.relu(torch.abs(x) - lam)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return g, None

    @staticmethod
    def symbolic(g: Any, x: Any, lam: float) -> Any:
        return g.op("acme01::SoftThreshold", x, lam_f=lam)


kept_apply = SoftThreshold.apply


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return SoftThreshold.apply(x, 0.5) * 2.0


class Call(torch.nn.Module):
    """A module of one function, for the variants below."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def test_the_node_is_kept_with_its_attribute(deploy: Any) -> None:
    exported = deploy(Net(), ["x:float32[3,4]"])
    assert exported.ops == ["acme01::SoftThreshold", "Mul"]
    assert exported.attributes("SoftThreshold") == {"lam": 0.5}
    assert exported.result.custom_nodes == {"acme01::SoftThreshold": 1}
    assert "SoftThreshold is kept as acme01::SoftThreshold" in exported.notes


def test_the_kept_node_computes_what_the_case_says_once_it_has_a_body(deploy: Any) -> None:
    exported = deploy(Net(), ["x:float32[batch,4]"])
    body = onnx.parser.parse_function(
        """<domain: "acme01", opset_import: ["" : 20]>
        SoftThreshold <lam> (x) => (y) {
            zero = Constant <value_float: float = 0.0> ()
            limit = Constant <value_float: float = @lam> ()
            size = Abs(x)
            over = Sub(size, limit)
            kept = Max(over, zero)
            sign = Sign(x)
            y = Mul(sign, kept)
        }"""
    )
    exported.proto.functions.append(body)
    path = exported.path.with_name("with_body.onnx")
    onnx.save(exported.proto, str(path))
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    expected = 2 * np.sign(X) * np.maximum(np.abs(X) - 0.5, 0)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-6)


def test_it_is_not_passed_off_as_checked(deploy: Any) -> None:
    exported = deploy(Net(), ["x:float32[3,4]"])
    assert exported.result.checked_sizes == ()
    assert "not checked" in exported.notes
    assert exported.result.custom_ops == "node"
    assert "has none" in exported.notes  # no body


@pytest.mark.parametrize("mode", ["function", "standard"])
def test_a_body_that_is_missing_is_asked_for(deploy: Any, mode: str) -> None:
    with pytest.raises(ExportError, match=r"acme01::SoftThreshold.*adopt"):
        deploy(Net(), ["x:float32[3,4]"], custom_ops=mode)


def test_the_command_line_keeps_it_too(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets_of_case_01.py").write_text(
        "import torch\n"
        "class Twice(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x): return x * 2\n"
        "    @staticmethod\n"
        "    def symbolic(g, x): return g.op('acme01::Twice', x)\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = torch.nn.Linear(4, 4)\n"
        "    def forward(self, x): return Twice.apply(self.linear(x))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import nets_of_case_01

    torch.save(nets_of_case_01.Net().state_dict(), tmp_path / "net.pt")
    done = command(
        "export", tmp_path / "net.pt", "--model", "nets_of_case_01:Net", "--input", "x:float32[b,4]"
    )
    assert done.code == 0, done.err
    assert "acme01::Twice" in done.out
    assert "Twice is kept as acme01::Twice" in done.out


class Inherited(SoftThreshold):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, lam: float) -> torch.Tensor:
        return torch.nn.functional.softshrink(x, lam)


class OwnSymbolicOnly(SoftThreshold):
    @staticmethod
    def symbolic(g: Any, x: Any, lam: float) -> Any:
        return g.op("acme01::Shrink", x, limit_f=lam)


class ParsedArguments(SoftThreshold):
    @staticmethod
    @symbolic_helper.parse_args("v", "f")
    def symbolic(g: Any, x: Any, lam: float) -> Any:
        return g.op("acme01::Parsed", x, lam_f=lam)


class AsksTheGraph(SoftThreshold):
    @staticmethod
    def symbolic(g: Any, x: Any, lam: float) -> Any:
        assert symbolic_helper._get_tensor_rank(x) == 2
        assert symbolic_helper._get_tensor_dim_size(x, 1) == 4
        assert x.type().sizes()[1] == 4
        assert x.type().scalarType() == "Float"
        return g.op("acme01::Asked", x, lam_f=lam, width_i=x.type().sizes()[1]).setType(x.type())


@pytest.mark.parametrize(
    ("call", "node"),
    [
        (lambda x: kept_apply(x, 0.5), "acme01::SoftThreshold"),
        (lambda x: Inherited.apply(x, 0.5), "acme01::SoftThreshold"),
        (lambda x: OwnSymbolicOnly.apply(x, 0.5), "acme01::Shrink"),
        (lambda x: ParsedArguments.apply(x, 0.5), "acme01::Parsed"),
        (lambda x: AsksTheGraph.apply(x, 0.5), "acme01::Asked"),
    ],
    ids=[
        "apply kept in a variable",
        "inherited symbolic",
        "own symbolic, inherited forward",
        "parse_args",
        "sizes",
    ],
)
def test_every_way_of_writing_it_keeps_the_node(deploy: Any, call: Callable[..., Any], node: str) -> None:
    assert deploy(Call(call), ["x:float32[batch,4]"]).ops == [node]


def test_the_classes_are_afterwards_as_they_were(deploy: Any) -> None:
    before = dict(SoftThreshold.__dict__), dict(OwnSymbolicOnly.__dict__)
    deploy(Net(), ["x:float32[3,4]"])
    assert (dict(SoftThreshold.__dict__), dict(OwnSymbolicOnly.__dict__)) == before
    x = torch.from_numpy(X).requires_grad_()
    SoftThreshold.apply(x, 0.5).sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 4))


class Pair(Function):
    """setup_context style, several outputs, attributes of every kind."""

    @staticmethod
    def forward(x: torch.Tensor, n: int, flag: bool, name: str, sizes: list[int], scales: list[float]) -> Any:
        return x * n, x.argmax(1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def symbolic(g: Any, x: Any, n: int, flag: bool, name: str, sizes: Any, scales: Any) -> Any:
        return g.op(
            "acme01::Pair", x, n_i=n, flag_i=flag, name_s=name, sizes_i=sizes, scales_f=scales, outputs=2
        )


def test_attributes_and_outputs_of_every_kind(deploy: Any) -> None:
    exported = deploy(
        Call(lambda x: Pair.apply(x, 3, True, "fast", [1, 2], [0.5, 0.25])), ["x:float32[batch,4]"]
    )
    assert exported.ops == ["acme01::Pair"]
    assert exported.attributes("Pair") == {
        "n": 3, "flag": 1, "name": b"fast", "sizes": [1, 2], "scales": [0.5, 0.25],
    }  # fmt: skip
    assert exported.dims("output_0") == ["batch", 4]
    assert exported.dims("output_1") == ["batch"]
    assert exported.proto.graph.output[1].type.tensor_type.elem_type == onnx.TensorProto.INT64


class Composed(Function):
    """A symbolic of standard operators and constants: it can run, and is checked."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2 + x.shape[1]

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        doubled = g.op("Mul", g.op("Relu", x), g.op("Constant", value_t=torch.tensor(2.0)))
        return g.op("Add", doubled, g.op("Constant", value_t=torch.tensor(float(x.type().sizes()[1]))))


def test_a_symbolic_of_several_standard_nodes_is_used_and_checked(deploy: Any) -> None:
    exported = deploy(Call(Composed.apply), ["x:float32[batch,4]"])
    assert "Composed is kept as Relu + Mul + Add" in exported.notes
    assert exported.result.checked_sizes
    np.testing.assert_allclose(exported.run(X)[0], np.maximum(X, 0) * 2 + 4, rtol=1e-6)


class WrongSymbolic(Composed):
    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Relu", x)


def test_a_symbolic_that_computes_something_else_is_found(deploy: Any) -> None:
    with pytest.raises(ExportError, match="differs from the original"):
        deploy(Call(WrongSymbolic.apply), ["x:float32[batch,4]"])


class Optional(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return x * 2 if weight is None else x * weight

    @staticmethod
    def symbolic(g: Any, x: Any, weight: Any) -> Any:
        return g.op("acme01::Weighted", x, *([] if weight is None else [weight]))


def test_an_absent_tensor_is_none_for_the_symbolic(deploy: Any) -> None:
    exported = deploy(Call(lambda x: Optional.apply(x, None) - Optional.apply(x, x)), ["x:float32[batch,4]"])
    counts = sorted(len(n.input) for n in exported.proto.graph.node if n.op_type == "Weighted")
    assert counts == [1, 2]


class Plain(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_without_a_symbolic_the_report_says_that_it_was_decomposed(deploy: Any) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return Plain.apply(x)

    exported = deploy(Call(call), ["x:float32[batch,4]"])
    assert exported.ops == ["Mul"]
    assert "decomposed" in exported.notes
    assert "Plain" in exported.notes
    assert "deployops.adopt" in exported.notes
    np.testing.assert_allclose(exported.run(X)[0], 2 * X)


class Numpy(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.tanh(x.detach().numpy()))


class NumpyUntyped(Numpy):
    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("acme01::Tanh", x)


class NumpyTyped(Numpy):
    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("acme01::Tanh", x).setType(x.type())


def test_a_forward_outside_torch_is_named_with_what_to_write(deploy: Any) -> None:
    with pytest.raises(ExportError) as caught:
        deploy(Call(Numpy.apply), ["x:float32[batch,4]"])
    text = str(caught.value)
    assert "Numpy" in text
    assert "test_case_01" in text  # the line
    assert "deployops.adopt(Numpy" in text


def test_a_forward_outside_torch_with_a_symbolic_needs_only_the_type(deploy: Any) -> None:
    with pytest.raises(ExportError, match=r"NumpyUntyped.*setType"):
        deploy(Call(NumpyUntyped.apply), ["x:float32[batch,4]"])
    exported = deploy(Call(NumpyTyped.apply), ["x:float32[batch,4]"])
    assert exported.ops == ["acme01::Tanh"]
    assert exported.dims("output") == ["batch", 4]


class WritesInto(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("acme01::Twice", x)


class DependsOnBatch(Plain):
    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("acme01::Batch", x, n_i=x.type().sizes()[0])


class Broken(Plain):
    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return x.does_not_exist()


class WrongCount(Plain):
    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("acme01::Two", x, outputs=2)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (WritesInto, "writes into its argument"),
        (DependsOnBatch, "attribute `n` is not a constant"),
        (Broken, "Broken.symbolic fails: AttributeError"),
        (WrongCount, "returns 2 values, forward returns 1"),
    ],
)
def test_what_a_node_cannot_say_is_refused(deploy: Any, function: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        deploy(Call(lambda x: function.apply(x + 0)), ["x:float32[batch,4]"])


class Annotated(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, lam: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        return torch.nn.functional.softshrink(x, lam)


def test_an_adopted_function_is_a_declared_operator_with_a_body(deploy: Any) -> None:
    op = deployops.adopt(Annotated, onnx="acme01::SoftShrink", dtypes=("float32",))

    @op.body
    def _(b: Any, x: Any, lam: Any) -> Any:
        return b.Shrink(x, lambd=lam, bias=lam)

    exported = deploy(Call(lambda x: Annotated.apply(x, 0.5)), ["x:float32[batch,4]"])
    assert exported.ops == ["acme01::SoftShrink"]
    assert exported.result.checked_sizes
    np.testing.assert_allclose(
        exported.run(X)[0], np.sign(X) * np.maximum(np.abs(X) - 0.5, 0), rtol=1e-6, atol=1e-7
    )


def test_a_traced_torchscript_of_it_is_refused_and_does_not_crash(deploy: Any) -> None:
    traced = torch.jit.trace(Net(), (torch.from_numpy(X),))
    with pytest.raises(ExportError, match=r"SoftThreshold.*original module"):
        deploy(traced, ["x:float32[batch,4]"])
