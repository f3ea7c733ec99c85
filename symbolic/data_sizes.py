"""Sizes that the data decides: what stands for them while the fake kernel runs.

The fake kernel asks for each with `torch.library.get_ctx().new_dynamic_size()`. They are numbered in the order in which
it asks; `@op.bound` gives the largest value of each, `@op.usual` one to tune for, in sizes of the inputs. (What it reads off
a shape input is another thing: `shape_inputs`.)
"""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..errors import DeclarationError
from .declared_functions import call_with

if TYPE_CHECKING:
    from .operator import Operator

__all__ = [
    "FORMULA_ADVICE",
    "BoundError",
    "DataSizes",
    "SizesRefused",
    "bounded",
    "handed_out",
    "size_name",
    "size_number",
]

# What the fake kernel gets for them. In all but the first, shape inputs are given by their values.
DataSizes = Literal["unknown", "named", "bound", "usual"]

_NAME = "data_size_"
_LARGEST = 2**40
_NO_DATA = "it reads the values of a tensor, which nobody knows before the kernel ran. Make it of sizes (x.shape[0], x.numel())"
_OF_SIZES = "Make it of sizes (x.shape[0], x.numel()), for every call that the fake kernel takes: without optional inputs, too"
FORMULA_ADVICE = (
    "torch.sym_max and torch.sym_min can be in a formula; max, min, len, int, math and `if` cannot"
)
_NOT_BY_ZERO = "A size may be 0: divide by torch.sym_max(…, 1)"
# What torch raises for `.item()`, `int(x.sum())` and the like, where there are no data.
_READS_DATA = ("GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException")


class BoundError(DeclarationError):
    """`@op.bound` or `@op.usual` is missing, or does not say what is needed.

    `of_sizes`: for the sizes at hand, and perhaps not for others; whoever knows them says which they are (`at`).
    """

    def __init__(self, fault: str, of_sizes: bool = False, sizes: str = "") -> None:
        super().__init__(f"{fault} (here: {sizes})" if sizes else fault)
        self.fault = fault
        self.of_sizes = of_sizes

    def at(self, sizes: str) -> BoundError:
        """The same fault, with the sizes where it is one of them."""
        return BoundError(self.fault, self.of_sizes, sizes) if self.of_sizes else self


class SizesRefused(Exception):
    """A declared function refuses these arguments; its own error is the cause. `which` of the two it is."""

    def __init__(self, which: Literal["bound", "usual"]) -> None:
        super().__init__(which)
        self.which = which


def size_name(number: int) -> str:
    """What a size is called where it stays a symbol; no argument's size is called so."""
    return f"{_NAME}{number}"


def size_number(dim: Any) -> int | None:
    """The number of the size that a dim is; None for a dim that no data decides.

    Raises BoundError for arithmetic with such a size.
    """
    if not isinstance(dim, str) or _NAME not in dim:
        return None
    if not dim.removeprefix(_NAME).isdecimal():
        raise BoundError(
            f"a dim is {dim.replace(_NAME, 'size ')}, computed from a size that the data decides: let the fake kernel ask "
            "for that dim itself (new_dynamic_size), and bound it"
        )
    return int(dim.removeprefix(_NAME))


@contextlib.contextmanager
def handed_out(size: Callable[[int], Any]) -> Iterator[list[int]]:
    """While this lasts, `new_dynamic_size()` returns `size(0)`, `size(1)`, …; yields the numbers asked for."""
    from unittest import mock

    from torch._library.fake_impl import FakeImplCtx

    asked: list[int] = []

    def new_dynamic_size(*_: Any, **__: Any) -> Any:
        asked.append(len(asked))
        return size(asked[-1])

    with mock.patch.object(FakeImplCtx, "new_dynamic_size", new_dynamic_size):
        yield asked


@contextlib.contextmanager
def bounded(op: Operator, which: Literal["bound", "usual"], arguments: Mapping[str, Any]) -> Iterator[None]:
    """While this lasts, `new_dynamic_size()` returns what is declared for these arguments: of `usual`, not beyond the bound.

    Raises BoundError where the declaration has another number of sizes than the fake kernel asks for, SizesRefused where it
    takes no such arguments.
    """
    sizes = _declared(op, which, arguments)
    if which == "usual" and sizes is not None:
        sizes = _within(op, sizes, _declared(op, "bound", arguments))

    def fault(asked: str) -> BoundError:
        if sizes is None:
            return BoundError(
                f"{op.name}: the data decides a size of an output, and how large it can be is not declared: @op.{which}"
            )
        if asked == "0":
            return BoundError(
                f"{op.name}: @op.{which} is declared, and the fake kernel asks for no size that the data decides "
                f"(torch.library.get_ctx().new_dynamic_size()): leave @op.{which} out, or let the fake kernel ask"
            )
        return BoundError(
            f"{op.name}: @op.{which} returns {_counted(str(len(sizes)), 'number')}, and the fake kernel asks for "
            f"{_counted(asked, 'size')} (new_dynamic_size): return one for each, in its order",
            of_sizes=True,
        )

    def size(number: int) -> Any:
        if sizes is None or number >= len(sizes):
            raise fault("more")
        return sizes[number]

    with handed_out(size) as asked:
        yield
    if len(asked) != len(sizes or ()):
        raise fault(str(len(asked)))


