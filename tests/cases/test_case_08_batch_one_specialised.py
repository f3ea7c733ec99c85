"""Case 08: a dim that was asked to vary does vary in the file, or the export fails and names dim and line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deployops.errors import ExportError, UsageError

HERE = Path(__file__).name
Y = np.random.default_rng(0).standard_normal((5, 3, 4)).astype(np.float32)


class Net(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        b = x.shape[0]
        return x.reshape(b, -1).mean(1, keepdim=True) + x.new_ones(b, 1)


def by_definition(x: Any) -> Any:
    return x.reshape(len(x), -1).astype(np.float64).mean(1, keepdims=True) + 1


@pytest.mark.parametrize("example", [1, 2])
def test_an_example_of_any_batch_stays_variable(deploy: Any, example: int) -> None:
    exported = deploy(Net(), (torch.randn(example, 3, 4),), dynamic={"x": {0: "N"}})
    assert exported.dims("x") == ["N", 3, 4]
    assert exported.dims("output") == ["N", 1]
    np.testing.assert_allclose(exported.run(Y)[0], by_definition(Y), atol=1e-6)
    np.testing.assert_allclose(exported.run(Y[:1])[0], by_definition(Y[:1]), atol=1e-6)
    assert len({s["N"] for s in exported.result.checked_sizes}) >= 2  # sizes other than the example were run
    assert {s["N"] for s in exported.result.checked_sizes} >= {1}


@pytest.mark.parametrize("spec", ["x:float32[N=1..64,3,4]", "x:float32[N=1..2,3,4]", "x:float32[N@2,3,4]"])
def test_a_range_that_includes_one(deploy: Any, spec: str) -> None:
    exported = deploy(Net(), [spec])
    assert exported.dims("x") == ["N", 3, 4]
    np.testing.assert_allclose(exported.run(Y[:2])[0], by_definition(Y[:2]), atol=1e-6)


class IntOfShape(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(int(x.shape[0]), 12)


class Loop(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x[0] * 0
        for i in range(x.shape[0]):
            y = y + x[i]
        return y


class Unbind(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return sum(x.unbind(0))


class ListOfRows(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row * 2 for row in x])


class Inner(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + sum(i for i in range(int(x.size(0))))


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * 2


def line(method: Any, text: str) -> str:
    lines, start = inspect.getsourcelines(method)
    return f"{HERE}:{start + next(k for k, code in enumerate(lines) if text in code)}"


@pytest.mark.parametrize(
    ("net", "place"),
    [
        (Loop(), line(Loop.forward, "range")),
        (Unbind(), line(Unbind.forward, "unbind")),
        (ListOfRows(), line(ListOfRows.forward, "for row")),
        (Nested(), line(Inner.forward, "range(")),
    ],
)
def test_a_dim_that_the_model_fixes_is_refused_with_its_name_and_the_line(
    deploy: Any, net: torch.nn.Module, place: str
) -> None:
    with pytest.raises(ExportError) as caught:
        deploy(net, ["x:float32[batch,3,4]"])
    text = str(caught.value)
    assert "`batch` can only be" in text
    assert place in text
    assert "--input" in text


def test_int_of_a_shape_stays_variable(deploy: Any) -> None:
    exported = deploy(IntOfShape(), ["x:float32[batch,3,4]"])
    assert exported.dims("output") == ["batch", 12]
    np.testing.assert_array_equal(exported.run(Y)[0], Y.reshape(5, 12))


class Reshape(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(3, 12)


class AddsAConstant(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.ones(3, 3, 4)


@pytest.mark.parametrize("net", [Reshape(), AddsAConstant()])
def test_a_size_written_into_the_model_is_found_whatever_the_example(deploy: Any, net: Any) -> None:
    with pytest.raises(ExportError) as at_another:
        deploy(net, ["x:float32[batch,3,4]"])
    assert "the model itself fails" in str(at_another.value)
    assert "`batch` was" in str(at_another.value)
    assert "runs with" in str(at_another.value)
    assert "3" in str(at_another.value).partition("runs with")[2]
    assert f"{HERE}:" in str(at_another.value)
    with pytest.raises(ExportError) as at_that:
        deploy(net, ["x:float32[batch@3,3,4]"])
    assert "`batch` can only be 3" in str(at_that.value)
    assert f"{HERE}:" in str(at_that.value)


class Branch(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 3:
            return x + 1
        return x - 1


class Even(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] % 2:
            x = torch.cat([x, x[:1]])
        return x.unflatten(0, (2, -1)).sum(0)


@pytest.mark.parametrize(
    ("net", "example", "condition"),
    [(Branch(), 5, "batch != 3"), (Even(), 4, "batch % 2"), (Even(), 5, "batch) % 2")],
)
def test_a_branch_on_a_size_is_refused_with_condition_and_line(
    deploy: Any, net: Any, example: int, condition: str
) -> None:
    with pytest.raises(ExportError) as caught:
        deploy(net, [f"x:float32[batch@{example},3,4]"])
    assert condition in str(caught.value)
    assert line(type(net).forward, "if x.shape[0]") in str(caught.value)


def test_a_range_or_multiple_that_meets_the_condition_exports(deploy: Any) -> None:
    even = deploy(Even(), ["x:float32[batch%2,3,4]"])
    np.testing.assert_allclose(even.run(Y[:4])[0], Y[:2] + Y[2:4], rtol=1e-6)
    apart = deploy(Branch(), ["x:float32[batch=4..64,3,4]"])
    np.testing.assert_allclose(apart.run(Y)[0], Y - 1, rtol=1e-6)
    small = deploy(
        Even(), ["x:float32[batch%2@6,3,4]"]
    )  # torch sets a size of 2 apart; a trial shows that it fits
    assert 2 in {s["batch"] for s in small.result.checked_sizes}
    np.testing.assert_allclose(small.run(Y[:2])[0], Y[:1] + Y[1:2], rtol=1e-6)
    fixed = deploy(Branch(), ["x:float32[3,3,4]"])
    np.testing.assert_allclose(fixed.run(Y[:3])[0], Y[:3] + 1, rtol=1e-6)


class Sum(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Joined(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y], 1) * 2


@pytest.mark.parametrize("net", [Sum(), Joined()])
@pytest.mark.parametrize("examples", [("", ""), ("@4", "@4")])
def test_two_dims_that_must_be_equal_are_both_named(deploy: Any, net: Any, examples: tuple[str, str]) -> None:
    first, second = examples
    with pytest.raises(ExportError) as caught:
        deploy(net, [f"x:float32[rows{first},4]", f"y:float32[lines{second},4]"])
    assert "rows" in str(caught.value)
    assert "lines" in str(caught.value)
    assert "equal" in str(caught.value) or "same name" in str(caught.value)


def test_one_name_for_both_exports(deploy: Any) -> None:
    exported = deploy(Sum(), ["x:float32[rows,4]", "y:float32[rows,4]"])
    assert exported.dims("x") == exported.dims("y") == exported.dims("output") == ["rows", 4]


class Choice(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1


class Truncate(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        n = int(x.sum())
        return x[:n]


class WhileLoop(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        while x.abs().max() > 1:
            x = x / 2
        return x


@pytest.mark.parametrize(
    ("net", "code"), [(Choice(), "if x.sum"), (Truncate(), "int(x.sum"), (WhileLoop(), "while")]
)
def test_a_branch_on_values_is_refused_with_the_line_and_a_way_out(
    deploy: Any, capfd: pytest.CaptureFixture[str], net: torch.nn.Module, code: str
) -> None:
    with pytest.raises(ExportError) as caught:
        deploy(net, ["x:float32[batch,3,4]"])
    text = str(caught.value)
    assert "value of a tensor" in text
    assert line(type(net).forward, code) in text
    assert "torch.where" in text
    assert "torch.cond" in text
    assert "aten" not in capfd.readouterr().err  # torch prints the graph; a user can do nothing with it


@pytest.mark.parametrize("dim", ["batch=5..2", "batch@1", "batch=0..-1"])
def test_a_dim_that_makes_no_sense_is_wrong_use(deploy: Any, dim: str) -> None:
    with pytest.raises(UsageError, match=r"batch"):
        deploy(Net(), [f"x:float32[{dim},3,4]"])


def test_a_program_traced_at_one_size_says_so(deploy: Any) -> None:
    program = torch.export.export(Net(), (torch.randn(2, 3, 4),))
    with pytest.raises(ExportError, match=r"`batch` \(dim 0 of `x`\) is fixed at 2"):
        deploy(program, ["x:float32[batch@2,3,4]"])


@pytest.mark.parametrize("example", [2, 3])
def test_a_program_with_an_open_dim_keeps_it(deploy: Any, example: int) -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(Net(), (torch.randn(example, 3, 4),), dynamic_shapes={"x": {0: batch}})
    exported = deploy(program, ["x:float32[rows,3,4]"])
    assert exported.dims("x") == ["rows", 3, 4]
    np.testing.assert_allclose(exported.run(Y)[0], by_definition(Y), atol=1e-6)


def traced(net: torch.nn.Module) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(net, (torch.randn(2, 3, 4),))


def test_a_torchscript_trace_that_froze_its_batch_is_found(deploy: Any) -> None:
    """int(shape) freezes in a TorchScript trace: the archive runs at 2 only, whatever the exporter does."""

    class Frozen(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(int(x.shape[0]), 12)

    with pytest.raises(ExportError) as caught:
        deploy(traced(Frozen()), ["x:float32[batch,3,4]"])
    assert "batch" in str(caught.value)


def test_the_command_line_says_it_and_writes_nothing(command: Callable[..., Any], tmp_path: Path) -> None:
    program = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Reshape(), (torch.randn(3, 3, 4),)), program)
    done = command("export", program, "--input", "x:float32[batch@3,3,4]")
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert "batch" in done.err
    assert "Traceback" not in done.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.pt2"]
