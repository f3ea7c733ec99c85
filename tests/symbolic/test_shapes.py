"""The shape rule read off fake kernels: right where it claims a formula, silent where it cannot know."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deployops.symbolic import Operator, dims, operator, registry
from deployops.symbolic.shapes import ShapeError, TensorInfo, infer

_numbers = count()


def declare(fake: Callable[..., Any], reference: Callable[..., Any], **options: Any) -> Operator:
    """An operator with this shape rule; nothing here ever runs its reference."""
    k = next(_numbers)
    op = operator(f"t_shapes::op{k}", onnx=f"t_shapes::Op{k}", dtypes=None, **options)(reference)
    op.fake(fake)
    registry.remove(op)
    return op


def unary(shape: Callable[[Tensor], Any], dtype: torch.dtype | None = None) -> Operator:
    """`x -> a tensor of shape(x)`."""

    def reference(x: Tensor) -> Tensor:
        raise NotImplementedError

    return declare(lambda x: x.new_empty(shape(x), dtype=dtype), reference)


def binary(fake: Callable[[Tensor, Tensor], Any]) -> Operator:
    def reference(x: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError

    return declare(fake, reference)


def shape_of(op: Operator, *shapes: Any, **attributes: Any) -> tuple[Any, ...] | None:
    """The dims of the only output for these input dims."""
    names = [i.name for i in op.interface.inputs]
    tensors = {n: TensorInfo("float32", s) for n, s in zip(names, shapes, strict=True)}
    (info,) = infer(op, tensors, attributes)
    return info.dims


GLU = lambda x: (*x.shape[:-1], x.shape[-1] // 2)  # noqa: E731
BROADCAST = binary(lambda x, y: x.new_empty(torch.broadcast_shapes(x.shape, y.shape)))


def matmul(x: Tensor, y: Tensor) -> Tensor:
    torch._check(x.shape[1] == y.shape[0], lambda: "the inner sizes differ")
    return x.new_empty(x.shape[0], y.shape[1])


# --- formulas -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "given", "expected"),
    [
        (lambda x: x.shape, ("n", 3, "m"), ("n", 3, "m")),
        (GLU, ("n", "c"), ("n", "floor(c/2)")),
        (GLU, ("n", "2*c"), ("n", "c")),
        (GLU, (4, 6), (4, 3)),
        (lambda x: (x.shape[0] * 2, x.shape[1] + 1), ("n", "m"), ("2*n", "m + 1")),
        (lambda x: (x.numel(),), ("n", 4), ("4*n",)),
        (lambda x: (x.numel(),), ("n", "m"), ("m*n",)),
        (lambda x: (x.shape[0] ** 2,), ("n",), ("n**2",)),
        (lambda x: (math.ceil(x.shape[0] / 2),), ("n",), ("ceiling(n/2)",)),
        (lambda x: (-(-x.shape[0] // 4) * 4,), ("n",), ("-4*floor((-n)/4)",)),
        (lambda x: (x.shape[0] % 4,), ("n",), ("Mod(n, 4)",)),
        (lambda x: (torch.sym_max(x.shape[0], x.shape[1]),), ("n", "m"), ("max(m, n)",)),
        (lambda x: (torch.sym_min(x.shape[0], 5),), ("n",), ("min(5, n)",)),
        (lambda x: reversed(x.shape), ("n", 3, "m"), ("m", 3, "n")),
        (lambda x: (), ("n",), ()),
        (lambda x: (7,), ("n",), (7,)),
    ],
)
def test_a_formula_is_found(shape: Any, given: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    assert shape_of(unary(lambda x: tuple(shape(x))), given) == expected


def test_concatenation() -> None:
    op = binary(lambda x, y: x.new_empty(x.shape[0], x.shape[1] + y.shape[1]))
    assert shape_of(op, ("n", "a"), ("n", "b")) == ("n", "a + b")
    assert shape_of(op, ("n", "a"), ("n", 3)) == ("n", "a + 3")


def conv(x: Tensor, w: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1) -> Tensor:
    length = (x.shape[2] + 2 * padding - dilation * (w.shape[2] - 1) - 1) // stride + 1
    return x.new_empty(x.shape[0], w.shape[0], length)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (3, 2, 2), (1, 4, 3), (5, 0, 1)]
)
def test_convolution(stride: int, padding: int, dilation: int) -> None:
    def reference(x: Tensor, w: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1) -> Tensor:
        raise NotImplementedError

    op = declare(conv, reference)
    attributes = {"stride": stride, "padding": padding, "dilation": dilation}
    found = shape_of(op, ("batch", 8, "length"), (16, 8, 3), **attributes)
    assert found is not None
    assert found[:2] == ("batch", 16)
    for length in (32, 57, 128):
        real = torch.nn.functional.conv1d(
            torch.zeros(2, 8, length), torch.zeros(16, 8, 3), None, stride, padding, dilation
        )
        assert dims.evaluate(found[2], {"batch": 2, "length": length}) == real.shape[2]


# --- broadcasting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (("n", 3), ("n", 3), ("n", 3)),
        (("n", 3), (1, 3), ("n", 3)),
        (("n", 3), (3,), ("n", 3)),
        (("n", 3), ("n", 1), ("n", 3)),
        (("n", 3), (5, 1), (5, 3)),  # n is 5 or 1
        (("n", 3), ("m", 3), (None, 3)),  # n, m or neither: nobody can say
        ((None, 3), (1, 3), (None, 3)),
        ((None, 3), (4, 1), (4, 3)),
        (("n", "m"), (1, 1, 1), (1, "n", "m")),
    ],
)
def test_broadcasting_claims_nothing_that_one_of_the_sizes_breaks(x: Any, y: Any, expected: Any) -> None:
    assert shape_of(BROADCAST, x, y) == expected


def test_sizes_that_cannot_go_together_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"refuses x: float32\[4,3\], y: float32\[5,3\]"):
        shape_of(BROADCAST, (4, 3), (5, 3))


# --- preconditions and branches -------------------------------------------------------------------------------


def test_a_precondition_that_may_hold_is_assumed() -> None:
    op = binary(matmul)
    assert shape_of(op, ("n", "k"), ("k", "p")) == ("n", "p")
    assert shape_of(op, ("n", "k"), ("j", "p")) == ("n", "p")
    assert shape_of(op, ("n", 4), ("k", 5)) == ("n", 5)


def test_a_precondition_that_cannot_hold_is_an_error_with_the_kernels_words() -> None:
    op = binary(matmul)
    with pytest.raises(ShapeError, match="the inner sizes differ"):
        shape_of(op, ("n", 4), (5, "p"))


@pytest.mark.parametrize(
    "shape",
    [
        lambda n: n // 2 if n > 128 else n,
        lambda n: 7 if n == 64 else n,
        lambda n: n if n % 3 else n // 3,
        lambda n: n + 1 if 200 < n < 210 else n,
        lambda n: 0 if 2 * n == 100 else n,
        lambda n: max(n, 500),
        lambda n: min(n, 77),
    ],
)
def test_a_formula_of_one_branch_is_not_claimed_for_the_other(shape: Callable[[Any], Any]) -> None:
    assert shape_of(unary(lambda x: (shape(x.shape[0]), x.shape[1])), ("n", "m")) == (None, "m")


def test_a_comparison_of_two_sizes_is_a_branch() -> None:
    op = unary(lambda x: (x.shape[0] if x.shape[0] == 2 * x.shape[1] else 1,))
    assert shape_of(op, ("n", "m")) == (None,)


def test_branches_that_agree_are_one_formula() -> None:
    op = unary(lambda x: (x.shape[0] * 2,) if x.shape[0] > 64 else (x.shape[0] + x.shape[0],))
    assert shape_of(op, ("n",)) == ("2*n",)


def test_a_rank_that_depends_on_a_size_is_unknown() -> None:
    assert shape_of(unary(lambda x: (1,) if x.shape[0] > 100 else (1, 1)), ("n",)) is None


def test_the_rank_of_an_input_decides_the_rank_of_the_output() -> None:
    op = unary(lambda x: x.shape[:1] if x.dim() == 4 else x.shape[:-1])
    assert shape_of(op, ("n", 3, "h", "w")) == ("n",)
    assert shape_of(op, ("n", "m")) == ("n",)
    assert shape_of(op, ("n", "m", 2)) == ("n", "m")


def test_attributes_decide() -> None:
    def reference(x: Tensor, axis: int = 0, repeats: list[int] = (2, 3)) -> Tensor:  # type: ignore[assignment]
        raise NotImplementedError

    def fake(x: Tensor, axis: int = 0, repeats: Any = (2, 3)) -> Tensor:
        shape = list(x.shape)
        shape[axis] = shape[axis] * repeats[0] + repeats[1]
        return x.new_empty(shape)

    op = declare(fake, reference)
    assert shape_of(op, ("n", "m"), axis=0, repeats=[2, 3]) == ("2*n + 3", "m")
    assert shape_of(op, ("n", "m"), axis=1, repeats=[4, 0]) == ("n", "4*m")


# --- what cannot be known -------------------------------------------------------------------------------------


def test_an_unknown_dim_stays_unknown_and_the_others_do_not() -> None:
    assert shape_of(unary(lambda x: (x.shape[0] * 2, x.shape[1])), (None, "n")) == (None, "n")


def test_an_unknown_rank_leaves_the_dtype() -> None:
    op = unary(lambda x: x.shape)
    (info,) = infer(op, {"x": TensorInfo("float16", None)}, {})
    assert info.dims is None


def test_data_decides() -> None:
    def reference(x: Tensor) -> Tensor:
        raise NotImplementedError

    def fake(x: Tensor) -> Tensor:
        found = torch.library.get_ctx().new_dynamic_size()
        return x.new_empty(found, x.dim(), dtype=torch.int64)

    op = declare(fake, reference)
    for sizes in (("n", 3), (4, 3)):
        assert infer(op, {"x": TensorInfo("float32", sizes)}, {}) == (TensorInfo("int64", (None, 2)),)


def test_names_that_are_no_identifiers_pass_through_but_are_not_calculated_with() -> None:
    name = "input.1 dim/0"
    assert shape_of(unary(lambda x: x.shape), (name, "n")) == (name, "n")
    assert shape_of(unary(lambda x: (x.shape[0] * 2, x.shape[1])), (name, "n")) == (None, "n")


def test_a_strangers_dims_cannot_break_the_rule() -> None:
    op = unary(lambda x: x.shape)
    assert shape_of(op, ("__import__('os')", "n")) == ("__import__('os')", "n")
    for text in ("n//0", "n - 999999", "-n", "9" * 60):
        with pytest.raises(ShapeError):
            shape_of(op, (text,))


# --- several outputs, dtypes, lists ---------------------------------------------------------------------------


def test_several_outputs_and_dtypes() -> None:
    def reference(x: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    op = declare(lambda x: (x.new_empty(x.shape[0]), x.new_empty(x.shape, dtype=torch.bool)), reference)
    assert infer(op, {"x": TensorInfo("bfloat16", ("n", 2))}, {}) == (
        TensorInfo("bfloat16", ("n",)),
        TensorInfo("bool", ("n", 2)),
    )


def test_a_dtype_argument_decides_the_dtype() -> None:
    def reference(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        raise NotImplementedError

    op = declare(lambda x, dtype=torch.float32: x.new_empty(x.shape, dtype=dtype), reference)
    for number, name in ((1, "float32"), (7, "int64"), (16, "bfloat16")):
        (info,) = infer(op, {"x": TensorInfo("float32", ("n",))}, {"dtype": number})
        assert info == TensorInfo(name, ("n",))


def test_lists_of_tensors() -> None:
    def reference(xs: list[Tensor]) -> list[Tensor]:
        raise NotImplementedError

    op = declare(lambda xs: [x.new_empty(x.shape[0] * 2) for x in xs], reference)
    xs = [TensorInfo("float32", ("n",)), TensorInfo("float32", (3,))]
    assert [i.dims for i in infer(op, {"xs": xs}, {})] == [("2*n",), (6,)]
    assert infer(op, {"xs": []}, {}) == ()


def test_an_overwritten_argument_keeps_its_shape() -> None:
    def reference(x: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError

    op = declare(lambda x, y: x.new_empty(y.shape), reference, mutates=("x",))
    tensors = {"x": TensorInfo("float32", ("n",)), "y": TensorInfo("float32", ("m", 2))}
    assert [i.dims for i in infer(op, tensors, {})] == [("m", 2), ("n",)]


def test_an_absent_optional_input() -> None:
    def reference(x: Tensor, w: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    op = declare(lambda x, w=None: x.new_empty(x.shape if w is None else w.shape), reference)
    x = TensorInfo("float32", ("n",))
    assert infer(op, {"x": x, "w": None}, {})[0].dims == ("n",)
    assert infer(op, {"x": x, "w": TensorInfo("float32", (2, "k"))}, {})[0].dims == (2, "k")


def test_samples_are_realistic_sizes_where_others_are_refused() -> None:
    """Heads of 8 channels: none of the built-in stand-in sizes is divisible by 8 in the first place."""

    def reference(x: Tensor) -> Tensor:
        raise NotImplementedError

    def fake(x: Tensor) -> Tensor:
        torch._check(x.shape[1] % 24 == 0)
        return x.new_empty(x.shape[0], x.shape[1] // 24)

    op = declare(fake, reference)
    op.samples(lambda draw: [draw(2, 48), draw(3, 72)])
    assert shape_of(op, ("n", "c")) == ("n", "floor(c/24)")


# --- the promise, at random -----------------------------------------------------------------------------------


def rules() -> st.SearchStrategy[list[tuple[str, int, int]]]:
    step = st.tuples(st.sampled_from("+-*/%mcb"), st.integers(0, 2), st.integers(1, 6))
    return st.lists(st.lists(step, min_size=0, max_size=3), min_size=1, max_size=3)  # type: ignore[arg-type]


def apply(rule: list[list[tuple[str, int, int]]], shape: Any) -> list[Any]:
    """A shape calculated from a shape, one little program for each output dim."""
    found = []
    for steps in rule:
        n = shape[0]
        for operation, axis, k in steps:
            other = shape[axis]
            if operation == "+":
                n = n + other
            elif operation == "-":
                n = n + 7 - k
            elif operation == "*":
                n = n * k
            elif operation == "/":
                n = n // k
            elif operation == "%":
                n = n % k
            elif operation == "m":
                n = torch.sym_max(n, other)
            elif operation == "c":
                n = -(-n // k)
            else:  # a branch
                n = n + 1 if other > 9 * k else n
        found.append(n)
    return found


@pytest.mark.parametrize("least", [0, 1, 3])
def test_a_maximum_is_kept_where_a_size_may_be_zero(least: int) -> None:
    op = unary(lambda x: (torch.sym_max(x.shape[0] - 1, least),))
    found = shape_of(op, ("n",))
    assert found is not None
    for n in (0, 1, 2, 50):
        assert dims.evaluate(found[0], {"n": n}) == max(n - 1, least), (found, n)


def test_what_only_holds_for_a_size_that_is_not_zero_is_not_claimed() -> None:
    # Python's own max asks which is larger: another formula for 0 than for the others
    assert shape_of(unary(lambda x: (max(x.shape[0] - 1, 0),)), ("n",)) == (None,)


@settings(max_examples=25, deadline=None)
@given(rules(), st.lists(st.tuples(*[st.integers(2, 70)] * 3), min_size=8, max_size=8))
def test_at_any_size_the_expression_is_what_the_fake_kernel_returns(rule: Any, sizes: Any) -> None:
    op = unary(lambda x: apply(rule, x.shape))
    found = shape_of(op, ("a", "b", "c"))
    assert found is not None
    assert len(found) == len(rule)
    for size in sizes:
        real = apply(rule, size)
        values = dict(zip("abc", size, strict=True))
        for dim, expected in zip(found, real, strict=True):
            if dim is not None:
                assert (dims.evaluate(dim, values) if isinstance(dim, str) else dim) == expected, (dim, size)