def _counted(count: str, noun: str) -> str:
    return f"{count} {noun}{'' if count == '1' else 's'}"


def _within(op: Operator, usual: Sequence[Any], bound: Sequence[Any] | None) -> tuple[Any, ...]:
    """The usual sizes, none beyond its bound: TensorRT tunes for nothing that cannot be."""
    import torch

    if bound is None:
        raise BoundError(
            f"{op.name}: @op.usual is declared without @op.bound: declare how large these sizes can be, too; memory is "
            "allocated for so many"
        )
    if len(usual) != len(bound):
        raise BoundError(
            f"{op.name}: @op.usual returns {_counted(str(len(usual)), 'number')}, and @op.bound {len(bound)}: return one for "
            "each new_dynamic_size() of the fake kernel, in its order",
            of_sizes=True,
        )
    return tuple(torch.sym_min(u, b) for u, b in zip(usual, bound, strict=True))


def _declared(
    op: Operator, which: Literal["bound", "usual"], arguments: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """What `@op.bound` or `@op.usual` says for these arguments; None where it is not declared.

    Raises BoundError where it is no number, SizesRefused where the function raises an IndexError or a ValueError.
    """
    function = op.bound_function if which == "bound" else op.usual_function
    if function is None:
        return None
    told = f"{op.name}: @op.{which}"
    try:
        result = call_with(function, (), arguments, op.interface.keyword_only)
    except (IndexError, ValueError) as e:  # of other numbers of dims, which are tried too
        raise SizesRefused(which) from e
    except Exception as e:  # whatever the user's function raises
        if type(e).__name__ in _READS_DATA:
            raise BoundError(f"{told} cannot be used: {_NO_DATA}") from e
        raise BoundError(
            f"{told} cannot be used: it raises {type(e).__name__}: {next(iter(str(e).splitlines()), '')}. "
            + (_NOT_BY_ZERO if isinstance(e, ZeroDivisionError) else _OF_SIZES),
            of_sizes=True,
        ) from e
    sizes = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return tuple(_checked(told, size) for size in sizes)


def _checked(told: str, size: Any) -> Any:
    """A size that a declaration returns, as int or torch.SymInt. Raises BoundError for anything else."""
    import torch
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    if isinstance(size, torch.Tensor) or (
        isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) and free_unbacked_symbols(size)
    ):
        raise BoundError(f"{told} cannot be used: {_NO_DATA}")
    if isinstance(size, bool) or not isinstance(size, (numbers.Integral, torch.SymInt)):
        raise BoundError(
            f"{told} returns {_shown(size)}; expected a whole number made of sizes (x.shape[0], x.numel()), or a tuple of them, "
            "one for each new_dynamic_size() of the fake kernel",
            of_sizes=True,
        )
    # of a symbol, whose size here may be any, the sign alone
    symbolic = isinstance(size, torch.SymInt)
    here: Any = size.node.hint if isinstance(size, torch.SymInt) else int(size)  # numpy has numbers too
    if isinstance(here, int) and (here < 0 or (not symbolic and here > _LARGEST)):
        cure = " (torch.sym_max(…, 0) keeps it there)" if here < 0 else ""
        raise BoundError(
            f"{told} returns {here}; expected a number of elements, from 0 to 2**40{cure}: memory is allocated for so many",
            of_sizes=True,
        )
    return size if symbolic else here


def _shown(value: Any) -> str:
    """A value that is no size, in one line and without an address."""
    if isinstance(value, (bool, float, str, type(None))):
        return f"{value!r:.60}"
    if callable(value):
        return f"a function, `{getattr(value, '__name__', type(value).__name__)}` (without brackets?)"
    import torch

    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        return "a fraction (`/` for `//`?)" if isinstance(value, torch.SymFloat) else "a comparison"
    return f"a {type(value).__name__}"
