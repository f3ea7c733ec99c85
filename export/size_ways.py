"""Why a model is another one at some sizes although its trace knows no condition on them.

torch traces as if no variable dim were 1, and leaves no guard that says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ExportError
from . import checks
from .diverging_line import diverging_line
from .inputs.signature import Signature

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from .source import Source

__all__ = ["size_explainer", "squeezes", "squeezes_explained"]


def squeezes(program: ExportedProgram) -> list[str]:
    """The lines that squeeze a dim of variable size."""
    from .graph.translation import user_frame

    return [
        user_frame(node) or node.name for node in program.graph.nodes if _is_squeeze(node) and _may_drop(node)
    ]


@contextlib.contextmanager
def squeezes_explained(squeezed: Sequence[str]) -> Iterator[None]:
    """An ExportError within about a Squeeze says which line it comes from: ONNX has no squeeze that may do nothing."""
    try:
        yield
    except ExportError as e:
        if not squeezed or "Squeeze" not in str(e):
            raise
        raise ExportError(
            f"squeeze of a dim of variable size, at {'; '.join(dict.fromkeys(squeezed))}: it drops the dim where it is 1 and "
            f"does nothing elsewhere, and an ONNX model has one rank. Leave it out, or give the dim its number ({e})"
        ) from e


def _is_squeeze(node: torch.fx.Node) -> bool:
    return str(getattr(node.target, "_schema", "")).startswith("aten::squeeze")


def _may_drop(node: torch.fx.Node) -> bool:
    value = getattr(node.args[0], "meta", {}).get("val")
    shape = tuple(getattr(value, "shape", ()))
    axes: Any = node.args[1] if len(node.args) > 1 else list(range(len(shape)))
    return any(not isinstance(shape[a], int) for a in (axes if isinstance(axes, (list, tuple)) else [axes]))


def size_explainer(
    source: Source, signature: Signature, original: Any, squeezed: Sequence[str]
) -> Callable[[Mapping[str, int]], str | None]:
    """``explain(sizes)``: what makes the original another model at `sizes` than at those traced; None where unknown."""

    def run(sizes: Mapping[str, int]) -> Callable[[], Any]:
        args, kwargs = source.arrange(*signature.bind(signature.make(sizes), original))
        return lambda: checks.call_original(original, args, kwargs)

    def explain(sizes: Mapping[str, int]) -> str | None:
        traced = signature.example_sizes()
        if not sizes or dict(sizes) == traced:
            return None
        ones = [name for name, size in sizes.items() if size == 1 and traced[name] != 1]
        at = ", ".join(f"{name}=1" for name in ones) or ", ".join(f"{n}={s}" for n, s in sizes.items())
        ranges = ", ".join(f"{name}=2.." for name in ones)
        line = diverging_line(run(traced), run(sizes))
        if line is not None:
            declare = f"declare {ranges}" if ranges else "declare a range without this size"
            return (
                f"At {at} the original takes another way than at the sizes traced, at {line}; the file has the traced one. "
                f"Do the same at all sizes, or {declare}"
            )
        if squeezed and ones:
            return (
                f"squeeze drops every dim that is 1, at {at} the variable one too, at {'; '.join(dict.fromkeys(squeezed))}. "
                f"Name a dim that is always 1 (x.squeeze(1)), or declare {ranges}"
            )
        return None

    return explain
