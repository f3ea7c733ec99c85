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

__all__ = ["evaluate", "names", "rename", "to_text", "walk"]

_LIMIT = 500  # characters; longer ones are somebody's attack, not somebody's shape
_LARGEST_POWER = 8
_ROUNDINGS = {"CeilToInt": "ceiling", "FloorToInt": "floor", "TruncToInt": "floor"}


class _NotADim(ValueError):
    """The text, or the sympy expression, is not a dim expression."""


def _parse(text: str) -> ast.expr:
    # Python folds other alphabets' letters into its identifiers: two names could become one.
    if len(text) > _LIMIT or not text.isascii():
        raise _NotADim(text[:40])
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise _NotADim(text) from e


def walk(node: ast.expr | str, lookup: Callable[[str], Any], call: Callable[[str, list[Any]], Any]) -> Any:
    """The value of a dim expression: names through `lookup`, floordiv, mod, max and min through `call`.

    Raises ValueError for what is no dim expression.
    """
    if isinstance(node, str):
        node = _parse(node)
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return lookup(name)
        case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int() as power)):
            # One level of small powers: towers of them are numbers of astronomical length.
            if not 0 < power <= _LARGEST_POWER or any(isinstance(n, ast.Pow) for n in ast.walk(base)):
                raise _NotADim(ast.dump(node))
            factor = product = walk(base, lookup, call)
            for _ in range(power - 1):
                product = product * factor
            return product
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -walk(operand, lookup, call)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = walk(left, lookup, call), walk(right, lookup, call)
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
            return call("floordiv", [walk(a, lookup, call), walk(b, lookup, call)])
        case ast.Call(
            func=ast.Name(id="ceiling" | "ceil"), args=[ast.BinOp(left=a, op=ast.Div(), right=b)], keywords=[]
        ):
            return -call("floordiv", [-walk(a, lookup, call), walk(b, lookup, call)])
        case ast.Call(func=ast.Name(id="Mod"), args=[a, b], keywords=[]):
            return call("mod", [walk(a, lookup, call), walk(b, lookup, call)])
        case ast.Call(func=ast.Name(id="max" | "Max" | "min" | "Min" as name), args=[a, *rest], keywords=[]):
            found = walk(a, lookup, call)
            for argument in rest:
                found = call(name.lower(), [found, walk(argument, lookup, call)])
            return found
    raise _NotADim(ast.dump(node))


def names(text: str) -> list[str]:
    """The names in a dim expression, in order; a text that is no expression is itself one name."""
    found: list[str] = []
    try:
        walk(_parse(text), lambda n: found.append(n) or 1, lambda *_: 1)  # type: ignore[func-returns-value]
    except (_NotADim, RecursionError):
        return [text]
    return list(dict.fromkeys(found))


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """The value of a dim expression where its names stand for `values` (ints or torch SymInts).

    A text that is no expression is looked up whole. Raises KeyError for a name without a value, ValueError
    for a division by zero.
    """
    import torch

    operations: dict[str, Callable[[Any, Any], Any]] = {
        "floordiv": lambda a, b: a // b,
        "mod": lambda a, b: a % b,
        "max": torch.sym_max,
        "min": torch.sym_min,
    }
    if text in values:
        return values[text]
    try:
        return walk(_parse(text), values.__getitem__, lambda name, args: operations[name](*args))
    except (_NotADim, RecursionError):
        raise KeyError(text) from None
    except ZeroDivisionError:
        raise ValueError(f"the dim `{text}` divides by zero") from None


def rename(text: str, names: Mapping[str, str]) -> str:
    """A dim expression with other names, spelled as by `to_text`; a text that is none is looked up whole."""
    try:
        tree = _parse(text)
        walk(tree, lambda _: 1, lambda *_: 1)  # only what the grammar knows is rewritten
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
                product = isinstance(b, ast.BinOp) and isinstance(b.op, ast.Mult)
                return f"{write(a)} - {write(b) if product else operand(b)}"
            case ast.BinOp(left=a, op=ast.Mult(), right=b):
                return f"{operand(a)}*{operand(b)}"
            case ast.BinOp(left=a, op=ast.Pow(), right=b):
                return f"{operand(a)}**{write(b)}"
            case ast.BinOp(left=a, op=ast.FloorDiv(), right=b):
                return f"floor({operand(a)}/{operand(b)})"
            case ast.BinOp(left=a, op=ast.Mod(), right=b):
                return f"Mod({write(a)}, {write(b)})"
            case ast.Call(
                func=ast.Name(id="floor" | "ceiling" | "ceil" as name), args=[ast.BinOp(left=a, right=b)]
            ):
                return f"{name}({operand(a)}/{operand(b)})"
            case ast.Call(func=ast.Name(id=name), args=args):
                return f"{'Mod' if name == 'Mod' else name.lower()}({', '.join(map(write, args))})"
        return ast.unparse(node)

    return write(tree)


def to_text(expression: sympy.Expr) -> str:
    """A sympy expression as ONNX text, which `evaluate` reads back; torch's own functions included.

    Raises ValueError for what the grammar does not know (a square root, say).
    """
    import sympy

    def group(e: sympy.Expr) -> str:
        return to_text(e) if e.is_Symbol or (e.is_Integer and e >= 0) else f"({to_text(e)})"

    def factor(e: sympy.Expr) -> str:
        return f"({to_text(e)})" if e.is_Add or (e.is_Integer and e < 0) else to_text(e)

    def listed(name: str) -> str:
        return f"{name}({', '.join(to_text(a) for a in expression.args)})"

    kind = type(expression).__name__
    if expression.is_Integer or expression.is_Symbol:
        return str(expression)
    if expression.is_Add:
        first, *rest = expression.as_ordered_terms(order="lex")
        terms = [to_text(first)]
        for term in rest:
            negative = term.could_extract_minus_sign()
            terms.append(f"- {factor(-term)}" if negative else f"+ {to_text(term)}")
        return " ".join(terms)
    if expression.is_Mul:
        number, factors = expression.as_coeff_mul()
        if not number.is_Integer:
            raise _NotADim(str(expression))
        sign, parts = ("-", [] if number == -1 else [str(-number)]) if number < 0 else ("", [str(number)])
        parts = [p for p in parts if p != "1"] + [factor(f) for f in sympy.Mul(*factors).as_ordered_factors()]
        return sign + "*".join(parts)
    if expression.is_Pow:
        base, power = expression.args
        if not power.is_Integer or not 1 < power <= _LARGEST_POWER or base.has(sympy.Pow):
            raise _NotADim(str(expression))
        return f"{group(base)}**{power}"
    if kind in ("Max", "Min"):
        return listed(kind.lower())
    if kind in ("Mod", "PythonMod"):
        return listed("Mod")
    if kind in ("FloorDiv", "CleanDiv"):
        numerator, denominator = expression.args
        return f"floor({group(numerator)}/{group(denominator)})"
    rounding = _ROUNDINGS.get(kind)
    if rounding and type(expression.args[0]).__name__ == "IntTrueDiv":
        numerator, denominator = expression.args[0].args
        toward_zero = kind == "TruncToInt"  # is floor, for sizes that are not negative
        if not toward_zero or (numerator.is_nonnegative and denominator.is_positive):
            return f"{rounding}({group(numerator)}/{group(denominator)})"
    raise _NotADim(str(expression))
