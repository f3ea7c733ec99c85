"""Names that TensorRT's parser never looks for a plugin of."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from deployops import operator
from deployops.errors import DeclarationError
from deployops.symbolic import registry
from deployops.trt_plugins.carried import carried_by_tensorrt


def declared(op_type: str) -> object:
    def plain(x: Tensor) -> Tensor:
        return x.clone()

    plain.__annotations__ = {"x": Tensor, "return": Tensor}
    return operator(f"named::{op_type.lower()}", onnx=f"named::{op_type}", dtypes=("float32",))(plain)


@pytest.mark.parametrize("op_type", ["ScaledTanh", "TRT_Resize"])
def test_a_type_that_the_parser_imports_itself_is_refused_at_compilation(op_type: str) -> None:
    op = declared(op_type)
    try:
        op.fake(lambda x: torch.empty_like(x))  # type: ignore[attr-defined]
        op.samples(lambda draw: iter([draw(3)]))  # type: ignore[attr-defined]
        with pytest.raises(
            DeclarationError, match=f"takes a node of type `{op_type}` for an operator of its own"
        ):
            carried_by_tensorrt(op)  # type: ignore[arg-type]
    finally:
        registry.remove(op)  # type: ignore[arg-type]


@pytest.mark.parametrize("op_type", ["Relu", "Attention"])
def test_a_standard_type_is_refused_when_it_is_declared(op_type: str) -> None:
    with pytest.raises(DeclarationError, match="standard ONNX operator"):
        declared(op_type)
