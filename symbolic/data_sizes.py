"""Sizes that the data decides: what stands for them while the fake kernel runs.

The fake kernel asks for each with `torch.library.get_ctx().new_dynamic_size()`. They are numbered in the order in which
it asks; `@op.bound` gives the largest value of each, `@op.usual` one to tune for, in sizes of the inputs. (What it reads off
a shape input is another thing: `shape_inputs`.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..errors import DeclarationError
from .declared_functions import call_with

if TYPE_CHECKING:
    from .operator import Operator

__all__ = ["BoundError", "DataSizes", "bounded", "handed_out", "size_name", "size_number"]

# What the fake kernel gets for them. In all but the first, shape inputs are given by their values.
DataSizes = Literal["unknown", "named", "bound", "usual"]

_NAME = "data_size_"
_LARGEST = 2**40
# What torch raises for `.item()`, `int(x.sum())` and the like, where there are no data.
_READS_DATA = ("GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException")


class BoundError(DeclarationError):
    """`@op.bound` or `@op.usual` is missing, or does not say what is needed."""


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
    """While this lasts, `new_dynamic_size()` returns what is declared for these arguments.

    Raises BoundError where the declaration has another number of sizes than the fake kernel asks for.
    """
    sizes = _declared(op, which, arguments)

    def fault(asked: str) -> BoundError:
        if not sizes:
            return BoundError(
                f"{op.name}: the data decides a size of an output, and how large it can be is not declared: @op.{which}"
            )
        return BoundError(
            f"{op.name}: @op.{which} returns {len(sizes)} numbers, and the fake kernel asks for {asked} sizes "
            "(new_dynamic_size): return one for each, in its order"
        )

    def size(number: int) -> Any:
        if number >= len(sizes):
            raise fault("more")
        return sizes[number]

    with handed_out(size) as asked:
        yield
    if len(asked) != len(sizes):
        raise fault(str(len(asked)))


def _declared(
    op: Operator, which: Literal["bound", "usual"], arguments: Mapping[str, Any]
) -> tuple[Any, ...]:
    """What `@op.bound` or `@op.usual` says for these arguments. Raises BoundError where it is no number."""
    function = op.bound_function if which == "bound" else op.usual_function
    if function is None:
        return ()
    try:
        result = call_with(function, (), arguments, op.interface.keyword_only)
    except (IndexError, ValueError):  # of other numbers of dims, which are tried too: a refusal
        raise
    except Exception as e:  # whatever the user's function raises
        why = (
            "it reads the values of a tensor, which nobody knows before the kernel ran"
            if type(e).__name__ in _READS_DATA
            else f"it raises {type(e).__name__}: {next(iter(str(e).splitlines()), '')}"
        )
        raise BoundError(
            f"{op.name}: @op.{which} cannot be used: {why}. Make it of sizes (x.shape[0], x.numel()) and attributes"
        ) from e
    sizes = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    import torch

    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, (int, torch.SymInt)):
            raise BoundError(
                f"{op.name}: @op.{which} returns {size!r}; expected a whole number made of sizes (x.shape[0], x.numel()), or "
                "a tuple of them, one for each new_dynamic_size() of the fake kernel"
            )
        # of a symbol, whose size here may be any, the sign alone
        here = size if isinstance(size, int) else size.node.hint
        if isinstance(here, int) and (here < 0 or (isinstance(size, int) and here > _LARGEST)):
            raise BoundError(
                f"{op.name}: @op.{which} returns {here}; expected a number of elements, from 0 to 2**40: memory is "
                "allocated for so many"
            )
    return sizes
