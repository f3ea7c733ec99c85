"""Narrow grammars for the strings of an exported program that torch evaluates or pastes into source code."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["is_plain_text", "is_safe_guard", "is_safe_size_expression", "unsafe_in_tree_spec"]

# One line of ASCII without comments, escapes or double quotes: the same text for ast, for sympy and in
# source code.
_ALPHABET = re.compile(r"[A-Za-z0-9_ .,()+\-*/%<>=!&|~^'\[\]]{1,100000}")
_QUOTES = re.compile(r"[\"'\\\x00-\x1f\x7f-\x9f\u2028\u2029]")

# sympy, in the notation of srepr and in that of str; then torch.utils._sympy.functions
_FUNCTION_NAMES = """
    Symbol Integer Float Rational Add Mul Pow Max Min Mod Abs floor ceiling Eq Ne Ge Gt Le Lt Equality
    Unequality GreaterThan LessThan StrictGreaterThan StrictLessThan And Or Not Xor Piecewise ExprCondPair
    ITE Tuple sqrt

    FloorDiv ModularIndexing Where PythonMod CleanDiv CeilToInt FloorToInt CeilDiv LShift RShift PowByNatural
    FloatPow FloatTrueDiv IntTrueDiv IsNonOverlappingAndDenseIndicator TruncToFloat TruncToInt RoundToInt
    RoundDecimal ToFloat Identity BitwiseFn_bitwise_and BitwiseFn_bitwise_or BitwiseFn_bitwise_xor
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_GUARD_FUNCTIONS = _FUNCTIONS | {"max", "min", "abs", "int", "float", "bool", "round"}
_TENSOR_QUERIES = frozenset({"size", "stride", "storage_offset", "dim", "numel"})
_LARGEST_POWER = 64
_OPERATIONS = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Tuple, ast.IfExp, ast.Load,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def is_plain_text(text: object) -> bool:
    """Text that stays text wherever it is pasted: no quotes, escapes or control characters."""
    return isinstance(text, str) and not _QUOTES.search(text)


def is_safe_size_expression(text: str) -> bool:
    """Arithmetic on symbols: `FloorDiv(Symbol('s77', integer=True), Integer(2))` or `s0//2 + 1`."""
    tree = _parsed(text)
    return tree is not None and _is_arithmetic(tree, guard=False)


def is_safe_guard(text: str) -> bool:
    """A condition on the inputs' sizes: `L['x'].size()[0] % 2 == 0`."""
    tree = _parsed(text)
    return tree is not None and _is_arithmetic(tree, guard=True)


def _parsed(text: str) -> ast.AST | None:
    if not _ALPHABET.fullmatch(text):
        return None
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_arithmetic(node: ast.AST, *, guard: bool) -> bool:
    try:
        return _allowed(node, guard)
    except RecursionError:
        return False


def _allowed(node: ast.AST, guard: bool) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (bool, float)) or (
            isinstance(node.value, int) and node.value.bit_length() <= 128
        )
    if isinstance(node, ast.Name):
        # A double underscore is how builtins are reached; symbols have none.
        return "__" not in node.id and (not guard or node.id in {"L", "inf", "math", "int_oo"})
    if isinstance(node, ast.Call):
        return _allowed_call(node, guard)
    if isinstance(node, ast.Attribute):
        return (
            guard
            and isinstance(node.value, ast.Name)
            and node.value.id == "math"
            and node.attr in {"inf", "nan"}
        )
    if isinstance(node, ast.Subscript):
        return guard and _allowed(node.value, guard) and _is_key(node.slice)
    if isinstance(node, ast.Compare) and guard:
        # A guard may compare with the text of a constant input.
        return all(_allowed(part, guard) or _is_key(part) for part in (node.left, *node.comparators))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and not _is_small_power(node):
        return False
    return isinstance(node, _OPERATIONS) and all(
        _allowed(child, guard) for child in ast.iter_child_nodes(node)
    )


