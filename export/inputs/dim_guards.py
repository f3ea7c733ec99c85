"""What an exported program assumes of its variable dims beyond what the user declared.

`torch.export` traces one size. Where the model looks at a size (`if h % 2 == 0`, a reshape, a sum of two
inputs), torch records a guard and goes on; for other sizes the graph may be plainly wrong. Here each guard is
evaluated over the declared ranges, and those that some size breaks are returned with that size.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .forward_binding import Forward
from .input_spec import Symbol
from .signature import Signature

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["DimCondition", "conditions_of", "evaluated", "unmet_conditions"]


@dataclass(frozen=True, slots=True, eq=False)
class DimCondition:
    """A condition on the dims, in the user's names, that some declared sizes do not meet.

    `breaks_at` are such sizes; empty if the condition could not be evaluated. `size_one` marks those that
    torch adds because it traces a computed size of 0 or 1 as a special case (`h // 32 != 1`): at these sizes
    most models still work, and running one is the way to know.
    """

    text: str
    breaks_at: Mapping[str, int]
    size_one: bool = False

    @property
    def can_be_tried(self) -> bool:
        """Whether running the model at `breaks_at` tells all: special cases of torch, and a single size left out.

        torch adds the latter by itself too: a computed size of 1, simplified, reads `batch != 2`.
        """
        return bool(self.breaks_at) and (self.size_one or re.fullmatch(r"\w+ != \d+", self.text) is not None)

    @property
    def is_grave(self) -> bool:
        """Whether no trial can settle it."""
        return not self.can_be_tried and not self.size_one

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.breaks_at.items())
        return f"{self.text} (not so at {sizes})" if sizes else f"{self.text} (could not be evaluated)"


def unmet_conditions(
    program: ExportedProgram, signature: Signature, forward: Forward = None
) -> tuple[DimCondition, ...]:
    """The assumptions of `program` that the ranges of `signature` break, the grave ones first.

    `forward` maps input names to parameters, as in `Signature.dynamic_shapes`. Dims that the program fixed or
    merged, and ranges that it narrowed, are found too. Sizes are sampled, so a condition on several dims
    that only rare sizes break can be missed; sizes 0 and 1 are left out, for torch assumes without a guard that no dim is.
    """
    symbols = signature.symbols
    found = [evaluated(text, symbols) for text in conditions_of(program, signature, forward)]
    return tuple(sorted((condition for condition in found if condition), key=lambda c: c.size_one))


def conditions_of(program: ExportedProgram, signature: Signature, forward: Forward = None) -> list[str]:
    """Every assumption of `program` on the dims, met or not, in the user's names."""
    if not signature.symbols:
        return []
    leaves = dict(
        _leaves(signature.arguments({spec.name: spec.name for spec in signature.specs}, forward), "L")
    )
    texts = _dims_of_graph(program, signature, list(leaves.values()))
    # A module converted from TorchScript has parameter names of its own, in the same order.
    for theirs, ours in zip(program.graph_signature.user_inputs, list(leaves.values()), strict=False):
        leaves.setdefault(f"L[{theirs!r}]", ours)
    # A private attribute, there since torch 2.9; without it what the graph's dims show is all there is.
    texts += [_in_symbols(guard, signature, leaves) for guard in getattr(program, "_guards_code", None) or []]
    return list(dict.fromkeys(texts))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Torch's spelling of each leaf, `L['xs'][0]`, and the input name there, in torch's order."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}[{key!r}]")
    else:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")


def _dims_of_graph(program: ExportedProgram, signature: Signature, names: list[str]) -> list[str]:
    user_inputs = set(program.graph_signature.user_inputs)
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in user_inputs]
    texts: list[str] = []
    first: dict[str, str] = {}  # torch's symbol -> the user's
    for name, node in zip(names, nodes, strict=False):
        for axis, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            symbol = signature.symbol_of(name, axis)
            if symbol is None:
                continue
            if isinstance(size, int):
                texts.append(f"{symbol} == {size}")
                continue
            known = first.setdefault(str(size), symbol)
            if known != symbol:
                texts.append(f"{known} == {symbol}")
            limits = program.range_constraints.get(size.node.expr)
            if limits is None:
                continue
            if limits.lower.is_Integer and limits.lower > 2:
                texts.append(f"{symbol} >= {limits.lower}")
            # Not is_Integer alone: torch's infinity claims to be one.
            if (
                limits.upper.is_Integer
                and limits.upper.is_finite is not False
                and str(limits.upper).isdigit()
            ):
                texts.append(f"{symbol} <= {limits.upper}")
    return texts


