"""Splits of a dim whose size varies, with the number of parts that was traced.

torch's ONNX function of `split` makes a sequence of as many parts as there are. The traced model uses a fixed number of them (the
condition on the sizes that says so is weighed with the others), and a list of sizes becomes an ordinary Split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["is_split_of_variable_size", "splits"]


def splits() -> dict[Any, Any]:
    """Decompositions by operator."""
    import torch

    return {torch.ops.aten.split.Tensor: _split}


def is_split_of_variable_size(node: torch.fx.Node) -> bool:
    """Whether `node` splits a dim into parts, and the sizes of dim or parts are not numbers."""
    import torch

    if node.target is not torch.ops.aten.split.Tensor:
        return False
    parts: Sequence[torch.Tensor] = node.meta.get("val", ())
    return any(not isinstance(size, int) for part in parts for size in part.shape)


def _split(x: torch.Tensor, size: Any, dim: int = 0) -> Any:
    import torch

    total = x.shape[dim]
    count = max(-(-_hint(total) // max(_hint(size), 1)), 1)
    sizes = [size] * (count - 1)
    return torch.ops.aten.split_with_sizes.default(x, [*sizes, total - size * (count - 1)], dim)


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint)
