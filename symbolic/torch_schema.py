"""The torch schema of a Python function, from its annotations.

torch has its own reader (`torch.library.infer_schema`), but it knows neither lists of strings nor the
defaults of lists. Both spellings are understood: ``list[int]`` and ``Sequence[int]``, ``Optional[int]`` and
``int | None``.
"""

from __future__ import annotations

import collections.abc
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DeclarationError
from .attributes import REFUSED

__all__ = ["infer_schema", "schema_text"]

_HINT = "known are Tensor, int, float, bool, str, torch.dtype, `list[...]` of these, and `... | None`"
_PYTHON_NAMES = {
    "SymInt": "int",
    "ScalarType": "torch.dtype",
    "Tensor": "Tensor (only None can be a default)",
}
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def infer_schema(name: str, function: Callable[..., Any], mutates: Sequence[str]) -> str:
    """``(Tensor x, float beta=1.0) -> Tensor`` for an annotated function.

    Raises DeclarationError where an annotation or a default has no place in a torch schema.
    """
    signature = _resolve(name, function)
    unknown = [m for m in mutates if m not in signature.parameters]
    if unknown:
        raise DeclarationError(
            f"{name}: mutates names {', '.join(unknown)}; the arguments are {', '.join(signature.parameters)}"
        )
    pieces = []
    for p in signature.parameters.values():
        if p.kind not in _NAMED:
            raise DeclarationError(
                f"{name}: argument `{p}`: a schema names every argument; no *args, **kwargs or /"
            )
        if p.kind is p.KEYWORD_ONLY and "*" not in pieces:
            pieces.append("*")
        pieces.append(_argument(name, p, list(mutates).index(p.name) if p.name in mutates else None))
    return f"({', '.join(pieces)}) -> {_returns(name, signature.return_annotation)}"


def schema_text(schema: Any) -> str:
    """A torch schema as text, `acme::f(Tensor x, float eps=1e-05) -> (Tensor)`.

    Not torch's own text, which spells floats with 17 digits and changes between versions.
    """

    def spelled(kind: Any) -> str:
        text = str(kind)
        for pattern, replacement in ((r"List\[([^\[\]]*)\]", r"\1[*]"), (r"Optional\[(.*)\]", r"\1?")):
            text = re.sub(pattern, replacement, text)
        return text.replace("[*]", "[]")

    pieces = []
    for a in schema.arguments:
        if a.kwarg_only and "*" not in pieces:
            pieces.append("*")
        written = "(a!)" if a.alias_info is not None and a.alias_info.is_write else ""
        default = f"={a.default_value!r}" if a.has_default_value() else ""
        pieces.append(f"{spelled(a.real_type)}{written} {a.name}{default}")
    returns = ", ".join(spelled(r.real_type) for r in schema.returns)
    return f"{schema.name}({', '.join(pieces)}) -> ({returns})"


def _argument(name: str, p: inspect.Parameter, alias: int | None) -> str:
    if p.annotation is p.empty:
        raise DeclarationError(
            f"{name}: argument `{p.name}` has no annotation, so its type is not known; {_HINT}"
        )
    text = _type(p.annotation)
    if text is None:
        raise DeclarationError(
            f"{name}: argument `{p.name}: {_spelled(p.annotation)}` is no torch type; {_HINT}"
        )
    if p.kind is p.KEYWORD_ONLY and text.startswith("Tensor"):
        raise DeclarationError(
            f"{name}: argument `{p.name}`: torch allows no keyword-only tensor: move it before the `*`"
        )
    if text.startswith("Tensor?["):
        raise DeclarationError(
            f"{name}: argument `{p.name}: {_spelled(p.annotation)}`: ONNX cannot leave out a tensor in the middle of a "
            "list; use `list[Tensor]`, or several `Tensor | None`"
        )
    reason = REFUSED.get(text.removesuffix("?").removesuffix("[]"))
    if reason:
        raise DeclarationError(f"{name}: argument `{p.name}: {_spelled(p.annotation)}`: {reason}")
    if alias is not None:
        if not text.startswith("Tensor"):
            raise DeclarationError(f"{name}: mutates names `{p.name}`, which is no tensor")
        text = text.replace("Tensor", f"Tensor(a{alias}!)", 1)
    if p.default is p.empty:
        return f"{text} {p.name}"
    try:
        return f"{text} {p.name}={_default(text, p.default)}"
    except ValueError as e:
        raise DeclarationError(f"{name}: argument `{p.name}` = {p.default!r}: {e}") from None


