"""Why a node has no kernel: one reason each, and the same verdict as ONNX Runtime where that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops.ort_ops.kernel_faults import kernel_fault, kernel_library, why_no_kernel
from deployops.ort_ops.library_manifest import (
    KernelArgument,
    KernelAttribute,
    KernelOperator,
    KernelSignature,
    LibraryManifest,
)
from deployops.ort_ops.node_uses import node_uses
from deployops.ort_ops.shipped_operators import newest_shipped
from deployops.symbolic.graph_inspection.node_uses import NodeUse

from .twice_library import compiled, refusal

MIX = KernelOperator(
    "acme",
    "Mix",
    2,
    "acme::mix",
    inputs=(KernelArgument("x"), KernelArgument("mask", "optional")),
    outputs=(KernelArgument("y"), KernelArgument("z", "optional")),
    signatures=tuple(
        KernelSignature({"x": d, "mask": "bool"}, {"y": d, "z": d}) for d in ("float32", "float16")
    ),
    attributes=(
        KernelAttribute("eps", "FLOAT", default=1e-6),
        KernelAttribute("mode", "STRING", required=True),
    ),
)
CAT = KernelOperator(
    "acme",
    "Cat",
    1,
    "acme::cat",
    inputs=(KernelArgument("xs", "variadic"),),
    outputs=(KernelArgument("y"),),
    signatures=(KernelSignature({"xs": "float32"}, {"y": "float32"}),),
)


def library(*operators: KernelOperator, name: str = "libacme.so") -> LibraryManifest:
    return LibraryManifest(Path(name), "0" * 64, "ort-cpu", "linux-x86_64", operators)


ACME = [library(MIX, CAT)]


def mix(*inputs: str | None, **changes: Any) -> NodeUse:
    fields = {"domain_version": 2, "attributes": {"mode": "STRING"}} | changes
    return NodeUse("acme", fields.pop("op_type", "Mix"), inputs=inputs or ("float32",), **fields)


@pytest.mark.parametrize(
    "node",
    [
        mix(),
        mix("float16"),
        mix(None),
        mix("float32", "bool"),
        mix("float32", None, absent=(1,)),
        mix(attributes={"mode": "STRING", "eps": "FLOAT"}),
        mix(outputs=2),
        NodeUse("acme", "Cat", 1, ("float32",) * 7),
        NodeUse("acme", "Cat", 2, ()),
    ],
)
def test_a_node_with_a_kernel_has_no_fault(node: NodeUse) -> None:
    assert why_no_kernel(node, ACME) is None
    assert kernel_library(node, [library(name="other.so"), *ACME]) is ACME[0]


@pytest.mark.parametrize(
    ("node", "kind", "words"),
    [
        (
            mix(domain_version=None),
            "domain-not-imported",
            ["does not list the domain 'acme'", "make_opsetid"],
        ),
        (mix(op_type="Mixx"), "operator-missing", ["libacme.so has no acme::Mixx", "Cat, Mix"]),
        (mix(domain_version=1), "domain-version", ["imports version 1", "from version 2 on"]),
        (mix(domain_version=7), "domain-version", ["imports version 7", "know it up to 2", "without a word"]),
        (mix("float32", "bool", "bool"), "inputs", ["has 3 inputs", "takes 1 to 2 (x, mask?)"]),
        (mix(None, "bool", absent=(0,)), "inputs", ["no input `x`", "not optional"]),
        # one too new is as wrong as five, and ONNX Runtime says as little
        (mix(domain_version=3), "domain-version", ["imports version 3", "know it up to 2", "without a word"]),
        (mix(outputs=3), "outputs", ["has 3 outputs"]),
        (mix(outputs=0), "outputs", ["has 0 outputs"]),
        (
            mix(attributes={"mode": "STRING", "epz": "FLOAT"}),
            "attribute-unknown",
            ["'epz'", "eps, mode", "ignore"],
        ),
        (mix(attributes={"mode": "INT"}), "attribute-type", ["'mode' of acme::Mix is INT", "reads STRING"]),
        (mix(attributes={}), "attribute-missing", ["lacks the attribute 'mode' (STRING)"]),
        (
            mix("int64"),
            "dtype",
            ["no kernel for (x: int64)", "(x: float32, mask: bool), (x: float16, mask: bool)"],
        ),
        (mix("float32", "float32"), "dtype", ["(x: float32, mask: float32)"]),
        (mix("float64", has_body=True), "dtype", ["beats the function body"]),
        (NodeUse("acme", "Cat", 1, ("float32", "float32", "int8")), "dtype", ["xs: int8"]),
    ],
)
def test_each_fault_is_told_in_one_line(node: NodeUse, kind: str, words: list[str]) -> None:
    fault = kernel_fault(node, ACME)
    assert fault is not None
    assert fault.kind == kind
    text = why_no_kernel(node, ACME)
    assert text is not None
    assert "\n" not in text
    for word in words:
        assert word in text, text


def test_without_a_library_a_shipped_operator_is_told_from_a_strangers() -> None:
    ours = why_no_kernel(NodeUse("deployops", "SwishBeta", 1, ("float32", "float32")), [])
    assert ours is not None
    assert "`deployops compile --target ort-cpu` builds a library with it" in ours
    theirs = why_no_kernel(NodeUse("acme", "Swish2", 1, ("float32",)), [])
    assert theirs is not None
    assert "compile --target" not in theirs
    assert "no library is given" in theirs


def test_without_a_library_a_version_that_was_never_shipped_is_told() -> None:
    newest = newest_shipped("deployops")
    for version in (999, newest + 1):
        fault = kernel_fault(NodeUse("deployops", "SwishBeta", version, ("float32", "float32")), [])
        assert fault is not None
        assert (fault.kind, fault.body_runs) == ("domain-version", True)
        assert f"imports version {version}" in fault.text
    fault = kernel_fault(NodeUse("deployops", "SwishBeta", newest, ("float32", "float32")), [])
    assert fault is not None
    assert fault.kind == "no-library"


def test_without_a_library_the_version_of_a_strangers_domain_is_said_to_be_unknown() -> None:
    text = why_no_kernel(NodeUse("acme", "Swish2", 7, ("float32",)), [])
    assert text is not None
    assert "(domain version 7)" in text
    assert "nobody can tell whether that version is right" in text


def test_the_advice_says_how_a_library_is_given() -> None:
    ours = NodeUse("deployops", "SwishBeta", 1, ("float32", "float32"))
    theirs = NodeUse("acme", "Swish2", 1, ("float32",))
    for libraries in ([], ACME):  # none at all, and one without the operators
        for node, start in (
            (
                ours,
                "`deployops compile --target ort-cpu` builds a library with it (ort-cuda: for CUDA); give it with",
            ),
            (theirs, "Give the library that has it ("),
        ):
            fault = kernel_fault(node, libraries)
            assert fault is not None
            assert fault.advice.startswith(start)
            assert "--ort-library, or libraries=[…] in Python" in fault.advice
            assert ("a session finds it by itself" in fault.advice) == (node is ours)


def test_inputs_before_a_list_have_a_place_each() -> None:
    """As ONNX's schemas count: all before the variadic one, optional or not."""
    listed = KernelOperator(
        "acme",
        "Sum",
        1,
        "acme::sum",
        inputs=(KernelArgument("x"), KernelArgument("mask", "optional"), KernelArgument("xs", "variadic")),
        outputs=(KernelArgument("y"),),
        signatures=(KernelSignature({"x": "float32", "mask": "bool", "xs": "float32"}),),
    )
    libraries = [library(listed)]
    fault = kernel_fault(NodeUse("acme", "Sum", 1, ("float32",)), libraries)
    assert fault is not None
    assert fault.kind == "inputs"
    assert "has 1 inputs here; it takes at least 2 (x, mask?, xs); write '' for absent ones" in fault.text
    assert kernel_fault(NodeUse("acme", "Sum", 1, ("float32", None), absent=(1,)), libraries) is None
    assert kernel_fault(NodeUse("acme", "Sum", 1, ("float32", "bool", "float32")), libraries) is None


