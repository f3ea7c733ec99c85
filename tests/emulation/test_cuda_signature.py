"""How a CUDA launcher is to be declared, by the declaration of its operator."""

from __future__ import annotations

import pytest

from deployops.errors import DeclarationError
from deployops.native.cuda_signature import cuda_element_type, cuda_entries, cuda_signature
from deployops.symbolic.operator import Operator


def test_signature(shipped: dict[str, Operator]) -> None:
    assert cuda_signature(shipped["attention"]) == (
        "template <class T>\ncudaError_t attention(Stream stream, In<T> q, In<T> k, In<T> v, In<T> bias, In<bool> mask, "
        "bool is_causal, std::optional<double> scale, Out<T> y)"
    )


@pytest.mark.parametrize(
    ("dtype", "spelled"),
    [("float16", "__half"), ("bfloat16", "__nv_bfloat16"), ("float32", "float"), ("int64", "int64_t")],
)
def test_elements(dtype: str, spelled: str) -> None:
    assert cuda_element_type(dtype) == spelled


def test_float8_has_no_element_type() -> None:
    assert cuda_element_type("float8_e4m3fn") is None


def test_an_output_of_unknown_size_is_refused(shipped: dict[str, Operator]) -> None:
    with pytest.raises(DeclarationError, match="the size of `y` is known only after the kernel ran"):
        cuda_entries(shipped["relu"], "relu.cuh", ["y"])
