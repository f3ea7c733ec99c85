"""Planted faults: each check finds its own, and passes the sound twin."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops.symbolic import Operator, operator
from deployops.symbolic.checking import body_check, lock
from deployops.symbolic.checking.operator_check import CheckResult, check_operator, exit_code, render

_numbers = count()
Mutate = Callable[[Operator], Any]


def declare(reference: Callable[..., Any], **options: Any) -> Operator:
    k = next(_numbers)
    return operator(f"t_check::op{k}", onnx=f"t_check::Op{k}", **options)(reference)


def checked(op: Operator, name: str) -> CheckResult:
    return next(r for r in check_operator(op) if r.check == name)


def softcap_reference(x: Tensor, cap: float = 2.0) -> Tensor:
    return cap * torch.tanh(x / cap)


def softcap(
    reference: Callable[..., Any] = softcap_reference,
    fake: Callable[..., Any] | None = lambda x, cap=2.0: torch.empty_like(x),
    backward: Callable[..., Any] | None = lambda g, x, cap: g * (1 - torch.tanh(x / cap) ** 2),
    body: Callable[..., Any] | None = lambda op, x, cap: op.Mul(op.Tanh(op.Div(x, cap)), cap),
    samples: Callable[..., Any] | None = None,
    **options: Any,
) -> Operator:
    """A sound operator, but for what is given."""
    op = declare(reference, **options)
    if fake:
        op.fake(fake)
    if backward:
        op.backward(backward)
    if body:
        op.body(body)
    op.samples(samples or (lambda draw: [draw(3, 5), (draw(4), 0.5), draw.edges(), draw(0, 2)]))
    return op


def test_a_sound_operator_passes_everything() -> None:
    results = check_operator(softcap())
    assert {r.check: r.status for r in results} == {
        "declaration": "passed",
        "opcheck": "passed",
        "fake": "passed",
        "shape rule": "passed",
        "gradient": "passed",
        "gradient dtypes": "passed",
        "body": "passed",
        "lock": "not checked",
    }, render(results)
    assert exit_code(results) == 0
    gradient = next(r for r in results if r.check == "gradient")
    assert "2 samples" in gradient.detail
    assert "not smooth" in gradient.detail


# --- declaration ----------------------------------------------------------------------------------------------


def test_a_missing_fake_kernel_and_missing_samples_are_told_with_what_to_write() -> None:
    op = declare(softcap_reference)
    result = checked(op, "declaration")
    assert result.status == "failed"
    assert "@softcap_reference.fake" in result.detail
    assert "@softcap_reference.samples" in result.detail


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (lambda draw: [], "yields nothing"),
        (lambda draw: [draw(3, 4) @ draw(5, 6)], "cannot be drawn"),
        (lambda draw: [(draw(3), "cap")], "cap"),
        (lambda draw: [draw(3, dtype="int64", high=3)], "`x` is int64, which `dtypes` does not list"),
    ],
)
def test_bad_samples_are_found(samples: Any, reason: str) -> None:
    result = checked(softcap(samples=samples), "declaration")
    assert result.status == "failed"
    assert reason in result.detail


def test_a_reference_that_raises_for_a_sample_is_found() -> None:
    def reference(x: Tensor, cap: float = 2.0) -> Tensor:
        if x.dim() == 1:
            raise IndexError("no second dim")
        return cap * torch.tanh(x / cap)

    result = checked(softcap(reference), "declaration")
    assert result.status == "failed"
    assert (
        "sample 1 in float32 (x: [4], cap: 0.5) and 7 more: the reference raises IndexError: no second dim"
        in result.detail
    )


def test_samples_that_fail_in_one_dtype_only_are_found() -> None:
    def reference(x: Tensor, cap: float = 2.0) -> Tensor:
        if x.dtype == torch.bfloat16:
            raise TypeError("no bfloat16 here")
        return cap * torch.tanh(x / cap)

    result = checked(softcap(reference), "declaration")
    assert result.status == "failed"
    assert "in bfloat16" in result.detail


# --- fake, shape rule, opcheck --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fake", "words"),
    [
        (
            lambda x, cap=2.0: x.new_empty(x.shape, dtype=torch.float32),
            "is float32 by the fake kernel, float64",
        ),
        (
            lambda x, cap=2.0: x.new_empty(*x.shape, 1),
            "is (3, 5, 1) by the fake kernel, (3, 5) by the reference",
        ),
        (lambda x, cap=2.0: x.new_empty(3, 5), "is (3, 5) by the fake kernel, (4) by the reference"),
        (lambda x, cap=2.0: x.undefined, "the fake kernel raises AttributeError"),
    ],
)
def test_a_wrong_fake_kernel_is_found(fake: Any, words: str) -> None:
    op = softcap(fake=fake)
    result = checked(op, "fake")
    assert result.status == "failed"
    assert words in result.detail
    assert checked(op, "shape rule") == CheckResult(
        op.name, "shape rule", "not checked", "the fake kernel is wrong (see fake)"
    )
    assert "with the fake kernel" in checked(op, "opcheck").detail


def test_a_fake_kernel_that_cannot_take_symbolic_sizes_is_found() -> None:
    def fake(x: Tensor, cap: float = 2.0) -> Tensor:
        if any(not isinstance(s, int) for s in x.shape):
            raise TypeError("sizes must be ints")
        return torch.empty_like(x)

    op = softcap(fake=fake)
    assert checked(op, "fake").status == "passed"
    result = checked(op, "shape rule")
    assert result.status == "failed"
    assert "must accept symbolic sizes" in result.detail


def test_a_rule_with_unknown_dims_says_how_many() -> None:
    def reference(x: Tensor) -> Tensor:
        return x.nonzero().contiguous()

    op = declare(reference)
    op.fake(lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size(), x.dim(), dtype=torch.int64))
    op.samples(lambda draw: [draw(3, 4), draw(5)])
    assert checked(op, "fake").status == "passed"
    result = checked(op, "shape rule")
    assert result.status == "passed"
    assert "5 of 10 output dims have a formula" in result.detail
    assert checked(op, "opcheck").status == "passed"
    assert checked(op, "gradient").status == "not checked"


@pytest.mark.parametrize("first", ["whole numbers", "a mask"])
def test_whole_numbers_before_floating_ones_pass_opchecks_compile_test(first: str) -> None:
    def reference(x: Tensor) -> tuple[Tensor, Tensor]:
        places = x.argsort(dim=-1, stable=True)
        return places if first == "whole numbers" else x > 0, x * x

    def fake(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.empty_like(
            x, dtype=torch.int64 if first == "whole numbers" else torch.bool
        ), torch.empty_like(x)

    op = declare(reference, dtypes=("float32", "float64"))
    op.fake(fake)
    op.samples(lambda draw: [draw(3, 5)])
    assert checked(op, "opcheck").status == "passed", checked(op, "opcheck").detail


def test_a_backward_that_cannot_be_compiled_is_found_where_whole_numbers_come_first() -> None:
    def reference(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x > 0).int(), x * x

    def backward(grad_mask: Tensor, grad: Tensor, x: Tensor) -> Tensor:
        return 2 * x * grad if float(grad.sum()) > -1e9 else grad  # reads the data

    op = declare(reference, dtypes=("float32", "float64"))
    op.fake(lambda x: (torch.empty_like(x, dtype=torch.int32), torch.empty_like(x)))
    op.backward(backward)
    op.samples(lambda draw: [draw(3, 5)])
    result = checked(op, "opcheck")
    assert (result.status, "test_aot_dispatch_dynamic" in result.detail) == ("failed", True), result.detail


def test_a_wrong_number_of_outputs_is_found() -> None:
    def reference(xs: list[Tensor]) -> list[Tensor]:
        return [x * 2 for x in xs]

    for extra, status in ((0, "passed"), (1, "failed")):
        op = declare(reference)
        op.fake(lambda xs, extra=extra: [torch.empty_like(x) for x in [*xs, *xs[:1] * extra]])
        op.samples(lambda draw: [([draw(2), draw(3)],)])
        assert checked(op, "fake").status == status


# --- gradient -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backward", "words"),
    [
        (lambda g, x, cap: g * (1 + torch.tanh(x / cap) ** 2), "finite differences 0.36"),
        (lambda g, x, cap: None, "the backward gives None for `x`"),
        (lambda g, x, cap: (g, g), "2 gradients; the operator has 1 tensor arguments"),
        (lambda g, x, cap: g.sum(), "of shape () for `x`"),
        (lambda g, x, cap: g.missing, "missing"),
    ],
)
def test_a_wrong_gradient_is_found(backward: Any, words: str) -> None:
    result = checked(softcap(backward=backward), "gradient")
    assert result.status == "failed"
    assert words in result.detail
    assert "correct the backward function" in result.detail


def test_a_gradient_that_does_not_run_in_half_is_found() -> None:
    def backward(g: Tensor, x: Tensor, cap: float) -> Tensor:
        weights = torch.ones(g.shape[-1], g.shape[-1], dtype=torch.promote_types(x.dtype, torch.float32))
        return g @ weights * 0 + g * (1 - torch.tanh(x / cap) ** 2)

    op = softcap(backward=backward)
    assert checked(op, "gradient").status == "passed"
    result = checked(op, "gradient dtypes")
    assert result.status == "failed"
    assert "in float16" in result.detail
    assert "must run in every declared dtype" in result.detail


def test_a_kink_is_left_out_where_the_sample_says_so_and_found_where_not() -> None:
    def reference(x: Tensor) -> Tensor:
        return x.relu()

    for smooth, status in ((True, "failed"), (False, "passed")):
        op = declare(reference)
        op.fake(lambda x: torch.empty_like(x))
        op.samples(
            lambda draw, smooth=smooth: [
                draw.call(draw.values(0.0, 1.0), smooth=smooth),
                draw.values(2.0, 3.0),
            ]
        )
        result = checked(op, "gradient")
        assert result.status == status
        assert smooth or "sample not smooth" in result.detail


def test_keyword_arguments_after_absent_ones_reach_the_operator() -> None:
    def reference(x: Tensor, w: Tensor | None = None, mode: str = "a", *, k: float = 1.0) -> Tensor:
        return x * k if mode == "b" else x + k

    op = declare(reference)
    op.fake(lambda x, w=None, mode="a", *, k=1.0: torch.empty_like(x))
    op.samples(lambda draw: [draw.call(draw(3), mode="b", k=2.0)])
    results = check_operator(op)
    assert not [r for r in results if r.status == "failed"], render(results)


def test_what_has_no_gradient_is_not_checked() -> None:
    def reference(x: Tensor) -> Tensor:
        return x.argmax()

    op = declare(reference)
    op.fake(lambda x: x.new_empty((), dtype=torch.int64))
    op.samples(lambda draw: [draw(3)])
    assert checked(op, "gradient") == CheckResult(
        op.name, "gradient", "not checked", "no differentiable output"
    )
    single = softcap(dtypes=("float32",))
    assert "float64 is not declared" in checked(single, "gradient").detail
    assert checked(single, "gradient dtypes").status == "passed"


# --- body -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda op, x, cap: op.Mul(op.Tanh(x), cap), "where the reference in float64 has"),
        (lambda op, x, cap: op.Mul(op.Tanh(op.Div(x, cap)), 1.999), "ULP of that number, allowed are"),
        (
            lambda op, x, cap: op.Unsqueeze(op.Mul(op.Tanh(op.Div(x, cap)), cap), op.tensor([0], "int64")),
            "its shape is",
        ),
        (lambda op, x, cap: op.Clip(op.Mul(op.Tanh(op.Div(x, cap)), cap), -1.0, 1.0), "ULP"),
        (lambda op, x, cap: op.Where(op.IsNaN(x), 0.0, op.Mul(op.Tanh(op.Div(x, cap)), cap)), "nan"),
        (lambda op, x, cap: op.cast(op.Mul(op.Tanh(op.Div(x, cap)), cap), "float32"), "op.cast(y, x.dtype)"),
        (lambda op, x, cap: op.Tanhh(x), "has no such operator"),
        (lambda op, x, cap: (x, x), "returned a tuple of 2 (tensor, tensor); expected one tensor, `y`"),
    ],
)
def test_a_wrong_body_is_found(body: Any, words: str) -> None:
    result = checked(softcap(body=body), "body")
    assert result.status == "failed"
    assert words in result.detail


def test_no_body_is_not_checked() -> None:
    assert checked(softcap(body=None), "body") == CheckResult(
        f"t_check::op{next(_numbers) - 1}", "body", "not checked", "no body"
    )


def test_one_huge_element_hides_no_error() -> None:
    def reference(x: Tensor) -> Tensor:
        return x * 1.0

    for factor, status in ((1.0, "passed"), (1.001, "failed")):
        op = declare(reference, dtypes=("float32", "float64"))
        op.fake(lambda x: torch.empty_like(x))
        op.body(_scaled(factor))
        op.samples(lambda draw: [draw.values(1e30, 1.0, 2.0, 3.0)])
        assert checked(op, "body").status == status


def _scaled(factor: float) -> Callable[..., Any]:
    return lambda op, x: op.Where(op.Less(x, 10.0), op.Mul(x, factor), x)


def test_whole_numbers_are_compared_exactly() -> None:
    def reference(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        return index * 3, x > 0

    for factor, status in ((3, "passed"), (4, "failed")):
        op = declare(reference, dtypes={"x": ("float32", "float64"), "index": ("int64",)})
        op.fake(lambda x, index: (torch.empty_like(index), x.new_empty(x.shape, dtype=torch.bool)))
        op.body(_tripled(factor))
        op.samples(lambda draw: [(draw(4), draw(3, high=9, dtype="int64"))])
        results = check_operator(op)
        assert next(r for r in results if r.check == "body").status == status, render(results)
        assert next(r for r in results if r.check == "declaration").status == "passed"


def _tripled(factor: int) -> Callable[..., Any]:
    return lambda op, x, index: (op.Mul(index, factor), op.Greater(x, 0.0))


def test_a_missing_kernel_of_the_runtime_is_not_checked_with_the_reason() -> None:
    """ONNX Runtime has Softsign in float32 only; standard ONNX has it in float64 too."""

    def reference(x: Tensor) -> Tensor:
        return x / (1 + x.abs())

    op = declare(reference, dtypes=("float64", "float32"))
    op.fake(lambda x: torch.empty_like(x))
    op.body(lambda op, x: op.Softsign(x))
    op.samples(lambda draw: [draw(2, 3)])
    result = checked(op, "body")
    assert result.status == "passed"
    assert result.detail == "1 run; not checked: float64: ONNX Runtime has no kernel for Softsign(1)"


def test_without_onnx_runtime_onnxs_own_evaluator_runs_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_check, "find_spec", lambda name: None)
    body_check._runner.cache_clear()
    try:
        assert checked(softcap(), "body").status == "passed"
        assert checked(softcap(body=lambda op, x, cap: op.Mul(op.Tanh(x), cap)), "body").status == "failed"
    finally:
        body_check._runner.cache_clear()


def test_attributes_and_lists_reach_the_body() -> None:
    def reference(xs: list[Tensor], k: float, shift: Tensor | None = None) -> list[Tensor]:
        return [x * k if shift is None else x * k + shift for x in xs]

    op = declare(reference, dtypes=("float32", "float64", "float16"))
    op.fake(lambda xs, k, shift=None: [torch.empty_like(x) for x in xs])
    op.body(
        lambda op, xs, k, shift: [op.Mul(x, k) if shift is None else op.Add(op.Mul(x, k), shift) for x in xs]
    )
    op.samples(
        lambda draw: [([draw(2), draw(3)], 0.1), ([draw(2)], 3.0, draw(1)), ([draw(2, 3)] * 3, 0.1, None)]
    )
    results = check_operator(op)
    assert not [r for r in results if r.status == "failed"], render(results)
    assert next(r for r in results if r.check == "body").status == "passed"


# --- mutation, state ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "status"), [(1.0, "passed"), (1.5, "failed")])
def test_what_a_mutating_operator_wrote_is_compared(factor: float, status: str) -> None:
    def reference(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return y * 2

    op = declare(reference, mutates=("x",))
    op.fake(lambda x, y: torch.empty_like(y))
    op.body(lambda op, x, y: (op.Mul(y, 2.0), op.Add(op.Mul(x, factor), y)))
    op.samples(lambda draw: [(draw(3), draw(3))])
    results = check_operator(op)
    assert next(r for r in results if r.check == "body").status == status, render(results)
    assert next(r for r in results if r.check == "gradient").status == "not checked"
    others = [r for r in results if r.check not in ("body",) and r.status == "failed"]
    assert not others, render(others)


def test_a_stateful_operator_is_not_compared() -> None:
    def reference(x: Tensor) -> Tensor:
        return x + torch.rand_like(x)

    op = declare(reference, stateful=True)
    op.fake(lambda x: torch.empty_like(x))
    op.body(lambda op, x: op.Add(x, op.RandomUniformLike(x)))
    op.samples(lambda draw: [draw(3)])
    results = {r.check: r for r in check_operator(op)}
    assert results["body"].detail == results["gradient"].detail == "stateful"
    assert results["fake"].status == results["opcheck"].status == "passed"


# --- lock, table ----------------------------------------------------------------------------------------------


def test_the_lock_is_compared(tmp_path: Path) -> None:
    op = softcap()
    path = tmp_path / "operators.lock.json"

    def status(o: Operator) -> CheckResult:
        return next(r for r in check_operator(o, path) if r.check == "lock")

    assert status(op).status == "not checked"
    assert "deployops ops lock" in status(op).detail
    lock.write(path, [op])
    assert status(op).status == "passed"
    path.write_text(path.read_text().replace('"default": 2.0', '"default": 3.0'))
    assert status(op).status == "failed"
    assert "raise version to 2 or restore it" in status(op).detail


def test_the_table_shows_the_worst_first_and_says_why() -> None:
    results = [
        CheckResult("a::fine", "fake", "passed", "3 runs"),
        CheckResult("a::fine", "body", "passed", "3 runs; not checked: no kernel"),
        CheckResult("b::partly", "fake", "passed", "3 runs"),
        CheckResult("b::partly", "body", "not checked", "no body"),
        CheckResult("c::broken", "fake", "failed", "sample 0: wrong\nsample 1: wrong too"),
    ]
    text = render(results)
    lines = text.splitlines()
    assert lines[0].split() == ["operator", "fake", "body"]
    assert [line.split()[0] for line in lines[2:5]] == ["c::broken", "b::partly", "a::fine"]
    assert "FAILED" in lines[2]
    assert "  c::broken · fake: sample 0: wrong\n    sample 1: wrong too" in text
    assert "  b::partly · body: no body" in text
    assert "  a::fine · body: 3 runs; not checked: no kernel" in text
    assert lines[-1] == "3 operators: 3 passed, 1 not checked, 1 failed"
    assert exit_code(results) == 1
    assert exit_code(results[:4]) == 0
