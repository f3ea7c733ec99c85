"""A node whose attributes are not those of the call: the file is at fault, whatever the body in it gives.

The library of these tests goes by the node's attributes, as kernels do: what is to run is written again with a product in
the place of each node, its factors computed from the attributes.
"""

from __future__ import annotations

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
from deployops.validation.record import Bisection

from .bisected_models import bisected, edited, seeded, x

FILE = "the file says something else than the original"
BACKEND = "the backend, or its library, computes another"


@deployops.operator("bisected_attributes::weighed", onnx="bisected_attributes::Weighed", dtypes="float32")
def weighed(
    v: torch.Tensor, parts: list[int], gain: float = 1.0, negate: bool = False, more: float | None = None
) -> torch.Tensor:
    """Columns in parts of the given sizes, the k-th times k + 1; all times gain, and times more where it is given."""
    factors = torch.cat([torch.full((n,), k + 1.0) for k, n in enumerate(parts)])
    return v * factors * (-gain if negate else gain) * (1.0 if more is None else more)


@weighed.fake
def _(
    v: torch.Tensor, parts: list[int], gain: float = 1.0, negate: bool = False, more: float | None = None
) -> torch.Tensor:
    return torch.empty_like(v)


@weighed.body
def _(op: Any, v: Any, parts: list[int], gain: Any, negate: bool, more: Any) -> Any:
    factors = [k + 1.0 for k, n in enumerate(parts) for _ in range(n)]
    y = op.Mul(op.Mul(v, op.tensor(factors, "float32")), gain)
    y = y if more is None else op.Mul(y, more)
    return op.Neg(y) if negate else y


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return self.last(weighed(self.first(v), [2, 6], 0.5))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    net, path = seeded(Net()), tmp_path_factory.mktemp("attributes") / "net.onnx"
    deployops.export_model(net, (x(2, 8),), out=path, dynamic={"v": {0: "batch"}})
    return net, path


def changed(path: Path, bodies: bool = True, **values: Any) -> Path:
    """A copy with other attributes; None leaves one out."""

    def edit(model: onnx.ModelProto) -> None:
        (node,) = (n for n in model.graph.node if n.op_type == "Weighed")
        for name, value in values.items():
            kept = [a for a in node.attribute if a.name != name]
            del node.attribute[:]
            node.attribute.extend(kept)
            if value is not None:
                node.attribute.append(helper.make_attribute(name, value))
        if not bodies:
            kept_functions = [f for f in model.functions if f.name != "Weighed"]
            del model.functions[:]
            model.functions.extend(kept_functions)

    return edited(path, edit)


def kernel(factor: float = 1.0) -> Any:
    """Opens a file with a kernel for the operator; `factor` 1 makes it a right one."""

    def opened(path: Path) -> OnnxRuntime:
        model = onnx.load(str(path))
        for node in model.graph.node:
            if node.op_type != "Weighed":
                continue
            given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            factors = np.concatenate([np.full(n, k + 1.0) for k, n in enumerate(given["parts"])])
            factors *= (
                given.get("gain", 1.0)
                * given.get("more", 1.0)
                * (-1 if given.get("negate", 0) else 1)
                * factor
            )
            name = f"factors of {node.output[0]}"
            model.graph.initializer.append(numpy_helper.from_array(factors.astype(np.float32), name))
            made = helper.make_node("Mul", [node.input[0], name], [node.output[0]])
            node.CopyFrom(made)
        copy = path.with_name(f"{path.stem}_kernel.onnx")
        onnx.save(model, str(copy))
        return OnnxRuntime(copy, threads=1, optimize=True, isolate=False)

    return opened


def found(file: tuple[nn.Module, Path], path: Path, factor: float = 1.0) -> Bisection:
    result = bisected(file[0], path, x(5, 8), backend=kernel(factor))
    if result.culprit is not None:
        assert result.culprit.op_type == "Weighed", result.text
    return result


def test_the_kernel_of_these_tests_is_right(file: tuple[nn.Module, Path]) -> None:
    assert "did not fail again" in found(file, file[1]).text


@pytest.mark.parametrize(
    ("name", "value", "says", "wanted"),
    [("parts", [6, 2], "[6, 2]", "[2, 6]"), ("negate", 1, "1", "0")],
)
def test_an_attribute_that_the_body_has_fixed(
    name: str, value: Any, says: str, wanted: str, file: tuple[nn.Module, Path]
) -> None:
    text = found(file, changed(file[1], **{name: value})).text
    assert FILE in text
    assert BACKEND not in text
    assert f"it does not read `{name}` from the node" in text
    assert (
        f"`{name}` of bisected_attributes::Weighed is {says} in the file, an export writes {wanted}" in text
    )
    assert text.count("The attribute differs") == 1


def test_an_attribute_that_the_body_reads(file: tuple[nn.Module, Path]) -> None:
    """Evaluated as written the body is wrong too."""
    text = found(file, changed(file[1], gain=0.75)).text
    assert FILE in text
    assert "does not read" not in text
    assert "`gain` of bisected_attributes::Weighed is 0.75 in the file, an export writes 0.5" in text


def test_without_a_body_attributes_are_compared_as_well(file: tuple[nn.Module, Path]) -> None:
    text = found(file, changed(file[1], bodies=False, parts=[6, 2])).text
    assert FILE in text
    assert "the backend's kernel of this operator" not in text
    assert "`parts` of bisected_attributes::Weighed is [6, 2] in the file, an export writes [2, 6]" in text


@pytest.mark.parametrize("bodies", [True, False])
def test_a_wrong_kernel_is_still_the_backends(bodies: bool, file: tuple[nn.Module, Path]) -> None:
    """Attributes that the file leaves to their defaults are those of the call."""
    text = found(file, changed(file[1], bodies=bodies, negate=None), factor=1.01).text
    assert FILE not in text
    assert "The attribute differs" not in text
    assert (BACKEND if bodies else "the backend's kernel of this operator") in text


@pytest.mark.parametrize("bodies", [True, False])
def test_an_attribute_that_the_call_left_out(bodies: bool, file: tuple[nn.Module, Path]) -> None:
    text = found(file, changed(file[1], bodies=bodies, more=2.0)).text
    assert FILE in text
    assert BACKEND not in text
    assert "`more` of bisected_attributes::Weighed is 2 in the file" in text


def test_a_default_that_is_not_the_calls_differs(file: tuple[nn.Module, Path]) -> None:
    """`gain` is 0.5 in the call, and 1 where a node does not say."""
    text = found(file, changed(file[1], bodies=False, gain=None)).text
    assert "`gain` of bisected_attributes::Weighed is 1 in the file, an export writes 0.5" in text
