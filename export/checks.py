"""What must hold of an exported model before anybody gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ExportError
from ..ort_ops.arrays import to_array
from ..ort_ops.engine import Engine, EngineError
from ..symbolic import dims
from .buffers import buffers_kept
from .graph.logs import quiet

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from .inputs.signature import Signature
    from .promises import Promises

__all__ = [
    "call_original",
    "check_dims",
    "check_output_sizes",
    "check_structure",
    "fill_shapes",
    "run_and_compare",
]

# Relative to the output's scale. A gross check that the graph is the model; `deployops validate` judges finely.
_CONDITION = 16  # times what an ULP in the inputs changes
_TIES = 4  # times as many integers as an ULP in the inputs changes
_TOLERANCE = {"float64": 1e-6, "float32": 2e-3, "float16": 4e-2, "bfloat16": 2e-1}


def fill_shapes(model: ir.Model) -> None:
    """Infer what the translation left open, strictly: raises ExportError where inference fails."""
    import onnx_ir.passes.common as common

    try:
        with quiet("onnx_ir.passes.common.shape_inference"):  # the checker, next, says what is wrong
            common.ShapeInferencePass(check_type=True, strict_mode=True, data_prop=True)(model)
    except Exception as e:
        raise ExportError(f"shape inference refuses the exported model: {_first_line(e)}") from e


def check_structure(model: ir.Model) -> None:
    """`onnx.checker` with full check, and a shape for every value. Raises ExportError."""
    import onnx_ir.passes.common as common

    try:
        common.CheckerPass(full_check=True, check_custom_domain=False)(model)
    except Exception as e:
        raise ExportError(f"onnx.checker refuses the exported model: {_first_line(e)}") from e
    lost = [
        f"{v.name} (from {node.domain + '::' if node.domain else ''}{node.op_type})"
        for node in model.graph
        for v in node.outputs
        if v.name
        and v.shape is None
        and v.type is not None
        and not str(v.type).startswith(("Sequence", "Optional"))
    ]
    if lost:
        raise ExportError(f"shapes are lost in the exported model, first at {', '.join(lost[:3])}")


def check_dims(model: ir.Model, signature: Signature) -> None:
    """The graph's inputs have exactly the dims that were asked for. Raises ExportError."""
    graph = {v.name: v for v in model.graph.inputs}
    for spec in signature.specs:
        value = graph.get(spec.name)
        if spec.shape is None or value is None or value.shape is None:
            continue
        for axis, dim in enumerate(value.shape):
            if axis == len(spec.shape) and spec.dtype.startswith("complex"):
                continue  # the pair of real and imaginary part
            wanted = signature.symbol_of(spec.name, axis) or spec.shape[axis]
            got = dim if isinstance(dim, int) else dim.value
            if got != wanted:
                raise ExportError(f"dim {axis} of `{spec.name}` came out as {got}; asked for was {wanted}")


def check_output_sizes(
    model: ir.Model, expected: Sequence[Any], sizes: Mapping[str, int], *, has_custom: bool
) -> None:
    """The dims written on the outputs are those of the tensors that the original returns at these sizes.

    Raises ExportError. Where the model `has_custom` operators, they come from fake kernels, and one that is wrong spoils
    what a runtime plans with them.
    """
    for value, tensor in zip(model.graph.outputs, expected, strict=False):
        shape = [*tensor.shape, 2] if tensor.is_complex() else list(tensor.shape)
        said = [d if isinstance(d, int) else _evaluated(d.value, sizes) for d in value.shape or ()]
        if len(said) != len(shape) or any(s is not None and s != t for s, t in zip(said, shape, strict=True)):
            text = ", ".join(str(d if isinstance(d, int) else d.value) for d in value.shape or ())
            at = ", ".join(f"{n}={s}" for n, s in sizes.items()) or "the given sizes"
            raise ExportError(
                f"output `{value.name}` was traced as [{text}], but the original returns {shape} at {at}"
                + (
                    ". The fake kernel of an operator before it says another shape than its kernel gives"
                    if has_custom and 1 not in sizes.values()  # torch traces as if no dim were 1
                    else ""
                )
            )


def _evaluated(dim: str | None, sizes: Mapping[str, int]) -> int | None:
    try:
        return None if dim is None else int(dims.evaluate(dim, sizes))
    except (KeyError, ValueError, TypeError):  # a size that depends on the data
        return None


