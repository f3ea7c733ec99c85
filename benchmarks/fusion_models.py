"""Pairs of small models, with and without a custom node: what ONNX Runtime fuses in one and not in the other.

`cases()` names each fusion that `deployops inspect` looks for (`ort_ops/inspection/fusions.py`). The tests open both models
in the installed runtime; `measure_runtime_limits.py` opens them in every measured one and notes which fuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["FusionCase", "cases"]

Step = Callable[[str, str], onnx.NodeProto]
_RANDOM = np.random.default_rng(0)
_IMAGE = (1, 16, 8, 8)


@dataclass(frozen=True, slots=True)
class FusionCase:
    """`kept`: an operator that the runtime fuses away in `plain` and keeps in `cut`, where the custom node is.

    "Type#2" for one of which a second is kept.
    """

    plain: onnx.ModelProto
    cut: onnx.ModelProto
    kept: str

    def is_lost(self, plain: Sequence[str], cut: Sequence[str]) -> bool:
        """Does the custom node cost the fusion, by the operators of the two optimised graphs?"""
        kind, _, count = self.kept.partition("#")
        return plain.count(kind) < int(count or 1) <= cut.count(kind) and "Twice" in cut


def cases() -> Mapping[str, FusionCase]:
    """A case for every fusion; the custom node is acme::Twice (domain version 3, float32), named "custom"."""
    relu, conv = _op("Relu"), _op("Conv", "w", "b", pads=[1, 1, 1, 1])
    matmul, gemm = _op("MatMul", "m"), _op("Gemm", "m", "c")
    norm = _op("BatchNormalization", "c16", "c16", "c16", "one16")
    flip = [_op("Transpose", perm=p) for p in ([0, 2, 3, 1], [0, 3, 1, 2])]
    turn = _op("Transpose", perm=[1, 0])
    return {
        "conv-activation": _chain("Relu", _IMAGE, conv, relu),
        "conv-batchnorm": _chain("BatchNormalization", _IMAGE, conv, norm),
        "conv-mul": _chain("Mul", _IMAGE, conv, _op("Mul", "k")),
        "conv-add": _chain("Add", _IMAGE, _op("Conv", "w", pads=[1, 1, 1, 1]), _op("Add", "k")),
        "conv-add-relu": _residual(),
        "convtranspose-batchnorm": _chain("BatchNormalization", _IMAGE, _op("ConvTranspose", "w"), norm),
        "pad-conv": _chain("Pad", _IMAGE, _op("Pad", "pads"), _op("Conv", "w", "b")),
        "matmul-add": _chain("MatMul", (2, 8), matmul, _op("Add", "c")),
        "matmul-add-stacked": _chain("MatMul", (2, 3, 8), matmul, _op("Add", "c")),
        "matmul-batchnorm": _chain(
            "BatchNormalization", (2, 8), matmul, _op("BatchNormalization", "c", "c", "c", "one4")
        ),
        "matmul-scale": _chain("Mul", (2, 8), matmul, _op("Mul", "s")),
        "scale-matmul": _chain("Mul", (2, 8), _op("Mul", "s"), matmul),
        "gemm-activation": _chain("Relu", (2, 8), gemm, relu),
        "transpose-matmul": _chain("Transpose", (8, 2), turn, matmul),
        "transpose-gemm": _chain("Transpose", (8, 2), turn, gemm),
        "gemm-transpose": _chain("Transpose", (2, 8), _op("Gemm", "m"), turn),
        "transposes": _chain("Transpose", _IMAGE, flip[0], flip[1]),
        "add-layernorm": _chain(
            "Add", (2, 3, 8), _op("Add", "res"), _op("LayerNormalization", "c8", "c8", axis=-1)
        ),
        "bias-gelu": _chain("Add", (2, 3, 8), _op("Add", "c8"), _op("Gelu")),
        "gelu": _gelu(),
        "layernorm": _layer_norm(centred=True),
        "rmsnorm": _layer_norm(centred=False),
        "quantised-operator": _quantised("Conv"),
        "quantised-pair": _quantised(None),
        "layout": _chain("ReorderInput#2", _IMAGE, conv, conv),
        "constants": _constants(),
    }


def _op(kind: str, *more: str, **attributes: Any) -> Step:
    return lambda x, y: helper.make_node(kind, [x, *more], [y], name=f"{kind}_{y}", **attributes)


def _custom(x: str, y: str) -> onnx.NodeProto:
    return helper.make_node("Twice", [x], [y], name="custom", domain="acme")


def _chain(kept: str, shape: Sequence[int], *steps: Step) -> FusionCase:
    """The steps one after the other; in `cut` the custom node stands before the last."""
    made = []
    for order in (steps, (*steps[:-1], _custom, steps[-1])):
        names = ["x", *(f"v{k}" for k in range(len(order) - 1)), "y"]
        made.append(_model([s(names[k], names[k + 1]) for k, s in enumerate(order)], shape))
    return FusionCase(made[0], made[1], kept)


def _pair(kept: str, shape: Sequence[int], build: Callable[[bool], list[onnx.NodeProto]]) -> FusionCase:
    return FusionCase(_model(build(False), shape), _model(build(True), shape), kept)


def _residual() -> FusionCase:
    def build(cut: bool) -> list[onnx.NodeProto]:
        conv = _op("Conv", "w", "b", pads=[1, 1, 1, 1])
        nodes = [conv("x", "a"), _op("Relu")("a", "r"), conv("r", "v")]
        nodes += [_custom("v", "vc")] if cut else []
        return [*nodes, _op("Add", "r")("vc" if cut else "v", "sum"), _op("Relu")("sum", "y")]

    return _pair("Add", _IMAGE, build)


def _gelu() -> FusionCase:
    def build(cut: bool) -> list[onnx.NodeProto]:
        nodes = [_op("Div", "root2")("x", "d"), _op("Erf")("d", "e")]
        nodes += [_custom("e", "ec")] if cut else []
        nodes += [_op("Add", "one")("ec" if cut else "e", "a")]
        return [*nodes, helper.make_node("Mul", ["x", "a"], ["xa"]), _op("Mul", "half")("xa", "y")]

    return _pair("Erf", (2, 3, 8), build)


def _layer_norm(*, centred: bool) -> FusionCase:
    def build(cut: bool) -> list[onnx.NodeProto]:
        x, nodes = "x", []
        if centred:
            nodes = [_op("ReduceMean", "last")("x", "mean"), _op("Sub", "mean")("x", "d")]
            x = "d"
        nodes += [_op("Pow", "two")(x, "p")] + ([_custom("p", "pc")] if cut else [])
        nodes += [_op("ReduceMean", "last")("pc" if cut else "p", "var"), _op("Add", "eps")("var", "ve")]
        nodes += [_op("Sqrt")("ve", "sd"), helper.make_node("Div", [x, "sd"], ["q"])]
        end = "t" if centred else "y"
        return [*nodes, _op("Mul", "c8")("q", end), *([_op("Add", "c8")("t", "y")] if centred else [])]

    return _pair("Sqrt", (2, 3, 8), build)


def _quantised(kind: str | None) -> FusionCase:
    def build(cut: bool) -> list[onnx.NodeProto]:
        nodes = [_op("QuantizeLinear", "qs", "qz")("x", "q"), _op("DequantizeLinear", "qs", "qz")("q", "d")]
        value = "d"
        if kind:
            nodes.append(_op("DequantizeLinear", "ws", "wz")("wq", "wd"))
            nodes.append(helper.make_node(kind, ["d", "wd"], ["v"], name="operator", pads=[1, 1, 1, 1]))
            value = "v"
        nodes += [_custom(value, "c_")] if cut else []
        nodes.append(_op("QuantizeLinear", "qs", "qz")("c_" if cut else value, "q2"))
        return [*nodes, _op("DequantizeLinear", "qs", "qz")("q2", "y")]

    return _pair(kind or "DequantizeLinear#2", _IMAGE, build)


def _constants() -> FusionCase:
    def build(cut: bool) -> list[onnx.NodeProto]:
        nodes = [_custom("c8", "c_")] if cut else []
        return [*nodes, _op("Exp")("c_" if cut else "c8", "e"), _op("Add", "e")("x", "y")]

    return _pair("Exp", (2, 3, 8), build)


def _constant(name: str, value: Any, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def _model(nodes: list[onnx.NodeProto], shape: Sequence[int]) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), onnx.ValueInfoProto(name="y")]
    random = _RANDOM.standard_normal
    constants = [
        _constant("w", random((16, 16, 3, 3))), _constant("b", random(16)), _constant("c16", random(16)),
        _constant("one16", np.ones(16)), _constant("k", random((1, 16, 1, 1))), _constant("m", random((8, 4))),
        _constant("c", random(4)), _constant("one4", np.ones(4)), _constant("s", 3.0), _constant("c8", random(8)),
        _constant("res", random((2, 3, 8))), _constant("root2", math.sqrt(2)),
        _constant("one", 1.0), _constant("half", 0.5), _constant("two", 2.0), _constant("eps", 1e-5),
        _constant("pads", [0, 0, 1, 1, 0, 0, 1, 1], np.int64), _constant("last", [-1], np.int64),
        _constant("qs", 0.1), _constant("qz", 128, np.uint8), _constant("ws", 0.01), _constant("wz", 0, np.int8),
        _constant("wq", _RANDOM.integers(-127, 127, (16, 16, 3, 3)), np.int8),
    ]  # fmt: skip
    used = {i for n in nodes for i in n.input}
    # what a fusion adds to must not be a constant, or it is folded
    live = [c for c in constants if c.name in used and c.name == "res"]
    inputs = [helper.make_tensor_value_info(c.name, TensorProto.FLOAT, c.dims) for c in live]
    kept = [c for c in constants if c.name in used and c not in live]
    graph = helper.make_graph(nodes, "g", [ends[0], *inputs], [ends[1]], kept)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 3)]
    return helper.make_model(graph, ir_version=9, opset_imports=imports)
