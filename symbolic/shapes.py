"""One shape rule: the operator's fake kernel, run on symbolic sizes.

The fake kernel is Python, so the formula it computes is only visible by running it. It is traced several
times with different stand-in sizes (the samples', primes, each symbol once as 1 and once as a large number);
a dim counts as known only where every trace that the kernel accepts gives the same expression. So a formula
that holds on one branch only (broadcasting of size 1, `if n > 128`) is never claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DeployOpsError
from . import dims, dtypes

if TYPE_CHECKING:
    import sympy
    import torch

    from .operator import Operator

__all__ = ["ShapeError", "TensorInfo", "infer"]

Dim = int | str | None
_PRIMES = (13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73)
_MOST_BRANCHES = 24  # further runs for an operator's comparisons
_LARGE = 4099  # prime, beyond the sizes on which kernels usually switch algorithms
_TOO_LARGE = 10**6
_UNKNOWN = "_unknown_dim_"  # how a dim is called that has no name; never shown


class ShapeError(DeployOpsError):
    """The operator refuses these input shapes, dtypes or attributes."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What is known of a tensor: torch dtype name, and dims as sizes, expressions such as `2*n`, or None.

    `dims` is None where even the rank is unknown.
    """

    dtype: str | None
    dims: tuple[Dim, ...] | None


Tensors = Mapping[str, "TensorInfo | Sequence[TensorInfo] | None"]


def infer(op: Operator, tensors: Tensors, attributes: Mapping[str, Any]) -> tuple[TensorInfo, ...]:
    """Dtypes and shapes of the outputs, lists flattened, overwritten inputs last.

    `tensors` is keyed by input name; `attributes` holds encoded ONNX values. Raises ShapeError where the
    fake kernel refuses what is completely known; where sizes are symbolic, unknown dims are returned as None.
    """
    key = _key(tensors, attributes)
    cache = op.shape_cache
    if key not in cache:
        cache[key] = _infer(op, tensors, attributes)
    found: tuple[TensorInfo, ...] = cache[key]
    return found


def _key(tensors: Tensors, attributes: Mapping[str, Any]) -> Any:
    def freeze(v: Any) -> Any:
        return tuple(freeze(e) for e in v) if isinstance(v, (list, tuple)) else v

    return (
        tuple((n, freeze(t)) for n, t in tensors.items()),
        tuple((n, type(v), freeze(v)) for n, v in sorted(attributes.items())),
    )


def _infer(op: Operator, tensors: Tensors, attributes: Mapping[str, Any]) -> tuple[TensorInfo, ...]:
    flat = [t for v in tensors.values() if v is not None for t in (v if isinstance(v, Sequence) else [v])]
    if any(t.dims is None or t.dtype is None for t in flat):
        return _unknown_outputs(op, tensors)
    named = _name_unknown_dims(tensors)
    symbols = sorted(
        {n for t in _flatten(named) for d in t.dims or () if isinstance(d, str) for n in dims.names(d)}
    )
    if not symbols:
        return tuple(_trace(op, named, attributes, {}).outputs)
    outcomes = [_attempt(op, named, attributes, sizes) for sizes in _stand_ins(op, named, symbols)]
    traces = [o for o in outcomes if isinstance(o, _Trace)]
    if not traces:
        raise next(o for o in outcomes if isinstance(o, ShapeError))
    # The kernel compared sizes with something: run it on both sides of each comparison.
    for sizes in _beyond_branches(traces):
        outcome = _attempt(op, named, attributes, sizes)
        if isinstance(outcome, _Trace):
            traces.append(outcome)
    # Where two sizes happen to be equal torch may write one for the other: ask the unequal ones first.
    traces.sort(key=lambda t: len(set(t.sizes.values())) < len(t.sizes))
    if len({len(t.outputs) for t in traces}) != 1:
        return ()
    return tuple(_agreed(traces, k) for k in range(len(traces[0].outputs)))


@dataclass(frozen=True, slots=True)
class _Trace:
    """One run of the fake kernel: what came out as expressions, and as the sizes they have in this run."""

    sizes: Mapping[str, int]
    outputs: Sequence[TensorInfo]
    values: Sequence[tuple[int | None, ...]]  # None where data decides
    branches: Sequence[tuple[str, int]]  # sizes of a symbol at which a comparison would turn out otherwise


def _attempt(
    op: Operator, tensors: Tensors, attributes: Mapping[str, Any], sizes: Mapping[str, int]
) -> _Trace | ShapeError:
    try:
        return _trace(op, tensors, attributes, sizes)
    except ShapeError as e:
        return e


def _flatten(tensors: Tensors) -> Iterator[TensorInfo]:
    for value in tensors.values():
        if isinstance(value, TensorInfo):
            yield value
        elif value is not None:
            yield from value


def _name_unknown_dims(tensors: Tensors) -> dict[str, TensorInfo | list[TensorInfo] | None]:
    count = iter(range(10_000))

    def name(t: TensorInfo) -> TensorInfo:
        return TensorInfo(
            t.dtype, tuple(f"{_UNKNOWN}{next(count)}" if d is None else d for d in t.dims or ())
        )

    return {
        n: None if v is None else name(v) if isinstance(v, TensorInfo) else [name(t) for t in v]
        for n, v in tensors.items()
    }


def _agreed(traces: Sequence[_Trace], k: int) -> TensorInfo:
    """What all traces say of output k: for each dim an expression that is right in every trace."""
    outputs = [t.outputs[k] for t in traces]
    dtype = outputs[0].dtype if all(o.dtype == outputs[0].dtype for o in outputs) else None
    shapes = [o.dims or () for o in outputs]
    if len({len(s) for s in shapes}) != 1:
        return TensorInfo(dtype, None)

    def value(dim: Dim, trace: _Trace) -> int | None:
        try:
            return dims.evaluate(dim, trace.sizes) if isinstance(dim, str) else dim
        except (KeyError, ValueError):  # arithmetic with a name that is no identifier, `2*input.1`
            return None

    def settle(axis: int) -> Dim:
        for candidate in dict.fromkeys(s[axis] for s in shapes):
            if candidate is None or (isinstance(candidate, str) and _UNKNOWN in candidate):
                continue
            if all(value(candidate, t) == t.values[k][axis] is not None for t in traces):
                return candidate
        return None

    return TensorInfo(dtype, tuple(settle(axis) for axis in range(len(shapes[0]))))


def _stand_ins(op: Operator, tensors: Tensors, symbols: Sequence[str]) -> Iterator[dict[str, int]]:
    """Sizes to trace with: realistic ones first, then each symbol as 1 and as a large number."""
    bases = [{s: _PRIMES[i % len(_PRIMES)] for i, s in enumerate(symbols)}]
    bases += [s for shapes in op.sample_shapes() if (s := _matching(tensors, shapes, symbols))]
    unique = [dict(t) for t in dict.fromkeys(tuple(sorted(b.items())) for b in bases)]
    # A few samples cover the shapes; every further one costs milliseconds and tells nothing new.
    for base in unique[:4]:
        yield base
        for symbol in symbols:
            for size in (1, _LARGE):
                yield base | {symbol: size}
    yield dict.fromkeys(symbols, 8)


def _beyond_branches(traces: Sequence[_Trace]) -> Iterator[dict[str, int]]:
    """Sizes not tried yet, at and around those on which the kernel decided something."""
    tried = {tuple(sorted(t.sizes.items())) for t in traces}
    base = traces[0].sizes
    for symbol, size in dict.fromkeys(b for t in traces for b in t.branches):
        sizes = {**base, symbol: size}
        if tuple(sorted(sizes.items())) not in tried:
            tried.add(tuple(sorted(sizes.items())))
            yield sizes
        if len(tried) > len(traces) + _MOST_BRANCHES:
            return


def _matching(tensors: Tensors, shapes: Mapping[str, Any], symbols: Sequence[str]) -> dict[str, int] | None:
    """The sizes that a sample gives to the symbols, if its inputs have these ranks."""
    sizes: dict[str, int] = {}
    for name, value in tensors.items():
        ours = [value] if isinstance(value, TensorInfo) else list(value or ())
        theirs = shapes.get(name)
        theirs = [] if theirs is None else theirs if isinstance(theirs, list) else [theirs]
        if len(ours) != len(theirs):
            return None
        for t, shape in zip(ours, theirs, strict=True):
            if len(t.dims or ()) != len(shape):
                return None
            for d, size in zip(t.dims or (), shape, strict=True):
                named = isinstance(d, str) and d in symbols
                if named and (size == 0 or sizes.setdefault(str(d), size) != size):
                    return None
    return sizes if set(sizes) == set(symbols) else None


def _trace(op: Operator, tensors: Tensors, attributes: Mapping[str, Any], sizes: Mapping[str, int]) -> _Trace:
    """Run the fake kernel once, symbols standing for `sizes`. The dims come back as expressions."""
    import torch
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    ints: dict[str, Any] = {}
    originals: dict[Any, str] = {}
    for k, (name, size) in enumerate(sizes.items()):
        symbol = env.create_symbol(
            size, source=ConstantSource(f"d{k}"), dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None
        )
        originals[symbol] = name
        ints[name] = env.create_symintnode(symbol, hint=size)

    def fake(t: TensorInfo) -> torch.Tensor:
        shape: list[Any] = [dims.evaluate(d, ints) if isinstance(d, str) else d for d in t.dims or ()]
        return torch.empty(shape, dtype=dtypes.torch_dtype(t.dtype or "float32"))

    with mode:
        try:
            given = {
                n: None if v is None else fake(v) if isinstance(v, TensorInfo) else [fake(t) for t in v]
                for n, v in tensors.items()
            }
            args, kwargs = op.interface.call_arguments(given, attributes)
            with torch.no_grad():
                result = op.overload(*args, **kwargs)
        except Exception as e:  # whatever the user's fake kernel raises is its refusal
            raise ShapeError(f"{op.name} refuses {_describe(tensors, sizes)}: {_reason(e)}") from e
    outputs = op.flatten_outputs(result, given)
    return _Trace(
        sizes,
        [TensorInfo(dtypes.name_of(t.dtype), tuple(_dim(s, originals) for s in t.shape)) for t in outputs],
        [tuple(_value(s, originals, sizes) for s in t.shape) for t in outputs],
        [b for guard in env.guards for b in _turning_points(guard.expr, originals, sizes)],
    )


def _turning_points(
    condition: sympy.Basic, originals: Mapping[Any, str], sizes: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """Sizes of single symbols around which a comparison such as `2*n > m` changes its answer."""
    import sympy

    here = {s: sizes[name] for s, name in originals.items()}
    for symbol in condition.free_symbols & set(originals):
        roots = {int(c) for c in condition.atoms(sympy.Integer)}  # for `n % 3 == 0`, `n // 2 == 64`
        if isinstance(condition, sympy.core.relational.Relational):
            line = (condition.lhs - condition.rhs).xreplace({s: v for s, v in here.items() if s != symbol})
            slope = line.coeff(symbol)
            rest = sympy.expand(line - slope * symbol)
            if slope != 0 and rest.is_Integer:
                roots.add(int(-rest // slope))
        for root in sorted(roots):
            yield from (
                (originals[symbol], size) for size in (root, root - 1, root + 1) if 0 < size < _TOO_LARGE
            )


def _value(size: Any, originals: Mapping[Any, str], sizes: Mapping[str, int]) -> int | None:
    """A size in this run; None where data decides."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if not expression.free_symbols <= set(originals):
        return None
    return int(expression.xreplace({s: sizes[originals[s]] for s in expression.free_symbols}))


