"""Bound what evaluating an expression could cost, before anything evaluates it.

sympy and Python compute powers, shifts and roundings of numbers at once, and sympy expands polynomials to compare them:
a short text can ask for more work than any machine can do. The bounds here are upper bounds by value: a size counts
as a number of 64 bits, and nesting adds up.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

__all__ = ["MATH_FUNCTIONS", "is_affordable"]

_MATH = "trunc floor ceil sqrt exp log log2 pow cos cosh sin sinh tan tanh asin acos atan asinh"
MATH_FUNCTIONS = frozenset(_MATH.split())
"""Functions of `math` that torch writes into guards; each works on floats and ends at once."""

_MOST_NODES, _MOST_BITS, _MOST_TERMS = 5000, 20_000, 500
_LARGEST_EXPONENT, _LARGEST_PRECISION = 64, 1024
_EXPONENTS = {
    "Pow": 1,
    "PowByNatural": 1,
    "FloatPow": 1,
    "LShift": 1,
    "RShift": 1,
    "round": 1,
    "RoundDecimal": 1,
}


class _TooMuchError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Cost:
    bits: int  # of the largest absolute value
    terms: int = 1  # of the polynomial when expanded


def is_affordable(tree: ast.AST) -> bool:
    """Whether every value and every expansion on the way to the expression's value stays small."""
    if sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
        return False
    try:
        _cost(tree)
    except (_TooMuchError, RecursionError, OverflowError):
        return False
    return True


def _cost(node: ast.AST) -> _Cost:
    cost = _unchecked(node)
    if cost.bits > _MOST_BITS or cost.terms > _MOST_TERMS:
        raise _TooMuchError
    return cost


def _unchecked(node: ast.AST) -> _Cost:
    if isinstance(node, ast.Constant):
        return _Cost(_bits(node.value))
    if isinstance(node, (ast.Name, ast.Subscript, ast.Attribute)):
        return _Cost(64)
    if isinstance(node, ast.BinOp):
        name = {ast.Pow: "Pow", ast.LShift: "LShift", ast.RShift: "RShift"}.get(type(node.op))
        if name is not None:
            return _raised(name, node.left, node.right)
        if isinstance(node.op, ast.Mult):
            return _product([node.left, node.right])
        return _sum([node.left, node.right])
    if isinstance(node, ast.Call):
        return _called(node)
    if isinstance(node, ast.UnaryOp):
        return _cost(node.operand)
    return _function(list(ast.iter_child_nodes(node)))


def _called(node: ast.Call) -> _Cost:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    for option in node.keywords:
        if isinstance(option.value, ast.Constant) and _bits(option.value.value) > _bits(_LARGEST_PRECISION):
            raise _TooMuchError
    if name == "Symbol":
        return _Cost(64)
    if name == "Float":
        if any(_number(part) > _LARGEST_PRECISION for part in node.args[1:]):
            raise _TooMuchError
        return _Cost(3400) if node.args else _Cost(0)  # an exponent of three digits
    if name in _EXPONENTS and len(node.args) == 2:
        return _raised(name, *node.args)
    if name == "Mul":
        return _product(node.args)
    if name == "Add":
        return _sum(node.args)
    return _function(node.args)


def _raised(name: str, base: ast.AST, exponent: ast.AST) -> _Cost:
    low = _cost(base)
    by = _number(exponent)
    if by > _LARGEST_EXPONENT:
        raise _TooMuchError
    if name == "LShift":
        return _Cost(low.bits + int(by), low.terms)
    if name in ("RShift", "round", "RoundDecimal"):
        return _Cost(low.bits + 4 * int(by))
    times = max(1, int(by + 0.999))
    if low.terms > 1 and times > 16:
        raise _TooMuchError
    return _Cost(low.bits * times, low.terms**times)


def _number(node: ast.AST) -> float:
    """The absolute value of a literal, an upper bound of that of a quotient of literals."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return abs(node.value)
    if isinstance(node, ast.UnaryOp):
        return _number(node.operand)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
        return _number(node.left) if _number(node.right) >= 1 else float("inf")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        first = node.args[0]
        if node.func.id in ("Integer", "Rational"):
            return _number(first)
        if node.func.id == "Float" and isinstance(first, ast.Constant) and isinstance(first.value, str):
            try:
                return abs(float(first.value))
            except ValueError:
                pass
    return float("inf")


def _bits(value: object) -> int:
    if isinstance(value, int):
        return value.bit_length()
    return 1100 if isinstance(value, float) else 64


def _sum(parts: list[ast.expr]) -> _Cost:
    costs = [_cost(part) for part in parts]
    return _Cost(
        max((c.bits for c in costs), default=0) + len(costs).bit_length(), sum(c.terms for c in costs) or 1
    )


def _product(parts: list[ast.expr]) -> _Cost:
    bits, terms = 0, 1
    for part in parts:
        cost = _cost(part)
        bits, terms = bits + cost.bits, min(terms * cost.terms, 10 * _MOST_TERMS)
    return _Cost(bits, terms)


def _function(parts: list[ast.AST] | list[ast.expr]) -> _Cost:
    """A function that is no polynomial, and whose value is at most the product of its arguments."""
    return _Cost(sum(_cost(part).bits for part in parts), 1)
