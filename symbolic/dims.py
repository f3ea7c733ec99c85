"""Dim expressions: the texts in ONNX's `dim_param` <-> sympy.

ONNX carries a symbolic size as a text, by convention arithmetic over names: `n`, `2*n`, `floor(n/2)`.
The texts come from model files, that is from strangers, and sympy's own parser evaluates Python: so they are
read here, by a grammar that knows integers, names, `+ - * / // %` and floor, ceiling, min, max, Mod.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sympy

__all__ = ["evaluate", "names", "rename", "to_text"]

_LIMIT = 500  # characters; longer ones are somebody's attack, not somebody's shape


class _NotADim(ValueError):
    """The text is not a dim expression."""


def _parse(text: str) -> ast.expr:
    if len(text) > _LIMIT:
        raise _NotADim(text[:40])
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise _NotADim(text) from e


def _walk(node: ast.expr, lookup: Callable[[str], Any], call: Callable[[str, list[Any]], Any]) -> Any:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return lookup(name)
        case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int() as power)) if 0 < power <= 8:
            product = _walk(base, lookup, call)
            for _ in range(power - 1):
                product = product * _walk(base, lookup, call)
            return product
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_walk(operand, lookup, call)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _walk(left, lookup, call), _walk(right, lookup, call)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return call("floordiv", [a, b])
                case ast.Mod():
                    return call("mod", [a, b])
        case ast.Call(
            func=ast.Name(id="floor"), args=[ast.BinOp(left=a, op=ast.Div(), right=b)], keywords=[]
        ):
            return call("floordiv", [_walk(a, lookup, call), _walk(b, lookup, call)])
        case ast.Call(
            func=ast.Name(id="ceiling" | "ceil"), args=[ast.BinOp(left=a, op=ast.Div(), right=b)], keywords=[]
        ):
            return -call("floordiv", [-_walk(a, lookup, call), _walk(b, lookup, call)])
        case ast.Call(
            func=ast.Name(id="max" | "Max" | "min" | "Min" | "Mod" as name), args=args, keywords=[]
        ) if len(args) == 2:
            return call(name.lower(), [_walk(a, lookup, call) for a in args])
    raise _NotADim(ast.dump(node))


def names(text: str) -> list[str]:
    """The names in a dim expression, in order; a text that is no expression is itself one name."""
    found: list[str] = []
    try:
        _walk(_parse(text), lambda n: found.append(n) or 1, lambda *_: 1)  # type: ignore[func-returns-value]
    except _NotADim:
        return [text]
    return list(dict.fromkeys(found))


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """The value of a dim expression where its names stand for `values` (ints or torch SymInts).

    A text that is no expression is looked up whole. Raises KeyError for a name without a value.
    """
    import torch

    operations: dict[str, Callable[[Any, Any], Any]] = {
        "floordiv": lambda a, b: a // b,
        "mod": lambda a, b: a % b,
        "max": torch.sym_max,
        "min": torch.sym_min,
    }
    try:
        return _walk(_parse(text), values.__getitem__, lambda name, args: operations[name](*args))
    except _NotADim:
        return values[text]


def rename(text: str, names: Mapping[str, str]) -> str:
    """A dim expression with other names, in the spelling of `to_text`; a text that is none is looked up whole."""
    try:
        tree = _parse(text)
        _walk(tree, lambda _: 1, lambda *_: 1)  # only what the grammar knows is rewritten
    except (_NotADim, TypeError):
        return names.get(text, text)

    def operand(node: ast.expr) -> str:
        return f"({write(node)})" if isinstance(node, (ast.BinOp, ast.UnaryOp)) else write(node)

    def write(node: ast.expr) -> str:
        match node:
            case ast.Name(id=name):
                return names.get(name, name)
            case ast.UnaryOp(operand=inner):
                return f"-{operand(inner)}"
            case ast.BinOp(left=a, op=ast.Add(), right=b):
                return f"{write(a)} + {write(b)}"
            case ast.BinOp(left=a, op=ast.Sub(), right=b):
                return f"{write(a)} - {operand(b) if isinstance(b, ast.BinOp) and not isinstance(b.op, ast.Mult) else write(b)}"
            case ast.BinOp(left=a, op=ast.Mult(), right=b):
                return f"{operand(a)}*{operand(b)}"
            case ast.BinOp(left=a, op=ast.Pow(), right=b):
                return f"{operand(a)}**{write(b)}"
            case ast.BinOp(left=a, op=ast.FloorDiv(), right=b):
                return f"floor({operand(a)}/{operand(b)})"
            case ast.BinOp(left=a, op=ast.Mod(), right=b):
                return f"Mod({write(a)}, {write(b)})"
            case ast.Call(func=ast.Name(id="floor" | "ceiling" | "ceil" as name), args=[ast.BinOp(left=a, right=b)]):
                return f"{name}({operand(a)}/{operand(b)})"
            case ast.Call(func=ast.Name(id=name), args=args):
                return f"{'Mod' if name == 'Mod' else name.lower()}({', '.join(map(write, args))})"
        return ast.unparse(node)

    return write(tree)


def to_text(expression: sympy.Expr) -> str:
    """A sympy expression as ONNX text; torch's FloorDiv, Mod, Max and Min in the conventional spelling."""
    from sympy.printing.str import StrPrinter

    class Printer(StrPrinter):
        def _call(self, name: str, e: sympy.Expr) -> str:
            return f"{name}({', '.join(self._print(a) for a in e.args)})"

        def _print_FloorDiv(self, e: sympy.Expr) -> str:
            numerator, denominator = (self._group(a) for a in e.args)
            return f"floor({numerator}/{denominator})"

        def _group(self, e: sympy.Expr) -> str:
            text: str = self._print(e)
            return text if e.is_Atom else f"({text})"

        def _print_Mod(self, e: sympy.Expr) -> str:
            return self._call("Mod", e)

        _print_PythonMod = _print_Mod

        def _print_Max(self, e: sympy.Expr) -> str:
            return self._call("max", e)

        def _print_Min(self, e: sympy.Expr) -> str:
            return self._call("min", e)

    text: str = Printer({"order": "lex"}).doprint(expression)
    return text