def call_original(
    original: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], promises: Promises | None = None
) -> list[Any]:
    """The tensors that the original returns, in the order of the file's outputs.

    Inputs and buffers that it writes into are afterwards as they were. With `promises`, raises ExportError where a
    custom operator breaks one.
    """
    import contextlib

    import torch
    from torch.utils import _pytree as pytree

    args, kwargs = pytree.tree_map(
        lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (args, dict(kwargs))
    )
    with torch.no_grad(), buffers_kept(original), promises.watch() if promises else contextlib.nullcontext():
        result = original(*args, **kwargs)
        # copied before buffers are put back, which an output may be
        return [t.clone() for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]


def run_and_compare(
    engine: Engine,
    values: Mapping[str, Any],
    expected: Sequence[Any],
    sizes: Mapping[str, int],
    again: Callable[[Mapping[str, Any]], list[Any]],
    narrowest: str = "float64",
) -> None:
    """Run the file on `values` (by input name). Raises ExportError where it differs grossly from `expected`.

    `again` runs the original: on the same values where the two differ, because it may not agree with itself; and on
    values an ULP away, because what they change by, rounding may change the file's outputs by too. `narrowest`: of the
    dtypes that the original computes in.
    """
    at = ", ".join(f"{n}={s}" for n, s in sizes.items()) or "the given sizes"
    try:
        got = engine.run({name: to_array(values[name]) for name, _ in engine.inputs})
    except EngineError as e:
        raise ExportError(f"the exported model fails at {at}, where the original runs: {e}") from e
    if len(expected) != len(got):
        raise ExportError(
            f"the exported model returns {len(got)} tensors at {at}; the original returns {len(expected)}"
        )
    nudged: list[list[Any]] | None = None
    for k, ((name, _), theirs, ours) in enumerate(zip(engine.outputs, expected, got, strict=True)):
        fault = _difference(theirs, ours, [], narrowest)
        if fault is None:
            continue
        if _difference(again(values)[k], to_array(theirs), [], narrowest) is not None:
            raise ExportError(
                f"the original gives other numbers when it is called again with the same input, at {at}: output "
                f"`{name}`. It keeps state outside its buffers (a counter in a Python attribute?), or draws random "
                "numbers outside torch; an exported model has neither"
            )
        if nudged is None:
            nudged = [again(_nudged(values, seed)) for seed in range(4)]
        fault = _difference(theirs, ours, [n[k] for n in nudged], narrowest)
        if fault:
            raise ExportError(
                f"the exported model differs from the original at {at}: output `{name}`: {fault}"
            )


def _nudged(values: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Each floating point number as the next one above or below, at random."""
    import torch

    draw = torch.Generator().manual_seed(seed)

    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        sign = torch.randint(0, 2, value.shape, generator=draw) * 2 - 1
        return (value * (1 + sign * torch.finfo(value.dtype).eps)).to(value.dtype)

    return {name: move(value) for name, value in values.items()}


def _difference(theirs: Any, ours: np.ndarray[Any, Any], nudged: Sequence[Any], narrowest: str) -> str | None:
    """What is wrong with `ours`. `nudged`: what the original returns for inputs an ULP away."""
    import numpy as np

    expected = to_array(theirs)
    if expected.shape != ours.shape:
        return f"its shape is {ours.shape}, expected {expected.shape}"
    if expected.dtype != ours.dtype:
        return f"its dtype is {ours.dtype}, expected {expected.dtype}"
    if expected.size == 0:
        return None
    near = [n for n in map(to_array, nudged) if n.shape == expected.shape]
    tolerance = _TOLERANCE.get(str(expected.dtype))
    if tolerance is None:
        wrong = int((expected != ours).sum())
        unstable = max(
            (int((expected != n).sum()) for n in near), default=0
        )  # ties, for one: rounding decides
        return f"{wrong} of {expected.size} values differ" if wrong > _TIES * unstable else None
    tolerance = max(tolerance, _TOLERANCE[narrowest])
    a, b = expected.astype(np.float64), ours.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(
        a[~finite], b[~finite], equal_nan=True
    ):
        return "NaN or infinite values are in other places"
    with np.errstate(invalid="ignore"):  # Inf - Inf, which `where` leaves out of the maximum
        error = np.abs(a - b, where=finite, out=np.zeros_like(a)).max()
        spread = max(
            (float(np.nanmax(np.abs(n - a, where=finite, out=np.zeros_like(a)))) for n in near), default=0.0
        )
    scale = np.abs(a, where=finite, out=np.zeros_like(a)).max()
    if error > max(tolerance * max(scale, np.finfo(np.float32).tiny), _CONDITION * spread):
        return f"the largest difference is {error:.3g} where values reach {scale:.3g}"
    return None


def _first_line(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:500] if lines else type(error).__name__
