"""Outputs whose size the data decides, and shape inputs: the declaration, the launcher, and what the emulation finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from deployops.errors import DeclarationError
from deployops.native.cuda_signature import cuda_signature
from deployops.native.data_sizes import data_sizes
from deployops.native.shape_rules import ByRank, shape_rules
from deployops.symbolic import registry
from deployops.symbolic.checking.operator_check import check_operator
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.carried import plugin_shapes
from deployops.trt_plugins.emulation.check import emulate
from deployops.trt_plugins.emulation.library import emulated_library

PACK = Path(__file__).parents[1] / "trt_plugins" / "pack" / "pack.py"
Declare = Callable[..., Operator]

FIRST = """
@operator("sized::{name}", dtypes=("float32",))
def {name}(x: Tensor) -> Tensor:
    return x[x > 0]

@{name}.fake
def _(x):
    return x.new_empty({fake})

@{name}.samples
def _(draw):
    yield (draw(40),)
    yield (draw(3, 5),)
"""
NEW = "torch.library.get_ctx().new_dynamic_size()"
BOUND = """
@{name}.bound
def _(x):
    return {bound}
"""
KERNEL = """\
#pragma once
#include "deployops/cuda/launch.h"
namespace deployops {
__global__ void NAME_kernel(const float* x, int64_t n, float* y, int32_t* size) {
  int32_t found = 0;
  for (int64_t i = 0; i < n; ++i) if (x[i] > 0) y[found++] = x[i];
  WRITE
}
inline cudaError_t NAME(Stream stream, In<float> x, Out<float> y, Out<int32_t> size) {
  return launch(NAME_kernel, 1, 1, 0, stream, x.data, x.numel(), y.data, size.data);
}
}  // namespace deployops
"""


@pytest.fixture
def declare(tmp_path: Path) -> Iterator[Declare]:
    """``declare(name, bound=…, fake=…, write=…)``: an operator with its kernel beside it."""
    made: list[Operator] = []

    def build(
        name: str, bound: str | None = "x.numel()", fake: str = NEW, write: str = "*size = found;"
    ) -> Operator:
        text = FIRST.format(name=name, fake=fake)
        text += "" if bound is None else BOUND.format(name=name, bound=bound)
        file = tmp_path / f"{name}_ops.py"
        file.write_text(f"import torch\nfrom torch import Tensor\nfrom deployops import operator\n{text}")
        (tmp_path / f"{name}.cuh").write_text(KERNEL.replace("NAME", name).replace("WRITE", write))
        (op,) = registry.load([str(file)])
        made.append(op)
        return op

    yield build
    for op in made:
        registry.remove(op)


@pytest.fixture(scope="module")
def pack() -> dict[str, Operator]:
    return {op.name.partition("::")[2]: op for op in registry.load([str(PACK)])}


def outcome(op: Operator) -> tuple[str, str]:
    (result,) = emulate([op])
    return result.status, result.detail


# --- declarations --------------------------------------------------------------------------------------------------


def test_the_bound_is_a_formula_of_sizes_and_the_launcher_gets_a_number_to_write(declare: Declare) -> None:
    op = declare("first")
    found = data_sizes(op)
    assert found is not None
    assert found.numbers == {"y": (0,)}
    rule = found.bound["y"]
    assert isinstance(rule, ByRank)
    assert rule.cases[2,] == ("d0_0*d0_1",)
    assert cuda_signature(op).endswith("first(Stream stream, In<float> x, Out<float> y, Out<int32_t> size)")


@pytest.mark.parametrize(
    ("bound", "told"),
    [("-1", "returns -1; expected a number of elements"), ("2**62", "returns 4611686018427387904; expected a number"),
     ("x.numel() - 50", "returns -10"), ("int((x > 0).sum())", "reads the values of a tensor"),
     ("x.nothing", "raises AttributeError")],
)  # fmt: skip
def test_a_bound_that_is_none_is_told_as_that(declare: Declare, bound: str, told: str) -> None:
    op = declare("bad_bound", bound=bound)
    [found] = [r for r in check_operator(op) if r.check == "bound"]
    assert (found.status, "@op.bound" in found.detail, told in found.detail) == ("failed", True, True), (
        found.detail
    )
    status, detail = outcome(op)
    assert status != "passed"
    assert "@op.bound" in detail or "by the fake kernel" in detail, detail
    assert "no samples" not in detail


def test_two_sizes_are_told_apart_and_shared_by_outputs(pack: dict[str, Operator]) -> None:
    found = data_sizes(pack["above"])
    assert found is not None
    assert found.count == 2
    assert found.numbers == {"rows": (None, 0), "values": (0,), "rest": (1,)}
    assert cuda_signature(pack["above"]).endswith("Out<int32_t> size0, Out<int32_t> size1)")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"bound": "(x.numel(), 3)"}, "@op.bound returns 2 numbers, and the fake kernel asks for 1 size "),
        ({"bound": "x.numel() / 2"}, "expected a whole number made of sizes"),
        ({"bound": "None"}, "expected a whole number made of sizes"),
        ({"fake": f"2 * {NEW}"}, "computed from a size that the data decides"),
        ({"fake": "x.numel()"}, "no size that the fake kernel asks for"),
    ],
)
def test_a_bound_that_says_nothing_useful_is_refused(
    declare: Declare, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DeclarationError, match=reason.replace("(", r"\(").replace(")", r"\)")):
        data_sizes(declare(f"refused{abs(hash(str(arguments)))}", **arguments))


def test_a_reference_beyond_the_bound_is_found_before_anything_is_built(declare: Declare) -> None:
    op = declare("beyond", bound="5")
    with pytest.raises(DeclarationError, match=r"by the reference, and at most 5 by @op\.bound"):
        plugin_shapes(op)
    [result] = [r for r in check_operator(op) if r.check == "bound"]
    assert result.status == "failed"
    assert "at most 5 by @op.bound" in result.detail


def test_without_a_bound_it_is_asked_for(declare: Declare) -> None:
    op = declare("unbounded", bound=None)
    with pytest.raises(DeclarationError, match=r"@op\.bound"):
        plugin_shapes(op)
    status, detail = outcome(op)
    assert status == "not checked"
    assert detail.endswith("how large it can be is not declared: @op.bound")


def test_values_of_a_shape_input_are_sizes(pack: dict[str, Operator]) -> None:
    rule = shape_rules(pack["tile_to"], "bound")["y"]
    assert isinstance(rule, ByRank)
    assert rule.cases[2, 2] == ("d1_0", "d1_1")
    assert "sizes" not in cuda_signature(pack["tile_to"])
    [result] = [r for r in check_operator(pack["tile_to"]) if r.check == "bound"]
    assert result.status == "passed"


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("z",), "the tensors are x, sizes"),
        (("x",), "which is float32; sizes are int64 or int32"),
        (("sizes", "sizes", "x"), "which is float32"),
    ],
)
def test_what_cannot_be_a_shape_input_is_refused(names: tuple[str, ...], reason: str) -> None:
    from torch import Tensor

    from deployops import operator

    def shaped(x: Tensor, sizes: Tensor) -> Tensor:
        return x

    shaped.__annotations__ = {"x": Tensor, "sizes": Tensor, "return": Tensor}
    name = f"sized::shaped{abs(hash(names))}"
    with pytest.raises(DeclarationError, match=reason):
        operator(name, dtypes={"x": ("float32",), "sizes": ("int64",)}, shape_inputs=names)(shaped)


# --- the emulation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sanitize", [None, "address", "thread"])
def test_the_packs_kernels_are_sound(pack: dict[str, Operator], sanitize: Any) -> None:
    names = ("positives", "above", "tile_to", "blend")
    for result in emulate([pack[n] for n in names], sanitize=sanitize):
        assert result.status == "passed", (result.operator, result.detail)


def test_outputs_have_the_sizes_that_the_kernel_wrote(declare: Declare) -> None:
    op = declare("written")
    assert outcome(op)[0] == "passed"
    with emulated_library([op]) as library:
        (y,) = library.run(op, (torch.tensor([1.0, -2.0, 3.0]),))
    assert torch.equal(y, torch.tensor([1.0, 3.0]))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        ("", "the kernel leaves -1 in `size`"),
        ("*size = int32_t(n) + 1;", "expected 0 to 40, its upper bound here"),
        ("*size = found > 0 ? found - 1 : 0;", "its shape is"),
        ("size[1] = found; *size = found;", "beyond the end of `size`"),
        ("*size = found; y[n] = 1;", "beyond the end of `y`"),
    ],
)
def test_a_kernel_that_writes_a_wrong_size_or_beyond_the_bound_is_found(
    declare: Declare, write: str, said: str
) -> None:
    status, detail = outcome(declare(f"wrong{abs(hash(write))}", write=write))
    assert status == "failed"
    assert said in detail