def _allowed_call(node: ast.Call, guard: bool) -> bool:
    function = node.func
    if isinstance(function, ast.Attribute):
        if not guard or node.keywords or function.attr.startswith("_"):
            return False
        if isinstance(function.value, ast.Name) and function.value.id == "math":
            return all(_allowed(part, guard) for part in node.args)
        return function.attr in _TENSOR_QUERIES and not node.args and _allowed(function.value, guard)
    if not isinstance(function, ast.Name) or function.id not in (_GUARD_FUNCTIONS if guard else _FUNCTIONS):
        return False
    if not all(
        isinstance(option.value, ast.Constant) and _allowed(option.value, guard) for option in node.keywords
    ):
        return False
    if function.id in ("Symbol", "Float") and node.args and isinstance(node.args[0], ast.Constant):
        text = node.args[0].value
        pattern = r"(?!.*__)[A-Za-z_]\w*" if function.id == "Symbol" else r"-?[0-9.]+([eE][+-]?\d{1,3})?"
        if isinstance(text, str):
            return bool(re.fullmatch(pattern, text)) and all(_allowed(part, guard) for part in node.args[1:])
    if function.id in ("Pow", "PowByNatural", "FloatPow") and not _is_small_exponent(node.args):
        return False
    return all(_allowed(part, guard) for part in node.args)


def _is_key(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and (isinstance(node.value, int) or is_plain_text(node.value))


def _is_small_power(node: ast.BinOp) -> bool:
    return _is_small_exponent([node.left, node.right])


def _is_small_exponent(args: list[ast.expr]) -> bool:
    # sympy computes powers of numbers at once: 9**9**9 would never end.
    if len(args) != 2 or any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow) for part in args):
        return False
    numbers = [part.value for part in ast.walk(args[1]) if isinstance(part, ast.Constant)]
    return all(isinstance(number, (int, float)) and abs(number) <= _LARGEST_POWER for number in numbers)


_CONTAINERS = frozenset(
    f"{module}.{name}"
    for module, names in {
        "builtins": "tuple list dict",
        "collections": "OrderedDict deque namedtuple defaultdict",
        "torch": "Size",
        "torch.fx.immutable_collections": "immutable_list immutable_dict",
    }.items()
    for name in names.split()
)
_FACTORIES = frozenset({"list", "dict", "set", "tuple", "int", "float", "str", "bool"})


def unsafe_in_tree_spec(text: Any, *, of_inputs: bool) -> Iterator[str]:
    """What a serialised pytree names beyond plain containers, or would import."""
    try:
        tree = json.loads(text)[1]
        yield from _unsafe_in_tree(tree)
        children = tree["children_spec"]
        if of_inputs and len(children) == 2 and children[1]["type"] == "builtins.dict":
            # (args, kwargs): the keys of kwargs become parameter names of the generated forward().
            yield from (
                f"keyword {key!r}" for key in _strings(children[1]["context"]) if not key.isidentifier()
            )
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
        yield "unreadable"


def _unsafe_in_tree(tree: dict[str, Any]) -> Iterator[str]:
    kind, context = tree["type"], tree["context"]
    if kind is not None and kind not in _CONTAINERS:
        yield f"type {kind!r}"
    if kind == "collections.defaultdict":
        # torch imports the module named there and takes the factory from it.
        if (
            context["default_factory_module"] != "builtins"
            or context["default_factory_name"] not in _FACTORIES
        ):
            yield "a factory that is not a built-in type"
    elif kind != "collections.namedtuple":
        for entry in _strings(context):
            # torch imports the class of what is marked so.
            if entry == "__enum__" or not is_plain_text(entry):
                yield f"key {entry!r}"
    for child in tree["children_spec"]:
        yield from _unsafe_in_tree(child)


def _strings(context: Any) -> Iterator[str]:
    """All strings of a context: JSON within the JSON."""
    pending = [json.loads(context)] if isinstance(context, str) else [context]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            pending += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            pending += value
