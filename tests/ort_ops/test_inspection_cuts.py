"""Every cut that `inspect` reports is one: the installed ONNX Runtime fuses without the custom node, and not with it."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deployops.ort_ops.inspection.check import check_model
from deployops.ort_ops.inspection.fusions import PAIRS
from deployops.ort_ops.inspection.runtime_limits import RuntimeLimits, limits_for, limits_of
from deployops.ort_ops.library_manifest import (
    KernelArgument,
    KernelOperator,
    KernelSignature,
    LibraryManifest,
)
from deployops.symbolic.graph_inspection.findings import Finding

from .twice_library import compiled, optimised

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="not checked: fusions were measured on x86-64"
)
ROOT = Path(__file__).resolve().parents[2]
IMAGE = (1, 16, 8, 8)


def fusion_models() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fusion_models", ROOT / "benchmarks" / "fusion_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


CASES = fusion_models().cases()
KINDS = {"layout": "cut-layout", "constants": "not-folded"}


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def installed() -> RuntimeLimits:
    return limits_for("installed")


def twice_manifest(dtype: str = "float32") -> LibraryManifest:
    signature = KernelSignature({"x": dtype}, {"y": dtype})
    operator = KernelOperator(
        "acme",
        "Twice",
        3,
        "acme::twice",
        inputs=(KernelArgument("x"),),
        outputs=(KernelArgument("y"),),
        signatures=(signature,),
    )
    return LibraryManifest(Path("libtwice.so"), "", "ort-cpu", "", (operator,))


def cuts(model: onnx.ModelProto, limits: RuntimeLimits, dtype: str = "float32") -> list[Finding]:
    found = check_model(model, limits, [twice_manifest(dtype)]).findings
    assert not [f for f in found if f.severity == "would fail"], found
    return [f for f in found if f.severity == "hurts" and not f.kind.endswith("-in-float32")]


@pytest.mark.parametrize("name", CASES)
def test_a_fusion_is_lost_and_reported(name: str, twice: Path, installed: RuntimeLimits) -> None:
    case = CASES[name]
    plain, cut = optimised(case.plain, twice), optimised(case.cut, twice)
    lost = case.is_lost(plain, cut)
    assert lost == (name in installed.fusions), (plain, cut)
    if not lost:
        pytest.skip(f"onnxruntime {installed.version} does not do it")
    (finding,) = cuts(case.cut, installed)
    assert finding.kind == KINDS.get(name, "cut-fusion")
    assert finding.where == "'custom'"
    assert "acme::Twice" in finding.what
    assert finding.advice
    assert not cuts(case.plain, installed)


def test_every_rule_has_a_case_that_was_measured() -> None:
    assert {rule.name for rule in PAIRS} <= set(CASES)
    assert set(CASES) == set(limits_of("1.32.0", "given").fusions)


@pytest.mark.parametrize("name", ["bias-gelu", "pad-conv", "matmul-add-stacked", "convtranspose-batchnorm"])
def test_a_fusion_that_a_runtime_does_not_do_is_not_reported_for_it(name: str) -> None:
    old = limits_for("onnxruntime==1.17.3")
    assert name not in old.fusions
    assert not [f for f in cuts(CASES[name].cut, old) if f.kind == "cut-fusion"]


# Where rules hold: asked of ONNX Runtime with and without the custom node, and compared with what is reported.


def node(op: str, *inputs: str, out: str, **attributes: Any) -> onnx.NodeProto:
    domain = "acme" if op == "Twice" else ""
    return helper.make_node(op, list(inputs), [out], name=f"{op}_{out}", domain=domain, **attributes)


def constant(name: str, value: Any, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def ones(name: str, *shape: int) -> onnx.TensorProto:
    return constant(name, np.ones(shape))


def build(
    nodes: Sequence[onnx.NodeProto],
    constants: Sequence[onnx.TensorProto],
    shape: Sequence[int | str] = IMAGE,
    inputs: Sequence[onnx.ValueInfoProto] = (),
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info("x", dtype, shape), *inputs]
    graph = helper.make_graph(list(nodes), "g", ends, [onnx.ValueInfoProto(name="y")], list(constants))
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 3)]
    return helper.make_model(graph, ir_version=9, opset_imports=imports)


def in_a_row(*steps: tuple[Any, ...], cut_before: int) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """Nodes one after the other, each (op, other inputs, attributes); without and with acme::Twice before one of them."""
    plain, cut, before, cut_value = [], [], "x", "x"
    for k, (op, others, attributes) in enumerate(steps):
        out = "y" if k == len(steps) - 1 else f"v{k}"
        plain.append(node(op, before, *others, out=out, **attributes))
        if k == cut_before:
            cut.append(node("Twice", cut_value, out="t"))
            cut_value = "t"
        cut.append(node(op, cut_value, *others, out=out, **attributes))
        before = cut_value = out
    return plain, cut


CONV = ("Conv", ["w", "b"], {"pads": [1, 1, 1, 1]})
WEIGHTS = [ones("w", 16, 16, 3, 3), ones("b", 16)]


@pytest.mark.parametrize(
    "activation",
    [
        "Relu",
        "Sigmoid",
        "Tanh",
        "LeakyRelu",
        "HardSigmoid",
        "Clip",
        "Elu",
        "Softplus",
        "Softsign",
        "ThresholdedRelu",
        "Erf",
        "Exp",
        "Neg",
    ],
)
@pytest.mark.parametrize("first", ["Conv", "Gemm"])
def test_activations_inside_of_conv_and_gemm(
    first: str, activation: str, twice: Path, installed: RuntimeLimits
) -> None:
    bounds = ["zero", "six"] if activation == "Clip" else []
    step = CONV if first == "Conv" else ("Gemm", ["m", "c"], {})
    plain, cut = in_a_row(step, (activation, bounds, {}), cut_before=1)
    shape = IMAGE if first == "Conv" else (2, 8)
    constants = [*WEIGHTS, ones("m", 8, 4), ones("c", 4), constant("zero", 0), constant("six", 6)]
    constants = [c for c in constants if any(c.name in n.input for n in plain)]
    fuses = activation not in optimised(build(plain, constants, shape), twice)
    assert activation in optimised(build(cut, constants, shape), twice)
    reported = [f for f in cuts(build(cut, constants, shape), installed) if f.kind == "cut-fusion"]
    assert bool(reported) == fuses


@pytest.mark.parametrize(
    ("made", "read"), [(3, 3), (4, 4), (8, 8), (12, 12), (16, 16), (20, 20), (18, 18), (64, 64)]
)
def test_blocked_layout_by_channels(made: int, read: int, twice: Path, installed: RuntimeLimits) -> None:
    """Between Conv(16 -> made) and Conv(read -> 16)."""
    conv = lambda w: ("Conv", [w], {"pads": [1, 1, 1, 1]})  # noqa: E731
    plain, cut = in_a_row(conv("w1"), conv("w2"), cut_before=1)
    constants = [ones("w1", made, 16, 3, 3), ones("w2", 16, read, 3, 3)]
    without, with_ = optimised(build(plain, constants), twice), optimised(build(cut, constants), twice)
    lost = with_.count("ReorderInput") > without.count("ReorderInput")
    if without.count("ReorderOutput") == 0:
        pytest.skip("this processor has no blocked layout")
    reported = [f for f in cuts(build(cut, constants), installed) if f.kind == "cut-layout"]
    assert not (reported and not lost)
    if read >= 16:  # with fewer channels it depends on the processor's block, and nothing is claimed
        assert bool(reported) == lost


@pytest.mark.parametrize("groups", [16, 4])
def test_blocked_layout_of_grouped_convolutions(groups: int, twice: Path, installed: RuntimeLimits) -> None:
    conv = ("Conv", ["w"], {"pads": [1, 1, 1, 1], "group": groups})
    plain, cut = in_a_row(conv, conv, cut_before=1)
    constants = [ones("w", 16, 16 // groups, 3, 3)]
    without, with_ = optimised(build(plain, constants), twice), optimised(build(cut, constants), twice)
    reported = [f for f in cuts(build(cut, constants), installed) if f.kind == "cut-layout"]
    assert bool(reported) == (with_.count("ReorderInput") > without.count("ReorderInput"))


@pytest.mark.parametrize("between", ["Relu", "MaxPool", "Softmax", "Erf"])
def test_blocked_layout_goes_through_some_operators_only(
    between: str, twice: Path, installed: RuntimeLimits
) -> None:
    attributes = {"kernel_shape": [1, 1]} if between == "MaxPool" else {}
    plain, cut = in_a_row(CONV, (between, [], attributes), CONV, cut_before=2)
    without, with_ = optimised(build(plain, WEIGHTS), twice), optimised(build(cut, WEIGHTS), twice)
    reported = [f for f in cuts(build(cut, WEIGHTS), installed) if f.kind == "cut-layout"]
    assert bool(reported) == (with_.count("ReorderInput") > without.count("ReorderInput"))


QUANTISED = {
    "Conv": ["wd"], "MatMul": ["md"], "Sigmoid": [], "LeakyRelu": [], "GlobalAveragePool": [], "AveragePool": [], "Add": ["d"],
    "Mul": ["d"], "Softmax": [], "Concat": ["d"], "Relu": [], "Tanh": [], "Sqrt": [],
}  # fmt: skip


@pytest.mark.parametrize("op", QUANTISED)
def test_quantised_operators(op: str, twice: Path, installed: RuntimeLimits) -> None:
    attributes: dict[str, Any] = {
        "Conv": {"pads": [1] * 4},
        "Concat": {"axis": 0},
        "AveragePool": {"kernel_shape": [2, 2]},
    }.get(op, {})

    def nodes(cut: bool) -> list[onnx.NodeProto]:
        found = [
            node("QuantizeLinear", "x", "s", "z", out="q"),
            node("DequantizeLinear", "q", "s", "z", out="d"),
        ]
        for weight, made in (("wq", "wd"), ("mq", "md")):
            if made in QUANTISED[op]:
                found.append(node("DequantizeLinear", weight, "s", "wz", out=made))
        found.append(node(op, "d", *QUANTISED[op], out="v", **attributes))
        found += [node("Twice", "v", out="t")] if cut else []
        found.append(node("QuantizeLinear", "t" if cut else "v", "s", "z", out="q2"))
        return [*found, node("DequantizeLinear", "q2", "s", "z", out="y")]

    constants = [
        constant("s", 0.1), constant("z", 128, np.uint8), constant("wz", 0, np.int8),
        constant("wq", np.ones((16, 16, 3, 3)), np.int8), constant("mq", np.ones((8, 8)), np.int8),
    ]  # fmt: skip
    used = {i for n in nodes(True) for i in n.input}
    constants = [c for c in constants if c.name in used]
    without, with_ = (optimised(build(nodes(cut), constants), twice) for cut in (False, True))
    integer = f"QLinear{op}"
    lost = integer in without and integer not in with_
    reported = [f for f in cuts(build(nodes(True), constants), installed) if f.kind == "cut-fusion"]
    assert bool(reported) == lost, (without, with_)


@pytest.mark.parametrize(
    ("first", "second", "inverse"),
    [
        ([0, 2, 3, 1], [0, 3, 1, 2], True),
        ([0, 2, 3, 1], [0, 2, 3, 1], False),
        ([1, 0, 2, 3], [1, 0, 2, 3], True),
    ],
)
def test_transposes_that_undo_each_other(
    first: list[int], second: list[int], inverse: bool, twice: Path, installed: RuntimeLimits
) -> None:
    steps = (("Transpose", [], {"perm": first}), ("Relu", [], {}), ("Transpose", [], {"perm": second}))
    plain, cut = in_a_row(*steps, cut_before=1)
    shape = (1, 16, 8, 4)
    assert (optimised(build(plain, [], shape), twice).count("Transpose") == 0) == inverse
    assert optimised(build(cut, [], shape), twice).count("Transpose") == 2
    assert bool(cuts(build(cut, [], shape), installed)) == inverse


@pytest.mark.parametrize("slot", range(5))
def test_a_custom_node_anywhere_in_a_gelu(slot: int, twice: Path, installed: RuntimeLimits) -> None:
    """Slot 4: in the place of Erf itself."""
    nodes, value = [node("Div", "x", "root", out="d")], "d"
    for k, (op, other) in enumerate((("Erf", None), ("Add", "one"), ("Mul", "x"), ("Mul", "half"))):
        if slot == k:
            nodes.append(node("Twice", value, out="t"))
            value = "t"
        kind = "Twice" if slot == 4 and op == "Erf" else op
        out = "y" if k == 3 else f"v{k}"
        nodes.append(node(kind, *([value, other] if other else [value]), out=out))
        value = out
    constants = [constant("root", np.sqrt(2)), constant("one", 1), constant("half", 0.5)]
    proto = build(nodes, constants, (2, 3, 8))
    assert "Gelu" not in optimised(proto, twice)
    assert bool(cuts(proto, installed)) == (
        slot != 3
    )  # after x · (1 + erf) the pattern is told as far as it goes


def test_a_value_that_others_read_too_is_no_cut(twice: Path, installed: RuntimeLimits) -> None:
    nodes = [
        node("Conv", "x", "w", "b", out="c"),
        node("Twice", "c", out="t"),
        node("Relu", "t", out="r"),
        node("Add", "r", "c", out="y"),
    ]
    assert not [f for f in cuts(build(nodes, WEIGHTS), installed) if "inside of the Conv" in f.what]


def test_another_element_type_is_no_cut(installed: RuntimeLimits) -> None:
    cut = in_a_row(("Gemm", ["m", "c"], {}), ("Relu", [], {}), cut_before=1)[1]
    constants = [constant("m", np.ones((8, 4)), np.float64), constant("c", np.ones(4), np.float64)]
    assert not cuts(build(cut, constants, (2, 8), dtype=TensorProto.DOUBLE), installed, "float64")


def test_equal_nodes_are_computed_twice(twice: Path, installed: RuntimeLimits) -> None:
    def nodes(op: str) -> list[onnx.NodeProto]:
        return [
            node(op, "x", out="a"),
            node(op, "x", out="b"),
            node("Relu", "b", out="c"),
            node("Add", "a", "c", out="y"),
        ]

    assert optimised(build(nodes("Exp"), []), twice).count("Exp") == 1
    assert optimised(build(nodes("Twice"), []), twice).count("Twice") == 2
    found = check_model(build(nodes("Twice"), []), installed, [twice_manifest()]).findings
    assert [(f.severity, f.where) for f in found if f.kind == "repeated"] == [("note", "'Twice_b'")]
    assert not [f for f in check_model(build(nodes("Exp"), []), installed).findings if f.kind == "repeated"]


def test_nodes_behind_a_constant_one_are_counted(twice: Path, installed: RuntimeLimits) -> None:
    nodes = [
        node("Twice", "k", out="t"),
        node("Exp", "t", out="e"),
        node("Neg", "e", out="n"),
        node("Add", "x", "n", out="y"),
    ]
    proto = build(nodes, [ones("k", 1)])
    assert {"Twice", "Exp", "Neg"} <= set(optimised(proto, twice))
    (finding,) = cuts(proto, installed)
    assert "and 2 nodes after it" in finding.what


def test_casts_around_float16(tmp_path: Path, installed: RuntimeLimits) -> None:
    half = compiled(tmp_path, TensorProto.FLOAT16)

    def proto(*steps: tuple[Any, ...], cut: bool) -> onnx.ModelProto:
        return build(in_a_row(*steps, cut_before=1)[cut], [], dtype=TensorProto.FLOAT16)

    steps = (("Sqrt", [], {}), ("Exp", [], {}))
    casts = [optimised(proto(*steps, cut=cut), half).count("Cast") for cut in (False, True)]
    assert casts[1] > casts[0]
    assert [f.kind for f in cuts(proto(*steps, cut=True), installed, "float16")] == ["cut-float32"]
    native = (("Identity", [], {}), ("Flatten", [], {}))
    assert optimised(proto(*native, cut=True), half).count("Cast") == 0
    assert not cuts(proto(*native, cut=True), installed, "float16")


def function_model(standard: str) -> onnx.ModelProto:
    """Conv, then acme::Twice with a body of one operator."""
    proto = build(
        [node("Conv", "x", "w", "b", out="c"), node("Twice", "c", out="t"), node("Relu", "t", out="y")],
        WEIGHTS,
    )
    body = [helper.make_node(standard, ["a"], ["b"])]
    proto.functions.append(
        helper.make_function("acme", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    )
    return proto


def test_a_body_is_expanded_and_cuts_nothing_until_a_kernel_is_given(
    twice: Path, installed: RuntimeLimits
) -> None:
    proto = function_model("Identity")
    assert "Relu" not in optimised(proto, None)
    assert not check_model(proto, installed).findings
    assert "Relu" in optimised(proto, twice)
    assert [f.kind for f in cuts(proto, installed)] == ["cut-fusion"]


# Shipped operators in the place of standard ones that would have been fused.


def shipped(op: str, *inputs: str, out: str = "y") -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [out], name="ours", domain="deployops")


def stand_in_model(
    ours: onnx.NodeProto, before: Sequence[onnx.NodeProto], constants: Sequence[onnx.TensorProto], shape: Any
) -> Any:
    proto = build([*before, ours], constants, shape)
    proto.opset_import.append(helper.make_opsetid("deployops", 1))
    return proto


GEMM = [ones("m", 8, 4), ones("c", 4)]
SUM = [helper.make_node("Add", ["x", "r"], ["v"], name="sum")]


@pytest.mark.parametrize(
    ("before", "ours", "standard", "constants", "shape"),
    [
        ([node("Conv", "x", "w", "b", out="v")], ["RectifiedLinear", "v"], [("Relu", ["v"])], WEIGHTS, IMAGE),
        (
            [node("Conv", "x", "w", "b", out="v")],
            ["StableSigmoid", "v"],
            [("Sigmoid", ["v"])],
            WEIGHTS,
            IMAGE,
        ),
        ([node("Gemm", "x", "m", "c", out="v")], ["RectifiedLinear", "v"], [("Relu", ["v"])], GEMM, (2, 8)),
        ([node("Gemm", "x", "m", "c", out="v")], ["StableSigmoid", "v"], [("Sigmoid", ["v"])], GEMM, (2, 8)),
        (
            [node("Conv", "x", "w", "b", out="v")],
            ["ScaleBiasAct", "v", "s", "o"],
            [("Mul", ["v", "s4"]), ("Add", ["$", "o4"]), ("Relu", ["$"])],
            [*WEIGHTS, ones("s", 16), ones("o", 16)],
            IMAGE,
        ),
        (
            [
                node("Conv", "x", "w", "b", out="u"),
                node("Relu", "u", out="r"),
                node("Conv", "r", "w", "b", out="v"),
            ],
            ["AddRelu", "v", "r"],
            [("Add", ["v", "r"]), ("Relu", ["$"])],
            [ones("w", 16, 16, 1, 1), ones("b", 16)],
            IMAGE,
        ),
    ],
)
def test_shipped_operators_that_stand_in_for_fused_ones(
    before: Any, ours: list[str], standard: Any, constants: Any, shape: Any, installed: RuntimeLimits
) -> None:
    expanded, value = [], ""
    for k, (op, inputs) in enumerate(standard):
        out = "y" if k == len(standard) - 1 else f"e{k}"
        expanded.append(node(op, *[value if i == "$" else i for i in inputs], out=out))
        value = out
    broadcast = [ones("s4", 1, 16, 1, 1), ones("o4", 1, 16, 1, 1)]
    used = {i for n in [*before, *expanded] for i in n.input}
    kept = [c for c in [*constants, *broadcast] if c.name in used]
    fused = optimised(build([*before, *expanded], kept, shape), None)
    assert not {op for op, _ in standard} & set(fused), fused
    found = check_model(stand_in_model(shipped(*ours), before, constants, shape), installed).findings
    lost = [f for f in found if f.kind == "cut-fusion"]
    assert len(lost) == 1
    assert "--custom-ops standard" in lost[0].advice


def test_a_layer_norm_of_ours_after_a_sum(installed: RuntimeLimits) -> None:
    shape = (2, 3, 8)
    residual = helper.make_tensor_value_info("r", TensorProto.FLOAT, shape)
    norm = node("LayerNormalization", "v", "g", "h", out="y", axis=-1)
    constants = [ones("g", 8), ones("h", 8)]
    assert "SkipLayerNormalization" in optimised(build([*SUM, norm], constants, shape, [residual]), None)
    proto = build([*SUM, shipped("LayerNorm", "v", "g", "h")], constants, shape, [residual])
    proto.opset_import.append(helper.make_opsetid("deployops", 1))
    found = [f for f in check_model(proto, installed).findings if f.kind == "cut-fusion"]
    assert ["LayerNormalization" in f.what for f in found] == [True]


# Sizes.


def test_sizes_behind_a_custom_node_are_unknown(
    twice: Path, installed: RuntimeLimits, tmp_path: Path
) -> None:
    import onnxruntime

    def result_shape(proto: onnx.ModelProto) -> Any:
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(str(twice))
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.get_outputs()[0].shape

    def proto(op: str) -> onnx.ModelProto:
        made = build(
            [node(op, "x", out="t"), node("Relu", "t", out="r"), node("Relu", "r", out="y")], [], (2, 3)
        )
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
        return made

    assert result_shape(proto("Neg")) == [2, 3]
    assert result_shape(proto("Twice")) != [2, 3]
    (lost,) = (f for f in check_model(proto("Twice"), installed).findings if f.kind == "shapes-lost")
    assert "2 nodes after it" in lost.what
    stated = proto("Twice")
    stated.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [2, 3]))
    assert not [f for f in check_model(stated, installed).findings if f.kind == "shapes-lost"]
