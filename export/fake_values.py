"""The fake tensors that `torch.export` leaves on each node, read without assuming anything about sizes."""

from __future__ import annotations

from typing import Any

__all__ = ["assumptions", "describe", "is_complex"]


def assumptions(*values: Any) -> int:
    """How many facts about symbolic sizes (guards) have been assumed so far."""
    import torch

    for value in values:
        mode = getattr(value, "fake_mode", None)
        if isinstance(value, torch.Tensor) and mode is not None and mode.shape_env is not None:
            return len(mode.shape_env.guards)
    return 0


def describe(value: Any) -> str:
    """Dtype and sizes as text: comparing symbolic sizes themselves would add guards."""
    import torch

    return f"{value.dtype}{tuple(value.shape)}" if isinstance(value, torch.Tensor) else str(value)


def is_complex(value: Any) -> bool:
    """Whether `value`, or an element of it, is a complex tensor."""
    import torch

    values = value if isinstance(value, (tuple, list)) else (value,)
    return any(isinstance(item, torch.Tensor) and item.is_complex() for item in values)
