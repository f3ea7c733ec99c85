"""The fake tensors that `torch.export` leaves on each node, read without assuming anything about sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["assumptions", "describe", "fake_mode", "is_complex"]


def fake_mode(graph: torch.fx.Graph) -> FakeTensorMode | None:
    """The mode that all fake tensors of `graph` belong to; None without tensors."""
    import torch

    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and hasattr(value, "fake_mode"):
            return cast("FakeTensorMode", value.fake_mode)
    return None


def assumptions(mode: FakeTensorMode) -> int:
    """How many facts about symbolic sizes (guards) have been assumed so far."""
    return len(mode.shape_env.guards) if mode.shape_env is not None else 0


def describe(value: Any) -> str:
    """Dtype and sizes as text: comparing symbolic sizes themselves would add guards."""
    import torch

    return f"{value.dtype}{tuple(value.shape)}" if isinstance(value, torch.Tensor) else str(value)


def is_complex(value: Any) -> bool:
    """Whether `value`, or an element of it, is a complex tensor."""
    import torch

    values = value if isinstance(value, (tuple, list)) else (value,)
    return any(isinstance(item, torch.Tensor) and item.is_complex() for item in values)
