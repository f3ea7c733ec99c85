"""Case 28: sums of small integers are int64 as in PyTorch; values near the type's limit come out right or are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import deployops

LIMIT = {
    "int32": np.array([2**30, 2**30, 2**30, 5], np.int32),
    "uint8": np.array([200, 100, 50, 7], np.uint8),
    "int8": np.array([100, 100, 100, -7], np.int8),
    "int16": np.array([30000, 30000, 30000, 5], np.int16),
}


class Sums(torch.nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x.cumsum(0), x.sum(), x.to(torch.int64).sum(), x.sum(0, keepdim=True)


@pytest.mark.parametrize("dtype", list(LIMIT))
def test_sums_are_int64_and_do_not_wrap(deploy: Any, dtype: str) -> None:
    x = LIMIT[dtype]
    exported = deploy(Sums(), (torch.from_numpy(x),))
    cumsum, total, converted, kept = exported.run(x)
    wide = x.astype(np.int64)
    assert {a.dtype for a in (cumsum, total, converted, kept)} == {np.dtype(np.int64)}
    np.testing.assert_array_equal(cumsum, np.cumsum(wide))
    assert total == converted == kept[0] == wide.sum()
    if dtype == "int32":
        assert cumsum.tolist() == [1073741824, 2147483648, 3221225472, 3221225477]  # the case's numbers


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int8"])
def test_arithmetic_in_the_type_itself_wraps_as_in_torch(deploy: Any, dtype: str) -> None:
    class Double(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    x = LIMIT[dtype]
    exported = deploy(Double(), (torch.from_numpy(x),))
    got = exported.run(x)[0]
    assert got.dtype == x.dtype
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, x * x.dtype.type(2))


def test_an_index_of_a_large_grid_stays_what_the_model_computes(deploy: Any) -> None:
    class Index(torch.nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            return rows * 70000 + 1

    rows = np.array([10, 40000], np.int32)
    exported = deploy(Index(), ["rows:int32[n]=0..100"])
    assert exported.run(rows)[0].tolist() == [700001, -1494967295]  # it wraps in PyTorch too
    wide = deploy(Index(), ["rows:int64[n]=0..100"])
    assert wide.run(rows.astype(np.int64))[0].tolist() == [700001, 2800000001]


def test_products_near_the_limit_are_compared_and_the_runtimes_difference_is_told(
    command: Any, tmp_path: Path
) -> None:
    """ORT saturates an int64 product where torch wraps to 0: with real samples validate sees it."""

    class Product(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.to(torch.int64).prod()

    small, large = np.array([3, 5, 7, 2], np.int32), np.array([2**30, 2**30, 2**30, 5], np.int32)
    torch.export.save(torch.export.export(Product(), (torch.from_numpy(small),)), tmp_path / "net.pt2")
    np.savez(tmp_path / "small.npz", x=small)
    np.savez(tmp_path / "large.npz", x=large)
    done = command("export", tmp_path / "net.pt2", "--input-data", tmp_path / "small.npz")
    assert done.code == 0, done.err
    options = ["--onnx", tmp_path / "net.onnx", "--no-latency", "--input-data"]
    done = command("validate", tmp_path / "net.pt2", *options, tmp_path / "small.npz")
    assert done.code == 0, done.out + done.err
    done = command("validate", tmp_path / "net.pt2", *options, tmp_path / "large.npz")
    assert done.code == 1, done.out + done.err
    assert "failed" in done.out.lower()


def test_a_dtype_that_differs_is_found_before_the_values(command: Any, tmp_path: Path) -> None:
    """A converter that keeps int32: the same small numbers, the wrong type."""
    from onnx import TensorProto, helper, numpy_helper, save

    class Cumsum(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.cumsum(0)

    torch.export.save(
        torch.export.export(Cumsum(), (torch.tensor([1, 2, 3], dtype=torch.int32),)), tmp_path / "net.pt2"
    )
    graph = helper.make_graph(
        [helper.make_node("CumSum", ["x", "axis"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT32, [3])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [3])],
        [numpy_helper.from_array(np.array(0, np.int64), "axis")],
    )
    save(
        helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)]),
        tmp_path / "kept.onnx",
    )
    done = command("validate", tmp_path / "net.pt2", "--onnx", tmp_path / "kept.onnx", "--no-latency")
    assert done.code == 1
    assert "int32" in done.out
    assert "int64" in done.out


def test_casts_out_of_range_keep_torchs_answer(deploy: Any) -> None:
    class ToInt8(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.to(torch.int32).to(torch.int8)

    exported = deploy(ToInt8(), ["x:float32[n]"])
    assert exported.run(np.array([200, -200, 127, -128, 0.9], np.float32))[0].tolist() == [
        -56,
        56,
        127,
        -128,
        0,
    ]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool"])
def test_every_integer_type_at_the_boundary(deploy: Any, dtype: str) -> None:
    class Same(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return x.clone(), x.sum(), (x != 0).sum()

    exported = deploy(Same(), [f"x:{dtype}[n,2]"])
    # 2**53 and not the limit for int64: ONNX Runtime's ReduceSum adds int64 in float64
    low, high = (
        (0, 1) if dtype == "bool" else (max(np.iinfo(dtype).min, -(2**53)), min(np.iinfo(dtype).max, 2**53))
    )
    x = np.array([[low, high], [0, 1]], dtype=dtype)
    same, total, count = exported.run(x)
    np.testing.assert_array_equal(same, x)
    assert same.dtype == x.dtype
    assert total.dtype == np.int64
    assert total == x.astype(np.int64).sum()
    assert count == np.count_nonzero(x)


def test_a_declared_range_has_its_ends_tried(deploy: Any) -> None:
    """ONNX Runtime's ReduceProd of int64 stops at the limit where torch wraps: found once such values are declared."""

    class Product(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.prod(0)

    exported = deploy(Product(), ["x:int64[n]=-3..3"])
    report = deployops.validate(Product(), exported.path, ["x:int64[n]=1..2147483647"], latency=False)
    assert report.verdict == "failed"
