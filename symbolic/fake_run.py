"""One run of an operator's fake kernel, with symbols standing for sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DeployOpsError
from . import dims, dtypes
from .data_sizes import BoundError, DataSizes, SizesRefused, bounded, handed_out, size_name
from .shape_inputs import reading_mode
from .torch_logs import quiet

if TYPE_CHECKING:
    import sympy
    import torch
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from .operator import Operator

__all__ = ["UNKNOWN", "Dim", "FakeRun", "ShapeError", "TensorInfo", "Tensors", "run_fake"]

Dim = int | str | None
UNKNOWN = "_unknown_dim_"  # how a dim is called that has no name; never shown
_TOO_LARGE = 10**6
_DATA_SIZE = 11  # a stand-in: no arithmetic of the fake kernel should depend on it


class ShapeError(DeployOpsError):
    """The operator refuses these input shapes, dtypes or attributes."""


class SizeRefusal(ShapeError, BoundError):
    """`@op.bound` or `@op.usual` refuses them (an IndexError or a ValueError), as it may for other numbers of dims."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What is known of a tensor: torch dtype name, and dims as sizes, expressions such as `2*n`, or None.

    `dims` is None where even the rank is unknown.
    """

    dtype: str | None
    dims: tuple[Dim, ...] | None


Tensors = Mapping[str, "TensorInfo | Sequence[TensorInfo] | None"]


@dataclass(frozen=True, slots=True)
class FakeRun:
    """One run of the fake kernel: what came out as expressions, and as the sizes they have in this run."""

    sizes: Mapping[str, int]
    outputs: Sequence[TensorInfo]
    values: Sequence[tuple[int | None, ...]]  # None where data decides
    branches: Sequence[tuple[str, int]]  # sizes of a symbol at which a comparison would turn out otherwise
    special: bool  # it holds for one size only (`n == 1`, `n == m`), where torch may write one for the other


def run_fake(
    op: Operator,
    tensors: Tensors,
    attributes: Mapping[str, Any],
    sizes: Mapping[str, int],
    data_sizes: DataSizes = "unknown",
) -> FakeRun:
    """Run the fake kernel once, symbols standing for `sizes`. The dims come back as expressions.

    `data_sizes`: what the sizes that the data decides are: unknown (None), names of their own, or as declared. But for
    the first, the dims of a shape input in `tensors` are its values.
    """
    import contextlib

    import torch
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
    mode = reading_mode(env)
    mode.cache_enabled = False  # every run has a shape environment of its own: nothing would ever be found
    ints: dict[str, Any] = {}
    originals: dict[Any, str] = {}

    def named(name: str, size: int) -> Any:
        source = ConstantSource(f"d{len(originals)}")
        symbol = env.create_symbol(
            size, source=source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None, positive=None
        )
        originals[symbol] = name
        return env.create_symintnode(symbol, hint=size)

    for name, size in sizes.items():
        ints[name] = named(name, size)

    def fake(name: str, t: TensorInfo) -> torch.Tensor:
        shape: list[Any] = [dims.evaluate(d, ints) if isinstance(d, str) else d for d in t.dims or ()]
        dtype = dtypes.torch_dtype(t.dtype or "float32")
        if name not in op.shape_inputs or data_sizes == "unknown":
            return torch.empty(shape, dtype=dtype)
        values = torch.empty(len(shape), dtype=dtype)
        mode.remember(values, list(shape))
        return values

    with mode, quiet():
        try:
            given = {
                n: None if v is None else fake(n, v) if isinstance(v, TensorInfo) else [fake(n, t) for t in v]
                for n, v in tensors.items()
            }
            # what torch itself asked while making the inputs is no branch of the kernel
            asked = len(env.guards)
            args, kwargs = op.interface.call_arguments(given, attributes)
            with torch.no_grad(), contextlib.ExitStack() as stack:
                if data_sizes == "named":
                    stack.enter_context(handed_out(lambda n: named(size_name(n), _DATA_SIZE + 2 * n)))
                elif data_sizes != "unknown":
                    declared = bounded(op, data_sizes, _by_name(op, args, kwargs))
                    try:
                        stack.enter_context(declared)
                    except SizesRefused as e:
                        raise SizeRefusal(
                            f"{op.name}: @op.{e.which} raises {_reason(e)}",
                            True,
                            _describe(tensors, sizes),
                        ) from e
                result = op.overload(*args, **kwargs)
        except SizeRefusal:
            raise
        except BoundError as e:
            raise e.at(_describe(tensors, sizes)) from e.__cause__
        except Exception as e:  # whatever the user's fake kernel raises is its refusal
            raise ShapeError(f"{op.name} refuses {_describe(tensors, sizes)}: {_reason(e)}") from e
    outputs = op.flatten_outputs(result, given)
    return FakeRun(
        sizes,
        [TensorInfo(dtypes.name_of(t.dtype), tuple(_dim(s, originals) for s in t.shape)) for t in outputs],
        [tuple(_value(s, originals, sizes) for s in t.shape) for t in outputs],
        [b for guard in env.guards[asked:] for b in _turning_points(guard.expr, originals, sizes)],
        any(_pins(guard.expr) for guard in env.guards) or any(_pinned(env, symbol) for symbol in originals),
    )


def _by_name(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    positional = [n for n in op.interface.arguments if n not in op.interface.keyword_only]
    return dict(zip(positional, args, strict=True)) | dict(kwargs)


def _pins(condition: sympy.Basic) -> bool:
    """Whether a condition is an equation of sizes; `n % 3 == 0` holds for many."""
    import sympy

    return isinstance(condition, sympy.Eq) and not condition.has(sympy.Function)


def _pinned(env: ShapeEnv, symbol: Any) -> bool:
    """Whether what was decided leaves one size: `n < 1` leaves 0, and torch writes 0 for n."""
    return bool(env.replace(symbol) != symbol or env.var_to_range[symbol].is_singleton())


def _turning_points(
    condition: sympy.Basic, originals: Mapping[Any, str], sizes: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """Sizes of single symbols around which a comparison such as `2*n > m` changes its answer."""
    import sympy

    here = {s: sizes[name] for s, name in originals.items() if name in sizes}
    for symbol in condition.free_symbols & set(here):
        roots = {int(c) for c in condition.atoms(sympy.Integer)}  # for `n % 3 == 0`, `n // 2 == 64`
        if isinstance(condition, sympy.core.relational.Relational):
            line = (condition.lhs - condition.rhs).xreplace({s: v for s, v in here.items() if s != symbol})
            slope = line.coeff(symbol)
            rest = sympy.expand(line - slope * symbol)
            if slope != 0 and rest.is_Integer:
                roots.add(int(-rest // slope))
        for root in sorted(roots):
            yield from (
                (originals[symbol], size) for size in (root, root - 1, root + 1) if 0 <= size < _TOO_LARGE
            )


def _value(size: Any, originals: Mapping[Any, str], sizes: Mapping[str, int]) -> int | None:
    """A size in this run; None where data decides."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if not expression.free_symbols <= set(originals):
        return None
    values = {s: sizes.get(originals[s]) for s in expression.free_symbols}
    return None if None in values.values() else int(expression.xreplace(values))


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


def _describe(tensors: Tensors, sizes: Mapping[str, int]) -> str:
    def one(t: TensorInfo) -> str:
        shape = ",".join(str(d) if d is None or not str(d).startswith(UNKNOWN) else "?" for d in t.dims or ())
        return f"{t.dtype}[{shape}]"

    parts = [
        f"{n}: {one(v) if isinstance(v, TensorInfo) else '[' + ', '.join(map(one, v)) + ']'}"
        for n, v in tensors.items()
        if v is not None
    ]
    where = ", ".join(f"{n}={s}" for n, s in sizes.items() if not n.startswith(UNKNOWN))
    return ", ".join(parts) + (f" (tried {where})" if where else "")


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
