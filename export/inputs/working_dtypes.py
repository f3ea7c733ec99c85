"""Where a model does not run on the dtypes that were asked for: does it run on those of its weights?"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .example_inputs import dtype_name
from .signature import Signature

if TYPE_CHECKING:
    import torch

__all__ = ["dtype_advice"]

_CAST = {"float16": ".half()", "float32": ".float()", "float64": ".double()", "bfloat16": ".bfloat16()"}
_CONVERTED = re.compile(r"tensors are (\w+) in the checkpoint, (\w+) in the model")


def dtype_advice(
    module: torch.nn.Module | None,
    signature: Signature,
    runs: Callable[[Signature], bool],
    notes: Sequence[str] = (),
) -> str | None:
    """What to change where floating inputs have another dtype than the weights, and the model runs once they have theirs.

    `notes` of the loader say which dtypes of the file it converted. None where the dtypes are not the fault.
    """
    weights = Counter(dtype_name(p) for p in module.parameters()) if module is not None else Counter()
    wanted = next((name for name, _ in weights.most_common() if name in _CAST), None)
    others = [s for s in signature.specs if s.is_tensor and s.dtype in _CAST and s.dtype != wanted]
    if wanted is None or not others:
        return None
    specs = tuple(dataclasses.replace(s, dtype=wanted) if s in others else s for s in signature.specs)
    data = {
        n: t.to(_torch_dtype(wanted)) if n in {s.name for s in others} else t
        for n, t in signature.data.items()
    }
    if not runs(dataclasses.replace(signature, specs=specs, data=data)):
        return None
    inputs = ", ".join(f"`{s.name}` {s.dtype}" for s in others)
    told = next((m for m in map(_CONVERTED.search, notes) if m is not None and m[2] == wanted), None)
    if told is not None and all(s.dtype == told[1] for s in others):
        return (
            f"The file's weights are {told[1]}, those of the model that --model builds {wanted}, and it runs on {wanted} "
            f"alone: let --model return the model in {told[1]} (`return model{_CAST[told[1]]}`), or give {wanted} inputs"
        )
    return (
        f"The model's weights are {wanted}, and the input is {inputs}: it runs on {wanted}. Give {wanted} in --input, or the "
        f"model in the inputs' dtype (`model{_CAST[others[0].dtype]}`)"
    )


def _torch_dtype(name: str) -> torch.dtype:
    import torch

    dtype: torch.dtype = getattr(torch, name)
    return dtype
