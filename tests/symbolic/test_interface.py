"""Every kind of signature that an operator may have, and the reason for every one that it may not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, Optional

import pytest
import torch
from torch import Tensor

from deployops.errors import DeclarationError, ExportError
from deployops.symbolic import operator
from deployops.symbolic.attributes import decode_attribute, encode_attribute
from deployops.symbolic.interface import Interface, Output, read_schema
from deployops.symbolic.torch_schema import infer_schema


def interface(schema: str, outputs: Sequence[str] | None = None) -> Interface:
    return read_schema(torch._C.parse_schema(f"t_iface::op{schema}"), outputs)


def refusal(schema: str) -> str:
    with pytest.raises(DeclarationError) as caught:
        interface(schema)
    return str(caught.value)


# --- tensors in -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "form"),
    [
        ("(Tensor x) -> Tensor", "single"),
        ("(Tensor? x) -> Tensor", "optional"),
        ("(Tensor[] x) -> Tensor", "variadic"),
    ],
)
def test_a_tensor_argument_is_an_input(schema: str, form: str) -> None:
    (found,) = interface(schema).inputs
    assert (found.name, found.form, found.mutated) == ("x", form, False)


def test_a_list_of_tensors_comes_last_whatever_its_place() -> None:
    assert [i.name for i in interface("(Tensor[] xs, Tensor? bias, Tensor w) -> Tensor").inputs] == [
        "bias",
        "w",
        "xs",
    ]


def test_several_lists_of_tensors_are_told_apart_by_counts() -> None:
    op = interface("(Tensor[] xs, Tensor[] ys) -> Tensor")
    a, b, c = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    call = op.bind(([a], [b, c]), {})
    assert call.attributes == {"xs_count": 1, "ys_count": 2}
    flat = op.flat_inputs(call)
    assert [t.numel() for t in flat] == [1, 2, 3]
    assert op.unflatten(flat, call.attributes) == {"xs": [a], "ys": [b, c]}


def test_an_empty_list_of_tensors_is_no_input() -> None:
    op = interface("(Tensor[] xs, Tensor[] ys) -> Tensor")
    call = op.bind(([], [torch.zeros(1)]), {})
    assert len(op.flat_inputs(call)) == 1
    assert call.attributes == {"xs_count": 0, "ys_count": 1}


def test_absent_optionals_are_holes_in_the_middle_and_nothing_at_the_end() -> None:
    op = interface("(Tensor x, Tensor? a=None, Tensor? b=None) -> Tensor")
    x, b = torch.zeros(1), torch.zeros(2)
    assert op.flat_inputs(op.bind((x,), {})) == [x]
    assert op.flat_inputs(op.bind((x,), {"b": b})) == [x, None, b]
    assert op.unflatten([x, None, b], {}) == {"x": x, "a": None, "b": b}
    assert op.unflatten([x], {}) == {"x": x, "a": None, "b": None}


def test_absent_optionals_before_a_list_stay() -> None:
    op = interface("(Tensor x, Tensor? a, Tensor[] xs) -> Tensor")
    x, t = torch.zeros(1), torch.zeros(2)
    assert op.flat_inputs(op.bind((x, None, []), {})) == [x, None]
    assert op.flat_inputs(op.bind((x, None, [t]), {})) == [x, None, t]
    assert op.unflatten([x, None], {}) == {"x": x, "a": None, "xs": []}


# --- attributes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "onnx_type", "encoded"),
    [
        ("int v", 3, "INT", 3),
        ("SymInt v", -3, "INT", -3),
        ("float v", 0.5, "FLOAT", 0.5),
        ("float v", 2, "FLOAT", 2.0),
        ("bool v", True, "INT", 1),
        ("str v", "zeros", "STRING", "zeros"),
        ("ScalarType v", torch.float16, "INT", 10),
        ("int[] v", [1, 2], "INTS", [1, 2]),
        ("int[] v", [], "INTS", []),
        ("SymInt[] v", (4,), "INTS", [4]),
        ("int[2] v", 3, "INTS", [3]),
        ("float[] v", [1, 2.5], "FLOATS", [1.0, 2.5]),
        ("float[] v", [], "FLOATS", []),
        ("bool[] v", [True, False], "INTS", [1, 0]),
        ("str[] v", ["a", ""], "STRINGS", ["a", ""]),
        ("str[] v", [], "STRINGS", []),
        ("int? v", 3, "INT", 3),
        ("float? v", float("inf"), "FLOAT", float("inf")),
        ("bool? v", False, "INT", 0),
        ("str? v", "é", "STRING", "é"),
        ("ScalarType? v", torch.bfloat16, "INT", 16),
        ("int[]? v", [], "INTS", []),
        ("str[]? v", ["x"], "STRINGS", ["x"]),
    ],
)
def test_an_argument_is_an_attribute_and_comes_back(
    text: str, value: Any, onnx_type: str, encoded: Any
) -> None:
    op = interface(f"(Tensor x, {text}) -> Tensor")
    (attribute,) = op.attributes
    assert attribute.onnx_type == onnx_type
    call = op.bind((torch.zeros(1), value), {})
    assert call.attributes == {"v": encoded}
    assert type(call.attributes["v"]) is type(encoded)
    back = decode_attribute(attribute, call.attributes["v"])
    assert back == (
        list(value)
        if isinstance(value, tuple)
        else [value]
        if attribute.is_list and not isinstance(value, list)
        else value
    )


@pytest.mark.parametrize("text", ["int? v=None", "float[]? v=None", "str? v=None", "ScalarType? v=None"])
def test_an_optional_attribute_is_left_out_where_it_is_none(text: str) -> None:
    op = interface(f"(Tensor x, {text}) -> Tensor")
    assert op.bind((torch.zeros(1),), {}).attributes == {}
    assert op.call_arguments({"x": 1}, {}) == ([1, None], {})


def test_defaults_are_written_explicitly() -> None:
    op = interface("(Tensor x, float a=0.5, int[] b=[1, 2], bool c=True, ScalarType d=float) -> Tensor")
    call = op.bind((torch.zeros(1),), {})
    assert call.attributes == {"a": 0.5, "b": [1, 2], "c": 1, "d": 1}
    assert op.call_arguments({"x": 0}, {}) == ([0, 0.5, [1, 2], True, torch.float32], {})


def test_keyword_only_arguments_stay_keywords() -> None:
    op = interface("(Tensor x, *, Tensor? bias=None, int k=2) -> Tensor")
    assert op.call_arguments({"x": 0, "bias": 1}, {"k": 3}) == ([0], {"bias": 1, "k": 3})


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(ExportError, match="`k` is missing"):
        interface("(Tensor x, int k) -> Tensor").bind((torch.zeros(1),), {})


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        ("int v", 2**31, "32 bits"),
        ("int[] v", [0, -(2**31) - 1], "32 bits"),
        ("float v", 1e39, "infinite"),
        ("float v", 1e-60, "zero"),
        ("str v", "a\0b", "NUL"),
        ("int v", torch.tensor(3), "as a 0-d tensor"),
        ("int[] v", [2, torch.tensor(3)], "as a 1-d int64 tensor"),
        ("float[] v", [torch.tensor(3.0)], "as a 1-d tensor"),
    ],
)
def test_a_value_that_its_field_cannot_hold_is_refused(text: str, value: Any, reason: str) -> None:
    with pytest.raises(ExportError, match=reason) as caught:
        interface(f"(Tensor x, {text}) -> Tensor").bind((torch.zeros(1), value), {})
    assert "`v`" in str(caught.value)


# --- what comes out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ("Tensor", [Output("y")]),
        ("(Tensor, Tensor)", [Output("y0"), Output("y1")]),
        ("(Tensor mean, Tensor scale)", [Output("mean"), Output("scale")]),
        ("Tensor[]", [Output("y", "variadic")]),
        ("(Tensor first, Tensor[] rest)", [Output("first"), Output("rest", "variadic")]),
    ],
)
def test_results(returns: str, expected: list[Output]) -> None:
    assert list(interface(f"(Tensor x) -> {returns}").outputs) == expected


def test_given_output_names() -> None:
    assert [o.name for o in interface("(Tensor x) -> (Tensor, Tensor)", ["a", "b"]).outputs] == ["a", "b"]


def test_what_is_written_into_comes_out_last() -> None:
    op = interface("(Tensor(a!) x, Tensor y) -> Tensor")
    assert op.mutates
    assert list(op.outputs) == [Output("y"), Output("x_out", mutates="x")]


def test_a_returned_argument_is_one_output_only() -> None:
    assert list(interface("(Tensor(a!) x) -> Tensor(a!)").outputs) == [Output("x_out", mutates="x")]


# --- what ONNX cannot express ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("(Tensor x, Scalar s) -> Tensor", "declare it as `float` or `int`"),
        ("(Tensor x, complex z) -> Tensor", "real and imaginary"),
        ("(Tensor x, Device d) -> Tensor", "no meaning in an exported model"),
        ("(Tensor x, Layout d) -> Tensor", "ONNX"),
        ("(Tensor x, MemoryFormat d) -> Tensor", "ONNX"),
        ("(Tensor x, Generator? g) -> Tensor", "random generator"),
        ("(Tensor x, Dict(str, int) d) -> Tensor", "ONNX"),
        ("(Tensor x, ScalarType[] d) -> Tensor", "ONNX has no attribute"),
        ("(Tensor x, int[][] d) -> Tensor", "ONNX has no attribute"),
        ("(Tensor?[] xs) -> Tensor", "leave out a tensor in the middle"),
        ("(Tensor x, Tensor[]? ys) -> Tensor", "use `Tensor\\[\\]`"),
        ("(Tensor(a!)[] xs) -> ()", "list of tensors that is written into"),
        ("(Tensor(a!)? x) -> ()", "optional tensor that is written into"),
        ("(int n) -> Tensor", "takes no tensor"),
        ("(Tensor x) -> ()", "returns nothing"),
        ("(Tensor x) -> int", "only tensors as outputs"),
        ("(Tensor x) -> (Tensor[], Tensor)", "one variadic output, and last"),
        ("(Tensor(a) x) -> Tensor(a)", "aliases an input"),
        ("(Tensor x, str plugin_version) -> Tensor", "TensorRT reserves"),
        ("(Tensor[] a, Tensor[] b, int a_count) -> Tensor", "length of a list"),
    ],
)
def test_what_onnx_cannot_express_is_refused_with_the_reason(schema: str, reason: str) -> None:
    text = refusal(schema)
    assert "cannot be expressed in ONNX" in text
    assert re.search(reason, text)


def test_all_reasons_are_told_at_once() -> None:
    text = refusal("(Tensor x, complex z, Device d) -> int")
    assert text.count("  - ") == 3


# --- from annotations -----------------------------------------------------------------------------------------


def schema_of(function: Callable[..., Any], *mutates: str) -> str:
    return infer_schema("t_iface::f", function, mutates)


def test_annotations_give_the_schema() -> None:
    def f(
        x: Tensor,
        w: Tensor | None,
        xs: list[Tensor],
        k: int,
        *,
        beta: float = 1,
        causal: bool = False,
        mode: str = 'a"\\b',
        dims: Sequence[int] = (0, -1),
        scales: list[float] = (),  # type: ignore[assignment]
        flags: list[bool] = [True],  # noqa: B006
        names: Optional[list[str]] = None,  # noqa: UP045
        dtype: torch.dtype = torch.bfloat16,
        eps: float | None = 1e-5,
    ) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    text = schema_of(f, "x")
    assert text == (
        "(Tensor(a0!) x, Tensor? w, Tensor[] xs, SymInt k, *, float beta=1.0, bool causal=False, "
        'str mode="a\\"\\\\b", SymInt[] dims=[0, -1], float[] scales=[], bool[] flags=[True], str[]? names=None, '
        "ScalarType dtype=bfloat16, float? eps=1e-05) -> (Tensor, Tensor)"
    )
    defaults = {a.name: a.default for a in interface(text).attributes}
    assert defaults["mode"] == 'a"\\b'
    assert defaults["dtype"] == torch.bfloat16
    assert defaults["eps"] == 1e-5
    assert defaults["flags"] == [True]


@pytest.mark.parametrize(
    ("annotation", "returned"), [(Tensor, "Tensor"), (list[Tensor], "Tensor[]"), (None, "()")]
)
def test_return_annotations(annotation: Any, returned: str) -> None:
    def f(x):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    f.__annotations__ = {"x": Tensor, "return": annotation}
    assert schema_of(f) == f"(Tensor x) -> {returned}"


def untyped(**parameters: Any) -> Callable[..., Any]:
    """A function of `x: Tensor` and one more argument, with this annotation and default."""

    def f(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    more = [inspect.Parameter(n, kind, annotation=a, default=d) for n, (a, d) in parameters.items()]
    f.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("x", kind, annotation=Tensor), *more], return_annotation=Tensor
    )
    return f


EMPTY = inspect.Parameter.empty


@pytest.mark.parametrize(
    ("annotation", "default", "reason"),
    [
        (EMPTY, EMPTY, "has no annotation"),
        (dict, EMPTY, "no torch type"),
        (list[list[int]], EMPTY, "no torch type"),
        (tuple[int, int], EMPTY, "no torch type"),
        ("Missing", EMPTY, "cannot be resolved"),
        (int, None, "annotate it"),
        (int, 1.5, "annotation says int, so its default must be one; or annotate it `float`"),
        (int, True, "annotation says int"),
        (complex, 1, "the real and imaginary parts as two floats"),
        (list[Tensor | None], (), "a tensor in the middle of a list"),
        (float, float("inf"), "None = None"),
        (str, "é", "ASCII"),
        (list[str], ["a"], "list of str"),
        (Optional[list[int]], [1], "drop the"),  # noqa: UP045
        (list[int], 3, "list is expected"),
    ],
)
def test_an_annotation_or_default_that_torch_cannot_take_is_refused(
    annotation: Any, default: Any, reason: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        schema_of(untyped(k=(annotation, default)))
    text = str(caught.value)
    assert reason in text
    assert text.startswith("t_iface::f")


def test_an_int_or_float_is_refused_by_the_interface() -> None:
    text = schema_of(untyped(k=(int | float, EMPTY)))
    assert "declare it as `float` or `int`" in refusal(text)


def test_variable_arguments_and_missing_returns_are_refused() -> None:
    def f(*xs: Tensor) -> Tensor:
        raise NotImplementedError

    def g(x: Tensor):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def h(x: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError

    for function, reason in (
        (f, "names every argument"),
        (g, "annotation is missing"),
        (h, "list\\[Tensor\\]"),
    ):
        with pytest.raises(DeclarationError, match=reason):
            schema_of(function)


def test_torchs_own_refusals_are_told_as_such() -> None:
    def f(x: Tensor, *, w: Tensor) -> Tensor:
        raise NotImplementedError

    with pytest.raises(DeclarationError, match="move it before the `\\*`"):
        operator("t_iface::late", onnx="t_iface::Late")(f)
    with pytest.raises(DeclarationError, match="torch refuses"):
        operator("t_iface::odd", onnx="t_iface::Odd", schema="(Tensor x, Nonsense y) -> Tensor")(f)


def test_what_is_mutated_must_be_a_tensor_argument() -> None:
    def f(x: Tensor, k: int) -> None:
        raise NotImplementedError

    with pytest.raises(DeclarationError, match="the arguments are x, k"):
        schema_of(f, "y")
    with pytest.raises(DeclarationError, match="no tensor"):
        schema_of(f, "k")


# --- a declaration as a whole ---------------------------------------------------------------------------------


def test_a_declared_operator_of_many_arguments_runs() -> None:
    @operator("t_iface::many", onnx="t_iface::Many")
    def many(
        xs: list[Tensor],
        bias: Tensor | None = None,
        names: list[str] | None = None,
        flags: Sequence[bool] = (),
        *,
        dtype: torch.dtype = torch.float64,
    ) -> list[Tensor]:
        assert names is None or all(isinstance(n, str) for n in names)
        return [(x.clone() if bias is None else x + bias).to(dtype) for x in xs]

    a, b = many([torch.ones(2), torch.zeros(3)], None, ["p", "q"], [True], dtype=torch.float32)
    assert a.dtype == torch.float32
    assert b.shape == (3,)
    assert many.onnx_name == "t_iface::Many"


@pytest.mark.parametrize(
    ("name", "onnx", "reason"),
    [
        ("swish", None, "namespace::name"),
        ("t_iface::a b", None, "namespace::name"),
        ("aten::mine", None, "use your own"),
        ("t_iface::relu6x", "Relu", "domain::Type"),
        ("t_iface::x1", "ai.onnx::Swishy", "belongs to ONNX"),
        ("t_iface::x2", "com.microsoft::Swishy", "belongs to ONNX"),
        ("t_iface::x3", "t_iface::Relu", "standard ONNX operator"),
    ],
)
def test_names_that_mean_something_else_are_refused(name: str, onnx: str | None, reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):

        @operator(name, onnx=onnx)
        def f(x: Tensor) -> Tensor:
            raise NotImplementedError


def test_versions_and_defaults_are_checked_at_declaration() -> None:
    def f(x: Tensor, k: int = 2**40) -> Tensor:
        raise NotImplementedError

    with pytest.raises(DeclarationError, match="32 bits"):
        operator("t_iface::big", onnx="t_iface::Big")(f)
    for version in (0, "1"):
        with pytest.raises(DeclarationError, match="from 1 on"):
            operator("t_iface::old", onnx="t_iface::Old", version=version)(f)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtypes", "reason"),
    [
        (("float33",), "known are"),
        ({"x": ("float32",)}, "says nothing of index"),
        ({"x, y": ("float32",), "index": ("int64",)}, "names `y`"),
        ({"x": ("float32",), "index, x": ("int64",)}, "`x` twice"),
    ],
)
def test_declared_dtypes_name_every_input_once(dtypes: Any, reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):

        @operator("t_iface::typed", onnx="t_iface::Typed", dtypes=dtypes)
        def f(x: Tensor, index: Tensor) -> Tensor:
            raise NotImplementedError


def test_encode_names_the_operator_and_the_argument() -> None:
    (attribute,) = interface("(Tensor x, int axis) -> Tensor").attributes
    with pytest.raises(ExportError, match=r"acme::op: argument `axis` = 4294967296"):
        encode_attribute("acme::op", attribute, 2**32)
