"""An operator that goes by places in memory is told so by `ops check`, whatever layouts its samples have."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops import adopt
from deployops.symbolic import Operator, operator
from deployops.symbolic.checking.declaration_check import check_declaration
from deployops.symbolic.samples import Draw

_numbers = count()


def declared(reference: Callable[..., Any], samples: Callable[[Draw], Any], **options: Any) -> Operator:
    k = next(_numbers)
    op = operator(f"t_layouts::op{k}", onnx=f"t_layouts::Op{k}", **options)(reference)
    op.fake(lambda x: torch.empty_like(x))
    op.samples(samples)
    return op


def as_if_dense(x: Tensor) -> Tensor:
    """What a kernel computes that takes rows for dense."""
    return x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride()) * 2


def by_its_stride(x: Tensor) -> Tensor:
    return x * x.stride(0)


def dense(draw: Draw) -> Any:
    return [draw(3, 5)]


def strided(draw: Draw) -> Any:
    return [draw.strided(3, 5)]


@pytest.mark.parametrize("samples", [dense, strided])
def test_rows_taken_for_dense_are_told_as_that_and_not_as_chance(samples: Callable[[Draw], Any]) -> None:
    result, stopped = check_declaration(declared(as_if_dense, samples, dtypes=("float32", "float16")))
    assert result.status == "failed"
    assert "it reads strided inputs as if they were dense: for the same numbers" in result.detail
    assert ".contiguous()" in result.detail
    assert "deterministic" not in result.detail
    assert stopped == "it reads strided inputs as if they were dense (see declaration)"


def test_another_use_of_strides_is_told_in_general_words() -> None:
    result, _ = check_declaration(declared(by_its_stride, dense, dtypes=("float32",)))
    assert result.detail.startswith("it goes by places in memory and not by values: ")


def test_the_operator_of_case_13() -> None:
    """A pointer and no strides. It takes float32 alone, and reads the bytes of other dtypes as that."""

    @torch.library.custom_op("t_layouts::first_col", mutates_args=())
    def first_col(x: Tensor) -> Tensor:
        n, c = x.shape
        memory = (ctypes.c_float * (n * c)).from_address(x.data_ptr())
        return torch.tensor([memory[i * c] for i in range(n)])

    first_col.register_fake(lambda x: x.new_empty(x.shape[0]))
    op = adopt("t_layouts::first_col", onnx="t_layouts::FirstCol", dtypes=("float32",))
    op.samples(dense)
    result, _ = check_declaration(op)
    assert "it reads strided inputs as if they were dense" in result.detail


def normalised(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def summed(x: Tensor) -> Tensor:
    """In another order in another layout."""
    return x.sum(0, keepdim=True).expand(x.shape).contiguous()


def dense_only(x: Tensor) -> Tensor:
    if not x.is_contiguous():
        raise ValueError("rows must be dense")
    return as_if_dense(x)


@pytest.mark.parametrize("reference", [normalised, summed])
def test_sound_references_pass_in_every_layout(reference: Callable[..., Any]) -> None:
    op = declared(reference, lambda draw: [draw(300, 70), draw.strided(40, 9), draw(2, 3, 4, 5)])
    assert check_declaration(op)[0].status == "passed"


def test_a_refusal_of_other_layouts_is_sound() -> None:
    assert check_declaration(declared(dense_only, dense, dtypes=("float32",)))[0].status == "passed"


def test_a_random_reference_is_still_random_on_strided_samples() -> None:
    def dropped(x: Tensor) -> Tensor:
        return x * (torch.rand_like(x) > 0.5)

    result, _ = check_declaration(declared(dropped, strided))
    assert "it is random" in result.detail


def test_what_lies_in_the_gaps_is_the_same_in_every_run() -> None:
    from deployops.symbolic.memory_layouts import copied, with_strides

    x = Draw("float32").strided(3, 5)
    for _ in range(3):
        memory = copied(x).as_strided((6,), (1,))
        assert torch.equal(memory[1::2], torch.zeros(3))
    again = with_strides(x.contiguous(), x.stride())
    assert again.stride() == x.stride()
    assert torch.equal(again, x)
