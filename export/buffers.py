"""A run may count calls or update statistics in buffers: what runs the original for us puts them back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["buffers_kept"]


@contextlib.contextmanager
def buffers_kept(model: Any) -> Iterator[list[str]]:
    """Every buffer of `model` is afterwards the same tensor with the same values as before.

    Yields a list that holds, afterwards, the names of those that were written.
    """
    import torch

    written: list[str] = []
    if not isinstance(model, torch.nn.Module):
        yield written
        return
    scripted = isinstance(model, torch.jit.ScriptModule)
    places = [
        (f"{path}.{name}".lstrip("."), m, name, b, b.detach().clone(), b._version)
        for path, m in model.named_modules()
        for name, b in m.named_buffers(recurse=False)
    ]
    try:
        yield written
    finally:
        with torch.no_grad():
            for path, module, name, buffer, value, version in places:
                now = getattr(module, name)
                replaced = now.data_ptr() != buffer.data_ptr() if scripted else now is not buffer
                if replaced:  # `self.count = self.count + 1`
                    setattr(module, name, buffer)
                changed = buffer._version != version
                if changed:
                    buffer.copy_(value)
                if replaced or changed:
                    written.append(path)
