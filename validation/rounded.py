"""The original as the least accurate sound runtime would compute it: every operator taken apart, every step rounded.

PyTorch computes GELU, softmax or a normalisation of a float16 tensor in float32 and rounds once. A file may hold the same
as five nodes, and a runtime may round after each of them, with constants rounded too. Both are sound. What the second
way costs is measured here, on the original, and not guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["each_step_rounded"]

# Taken apart where PyTorch has a decomposition. Products, convolutions and sums stay whole: they accumulate in float32
# everywhere that is sound.
COMPOSITE = (
    "gelu",
    "silu",
    "mish",
    "softplus",
    "hardswish",
    "hardsigmoid",
    "elu",
    "log_sigmoid_forward",
    "glu",
    "logit",
    "_softmax",
    "_log_softmax",
    "logsumexp",
    "native_layer_norm",
    "native_group_norm",
    "_native_batch_norm_legit_no_training",
    "native_batch_norm",
    "_fused_rms_norm",
    "_scaled_dot_product_flash_attention_for_cpu",
    "addmm",
    "addcmul",
    "addcdiv",
    "lerp",
    "std",
    "var",
)


def each_step_rounded(deployed: Any) -> Any:
    """A torch dispatch mode; `deployed` is the dtype that steps are rounded to."""
    import torch
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    table = _decompositions()
    # ONNX has no Expm1 and no Log1p: files hold these
    cancelling = {
        torch.ops.aten.expm1.default: lambda x: torch.exp(x) - 1,
        torch.ops.aten.log1p.default: lambda x: torch.log(1 + x),
    }
    constants = {"mul", "div"}

    def rounded(value: Any) -> Any:
        if (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.itemsize > deployed.itemsize
        ):
            return value.to(deployed).to(value.dtype)
        return value

    def constant(value: Any) -> Any:
        return float(torch.tensor(value, dtype=deployed)) if isinstance(value, float) else value

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
        depth = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            step = table.get(func)
            floats = [
                v
                for v in _pytree.tree_leaves((args, kwargs))
                if isinstance(v, torch.Tensor) and v.is_floating_point()
            ]
            if step is not None and floats and (self.depth or all(v.dtype == deployed for v in floats)):
                self.depth += 1
                try:
                    with self:
                        return step(*args, **kwargs)
                finally:
                    self.depth -= 1
            if func is torch.ops.aten.cumsum.default and floats:
                return _scanned(func, args, kwargs)
            if func in cancelling:
                with self:
                    return cancelling[func](*args)
            if not self.depth:
                return func(*args, **kwargs)
            if func._schema.name.split("::")[-1] in constants:
                args = tuple(constant(a) for a in args)
            return _pytree.tree_map(rounded, func(*args, **kwargs))

    return Mode()  # type: ignore[no-untyped-call,unused-ignore]


def _scanned(func: Any, args: Any, kwargs: Any) -> Any:
    """cumsum term by term in float32 (PyTorch adds up in float64); float64 stays."""
    import numpy as np
    import torch

    x, dim = args[0], args[1]
    if x.dtype == torch.float64 or kwargs.get("dtype") is not None or not x.dim():
        return func(*args, **kwargs)
    return torch.from_numpy(np.cumsum(x.float().numpy(), dim, dtype=np.float32)).to(x.dtype)


def _decompositions() -> dict[Any, Callable[..., Any]]:
    import torch
    from torch._decomp import decomposition_table

    found = {}
    for name in COMPOSITE:
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            if op in decomposition_table:
                found[op] = decomposition_table[op]
    return found
