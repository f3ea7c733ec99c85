"""The ONNX schema of a declaration, as onnx's own checker and shape inference use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, checker, helper, shape_inference
from onnx.defs import OpSchema
from torch import Tensor

from deployops.symbolic import Operator, operator, schema
from deployops.symbolic.plugin_attributes import PLUGIN_ATTRIBUTES

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
_numbers = count()


def names() -> tuple[str, str]:
    k = next(_numbers)
    return f"t_schema::op{k}", f"t_schema::Op{k}"


def declare(reference: Any, fake: Any, **options: Any) -> Operator:
    name, onnx_name = names()
    op = operator(name, onnx=onnx_name, **options)(reference)
    op.fake(fake)
    schema.register(op)
    return op


@pytest.fixture
def swish() -> Iterator[Operator]:
    def reference(x: Tensor, beta: float = 1.0) -> Tensor:
        return x * torch.sigmoid(beta * x)

    return declare(reference, lambda x, beta=1.0: torch.empty_like(x), dtypes=("float32", "float16"))  # type: ignore[return-value]


def model(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]
) -> onnx.ModelProto:
    def value(name: str, given: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, *given)

    graph = helper.make_graph(
        nodes, "g", [value(n, g) for n, g in inputs.items()], [value(n, g) for n, g in outputs.items()]
    )
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("t_schema", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def node(op: Operator, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op.op_type, inputs, outputs, domain=op.domain, **attributes)


def inferred(made: onnx.ModelProto) -> dict[str, tuple[int, list[Any] | None]]:
    """Element type and dims of every value, by strict inference."""
    result = shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
    found = {}
    for v in [*result.graph.value_info, *result.graph.output]:
        tensor = v.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim]
        found[v.name] = (tensor.elem_type, dims if tensor.HasField("shape") else None)
    return found


# --- the checker ----------------------------------------------------------------------------------------------


def test_a_right_node_passes(swish: Operator) -> None:
    made = model([node(swish, ["x"], ["y"], beta=2.0)], {"x": (FLOAT, ["n", 3])}, {"y": (FLOAT, ["n", 3])})
    checker.check_model(made, full_check=True)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"beta": "x"}, "beta"),
        ({"beta": 1}, "beta"),
        ({"gamma": 1.0}, "gamma"),
    ],
)
def test_wrong_attributes_are_refused(swish: Operator, attributes: Any, reason: str) -> None:
    made = model([node(swish, ["x"], ["y"], **attributes)], {"x": (FLOAT, ["n"])}, {"y": (FLOAT, ["n"])})
    with pytest.raises(checker.ValidationError, match=reason):
        checker.check_model(made, full_check=True)


def test_a_missing_required_attribute_is_refused() -> None:
    def reference(x: Tensor, k: int) -> Tensor:
        return x * k

    op = declare(reference, lambda x, k: torch.empty_like(x))
    made = model([node(op, ["x"], ["y"])], {"x": (FLOAT, ["n"])}, {"y": (FLOAT, ["n"])})
    with pytest.raises(checker.ValidationError, match="Required attribute 'k'"):
        checker.check_model(made, full_check=True)


def test_a_dtype_that_is_not_declared_is_refused(swish: Operator) -> None:
    made = model([node(swish, ["x"], ["y"], beta=1.0)], {"x": (INT64, ["n"])}, {"y": (INT64, ["n"])})
    with pytest.raises(Exception, match="int64"):
        checker.check_model(made, full_check=True)


def test_inputs_of_one_type_variable_must_agree() -> None:
    def reference(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    op = declare(reference, lambda x, y: torch.empty_like(x), dtypes=("float32", "float64"))
    made = model(
        [node(op, ["x", "y"], ["z"])],
        {"x": (FLOAT, ["n"]), "y": (TensorProto.DOUBLE, ["n"])},
        {"z": (FLOAT, ["n"])},
    )
    with pytest.raises(shape_inference.InferenceError, match="y has inconsistent type"):
        checker.check_model(made, full_check=True)


def test_too_many_inputs_and_outputs_are_refused(swish: Operator) -> None:
    for inputs, outputs in ((["x", "x"], ["y"]), (["x"], ["y", "z"]), ([], ["y"])):
        made = model([node(swish, inputs, outputs)], {"x": (FLOAT, ["n"])}, {"y": (FLOAT, ["n"])})
        with pytest.raises(checker.ValidationError):
            checker.check_model(made)


# --- the schema itself ----------------------------------------------------------------------------------------


def test_every_part_of_a_signature_is_in_the_schema() -> None:
    def reference(
        xs: list[Tensor],
        index: Tensor,
        bias: Tensor | None = None,
        axis: int = -1,
        eps: float | None = None,
        modes: list[str] | None = None,
        flags: list[bool] = (),  # type: ignore[assignment]
        dtype: torch.dtype = torch.float16,
    ) -> tuple[Tensor, Tensor]:
        """What it does."""
        raise NotImplementedError

    op = declare(
        reference,
        lambda xs, index, *_, **__: (xs[0].new_empty(3), torch.empty_like(index)),
        dtypes={"xs, bias": ("float32", "float16"), "index": ("int64",)},
        outputs=("values", "places"),
    )
    made = onnx.defs.get_schema(op.op_type, domain="t_schema")
    option = OpSchema.FormalParameterOption
    assert [(i.name, i.option) for i in made.inputs] == [
        ("index", option.Single),
        ("bias", option.Optional),
        ("xs", option.Variadic),
    ]
    assert [(o.name, o.option) for o in made.outputs] == [
        ("values", option.Single),
        ("places", option.Single),
    ]
    kinds = {n: (a.type.name, a.required) for n, a in made.attributes.items() if n not in PLUGIN_ATTRIBUTES}
    assert [made.attributes[n].type.name for n in ("plugin_version", "plugin_namespace")] == ["STRING"] * 2
    assert not any(made.attributes[n].required for n in PLUGIN_ATTRIBUTES if n in made.attributes)
    assert kinds == {
        "axis": ("INT", False),
        "eps": ("FLOAT", False),
        "modes": ("STRINGS", False),
        "flags": ("INTS", False),
        "dtype": ("INT", False),
    }
    assert made.attributes["axis"].default_value.i == -1
    assert made.attributes["dtype"].default_value.i == TensorProto.FLOAT16
    assert made.doc == "What it does."
    assert made.since_version == 1
    types = {c.type_param_str: set(c.allowed_type_strs) for c in made.type_constraints}
    assert types[made.inputs[2].type_str] == {"tensor(float)", "tensor(float16)"}
    assert types[made.inputs[0].type_str] == {"tensor(int64)"}


def test_registering_again_replaces(swish: Operator) -> None:
    schema.register(swish)
    swish.version = 3
    schema.register(swish)
    assert onnx.defs.get_schema(swish.op_type, domain="t_schema").since_version == 3
    swish.version = 2
    schema.register(swish)
    assert onnx.defs.get_schema(swish.op_type, domain="t_schema").since_version == 2


# --- shape inference ------------------------------------------------------------------------------------------


def test_shapes_pass_through_custom_nodes(swish: Operator) -> None:
    made = model(
        [
            node(swish, ["x"], ["a"], beta=1.0),
            helper.make_node("Relu", ["a"], ["b"]),
            node(swish, ["b"], ["y"], beta=2.0),
        ],
        {"x": (FLOAT, ["n", 3])},
        {"y": (FLOAT, None)},
    )
    assert inferred(made) == {k: (FLOAT, ["n", 3]) for k in ("a", "b", "y")}


def test_several_outputs_with_dim_expressions_and_dtypes() -> None:
    def reference(x: Tensor, k: int = 2) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    op = declare(
        reference,
        lambda x, k=2: (
            x.new_empty(x.shape[0] * k, x.shape[1] // 2),
            x.new_empty(x.shape[:1], dtype=torch.int64),
        ),
    )
    made = model(
        [node(op, ["x"], ["a", "b"], k=3), helper.make_node("Neg", ["a"], ["y"])],
        {"x": (FLOAT, ["n", "c"])},
        {"y": (FLOAT, None), "b": (INT64, None)},
    )
    found = inferred(made)
    assert found["a"] == found["y"] == (FLOAT, ["3*n", "floor(c/2)"])
    assert found["b"] == (INT64, ["n"])


def test_data_dependent_dims_are_fresh_symbols_each() -> None:
    def reference(x: Tensor) -> Tensor:
        return x.nonzero()

    def fake(x: Tensor) -> Tensor:
        return x.new_empty(torch.library.get_ctx().new_dynamic_size(), x.dim(), dtype=torch.int64)

    op = declare(reference, fake)
    made = model(
        [node(op, ["x"], ["a"]), node(op, ["x"], ["b"]), helper.make_node("Neg", ["a"], ["y"])],
        {"x": (FLOAT, ["n", 3])},
        {"y": (INT64, None), "b": (INT64, None)},
    )
    found = inferred(made)
    assert found["a"][1] is not None
    assert found["b"][1] is not None
    assert found["a"][1][1] == found["b"][1][1] == 2
    assert found["a"][1][0] not in ("n", 3)
    # Empty where inference leaves them unnamed; named, they must differ.
    assert found["a"][1][0] == "" or found["a"][1][0] != found["b"][1][0]


def test_optional_and_variadic_inputs() -> None:
    def reference(xs: list[Tensor], bias: Tensor | None = None) -> list[Tensor]:
        raise NotImplementedError

    op = declare(reference, lambda xs, bias=None: [x.new_empty(x.shape[0] + 1) for x in xs])
    made = model(
        [node(op, ["", "p", "q"], ["a", "b"])],
        {"p": (FLOAT, ["n"]), "q": (FLOAT, [4])},
        {"a": (FLOAT, None), "b": (FLOAT, None)},
    )
    assert inferred(made) == {"a": (FLOAT, ["n + 1"]), "b": (FLOAT, [5])}


def test_two_lists_are_told_apart() -> None:
    def reference(xs: list[Tensor], ys: list[Tensor]) -> Tensor:
        raise NotImplementedError

    op = declare(reference, lambda xs, ys: xs[0].new_empty(len(xs), len(ys)))
    made = model(
        [node(op, ["x", "x", "x"], ["y"], xs_count=1, ys_count=2)],
        {"x": (FLOAT, ["n"])},
        {"y": (FLOAT, None)},
    )
    assert inferred(made)["y"] == (FLOAT, [1, 2])


def test_an_overwritten_input_is_an_output() -> None:
    def reference(x: Tensor, a: float) -> None:
        x.mul_(a)

    op = declare(reference, lambda x, a: None, mutates=("x",))
    made = model([node(op, ["x"], ["y"], a=2.0)], {"x": (FLOAT, ["n", 4])}, {"y": (FLOAT, None)})
    assert inferred(made)["y"] == (FLOAT, ["n", 4])


def test_every_input_of_unknown_rank_is_survived(swish: Operator) -> None:
    made = model([node(swish, ["x"], ["y"], beta=1.0)], {"x": (FLOAT, None)}, {"y": (FLOAT, None)})
    assert inferred(made)["y"] == (FLOAT, None)


def test_what_the_fake_kernel_refuses_is_an_inference_error_with_its_words() -> None:
    def reference(x: Tensor, y: Tensor) -> Tensor:
        return x @ y

    def fake(x: Tensor, y: Tensor) -> Tensor:
        torch._check(x.shape[1] == y.shape[0], lambda: "inner sizes differ")
        return x.new_empty(x.shape[0], y.shape[1])

    op = declare(reference, fake)
    made = model([node(op, ["x", "x"], ["y"])], {"x": (FLOAT, [3, 4])}, {"y": (FLOAT, None)})
    with pytest.raises(shape_inference.InferenceError, match="inner sizes differ"):
        inferred(made)


def test_a_shape_that_the_model_states_wrongly_is_found(swish: Operator) -> None:
    made = model([node(swish, ["x"], ["y"], beta=1.0)], {"x": (FLOAT, [3, 4])}, {"y": (FLOAT, [3, 5])})
    with pytest.raises(shape_inference.InferenceError):
        inferred(made)


def test_hostile_dim_texts_do_no_harm(swish: Operator) -> None:
    text = "__import__('os').abort()"
    made = model([node(swish, ["x"], ["y"], beta=1.0)], {"x": (FLOAT, [text, 2])}, {"y": (FLOAT, None)})
    assert inferred(made)["y"] == (FLOAT, [text, 2])


def test_string_and_list_attributes_reach_the_fake_kernel() -> None:
    def reference(
        x: Tensor, mode: str = "a", names: list[str] | None = None, sizes: list[int] = (1,)
    ) -> Tensor:  # type: ignore[assignment]
        raise NotImplementedError

    def fake(x: Tensor, mode: str = "a", names: Any = None, sizes: Any = (1,)) -> Tensor:
        assert isinstance(mode, str)
        assert names is None or all(isinstance(n, str) for n in names)
        return x.new_empty([len(mode), len(names or []), *sizes])

    op = declare(reference, fake)
    made = model(
        [node(op, ["x"], ["y"], mode="abc", names=["p", "q"], sizes=[5, 6])],
        {"x": (FLOAT, ["n"])},
        {"y": (FLOAT, None)},
    )
    assert inferred(made)["y"] == (FLOAT, [3, 2, 5, 6])
