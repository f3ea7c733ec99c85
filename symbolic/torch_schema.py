"""The torch schema of a Python function, from its annotations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DeclarationError

__all__ = ["infer_schema"]


def infer_schema(name: str, function: Callable[..., Any], mutates: Sequence[str]) -> str:
    """``(Tensor x, float beta=1.0) -> Tensor`` for an annotated function.

    torch infers it but for the defaults of lists, which are added here. Raises DeclarationError.
    """
    import torch

    signature = inspect.signature(function)
    unknown = [m for m in mutates if m not in signature.parameters]
    if unknown:
        raise DeclarationError(
            f"{name}: mutates names {', '.join(unknown)}; the arguments are {', '.join(signature.parameters)}"
        )
    lists = {
        n: list(p.default) for n, p in signature.parameters.items() if isinstance(p.default, (list, tuple))
    }
    bare = [p.replace(default=None if n in lists else p.default) for n, p in signature.parameters.items()]

    def prototype(*args: Any, **kwargs: Any) -> Any: ...

    prototype.__signature__ = _resolve(function, signature.replace(parameters=bare))  # type: ignore[attr-defined]
    try:
        text: str = torch.library.infer_schema(prototype, mutates_args=tuple(mutates))
    except (ValueError, TypeError) as e:
        reason = str(e).removeprefix("infer_schema(func): ").split(" Got func with signature")[0]
        reason = reason.split(" The valid types are")[0].strip()
        raise DeclarationError(f"{name}: its arguments cannot be read: {reason}") from None
    for argument, default in lists.items():
        values = ", ".join(repr(float(v)) if isinstance(v, float) else str(v) for v in default)
        if any(isinstance(v, (bool, str)) for v in default) or (
            not default and re.search(rf"(str|bool)\[\] {argument}\b", text)
        ):
            raise DeclarationError(
                f"{name}: `{argument}`: torch has no defaults for lists of str or bool: leave it out"
            )
        text = re.sub(rf"\b{argument}=None", f"{argument}=[{values}]", text)
    return text


def _resolve(function: Callable[..., Any], signature: inspect.Signature) -> inspect.Signature:
    """Annotations as objects: with `from __future__ import annotations` they are texts."""
    unwrapped = inspect.unwrap(function)
    scope = dict(vars(__import__("typing"))) | getattr(unwrapped, "__globals__", {})
    # A test or notebook may declare inside a function, whose names are in the closure.
    for name, cell in zip(unwrapped.__code__.co_freevars, unwrapped.__closure__ or (), strict=False):
        scope[name] = cell.cell_contents

    def look(annotation: Any) -> Any:
        if not isinstance(annotation, str):
            return annotation
        try:
            return eval(annotation, scope)  # noqa: S307  (the user's own source, as typing.get_type_hints does)
        except NameError as e:
            raise DeclarationError(
                f"{function.__qualname__}: the annotation {annotation!r} cannot be resolved: {e}"
            ) from None

    return signature.replace(
        parameters=[p.replace(annotation=look(p.annotation)) for p in signature.parameters.values()],
        return_annotation=look(signature.return_annotation),
    )
