"""One shape rule: the operator's fake kernel, run on symbolic sizes.

The fake kernel is Python, so the formula it computes is only visible by running it. It is run several times
with different stand-in sizes (primes, the samples', each symbol once as 1), and again on both sides of every
comparison of sizes that it made. A dim counts as known only where all runs give the same expression, but for
those of special sizes (`n == 1`), in which it must be right. So a formula that holds on one branch only
(broadcasting of size 1, `if n > 128`) is never claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import dims
from .data_sizes import DataSizes
from .fake_run import UNKNOWN, Dim, FakeRun, ShapeError, TensorInfo, Tensors, run_fake

if TYPE_CHECKING:
    from .operator import Operator

__all__ = ["Dim", "ShapeError", "TensorInfo", "infer"]

_PRIMES = (13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73)
_MOST_BASES = 4
_MOST_RUNS = 80  # of the fake kernel for one question; each takes milliseconds
_LARGE = 4099  # prime, beyond the sizes on which kernels usually switch algorithms


def infer(
    op: Operator, tensors: Tensors, attributes: Mapping[str, Any], data_sizes: DataSizes = "unknown"
) -> tuple[TensorInfo, ...]:
    """Dtypes and shapes of the outputs, lists flattened, overwritten inputs last.

    `tensors` is keyed by input name; `attributes` holds encoded ONNX values. Raises ShapeError where the
    fake kernel refuses what is completely known; where sizes are symbolic, unknown dims are returned as None.
    So are those that the data decides, or what `data_sizes` says of them (`run_fake`).
    """
    key = (_key(tensors, attributes), data_sizes)
    cache = op.shape_cache
    if key not in cache:
        cache[key] = _infer(op, tensors, attributes, data_sizes)
    found: tuple[TensorInfo, ...] = cache[key]
    return found


def _key(tensors: Tensors, attributes: Mapping[str, Any]) -> Any:
    def freeze(v: Any) -> Any:
        return tuple(freeze(e) for e in v) if isinstance(v, (list, tuple)) else v

    return (
        tuple((n, freeze(t)) for n, t in tensors.items()),
        tuple((n, type(v), freeze(v)) for n, v in sorted(attributes.items())),
    )


def _infer(
    op: Operator, tensors: Tensors, attributes: Mapping[str, Any], data_sizes: DataSizes
) -> tuple[TensorInfo, ...]:
    flat = [t for v in tensors.values() if v is not None for t in (v if isinstance(v, Sequence) else [v])]
    if any(t.dims is None or t.dtype is None for t in flat):
        return _unknown_outputs(op, tensors)
    named = _name_unknown_dims(tensors)
    symbols = sorted(
        {n for t in _flatten(named) for d in t.dims or () if isinstance(d, str) for n in dims.names(d)}
    )
    if not symbols:
        return tuple(run_fake(op, named, attributes, {}, data_sizes).outputs)
    runs: list[FakeRun] = []
    refusal = None
    for choose in (_stand_ins(op, named, symbols), _each_as_one(runs), _beyond_branches(runs)):
        for sizes in choose:
            outcome = _attempt(op, named, attributes, sizes, data_sizes)
            if isinstance(outcome, FakeRun):
                runs.append(outcome)
            refusal = refusal or (outcome if isinstance(outcome, ShapeError) else None)
        if not runs:
            raise refusal or ShapeError(f"{op.name} accepts no sizes")
    if len({len(t.outputs) for t in runs}) != 1:
        return ()
    return tuple(_agreed(runs, k) for k in range(len(runs[0].outputs)))


def _attempt(
    op: Operator,
    tensors: Tensors,
    attributes: Mapping[str, Any],
    sizes: Mapping[str, int],
    data_sizes: DataSizes,
) -> FakeRun | ShapeError:
    try:
        return run_fake(op, tensors, attributes, sizes, data_sizes)
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
        return TensorInfo(t.dtype, tuple(f"{UNKNOWN}{next(count)}" if d is None else d for d in t.dims or ()))

    return {
        n: None if v is None else name(v) if isinstance(v, TensorInfo) else [name(t) for t in v]
        for n, v in tensors.items()
    }


def _agreed(runs: Sequence[FakeRun], k: int) -> TensorInfo:
    """What all runs say of output k: for each dim an expression that is right in every run."""
    outputs = [t.outputs[k] for t in runs]
    dtype = outputs[0].dtype if all(o.dtype == outputs[0].dtype for o in outputs) else None
    shapes = [o.dims or () for o in outputs]
    if len({len(s) for s in shapes}) != 1:
        return TensorInfo(dtype, None)

    def value(dim: Dim, run: FakeRun) -> int | None:
        try:
            return dims.evaluate(dim, run.sizes) if isinstance(dim, str) else dim
        except (KeyError, ValueError):  # arithmetic with a name that is no identifier, `2*input.1`
            return None

    def settle(axis: int) -> Dim:
        for candidate in dict.fromkeys(s[axis] for s in shapes):
            if candidate is None or (isinstance(candidate, str) and UNKNOWN in candidate):
                continue
            if all(
                (t.special or s[axis] == candidate) and value(candidate, t) == t.values[k][axis] is not None
                for s, t in zip(shapes, runs, strict=True)
            ):
                return candidate
        return None

    return TensorInfo(dtype, tuple(settle(axis) for axis in range(len(shapes[0]))))


def _stand_ins(op: Operator, tensors: Tensors, symbols: Sequence[str]) -> Iterator[dict[str, int]]:
    """Sizes to run with: all different, the samples', all large, all equal (to a size that is given, too)."""
    bases = [{s: _PRIMES[i % len(_PRIMES)] for i, s in enumerate(symbols)}]
    bases += [s for shapes in op.sample_shapes() if (s := _matching(tensors, shapes, symbols))]
    unique = [dict(t) for t in dict.fromkeys(tuple(sorted(b.items())) for b in bases)]
    # A few samples cover the shapes; every further one costs milliseconds and tells nothing new.
    yield from unique[:_MOST_BASES]
    yield {s: _LARGE + 2 * i for i, s in enumerate(symbols)}
    given = {d for t in _flatten(tensors) for d in t.dims or () if isinstance(d, int) and d > 1}
    for size in (8, *sorted(given)[:_MOST_BASES], 1):
        yield dict.fromkeys(symbols, size)


def _each_as_one(runs: Sequence[FakeRun]) -> Iterator[dict[str, int]]:
    """Each symbol once as 1: broadcasting is decided there, and torch does not always record that it asked."""
    base = runs[0].sizes
    yield from ({**base, symbol: 1} for symbol in base)


def _beyond_branches(runs: Sequence[FakeRun]) -> Iterator[dict[str, int]]:
    """Sizes not tried yet, at and around those on which the kernel decided something."""
    tried = {tuple(sorted(r.sizes.items())) for r in runs}
    base = runs[0].sizes
    turns = dict.fromkeys(b for r in runs for b in r.branches)
    for symbol, size in turns:
        sizes = {**base, symbol: size}
        if tuple(sorted(sizes.items())) not in tried:
            tried.add(tuple(sorted(sizes.items())))
            yield sizes
        if len(tried) > _MOST_RUNS:
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


def _unknown_outputs(op: Operator, tensors: Tensors) -> tuple[TensorInfo, ...]:
    """An input of unknown rank: the number of outputs is all that can be said."""
    if any(o.form == "variadic" for o in op.interface.outputs):
        return ()
    known = {n: t.dtype for n, t in tensors.items() if isinstance(t, TensorInfo)}
    return tuple(TensorInfo(op.output_dtype(o.name, known), None) for o in op.interface.outputs)
