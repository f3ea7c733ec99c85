"""Narrow grammars for the strings of an exported program that torch evaluates or pastes into source code."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from .expression_cost import MATH_FUNCTIONS, is_affordable

__all__ = ["Expressions", "is_plain_text", "is_safe_guard", "is_safe_size_expression", "unsafe_in_tree_spec"]

# One line of ASCII without comments, escapes or double quotes: the same text for ast, for sympy and in
# source code.
_ALPHABET = re.compile(r"[A-Za-z0-9_ .,()+\-*/%<>=!&|~^'\[\]]{1,50000}")
_QUOTES = re.compile(r"[\"'\\\x00-\x1f\x7f-\x9f\u2028\u2029]")

# sympy, in the notation of srepr and in that of str; then torch.utils._sympy.functions
_FUNCTION_NAMES = """
    Symbol Integer Float Rational Add Mul Pow Max Min Mod Abs floor ceiling Eq Ne Ge Gt Le Lt Equality
    Unequality GreaterThan LessThan StrictGreaterThan StrictLessThan And Or Not Xor Piecewise ExprCondPair
    ITE sqrt

    FloorDiv ModularIndexing Where PythonMod CleanDiv CeilToInt FloorToInt CeilDiv LShift RShift PowByNatural
    FloatPow FloatTrueDiv IntTrueDiv IsNonOverlappingAndDenseIndicator TruncToFloat TruncToInt RoundToInt
    RoundDecimal ToFloat Identity BitwiseFn_bitwise_and BitwiseFn_bitwise_or BitwiseFn_bitwise_xor
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_GUARD_FUNCTIONS = _FUNCTIONS | {"max", "min", "abs", "int", "float", "bool", "round"}
_TENSOR_QUERIES = frozenset({"storage_offset", "dim", "numel"})
_TUPLES = frozenset({"size", "stride"})
_MOST_TEXT = 2_000_000  # characters of all different expressions of a program
_OPERATIONS = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Load,
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


class Expressions:
    """The expressions of one program: each different one is looked at once, and all together must stay short."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool], bool] = {}
        self._size = 0

    def is_safe_size(self, text: str) -> bool:
        return self._is_safe(text, guard=False)

    def is_safe_guard(self, text: str) -> bool:
        return self._is_safe(text, guard=True)

    def _is_safe(self, text: str, *, guard: bool) -> bool:
        if (text, guard) not in self._known:
            self._size += len(text)
            rule = is_safe_guard if guard else is_safe_size_expression
            self._known[text, guard] = self._size <= _MOST_TEXT and rule(text)
        return self._known[text, guard]


def _parsed(text: str) -> ast.AST | None:
    if not _ALPHABET.fullmatch(text):
        return None
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_arithmetic(node: ast.AST, *, guard: bool) -> bool:
    try:
        return is_affordable(node) and _allowed(node, guard)
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
        # L['x'], L['x'][0], L['x'].size()[0]
        inner = node.value
        if (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Attribute)
            and inner.func.attr in _TUPLES
        ):
            return (
                guard
                and not (inner.args or inner.keywords)
                and _allowed(inner.func.value, guard)
                and _is_key(node.slice)
            )
        return guard and _allowed(inner, guard) and _is_key(node.slice)
    if isinstance(node, ast.Compare) and guard:
        # A guard may compare with the text of a constant input.
        return all(_allowed(part, guard) or _is_key(part) for part in (node.left, *node.comparators))
    return isinstance(node, _OPERATIONS) and all(
        _allowed(child, guard) for child in ast.iter_child_nodes(node)
    )


def _allowed_call(node: ast.Call, guard: bool) -> bool:
    function = node.func
    if isinstance(function, ast.Attribute):
        if not guard or node.keywords or function.attr.startswith("_"):
            return False
        if isinstance(function.value, ast.Name) and function.value.id == "math":
            return function.attr in MATH_FUNCTIONS and all(_allowed(part, guard) for part in node.args)
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
    if function.id == "Piecewise":
        return all(_allowed(part, guard) for pair in node.args for part in _branch(pair))
    if function.id == "ExprCondPair":  # a sequence, which multiplication would repeat: only within Piecewise
        return False
    return all(_allowed(part, guard) for part in node.args)


def _branch(node: ast.expr) -> list[ast.expr]:
    """The value and the condition of one branch of Piecewise."""
    if isinstance(node, ast.Tuple):
        return node.elts
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ExprCondPair"
    return node.args if named and isinstance(node, ast.Call) and not node.keywords else [node]


def _is_key(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and (isinstance(node.value, int) or is_plain_text(node.value))


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