def test_a_body_runs_only_where_no_kernel_is_found_at_all() -> None:
    assert kernel_fault(mix(), []).body_runs  # type: ignore[union-attr]
    assert kernel_fault(mix(op_type="Mixx"), ACME).body_runs  # type: ignore[union-attr]
    assert kernel_fault(mix(domain_version=1), ACME).body_runs  # type: ignore[union-attr]
    for taken in (mix("int64"), mix(domain_version=7), mix(attributes={}), mix(domain_version=None)):
        assert not kernel_fault(taken, ACME).body_runs  # type: ignore[union-attr]


def test_the_newest_version_that_the_model_imports_serves() -> None:
    older = KernelOperator(
        "acme",
        "Mix",
        1,
        "m",
        inputs=MIX.inputs,
        outputs=MIX.outputs,
        signatures=(KernelSignature({"x": "int8", "mask": "bool"}),),
    )
    both = [library(older, MIX)]
    assert why_no_kernel(mix("int8", domain_version=1, attributes={}), both) is None
    assert "no kernel for (x: int8)" in str(why_no_kernel(mix("int8"), both))


def test_operators_of_one_domain_may_have_other_versions() -> None:
    assert why_no_kernel(NodeUse("acme", "Cat", 2, ("float32",)), ACME) is None  # Mix made it version 2


