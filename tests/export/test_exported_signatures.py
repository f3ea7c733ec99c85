"""Every kind of operator signature through a whole export, and where it has a body, run on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import AttributeProto, TensorProto
from torch import Tensor

import deployops
from deployops import DeployOpsError
from deployops.errors import DeclarationError, ExportError
from deployops.symbolic.plugin_attributes import PLUGIN_ATTRIBUTES

A = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
B = np.full((3, 4), 2, np.float32)
SPECS = ["a:float32[n,4]", "b:float32[n,4]"]
F32 = ("float32",)


class Net(torch.nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, a: Tensor, b: Tensor) -> Any:
        return self.call(a, b)


# Attributes


@deployops.operator("acmesig::attributes", onnx="acmesig::Attributes", dtypes=F32)
def attributes(
    x: Tensor,
    count: int,
    scale: float,
    flag: bool,
    mode: str,
    sizes: list[int],
    scales: list[float],
    flags: list[bool],
    dtype: torch.dtype,
    maybe: int | None = None,
    most: int = 2**31 - 1,
) -> Tensor:
    y = x * count + scale
    if flag:
        y = y + sum(sizes)
    if mode == "minus":
        y = -y
    for s, on in zip(scales, flags, strict=False):
        y = y * s if on else y
    return (y if maybe is None else y + maybe).to(dtype)


@attributes.fake
def _(x: Tensor, count: Any, scale: Any, flag: Any, mode: Any, sizes: Any, scales: Any, flags: Any, dtype: Any, maybe: Any = None, most: Any = 0) -> Tensor:  # fmt: skip # noqa: E501
    return torch.empty_like(x, dtype=dtype)


@attributes.body
def _(b: Any, x: Any, count: Any, scale: Any, flag: Any, mode: Any, sizes: Any, scales: Any, flags: Any, dtype: Any, maybe: Any, most: Any) -> Any:  # fmt: skip # noqa: E501
    y = b.Add(b.Mul(x, float(count)), float(scale))
    if flag:
        y = b.Add(y, float(sum(sizes)))
    if str(mode) == "minus":
        y = b.Neg(y)
    for s, on in zip(scales, flags, strict=False):
        y = b.Mul(y, float(s)) if on else y
    if maybe is not None:
        y = b.Add(y, float(maybe))
    return b.cast(y, str(dtype).removeprefix("torch."))


def test_every_type_of_attribute_arrives_explicitly_and_typed(deploy: Any) -> None:
    net = Net(
        lambda a, b: (
            attributes(a, 3, 0.5, True, "minus", [1, 2], [2.0, 9.0], [True, False], torch.float64) * b
        )
    )
    exported = deploy(net, SPECS)
    node = exported.node("Attributes")
    types = {a.name: a.type for a in node.attribute if a.name not in PLUGIN_ATTRIBUTES}
    kinds = AttributeProto
    assert types == {
        "count": kinds.INT, "scale": kinds.FLOAT, "flag": kinds.INT, "mode": kinds.STRING, "sizes": kinds.INTS,
        "scales": kinds.FLOATS, "flags": kinds.INTS, "dtype": kinds.INT, "most": kinds.INT,
    }  # fmt: skip
    assert exported.attributes("Attributes") == {
        "count": 3, "scale": 0.5, "flag": 1, "mode": b"minus", "sizes": [1, 2], "scales": [2.0, 9.0],
        "flags": [1, 0], "dtype": TensorProto.DOUBLE, "most": 2**31 - 1,
    }  # fmt: skip
    expected = -(A * 3 + 0.5 + 3) * 2 * B
    np.testing.assert_allclose(exported.run(A, B)[0], expected, rtol=1e-6)


def test_empty_lists_stay_typed_and_an_optional_attribute_is_left_out_or_given(deploy: Any) -> None:
    def call(a: Tensor, b: Tensor) -> Tensor:
        first = attributes(a, 1, 0.0, False, "", [], [], [], torch.float32)
        return first + attributes(b, 1, 0.0, False, "", [], [], [], torch.float32, maybe=0, most=5)

    exported = deploy(Net(call), SPECS)
    with_maybe, without = (
        {x.name: x for x in n.attribute}
        for n in sorted(
            (n for n in exported.proto.graph.node if n.op_type == "Attributes"),
            key=lambda n: not any(x.name == "maybe" for x in n.attribute),
        )
    )
    assert with_maybe["maybe"].i == 0
    assert with_maybe["maybe"].type == AttributeProto.INT
    assert "maybe" not in without
    assert (without["sizes"].type, without["scales"].type) == (AttributeProto.INTS, AttributeProto.FLOATS)
    np.testing.assert_allclose(exported.run(A, B)[0], A + B)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 2**40}, "count"),
        ({"scale": 1e300}, "scale"),
        ({"sizes": [1, -(2**40)]}, "sizes"),
    ],
)
def test_an_attribute_that_its_field_cannot_hold_is_refused(
    deploy: Any, arguments: dict[str, Any], message: str
) -> None:
    given = {"count": 1, "scale": 0.0, "sizes": [], **arguments}
    net = Net(
        lambda a, b: attributes(a, flag=False, mode="", scales=[], flags=[], dtype=torch.float32, **given) + b
    )
    with pytest.raises(ExportError, match=message):
        deploy(net, SPECS)


# Tensors in


@deployops.operator("acmesig::optional", onnx="acmesig::Maybe", dtypes=F32)
def optional(x: Tensor, first: Tensor | None, second: Tensor | None) -> Tensor:
    y = x + 0
    y = y if first is None else y + first
    return y if second is None else y * second


@optional.fake
def _(x: Tensor, first: Any, second: Any) -> Tensor:
    return torch.empty_like(x)


@optional.body
def _(b: Any, x: Any, first: Any, second: Any) -> Any:
    y = x if first is None else b.Add(x, first)
    return (b.Identity(y) if first is None else y) if second is None else b.Mul(y, second)


@pytest.mark.parametrize(
    ("call", "expected", "inputs"),
    [
        (lambda a, b: optional(a, None, None) + b * 0, A, ["a"]),
        (lambda a, b: optional(a, b, None), A + B, ["a", "b"]),
        (lambda a, b: optional(a, None, b), A * B, ["a", "", "b"]),
        (lambda a, b: optional(a, b, b), (A + B) * B, ["a", "b", "b"]),
    ],
    ids=["both absent", "last absent", "middle absent", "both given"],
)
def test_optional_tensors(deploy: Any, call: Any, expected: Any, inputs: list[str]) -> None:
    exported = deploy(Net(call), SPECS)
    given = list(exported.node("Maybe").input)
    while given and not given[-1]:
        given.pop()
    assert given == inputs
    np.testing.assert_allclose(exported.run(A, B)[0], expected)


@deployops.operator("acmesig::lists", onnx="acmesig::Lists", dtypes={"xs, ys": F32})
def lists(xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
    total = sum(ys) if ys else torch.zeros(())
    return [x * 2 + total for x in xs]


@lists.fake
def _(xs: Any, ys: Any) -> Any:
    return [torch.empty_like(x) for x in xs]


@lists.body
def _(b: Any, xs: Any, ys: Any) -> Any:
    out = []
    for x in xs:
        y = b.Mul(x, 2.0)
        for other in ys:
            y = b.Add(y, other)
        out.append(y)
    return out


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda a, b: lists([a, b], []), [2 * A, 2 * B]),
        (lambda a, b: lists([a], [b]), [2 * A + B]),
        (lambda a, b: lists([a, b, a], [a, b]), [3 * A + B, A + 3 * B, 3 * A + B]),
    ],
    ids=["second empty", "one each", "three and two"],
)
def test_lists_of_tensors_in_and_out(deploy: Any, call: Any, expected: list[Any]) -> None:
    exported = deploy(Net(call), SPECS)
    got = exported.run(A, B)
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs)
    counts = exported.attributes("Lists")
    assert counts["xs_count"] + counts["ys_count"] == len(exported.node("Lists").input)


# Tensors out


@deployops.operator("acmesig::three", onnx="acmesig::Three", dtypes=F32)
def three(x: Tensor, times: int) -> tuple[Tensor, Tensor, Tensor]:
    return x.repeat(times, 1), x.sum(1), (x > 0)


@three.fake
def _(x: Tensor, times: int) -> Any:
    return (
        x.new_empty(x.shape[0] * times, x.shape[1]),
        x.new_empty(x.shape[0]),
        x.new_empty(x.shape, dtype=torch.bool),
    )


@three.samples
def _(draw: Any) -> Any:
    yield draw(3, 4), 2


@three.body
def _(b: Any, x: Any, times: int) -> Any:
    zero = b.tensor(0, "float32")
    return (
        b.Tile(x, b.tensor([int(times), 1], "int64")),
        b.ReduceSum(x, b.tensor([1], "int64"), keepdims=0),
        b.Greater(x, zero),
    )


def test_several_outputs_of_other_shapes_and_dtypes(deploy: Any) -> None:
    exported = deploy(Net(lambda a, b: three(a * b, 2)), SPECS)
    assert exported.dims("output_0") == ["2*n", 4]
    assert exported.dims("output_1") == ["n"]
    assert exported.dims("output_2") == ["n", 4]
    tiled, total, positive = exported.run(A, B)
    np.testing.assert_allclose(tiled, np.tile(A * B, (2, 1)))
    np.testing.assert_allclose(total, (A * B).sum(1))
    np.testing.assert_array_equal(positive, A * B > 0)


def test_an_output_that_nobody_uses_is_left_out_of_the_graph_not_of_the_node(deploy: Any) -> None:
    exported = deploy(Net(lambda a, b: three(a, 2)[1] + b[:, 0]), SPECS)
    node = exported.node("Three")
    assert len(node.output) <= 3
    np.testing.assert_allclose(exported.run(A, B)[0], A.sum(1) + B[:, 0])


@deployops.operator("acmesig::positions", onnx="acmesig::Positions", dtypes=F32)
def positions(x: Tensor) -> Tensor:
    return x.nonzero()


@positions.fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(), x.dim(), dtype=torch.int64)


@positions.samples
def _(draw: Any) -> Any:
    yield (draw(3, 4),)


@positions.body
def _(b: Any, x: Any) -> Any:
    return b.Transpose(b.NonZero(x), perm=[1, 0])


def test_a_size_that_depends_on_the_data(deploy: Any) -> None:
    exported = deploy(Net(lambda a, b: (positions(a) + 1, b)), SPECS)
    rows, columns = exported.dims("output_0")
    assert isinstance(rows, str)
    assert rows not in ("n", "")
    assert columns == 2
    np.testing.assert_array_equal(exported.run(A, B)[0], np.argwhere(A) + 1)


# Operators that write


@deployops.operator("acmesig::scale_", onnx="acmesig::ScaleIn", dtypes=F32, mutates=("x",))
def scale_(x: Tensor, by: float) -> None:
    x.mul_(by)


@scale_.fake
def _(x: Tensor, by: float) -> None:
    return None


@scale_.body
def _(b: Any, x: Any, by: Any) -> Any:
    return b.Mul(x, float(by))


def _on_intermediate(a: Tensor, b: Tensor) -> Tensor:
    h = a + b
    scale_(h, 3.0)
    return h - 1


def test_a_mutating_operator_is_functionalised(deploy: Any) -> None:
    exported = deploy(Net(_on_intermediate), SPECS)
    assert "acmesig::ScaleIn" in exported.ops
    np.testing.assert_allclose(exported.run(A, B)[0], 3 * (A + B) - 1)


# What each form of file holds


@pytest.mark.parametrize("mode", ["function", "node", "standard"])
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda a, b: three(a, 3)[0], np.tile(A, (3, 1))),
        (lambda a, b: lists([a, b], [a])[1], 2 * B + A),
        (_on_intermediate, 3 * (A + B) - 1),
    ],
    ids=["three outputs", "lists", "mutating"],
)
def test_the_three_forms_of_file(deploy: Any, mode: str, call: Any, expected: Any) -> None:
    exported = deploy(Net(call), SPECS, custom_ops=mode)
    domains = {n.domain for n in exported.proto.graph.node}
    assert ("acmesig" in domains) == (mode != "standard")
    assert bool(exported.proto.functions) == (mode == "function")
    imports = {o.domain for o in exported.proto.opset_import}
    assert ("acmesig" in imports) == (mode != "standard")
    assert exported.result.custom_ops == mode
    if mode != "node":
        np.testing.assert_allclose(exported.run(A, B)[0], expected)


@deployops.operator("acmesig::bodiless", onnx="acmesig::Bodiless", dtypes=F32)
def bodiless(x: Tensor) -> Tensor:
    return x * 2


@bodiless.fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_without_any_body_the_default_is_node_and_that_is_said(deploy: Any) -> None:
    exported = deploy(Net(lambda a, b: bodiless(a) + b), SPECS)
    assert exported.result.custom_ops == "node"
    assert "acmesig::Bodiless has none" in exported.notes
    assert "not checked" in exported.notes
    assert not exported.proto.functions


def test_bodies_are_there_for_the_operators_that_have_one(deploy: Any) -> None:
    """With a kernel for the one that has none, the file runs: the other needs no library."""
    exported = deploy(Net(lambda a, b: bodiless(a) + scale(b)), SPECS)
    assert exported.result.custom_ops == "mixed"
    assert exported.result.custom_nodes == {"acmesig::Bodiless": 1, "acmesig::ScaleIn": 1}
    assert [f.name for f in exported.proto.functions] == ["ScaleIn"]
    [note] = [n.text for n in exported.result.notes if n.text.startswith("exported")]
    assert (
        "without a body: acmesig::Bodiless, which has none: only a runtime with its kernel runs the file"
        in note
    )
    assert "With a body: acmesig::ScaleIn" in note
    assert "some with bodies" in exported.result.summary()
    assert "not checked" in exported.notes
    onnx.checker.check_model(exported.proto)
    kernel = onnx.parser.parse_function(
        '<domain: "acmesig", opset_import: ["": 20]> Bodiless (x) => (y) { y = Add(x, x) }'
    )
    exported.proto.functions.append(kernel)  # stands for the library
    path = exported.path.with_name("with_kernel.onnx")
    onnx.save(exported.proto, str(path))
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"a": A, "b": B})[0], 2 * A + 2 * B)


def test_asked_for_nodes_alone_there_is_no_body(deploy: Any) -> None:
    exported = deploy(Net(lambda a, b: bodiless(a) + scale(b)), SPECS, custom_ops="node")
    assert exported.result.custom_ops == "node"
    assert not exported.proto.functions


def scale(x: Tensor) -> Tensor:
    h = x + 0
    scale_(h, 2.0)
    return h


@pytest.mark.parametrize("mode", ["function", "standard"])
def test_without_a_body_the_other_forms_are_refused(deploy: Any, mode: str) -> None:
    with pytest.raises(ExportError, match=rf"--custom-ops {mode} needs a body.*acmesig::Bodiless"):
        deploy(Net(lambda a, b: bodiless(a) + b), SPECS, custom_ops=mode)


def test_every_attribute_and_version_is_in_the_manifest(deploy: Any) -> None:
    import json

    exported = deploy(Net(_on_intermediate), SPECS)
    (entry,) = [p.value for p in exported.proto.metadata_props if p.key == "deployops.manifest"]
    manifest = json.loads(entry)
    assert manifest["operators"]["acmesig::ScaleIn"]["version"] == 1
    assert manifest["torch"].startswith(torch.__version__.split("+")[0])
    assert manifest["inputs"] == ["a:float32[n,4]", "b:float32[n,4]"]
    versions = {o.domain: o.version for o in exported.proto.opset_import}
    assert versions["acmesig"] == 1


# Dtypes


@deployops.operator(
    "acmesig::half", onnx="acmesig::Half", dtypes=("float16", "bfloat16", "float32", "float64")
)
def half(x: Tensor) -> Tensor:
    return x * 0.5


@half.fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@half.body
def _(b: Any, x: Any) -> Any:
    return b.Mul(x, 0.5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_dtype_of_a_declaration(deploy: Any, dtype: str) -> None:
    class Half(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return half(x)

    exported = deploy(Half(), [f"x:{dtype}[n,4]"])
    kind = TensorProto.DataType.Value(dtype.upper().replace("FLOAT32", "FLOAT").replace("FLOAT64", "DOUBLE"))
    assert exported.proto.graph.output[0].type.tensor_type.elem_type == kind
    if dtype == "bfloat16":
        return  # numpy has none; the export itself ran it, or says that it could not
    np.testing.assert_array_equal(exported.run(A.astype(dtype))[0], A.astype(dtype) / 2)


def test_a_bfloat16_model_is_run_or_said_not_to_be(deploy: Any) -> None:
    class Half(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return half(x)

    exported = deploy(Half(), ["x:bfloat16[n,4]"])
    assert exported.result.checked_sizes or "not checked" in exported.notes


def test_a_dtype_that_is_not_declared_is_refused_with_the_line(deploy: Any) -> None:
    net = Net(lambda a, b: bodiless(a.double()).float() + b)
    with pytest.raises(ExportError, match=r"acmesig::bodiless: `x` is float64.*declared for float32"):
        deploy(net, SPECS)


def test_all_calls_that_cannot_be_carried_are_listed_at_once(deploy: Any) -> None:
    net = Net(
        lambda a, b: (
            bodiless(a.double()).float() + attributes(b, 2**40, 0.0, False, "", [], [], [], torch.float32)
        )
    )
    with pytest.raises(ExportError) as caught:
        deploy(net, SPECS)
    assert "acmesig::bodiless" in str(caught.value)
    assert "count" in str(caught.value)


# Operators that torch has already


def test_an_adopted_triton_style_name_and_overload(deploy: Any) -> None:
    library = torch.library.Library("acmesigover", "DEF")
    library.define("shift.by_int(Tensor x, int by) -> Tensor")
    library.define("shift.by_float(Tensor x, float by) -> Tensor")
    for overload in ("by_int", "by_float"):
        library.impl(f"shift.{overload}", lambda x, by: x + by, "CompositeExplicitAutograd")
        torch.library.register_fake(
            f"acmesigover::shift.{overload}", lambda x, by: torch.empty_like(x), lib=library
        )
    with pytest.raises(DeclarationError, match="overloads"):
        deployops.adopt("acmesigover::shift")
    for overload, camel in (("by_int", "ShiftInt"), ("by_float", "ShiftFloat")):
        op = deployops.adopt(f"acmesigover::shift.{overload}", onnx=f"acmesigover::{camel}", dtypes=F32)
        op.body(lambda b, x, by: b.Add(x, float(by)))
    op = torch.ops.acmesigover.shift
    exported = deploy(Net(lambda a, b: op(a, 2) + op(b, 0.5)), SPECS)
    assert exported.result.custom_nodes == {"acmesigover::ShiftFloat": 1, "acmesigover::ShiftInt": 1}
    np.testing.assert_allclose(exported.run(A, B)[0], A + 2 + B + 0.5)
    library._destroy()


def test_stateful_operators_are_not_merged(deploy: Any) -> None:
    @deployops.operator("acmesig::noise", onnx="acmesig::Noise", dtypes=F32, stateful=True)
    def noise(x: Tensor) -> Tensor:
        return x + torch.rand_like(x)

    @noise.fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    def call(a: Tensor, b: Tensor) -> Tensor:
        return noise(a) - noise(a) + bodiless(b) - bodiless(b)

    exported = deploy(Net(call), SPECS)
    assert exported.result.custom_nodes == {"acmesig::Bodiless": 1, "acmesig::Noise": 2}


def test_a_wrong_body_is_found(deploy: Any) -> None:
    @deployops.operator("acmesig::wrong", onnx="acmesig::WrongBody", dtypes=F32)
    def wrong(x: Tensor) -> Tensor:
        return x * 2

    @wrong.fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    @wrong.body
    def _(b: Any, x: Any) -> Any:
        return b.Mul(x, 3.0)

    with pytest.raises(ExportError, match="differs from the original"):
        deploy(Net(lambda a, b: wrong(a) + b), SPECS)


def test_the_schema_in_onnx_holds_the_exported_node_to_its_types(deploy: Any) -> None:
    exported = deploy(Net(lambda a, b: three(a, 2)[0] + 0 * b.sum()), SPECS)
    for node in exported.proto.graph.node:
        if node.op_type == "Three":
            node.attribute[0].CopyFrom(onnx.helper.make_attribute("times", 2.5))
    with pytest.raises(onnx.checker.ValidationError, match="times"):
        onnx.checker.check_model(exported.proto)


def test_errors_are_of_one_family() -> None:
    assert issubclass(ExportError, DeployOpsError)
    assert issubclass(DeclarationError, DeployOpsError)
