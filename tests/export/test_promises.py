"""What custom operators promise and do not keep is found at the export, wherever the model hides it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import deployops
from deployops.errors import ExportError
from deployops.symbolic import registry

X = ["x:float32[batch,4]"]


@pytest.fixture
def declare() -> Iterator[Callable[..., Any]]:
    """``declare(name, function, fake, **options)``: an operator for this test, forgotten after it."""
    made = []

    def make(name: str, function: Callable[..., Any], fake: Callable[..., Any], **options: Any) -> Any:
        op = deployops.operator(f"promise_test::{name}", **options)(function)
        op.fake(fake)
        made.append(op)
        return op

    yield make
    for op in made:
        registry.remove(op)


class Hidden(torch.nn.Module):
    """The operator between a layer and a reduction that hides its batch dim."""

    def __init__(self, op: Callable[..., Any], after: Callable[[Any], Any] = lambda y: y.mean(0)) -> None:
        super().__init__()
        self.linear, self.op, self.after = torch.nn.Linear(4, 4), op, after

    def forward(self, x: Tensor) -> Any:
        return self.after(self.op(self.linear(x)))


def twice(x: Tensor) -> Tensor:
    return x * 2


def test_a_fake_kernel_with_a_fixed_shape_is_refused_though_the_output_does_not_show_it(
    deploy: Any, declare: Any
) -> None:
    op = declare("fixed", twice, lambda x: x.new_empty(3, 4))
    with pytest.raises(ExportError) as refused:
        deploy(Hidden(op), X)
    assert "promise_test::fixed returns float32[" in str(refused.value)
    assert "promises float32[3, 4]" in str(refused.value)
    assert "test_promises.py" in str(refused.value)
    assert "Hidden.forward" in str(refused.value)


def test_one_that_is_right_at_the_traced_size_only_is_refused(deploy: Any, declare: Any) -> None:
    op = declare("once", twice, lambda x: x.new_empty(6, 4))
    with pytest.raises(ExportError, match=r"promises float32\[6, 4\]"):
        deploy(Hidden(op), ["x:float32[batch@6,4]"])


def test_a_fake_kernel_with_another_dtype_is_refused(deploy: Any, declare: Any) -> None:
    op = declare("halved", twice, lambda x: torch.empty_like(x, dtype=torch.float16))
    with pytest.raises(ExportError, match=r"returns float32\[\d+, 4\]; its fake kernel promises float16"):
        deploy(Hidden(op, lambda y: y.float()), X)


def test_one_of_several_results_is_named(deploy: Any, declare: Any) -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x.sum(1)

    op = declare("both", both, lambda x: (torch.empty_like(x), x.new_empty(x.shape[1])))
    with pytest.raises(ExportError, match="as result 1"):
        deploy(Hidden(op, lambda y: y[0] + y[1].mean()), X)


def test_an_undeclared_write_into_an_argument_is_refused(deploy: Any, declare: Any) -> None:
    def writes(x: Tensor, y: Tensor) -> Tensor:
        y.mul_(2)
        return x + 1

    op = declare("writes", writes, lambda x, y: torch.empty_like(x))
    with pytest.raises(
        ExportError, match=r"writes into its argument `y` without declaring it.*mutates=\('y',\)"
    ):
        deploy(Hidden(lambda x: op(x, x.clone())), X)


def test_an_undeclared_random_operator_is_said_and_its_calls_are_kept_apart(
    deploy: Any, declare: Any
) -> None:
    op = declare("noise", noise, torch.empty_like)
    exported = deploy(Hidden(lambda x: op(x) + op(x)), X)
    assert "`promise_test::noise` gives other results for the same arguments" in exported.notes
    assert "stateful=True" in exported.notes
    assert exported.ops.count("promise_test::Noise") == 2


def test_a_declared_random_operator_is_said_without_advice(deploy: Any, declare: Any) -> None:
    op = declare("declared_noise", noise, torch.empty_like, stateful=True)
    exported = deploy(Hidden(op), X)
    assert "`promise_test::declared_noise` gives other results" in exported.notes
    assert "stateful=True" not in exported.notes


def noise(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


def test_nan_is_equal_to_nan(deploy: Any, declare: Any) -> None:
    op = declare("undefined", undefined, torch.empty_like)
    exported = deploy(Hidden(op), X)
    assert "gives other results" not in exported.notes


def undefined(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.full_like(x, float("nan")))


# Complex tensors


def test_an_operator_that_returns_or_takes_complex_tensors_is_refused_by_name(
    deploy: Any, declare: Any
) -> None:
    rotated = declare("rotated", complex_of, lambda x: torch.empty_like(x, dtype=torch.complex64))
    length = declare("length", magnitude, lambda z: torch.empty_like(z, dtype=torch.float32))
    with pytest.raises(ExportError, match=r"promise_test::rotated returns a complex tensor, called at test_"):
        deploy(Hidden(rotated, torch.abs), X)
    with pytest.raises(ExportError, match=r"promise_test::length takes a complex tensor, called at test_"):
        deploy(Hidden(lambda x: length(torch.complex(x, x))), X)


def complex_of(x: Tensor) -> Tensor:
    return torch.complex(x, x)


def magnitude(z: Tensor) -> Tensor:
    return z.abs()


# Batch statistics


@pytest.mark.parametrize("weights", [0, 1])
def test_batch_norm_in_training_mode_is_refused_by_that_name(deploy: Any, weights: int) -> None:
    class Trains(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("var", torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            scale = torch.ones(4) if weights else None
            return torch.nn.functional.batch_norm(x, self.mean, self.var, scale, training=True)

    with pytest.raises(ExportError, match=r"(?s)training mode.*training=True.*test_promises\.py:"):
        deploy(Trains(), X)
    program = torch.export.export(Trains(), (torch.randn(3, 4),)).run_decompositions({})
    with pytest.raises(ExportError, match="training mode"):
        deploy(program)


def test_batch_norm_without_running_statistics_is_exported(deploy: Any) -> None:
    exported = deploy(Hidden(lambda x: torch.nn.functional.batch_norm(x, None, None, training=True)), X)
    assert exported.result.checked_sizes


# Sizes and opsets


def test_a_computed_size_after_a_custom_node_in_a_loaded_program(deploy: Any, declare: Any) -> None:
    """torch's retrace writes the size 1 + h*w in a form that its own translation does not take."""
    op = declare("doubled", twice, torch.empty_like)

    @op.body
    def _(op: Any, x: Any) -> Any:
        return op.Add(x, x)

    class Tokens(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = torch.nn.Conv2d(4, 4, 2, 2)

        def forward(self, image: Tensor) -> Tensor:
            grid = torch.nn.functional.interpolate(
                torch.ones(1, 4, 8, 8), size=self.patch(image).shape[-2:], mode="bicubic", align_corners=False
            )
            tokens = (self.patch(image) + grid).flatten(2).transpose(1, 2)
            tokens = torch.cat([tokens[:, :1] * 0, tokens], 1)
            b, n, d = tokens.shape
            return op(tokens).reshape(b, n, 2, d // 2).mean(2)

    dynamic = torch.export.Dim.DYNAMIC
    image = torch.randn(2, 4, 16, 12)
    net = Tokens()
    program = torch.export.export(net, (image,), dynamic_shapes=({0: dynamic, 2: dynamic, 3: dynamic},))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    exported = deploy(torch.export.load(file))
    other = torch.randn(3, 4, 8, 14)
    np.testing.assert_allclose(exported.run(other)[0], net(other).detach(), rtol=1e-4, atol=1e-5)


def test_torchscript_with_several_variable_dims(deploy: Any) -> None:
    """The conditions of a converted module name its inputs otherwise; they are evaluated all the same."""

    class Pooled(torch.nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            y = torch.nn.functional.avg_pool2d(image, 8)
            return y.flatten(2).mean(2)

    script = torch.jit.trace(Pooled(), torch.randn(2, 3, 32, 32))
    exported = deploy(script, ["image:float32[batch=1..32,3,h=16..256%8,w=16..256%8]"])
    image = torch.randn(1, 3, 16, 24)
    np.testing.assert_allclose(exported.run(image)[0], Pooled()(image), rtol=1e-5, atol=1e-6)


def test_the_opset_rises_to_what_a_dtype_needs_and_the_summary_says_so(deploy: Any, capfd: Any) -> None:
    """ONNX: Conv and the pools take bfloat16 from opset 22 on."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.MaxPool2d(2)).bfloat16()
    inputs = ["x:bfloat16[batch,3,8,8]"]
    exported = deploy(net, inputs)
    assert exported.result.opset == 22
    assert "exported with opset 22: opset 20 has no Conv (bfloat16), MaxPool (bfloat16)" in exported.notes
    with pytest.raises(ExportError, match="Export with opset 22"):
        deploy(net, inputs, opset=20)
    assert "Traceback" not in capfd.readouterr().err


def test_what_needs_no_other_opset_keeps_the_default(deploy: Any) -> None:
    assert deploy(torch.nn.Linear(4, 4).bfloat16(), ["x:bfloat16[batch,4]"]).result.opset == 20
