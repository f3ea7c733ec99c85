"""A model whose custom operators run by their CUDA kernels on the CPU: the pieces, their order, and what comes out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from deployops.errors import NotCheckedError
from deployops.ort_ops.engine import EngineError
from deployops.validation.backends import BACKENDS, Request, Runner
from deployops.validation.backends.segments import cut, referenced

N = helper.make_node
W = np.array([1, -2, 0.5, 3], np.float32)


def graph(nodes: list[Any], outputs: tuple[str, ...]) -> Any:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("a", *outputs)]
    return helper.make_graph(nodes, "g", values[:1], values[1:])


def test_segments_take_what_they_need_and_give_what_others_need() -> None:
    nodes = [
        N("Neg", ["a"], ["b"]),
        N("Abs", ["b"], ["c"]),
        N("Custom", ["c"], ["d"], domain="acme"),
        N("Custom", ["d"], ["e"], domain="acme"),
        N("Add", ["e", "b"], ["f"]),
    ]
    found = cut(graph(nodes, ("f", "c")), lambda node: node.domain == "acme")
    assert [([n.op_type for n in s.nodes], s.inputs, s.outputs, s.alone is not None) for s in found] == [
        (["Neg", "Abs"], ("a",), ("b", "c"), False),
        (["Custom"], ("c",), ("d",), True),
        (["Custom"], ("d",), ("e",), True),
        (["Add"], ("b", "e"), ("f",), False),
    ]


def test_what_a_subgraph_reads_is_read_by_its_node() -> None:
    inner = helper.make_graph(
        [N("Neg", ["outer"], ["z"])], "i", [], [helper.make_empty_tensor_value_info("z")]
    )
    assert {"c", "outer"} <= set(referenced(N("If", ["c"], ["y"], then_branch=inner, else_branch=inner)))


@pytest.fixture
def opened() -> Iterator[Callable[[Path], Runner]]:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("not checked: no C++ compiler for the emulation")
    runners: list[Runner] = []

    def run(path: Path) -> Runner:
        request = Request(onnx=path, threads=1)
        assert BACKENDS["emulated"].missing(request) == ""
        runners.append(BACKENDS["emulated"].open(request))
        return runners[-1]

    yield run
    for runner in runners:
        runner.close()


def relu(x: str, y: str) -> Any:
    return N("RectifiedLinear", [x], [y], domain="deployops")


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "kind"), [("float", np.float32), ("bfloat16", ml_dtypes.bfloat16)])
def test_kernels_and_the_runtime_take_turns(
    build: Callable[..., Path], opened: Callable[[Path], Runner], dtype: str, kind: Any
) -> None:
    """relu(-relu(x)) - w = -w, relu(x) = max(x, 0): of small integers, exact in every dtype."""
    nodes = [
        relu("x", "r"),
        N("Cast", ["r"], ["wide"], to=TensorProto.FLOAT),
        N("Neg", ["wide"], ["n"]),
        N("Cast", ["n"], ["narrow"], to=getattr(TensorProto, dtype.upper())),
        relu("narrow", "zero"),
        N("Cast", ["zero"], ["wide_zero"], to=TensorProto.FLOAT),
        N("Sub", ["wide_zero", "w"], ["y"]),
    ]
    value = (dtype, ["n", 3])
    w = np.array([1, 2, 3], np.float32)
    path = build(
        nodes,
        [("x", *value)],
        [("y", "float", ["n", 3]), ("r", *value)],
        constants={"w": w},
        domains={"deployops": 1},
    )
    runner = opened(path)
    for rows in (1, 4):
        x = (np.arange(3.0 * rows).reshape(rows, 3) - 2).astype(kind)
        y, r = runner.run([("x", x)])
        assert r.dtype == kind
        assert (r.astype(float) == np.maximum(x.astype(float), 0)).all()
        assert (y == np.broadcast_to(-w, y.shape)).all()
    assert runner.versions["emulated"] == "deployops::RectifiedLinear"
    with pytest.raises(NotCheckedError, match="says nothing of a GPU"):
        runner.time()


@pytest.mark.slow
def test_a_part_without_a_kernel_is_named_after_the_users_file(
    build: Callable[..., Path], opened: Callable[[Path], Runner]
) -> None:
    nodes = [
        relu("x", "r"),
        N("Mul", ["r", "r"], ["m"], name="square"),
        N("Add", ["m", "x"], ["y"], name="sum"),
    ]
    value = ("bfloat16", ["n", 3])
    path = build(nodes, [("x", *value)], [("y", *value)], domains={"deployops": 1})
    runner = opened(path.rename(path.with_name("net.onnx")))
    with pytest.raises(NotCheckedError, match=r"has no kernel for Add\(bfloat16\)") as caught:
        runner.run([("x", np.ones((2, 3), ml_dtypes.bfloat16))])
    text = str(caught.value)
    assert "net.onnx (its part from Mul `square` to Add `sum`) is a valid model" in text
    assert "0.onnx" not in text
    assert "export the model in float32 (or float16)" in text


@pytest.mark.slow
def test_attributes_reach_the_kernel(build: Callable[..., Path], opened: Callable[[Path], Runner]) -> None:
    """x / sqrt(mean(x²) + eps) · w, with an eps that nobody has as a default, and a constant for a weight."""
    node = N("RMSNorm", ["x", "w"], ["y"], domain="deployops", eps=0.5)
    path = build(
        [node],
        [("x", "float", [2, 4])],
        [("y", "float", [2, 4])],
        constants={"w": W},
        domains={"deployops": 1},
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
    (y,) = opened(path).run([("x", x)])
    wide = x.astype(float)
    expected = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + 0.5) * W
    assert y == pytest.approx(expected, rel=1e-6)


PACK = """
import torch
from deployops import operator

@operator("planted::thing", onnx="planted::Thing")
def thing(x: torch.Tensor) -> torch.Tensor:
    return x + 1

@thing.fake
def _(x): return torch.empty_like(x)

@thing.samples
def _(draw):
    yield draw(3)
    yield draw(2, 5)
"""


def declared(folder: Path) -> Any:
    from deployops.symbolic import registry

    (folder / "planted_pack.py").write_text(PACK)
    (op,) = registry.load([str(folder / "planted_pack.py")])
    return op


@pytest.fixture
def thing(tmp_path: Path) -> Iterator[Any]:
    from deployops.symbolic import registry

    op = declared(tmp_path)
    yield op
    registry.remove(op)


def test_a_kernel_that_does_not_compile_fails_and_none_at_all_is_not_checked(
    build: Callable[..., Path], tmp_path: Path, thing: Any, opened: Callable[[Path], Runner]
) -> None:
    path = build(
        [N("Thing", ["x"], ["y"], domain="planted")],
        [("x", "float", [3])],
        [("y", "float", [3])],
        domains={"planted": 1},
    )
    with pytest.raises(NotCheckedError, match="has no kernel"):
        opened(path)
    (tmp_path / "thing.cuh").write_text("this is no C++\n")
    with pytest.raises(EngineError, match=r"thing\.cuh"):
        opened(path)


def test_a_model_without_declared_operators_has_nothing_to_emulate(build: Callable[..., Path]) -> None:
    path = build([N("Relu", ["x"], ["y"])], [("x", "float", [3])], [("y", "float", [3])])
    assert "no declared operator" in BACKENDS["emulated"].missing(Request(onnx=path))