def _type(annotation: Any) -> str | None:
    """``int[]?`` for ``list[int] | None``; None where torch has no such type."""
    import torch

    plain: dict[Any, str] = {
        torch.Tensor: "Tensor",
        int: "SymInt",
        float: "float",
        bool: "bool",
        str: "str",
        torch.dtype: "ScalarType",
        # These have a torch type but no ONNX one: the interface says why.
        complex: "complex",
        torch.device: "Device",
        torch.Generator: "Generator",
    }
    if isinstance(annotation, collections.abc.Hashable) and annotation in plain:
        return plain[annotation]
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in args if a is not type(None)]
        if len(inner) > 1 and set(inner) <= {int, float, bool}:
            return "Scalar" if len(inner) == len(args) else "Scalar?"
        rest = _type(inner[0]) if len(inner) == 1 else None
        return None if rest is None else f"{rest}?"
    if origin in (list, collections.abc.Sequence) and len(args) == 1:
        element = _type(args[0])
        return None if element is None or "[]" in element else f"{element}[]"
    return None


def _default(text: str, value: Any) -> str:
    """A default as a torch schema spells it; ValueError where it cannot."""
    import torch

    if value is None:
        if not text.endswith("?"):
            raise ValueError("None is the default of an optional argument only: annotate it `... | None`")
        return "None"
    kind = text.removesuffix("?")
    if kind.endswith("[]"):
        if text.endswith("?"):
            raise ValueError("torch has no default but None for an optional list: drop the `| None`")
        if not isinstance(value, (list, tuple)):
            raise ValueError("a list is expected")
        if kind == "str[]":
            raise ValueError(
                "torch has no default for a list of str: leave it out, or make it `list[str] | None = None`"
            )
        return f"[{', '.join(_default(kind[:-2], v) for v in value)}]"
    if kind == "ScalarType" and isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if kind == "bool" and isinstance(value, bool):
        return str(value)
    if kind == "SymInt" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if kind == "float" and isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError("a torch schema cannot spell it: make the argument `float | None = None`")
        return repr(float(value))
    if kind == "str" and isinstance(value, str):
        if not value.isascii() or not value.isprintable():
            raise ValueError("a torch schema holds printable ASCII defaults only")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    expected = _PYTHON_NAMES.get(kind, kind)
    advice = "; or annotate it `float`" if expected == "int" and isinstance(value, float) else ""
    raise ValueError(f"its annotation says {expected}, so its default must be one{advice}")


def _returns(name: str, annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        raise DeclarationError(
            f"{name}: the return annotation is missing: `-> Tensor`, `-> tuple[Tensor, Tensor]`, "
            "`-> list[Tensor]` or `-> None`"
        )
    if annotation is None or annotation is type(None):
        return "()"
    if typing.get_origin(annotation) is tuple:
        items = [_type(a) for a in typing.get_args(annotation)]
        # `tuple[Tensor, ...]` has no fixed number of results: that is a list.
        text = None if None in items else f"({', '.join(i for i in items if i)})"
    else:
        text = _type(annotation)
    if text is None:
        raise DeclarationError(
            f"{name}: it returns `{_spelled(annotation)}`; an operator returns Tensor, "
            "tuple[Tensor, Tensor], list[Tensor] or None"
        )
    return text


def _spelled(annotation: Any) -> str:
    return (
        annotation.__qualname__
        if isinstance(annotation, type) and not typing.get_args(annotation)
        else str(annotation)
    )


def _resolve(name: str, function: Callable[..., Any]) -> inspect.Signature:
    """Annotations as objects: with `from __future__ import annotations` they are texts."""
    signature = inspect.signature(function)
    unwrapped = inspect.unwrap(function)
    scope = dict(vars(typing)) | getattr(unwrapped, "__globals__", {})
    # A test or notebook may declare inside a function, whose names are in the closure.
    code = getattr(unwrapped, "__code__", None)
    for free, cell in zip(code.co_freevars if code else (), unwrapped.__closure__ or (), strict=False):
        scope[free] = cell.cell_contents

    def look(annotation: Any) -> Any:
        if not isinstance(annotation, str):
            return annotation
        try:
            return eval(annotation, scope)  # noqa: S307  (the user's own source, as typing.get_type_hints does)
        except Exception as e:
            raise DeclarationError(f"{name}: the annotation {annotation!r} cannot be resolved: {e}") from None

    return signature.replace(
        parameters=[p.replace(annotation=look(p.annotation)) for p in signature.parameters.values()],
        return_annotation=look(signature.return_annotation),
    )