_SIZE = re.compile(r"(L(?:\[(?:'[^']*'|\d+)\])+)\.size\(\)\[(\d+)\]")


def _in_symbols(guard: str, signature: Signature, leaves: Mapping[str, str]) -> str:
    def name(found: re.Match[str]) -> str:
        symbol = signature.symbol_of(leaves.get(found[1], ""), int(found[2]))
        return symbol or found[0]

    return _SIZE.sub(name, guard)


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv},
    **{ast.Mod: operator.mod, ast.Div: operator.truediv, ast.USub: operator.neg, ast.Not: operator.not_},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le},
    **{ast.Gt: operator.gt, ast.GtE: operator.ge},
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "Max": max, "Min": min, "abs": abs}


# As torch spells a size that was scaled: `math.trunc(0.6*torch.sym_float(h))`.
_ROUNDING: dict[str, Callable[[Any], Any]] = {
    **{"trunc": math.trunc, "floor": math.floor, "ceil": math.ceil, "sym_float": float},
}


class _UnknownTermError(Exception):
    pass


def _value(node: ast.AST, sizes: Mapping[str, int]) -> Any:
    """Not `eval`: guards of a program from a file are the file's text."""
    match node:
        case ast.Expression(body=body):
            return _value(body, sizes)
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand, sizes))
        case ast.BoolOp(op=op, values=values):
            return (all if isinstance(op, ast.And) else any)(_value(item, sizes) for item in values)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(item, sizes) for item in args))
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="math" | "torch"), attr=name), args=[item], keywords=[]
        ) if name in _ROUNDING:
            return _ROUNDING[name](_value(item, sizes))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _OPERATORS for op in ops):
            terms = [_value(term, sizes) for term in (left, *others)]
            return all(_OPERATORS[type(op)](a, b) for op, a, b in zip(ops, terms, terms[1:], strict=False))
    raise _UnknownTermError


def evaluated(text: str, symbols: Mapping[str, Symbol]) -> DimCondition | None:
    """The condition with sizes that break it, or None if it holds at all sizes tried."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return DimCondition(text, {})
    names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & symbols.keys())
    constants = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) is int]
    for sizes in itertools.product(*(_sampled(symbols[name], len(names), constants) for name in names)):
        at = dict(zip(names, sizes, strict=True))
        try:
            holds = _value(tree, at)
        except ZeroDivisionError:
            holds = False
        except (_UnknownTermError, OverflowError, RecursionError, TypeError, ValueError):
            return DimCondition(text, {})
        if not holds:
            return DimCondition(text, at, _is_size_one(tree.body))
    return None


def _is_size_one(node: ast.expr) -> bool:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=int() as bound)]):
            computed = not isinstance(left, ast.Name)
            return computed and (
                (isinstance(op, ast.NotEq) and bound <= 1) or (isinstance(op, ast.GtE) and bound == 2)
            )
    return False


def _sampled(symbol: Symbol, dims: int, constants: list[int]) -> list[int]:
    """Sizes of 2 or more within the range: the first ones, those around a number in the condition, the last.

    A condition on one dim changes only at its own numbers and their multiples: for `seq <= 2048`, `n != 300` and
    `n % 100 != 50` some of these sizes decide.
    """
    few = {1: 512, 2: 16, 3: 6}.get(dims, 3)
    near = sorted({c + d for c in constants for d in (-1, 0, 1) if 2 <= c + d < 2**31})
    found: dict[int, None] = {}
    size = symbol.at_least(max(2, symbol.low))
    for _ in range(few):
        if size is None:
            break
        found[size] = None
        size = symbol.at_least(size + 1)
    for target in (*((97, 128, 1021) if dims <= 3 else (97,)), *(near[:12] if dims <= 2 else ())):
        if (size := symbol.at_least(target)) is not None:
            found[size] = None
    if symbol.high is not None and (size := symbol.at_most(symbol.high)) is not None and size >= 2:
        found[size] = None
    return list(found)
