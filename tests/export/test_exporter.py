"""`export_model`: inputs, outputs, dtypes, opsets, control flow; what is left behind, and what is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from torch import Tensor

import deployops
from deployops.errors import ExportError, UsageError
from deployops.symbolic import registry

registry.load_builtin()
A = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


class Net(torch.nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Tensor) -> Any:
        return self.call(x)


# Outputs


def test_a_dict_and_a_nested_tuple_name_their_outputs(deploy: Any) -> None:
    exported = deploy(Net(lambda x: {"sum": x + 1, "rest": (x * 2, [x - 1])}), ["x:float32[n,4]"])
    assert [o.name for o in exported.proto.graph.output] == ["sum", "rest_0", "rest_1_0"]
    for got, expected in zip(exported.run(A), (A + 1, A * 2, A - 1), strict=True):
        np.testing.assert_allclose(got, expected)


def test_output_names_can_be_given(deploy: Any) -> None:
    exported = deploy(Net(lambda x: (x + 1, x * 2)), ["x:float32[n,4]"], output_names=["up", "twice"])
    assert [o.name for o in exported.proto.graph.output] == ["up", "twice"]
    with pytest.raises(UsageError, match="returns 2 tensors"):
        deploy(Net(lambda x: (x + 1, x * 2)), ["x:float32[n,4]"], output_names=["up"])


def test_an_output_named_like_the_input_gets_a_name_of_its_own(deploy: Any) -> None:
    exported = deploy(Net(lambda x: {"x": x * 2}), ["x:float32[n,4]"])
    (output,) = exported.proto.graph.output
    assert output.name != "x"
    np.testing.assert_allclose(exported.run(A)[0], A * 2)


def test_an_input_returned_as_it_is_the_same_value_twice_and_a_weight(deploy: Any) -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(4.0))

        def forward(self, x: Tensor) -> Any:
            y = x * 3
            return x, y, y, self.weight

    exported = deploy(Odd(), ["x:float32[n,4]"])
    names = [o.name for o in exported.proto.graph.output]
    assert len(set(names)) == 4
    for got, expected in zip(exported.run(A), (A, 3 * A, 3 * A, np.arange(4)), strict=True):
        np.testing.assert_allclose(got, expected)


def test_a_result_that_does_not_depend_on_the_input(deploy: Any) -> None:
    exported = deploy(Net(lambda x: torch.arange(3) * 2), ["x:float32[n,4]"])
    assert exported.run(A)[0].tolist() == [0, 2, 4]
    assert "does not use its input `x`" in exported.notes


def test_results_that_are_no_tensors_are_left_out_and_said_to_be(deploy: Any) -> None:
    exported = deploy(Net(lambda x: (x + 1, 3, None, "name", True, x * 2)), ["x:float32[n,4]"])
    first, second = exported.run(A)
    np.testing.assert_allclose(first, A + 1)
    np.testing.assert_allclose(second, A * 2)
    for constant in ("3", "None", "'name'", "True"):
        assert f"is the constant {constant}, not a tensor: it is left out" in exported.notes


def test_a_size_as_a_result(deploy: Any) -> None:
    exported = deploy(Net(lambda x: (x + 1, x.shape[0])), ["x:float32[n,4]"])
    (got,) = exported.run(A)
    np.testing.assert_allclose(got, A + 1)
    assert "result 1 of the model is a number, not a tensor: it is left out" in exported.notes


# Inputs


class Several(torch.nn.Module):
    def forward(
        self, x: Tensor, times: int = 2, scale: float = 1.0, flag: bool = False, bias: Tensor | None = None
    ) -> Tensor:
        y = x * times * scale
        y = y + 100 if flag else y
        return y if bias is None else y + bias


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ([], 2 * A),
        (["times:int=3", "scale:float=0.5", "flag:bool=true", "bias:none"], A * 1.5 + 100),
        (["bias:float32[n,4]"], 2 * A + 1),
    ],
    ids=["defaults", "scalars and None", "an optional tensor given"],
)
def test_scalars_none_and_defaults(deploy: Any, extra: list[str], expected: Any) -> None:
    exported = deploy(Several(), ["x:float32[n,4]", *extra])
    tensors = [i.name for i in exported.proto.graph.input]
    assert tensors == (["x", "bias"] if "bias:float32[n,4]" in extra else ["x"])
    np.testing.assert_allclose(exported.run(A, np.ones_like(A))[0], expected, rtol=1e-6)


class Matmul(torch.nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left @ right


@pytest.mark.parametrize(
    ("specs", "dims"),
    [
        (["left:float32[m,k]", "right:float32[k,n]"], ["m", "n"]),
        (["left:float32[m,4]", "right:float32[4,3]"], ["m", 3]),
        (["left:float32[m,m]", "right:float32[m,2]"], ["m", 2]),
        (["left:float32[m=2..16,k=1..64%4]", "right:float32[k,n]"], ["m", "n"]),
    ],
)
def test_shared_and_separate_symbols_and_ranges(deploy: Any, specs: list[str], dims: list[Any]) -> None:
    exported = deploy(Matmul(), specs)
    assert exported.dims("output") == dims
    assert len(exported.result.checked_sizes) >= 2


def test_inputs_given_as_tensors_dict_and_single_tensor(deploy: Any) -> None:
    left, right = torch.ones(2, 4), torch.ones(4, 3)
    for inputs in ((left, right), {"left": left, "right": right}, {"right": right, "left": left}):
        exported = deploy(Matmul(), inputs, dynamic={"left": {0: "m"}})
        assert exported.dims("left") == ["m", 4]
    assert deploy(Net(lambda x: x + 1), left).dims("x") == [2, 4]


def test_nested_inputs_are_named_by_path(deploy: Any) -> None:
    class Nested(torch.nn.Module):
        def forward(self, xs: list[Tensor], named: dict[str, Tensor]) -> Tensor:
            return xs[0] + xs[1] * named["gain"]

    exported = deploy(Nested(), ["xs.0:float32[n,4]", "xs.1:float32[n,4]", "named.gain:float32[4]"])
    assert [i.name for i in exported.proto.graph.input] == ["xs.0", "xs.1", "named.gain"]
    gain = np.arange(4, dtype=np.float32)
    np.testing.assert_allclose(exported.run(A, A, gain)[0], A + A * gain)


def test_integer_and_bool_inputs(deploy: Any) -> None:
    class Pick(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(7, 4)

        def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
            return self.table(ids) * keep[..., None]

    net = Pick()
    exported = deploy(net, ["ids:int64[n,t]=0..6", "keep:bool[n,t]"])
    ids, keep = np.array([[0, 6, 3]]), np.array([[True, False, True]])
    expected = net.table.weight.detach().numpy()[ids] * keep[..., None]
    np.testing.assert_allclose(exported.run(ids, keep)[0], expected)


def test_a_zero_dimensional_input(deploy: Any) -> None:
    exported = deploy(Net(lambda x: x * 2 + 1), ["x:float32[]"])
    assert exported.run(np.float32(3))[0] == 7


def test_real_samples_decide_the_values(deploy: Any) -> None:
    class Division(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.one_hot(x.long(), 5)

    exported = deploy(Division(), ["x:float32[n]"], data={"x": np.array([0, 1, 4, 2], np.float32)})
    assert exported.run(np.array([3, 0], np.float32))[0].tolist() == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["x:float32[n,4]", "y:float32[n,4]"], "forward"),
        (["x:float32[n,4]", "x:float32[n,4]"], "again"),
        (["x:float32[n,4]", "extra:float32[n]"], "extra"),
        (["x:floaty[n]"], "dtype|Expected"),
        (None, "--input"),
    ],
)
def test_inputs_that_do_not_fit_are_wrong_use(deploy: Any, inputs: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        deploy(Net(lambda x: x + 1), inputs)


def test_something_that_is_no_model_is_wrong_use(deploy: Any) -> None:
    with pytest.raises(UsageError, match=r"expected a torch\.nn\.Module"):
        deploy(lambda x: x, ["x:float32[4]"])


def test_a_model_that_fails_itself_says_where(deploy: Any) -> None:
    class Fails(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(-1)[10_000]

    with pytest.raises(
        ExportError, match=r"the model itself fails.*\n  at test_exporter\.py:\d+ in .*forward"
    ):
        deploy(Fails(), ["x:float32[n,4]"])


# Dtypes and weights


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_models_in_other_precisions(deploy: Any, dtype: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh()).to(getattr(torch, dtype))
    exported = deploy(net, [f"input:{dtype}[n,4]"])
    kinds = {t.data_type for t in exported.proto.graph.initializer}
    assert kinds == {TensorProto.DataType.Value(dtype.upper().replace("FLOAT64", "DOUBLE"))}
    if dtype == "bfloat16":
        assert exported.result.checked_sizes or "not checked" in exported.notes
        return
    weight, bias = (p.detach().numpy().astype(np.float64) for p in net.parameters())
    tolerance = {"float64": 1e-12, "float16": 2e-3}[dtype]
    got = exported.run((A / 5).astype(dtype))[0]
    np.testing.assert_allclose(got, np.tanh(A / 5 @ weight.T + bias), rtol=tolerance, atol=tolerance)


def test_mixed_precision_keeps_each_cast(deploy: Any) -> None:
    exported = deploy(Net(lambda x: (x.half() * 3).double().sum(1)), ["x:float32[n,4]"])
    np.testing.assert_allclose(exported.run(A)[0], (A * 3).sum(1))
    assert exported.proto.graph.output[0].type.tensor_type.elem_type == TensorProto.DOUBLE


def test_tied_weights_are_stored_once(deploy: Any) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(1000, 16)
            self.head = torch.nn.Linear(16, 1000, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids))

    net = Tied()
    exported = deploy(net, ["ids:int64[n,t]=0..999"])
    assert exported.result.bytes < 1.2 * 1000 * 16 * 4
    ids = np.array([[0, 999, 7]])
    weight = net.embed.weight.detach().numpy()
    np.testing.assert_allclose(exported.run(ids)[0], weight[ids] @ weight.T, atol=1e-5)


def test_an_ill_conditioned_model_is_not_refused_for_its_rounding(deploy: Any) -> None:
    """Ties in argmax and a difference of large numbers: both answers are right, and an ULP decides."""

    class Touchy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a = torch.nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Any:
            y = self.a(x) * 1e4
            z = torch.nn.functional.linear(x, self.a.weight * 1e4, self.a.bias * 1e4)
            return (y - z) * 1e6, (y > z).to(torch.int64)

    exported = deploy(Touchy(), ["x:float32[n,64]"])
    assert exported.result.checked_sizes


# Control flow


class Branches(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


class BranchesWithOperators(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(
            x.sum() > 0,
            lambda x: torch.ops.deployops.relu(x) + torch.ops.deployops.swish(x, x.sum() * 0 + 1),
            lambda x: torch.ops.deployops.relu(x) - 1,
            (x,),
        )


def by_branch(x: Any) -> Any:
    relu = np.maximum(x, 0)
    return relu + x / (1 + np.exp(-x.astype(np.float64))) if x.sum() > 0 else relu - 1


@pytest.mark.parametrize("x", [A, -A], ids=["false", "true"])
def test_torch_cond_keeps_both_branches(deploy: Any, x: Any) -> None:
    exported = deploy(Branches(), ["x:float32[n,4]"])
    assert "If" in exported.ops
    np.testing.assert_allclose(exported.run(x)[0], x + 1 if x.sum() > 0 else x - 1)


@pytest.mark.parametrize("mode", ["function", "node", "standard"])
def test_custom_operators_inside_branches(deploy: Any, mode: str) -> None:
    exported = deploy(BranchesWithOperators(), ["x:float32[n,4]"], custom_ops=mode)
    expected = {"deployops::RectifiedLinear": 2, "deployops::SwishBeta": 1} if mode != "standard" else {}
    assert exported.result.custom_nodes == expected
    if mode != "node":
        for x in (A, -A):
            np.testing.assert_allclose(exported.run(x)[0], by_branch(x), rtol=1e-5, atol=1e-6)


def test_branches_can_be_traced_by_torch_afterwards(deploy: Any) -> None:
    deploy(BranchesWithOperators(), ["x:float32[n,4]"])
    model = Net(lambda x: torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,)))
    program = torch.export.export(model.eval(), (torch.ones(2, 4),))
    assert "cond" in str(program.graph)


def test_the_cache_of_torch_compile_survives_a_model_without_branches(deploy: Any) -> None:
    compiled = torch.compile(lambda x: x * 2, backend="eager")
    compiled(torch.ones(2))
    before = torch._dynamo.utils.counters["frames"]["ok"]
    deploy(Net(lambda x: x + 1), ["x:float32[n,4]"])
    compiled(torch.ones(2))
    assert torch._dynamo.utils.counters["frames"]["ok"] == before


# Opsets


@pytest.mark.parametrize("opset", range(18, 26))
def test_every_opset_is_what_was_asked_for(deploy: Any, opset: int) -> None:
    class Mixed(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            y = torch.ops.deployops.relu(x)
            return torch.softmax(y, -1), torch.nn.functional.pad(x, (1, 1)), x.mean(1)

    exported = deploy(Mixed(), ["x:float32[n,4]"], opset=opset)
    assert {o.domain: o.version for o in exported.proto.opset_import}[""] == opset
    assert all(o.version == opset for f in exported.proto.functions for o in f.opset_import if not o.domain)
    assert exported.result.opset == opset
    if opset <= onnx.defs.onnx_opset_version() and opset < 25:
        relu = np.maximum(A, 0).astype(np.float64)
        soft, padded, mean = exported.run(A)
        np.testing.assert_allclose(soft, np.exp(relu) / np.exp(relu).sum(-1, keepdims=True), rtol=1e-5)
        np.testing.assert_allclose(padded, np.pad(A, ((0, 0), (1, 1))))
        np.testing.assert_allclose(mean, A.mean(1), rtol=1e-6)


@pytest.mark.parametrize("opset", [17, 26, 1, 0, -1])
def test_other_opsets_are_refused_before_any_work(deploy: Any, opset: int) -> None:
    class Counts(torch.nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            Counts.calls += 1
            return x

    with pytest.raises(UsageError, match=f"opset {opset} .*18 to 25"):
        deploy(Counts(), ["x:float32[n,4]"], opset=opset)
    assert Counts.calls == 0


# What is left behind


def test_a_failing_export_leaves_the_old_file_and_nothing_else(deploy: Any, tmp_path: Path) -> None:
    target = tmp_path / "out" / "model.onnx"
    target.parent.mkdir()
    deploy(Net(lambda x: x + 1), ["x:float32[n,4]"], out=target)
    before = target.read_bytes()

    @deployops.operator("acmeexp::wrong", onnx="acmeexp::Wrong", dtypes=("float32",))
    def wrong(x: Tensor) -> Tensor:
        return x * 2

    wrong.fake(lambda x: torch.empty_like(x))
    wrong.body(lambda b, x: b.Mul(x, 3.0))  # found at the very end, when the file is compared

    class Fails(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError

    for bad in (Net(wrong), Fails()):
        with pytest.raises(ExportError):
            deploy(bad, ["x:float32[n,4]"], out=target)
        assert target.read_bytes() == before
        assert [p.name for p in target.parent.iterdir()] == ["model.onnx"]
    deploy(Net(lambda x: x + 2), ["x:float32[n,4]"], out=target)
    assert target.read_bytes() != before


def test_an_interrupt_leaves_the_old_file(
    deploy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = deploy(Net(lambda x: x), ["x:float32[n,4]"], out=tmp_path / "model.onnx").path
    before = target.read_bytes()

    def interrupted(*_: Any, **__: Any) -> None:  # when the trial file exists
        raise KeyboardInterrupt

    monkeypatch.setattr("deployops.export.checks.run_and_compare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deploy(Net(lambda x: x + 1), ["x:float32[n,4]"], out=target)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_the_users_module_and_inputs_are_as_before(deploy: Any) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout()).train()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    example = torch.randn(3, 4)
    copy = example.clone()
    random_state = torch.get_rng_state()
    deploy(net, (example,), dynamic={"input": {0: "n"}})
    assert net.training
    assert all(m.training for m in net.modules())
    assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
    assert all(p.requires_grad for p in net.parameters())
    assert torch.equal(example, copy)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.is_grad_enabled()


def test_a_users_program_can_be_exported_again(deploy: Any) -> None:
    program = torch.export.export(Net(lambda x: torch.ops.deployops.relu(x) * 2).eval(), (torch.ones(3, 4),))
    text = str(program.graph)
    first = deploy(program).path.read_bytes()
    assert str(program.graph) == text
    assert deploy(program).path.read_bytes() == first


# What is said


def test_the_summary_and_its_data_say_the_same(deploy: Any) -> None:
    exported = deploy(Net(lambda x: torch.ops.deployops.relu(x) * 2), ["x:float32[n,4]"])
    data, text = exported.result.to_dict(), exported.result.summary()
    assert json.loads(json.dumps(data)) == data
    assert data["inputs"] == [{"name": "x", "dtype": "float32", "dims": ["n", 4]}]
    assert data["outputs"] == [{"name": "output", "dtype": "float32", "dims": ["n", 4]}]
    assert data["custom_nodes"] == {"deployops::RectifiedLinear": 1}
    assert data["bytes"] == exported.path.stat().st_size
    assert data["opset"] == 20
    assert len(data["checked_sizes"]) >= 2
    for part in ("x: float32[n, 4]", "output: float32[n, 4]", "1 × deployops::RectifiedLinear", "opset 20"):
        assert part in text
    assert str(exported.path) in text


def test_the_steps_are_announced(deploy: Any) -> None:
    steps: list[str] = []
    deploy(Net(lambda x: x + 1), ["x:float32[n,4]"], progress=steps.append)
    assert steps == ["load", "run", "trace", "translate", "optimise", "check", "write"]


def test_nothing_is_printed(deploy: Any, capfd: pytest.CaptureFixture[str]) -> None:
    deploy(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()), ["input:float32[n,3,8,8]"])
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


def test_a_model_that_prints_is_heard(deploy: Any, capfd: pytest.CaptureFixture[str]) -> None:
    import sys

    class Says(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            print("hello", file=sys.stderr)
            return x + 1

    deploy(Says(), ["x:float32[n,4]"])
    assert "hello" in capfd.readouterr().err


# Weak spots of other exporters


class TwoHeads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.nn.BatchNorm2d(8)
        )
        self.act = torch.nn.ReLU(inplace=True)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Any:
        h = self.act(self.body(image))
        h += 0.5
        return self.head(h.mean((2, 3))), torch.nn.functional.interpolate(h, scale_factor=2.0)


def test_an_image_model_with_variable_sizes(deploy: Any) -> None:
    torch.manual_seed(0)
    net = TwoHeads().eval()
    exported = deploy(net, ["image:float32[batch,3,h=16..64%2,w=16..64%2]"])
    image = torch.randn(3, 3, 20, 32)
    with torch.no_grad():
        for got, expected in zip(exported.run(image.numpy()), net.double()(image.double()), strict=True):
            np.testing.assert_allclose(got, expected.numpy(), atol=1e-5)
    assert exported.dims("output_1") == ["batch", 8, "h", "w"] or exported.dims("output_1")[:2] == [
        "batch",
        8,
    ]


def test_attention_with_variable_length(deploy: Any) -> None:
    class Attend(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    net = Attend().eval()
    exported = deploy(net, ["x:float32[batch,tokens=2..64,16]"])
    x = torch.randn(2, 7, 16)
    with torch.no_grad():
        np.testing.assert_allclose(exported.run(x.numpy())[0], net.double()(x.double()).numpy(), atol=1e-5)


def test_equal_subgraphs_are_merged_and_dead_ones_dropped(deploy: Any) -> None:
    exported = deploy(Net(lambda x: (torch.exp(x) + torch.exp(x), torch.sin(x))[0]), ["x:float32[n,4]"])
    assert exported.ops.count("Exp") == 1
    assert "Sin" not in exported.ops