def test_lists_one_after_the_other_share_their_types() -> None:
    two = KernelOperator(
        "acme",
        "Two",
        1,
        "acme::two",
        inputs=(KernelArgument("x"), KernelArgument("xs", "variadic"), KernelArgument("ys", "variadic")),
        outputs=(KernelArgument("y"),),
        signatures=(KernelSignature({"x": "float32", "xs": "float32", "ys": "int64"}),),
    )
    node = NodeUse("acme", "Two", 1, ("float32", "float32", "int64", "int64"))
    assert why_no_kernel(node, [library(two)]) is None
    assert why_no_kernel(NodeUse("acme", "Two", 1, ("float32", "bool")), [library(two)]) is not None


# The same question put to ONNX Runtime, with a library whose one operator is known: acme::Twice of version 3, float32.

TWICE = KernelOperator(
    "acme",
    "Twice",
    3,
    "acme::twice",
    inputs=(KernelArgument("x"),),
    outputs=(KernelArgument("y"),),
    signatures=(KernelSignature({"x": "float32"}, {"y": "float32"}),),
)


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("library"))


def model(
    imported: int | None,
    dtype: int = 1,
    *,
    inputs: int = 1,
    outputs: int = 1,
    op: str = "Twice",
    body: bool = False,
) -> onnx.ModelProto:
    names = ["y", "z"][:outputs]
    node = helper.make_node(op, ["x"] * inputs, names, domain="acme")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", dtype, [2])],
        [helper.make_tensor_value_info("y", dtype, [2])],
    )
    opsets = [helper.make_opsetid("", 18)] + [
        helper.make_opsetid("acme", v) for v in (imported,) if v is not None
    ]
    adds = [helper.make_node("Add", ["a", "a"], ["b"])]
    function = helper.make_function("acme", op, ["a"], ["b"], adds, opsets[:1])
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=[function] * body)


@pytest.mark.parametrize("body", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        {"imported": 3},
        {"imported": 2},
        {"imported": 3, "op": "Thrice"},
        {"imported": 3, "dtype": TensorProto.DOUBLE},
        {"imported": 3, "inputs": 2},
        {"imported": 3, "inputs": 0},
        {"imported": 3, "outputs": 2},
    ],
)
def test_onnx_runtime_says_the_same(twice: Path, arguments: dict[str, Any], body: bool) -> None:
    proto = model(**arguments, body=body)
    manifests = [library(TWICE)]
    (node,) = (u for u in node_uses(proto, manifests) if u.domain == "acme")
    fault = kernel_fault(node, manifests)
    runs = fault is None or (fault.body_runs and node.has_body)
    assert runs == (refusal(proto, twice) is None), fault


@pytest.mark.parametrize("imported", [4, 7, None])
def test_what_onnx_runtime_lets_pass_is_a_fault_here(twice: Path, imported: int | None) -> None:
    """It takes version 3 for 7, and the newest where nothing is imported; and it ignores attributes."""
    proto = model(imported)
    assert refusal(proto, twice) is None
    assert why_no_kernel(node_uses(proto)[0], [library(TWICE)]) is not None
    unknown = model(3)
    unknown.graph.node[0].attribute.append(helper.make_attribute("speed", 3))
    assert refusal(unknown, twice) is None
    assert "ignore" in str(why_no_kernel(node_uses(unknown)[0], [library(TWICE)]))