def _dim(size: Any, originals: Mapping[Any, str]) -> Dim:
    import sympy

    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_Integer:
        return int(expression)
    free = expression.free_symbols
    if not free <= set(originals):
        return None  # data-dependent
    named = {s: sympy.Symbol(originals[s], integer=True, nonnegative=True) for s in free}
    try:
        return dims.to_text(expression.xreplace(named))
    except ValueError:  # a size that ONNX text cannot say
        return None


def _unknown_outputs(op: Operator, tensors: Tensors) -> tuple[TensorInfo, ...]:
    """An input of unknown rank: the number of outputs is all that can be said."""
    if any(o.form == "variadic" for o in op.interface.outputs):
        return ()
    known = {n: t.dtype for n, t in tensors.items() if isinstance(t, TensorInfo)}
    return tuple(TensorInfo(op.output_dtype(o.name, known), None) for o in op.interface.outputs)


def _describe(tensors: Tensors, sizes: Mapping[str, int]) -> str:
    def one(t: TensorInfo) -> str:
        shape = ",".join(
            str(d) if d is None or not str(d).startswith(_UNKNOWN) else "?" for d in t.dims or ()
        )
        return f"{t.dtype}[{shape}]"

    parts = [
        f"{n}: {one(v) if isinstance(v, TensorInfo) else '[' + ', '.join(map(one, v)) + ']'}"
        for n, v in tensors.items()
        if v is not None
    ]
    where = ", ".join(f"{n}={s}" for n, s in sizes.items() if not n.startswith(_UNKNOWN))
    return ", ".join(parts) + (f" (tried {where})" if where else "")


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
