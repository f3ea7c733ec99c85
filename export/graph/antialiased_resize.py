"""Antialiased interpolation by a factor: ONNX's Resize with scales, at any size.

torch's own decomposition computes the output's size and asks a kernel for it that takes all sizes for numbers. Its ONNX
function of the rest drops the factors, and in / out is another scale than the factor where out was rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["antialiased_resizes"]


def antialiased_resizes() -> dict[Any, Any]:
    """Decompositions by operator."""
    import torch

    aten = torch.ops.aten
    return {aten._upsample_bilinear2d_aa.vec: _bilinear, aten._upsample_bicubic2d_aa.vec: _bicubic}


def _bilinear(
    x: torch.Tensor,
    output_size: Sequence[Any] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Any:
    import torch

    if scale_factors is None:
        return torch.ops.aten._upsample_bilinear2d_aa.default(x, output_size, align_corners, None, None)
    return _resized(x, align_corners, scale_factors, {"mode": "linear"})


def _bicubic(
    x: torch.Tensor,
    output_size: Sequence[Any] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Any:
    import torch

    if scale_factors is None:
        return torch.ops.aten._upsample_bicubic2d_aa.default(x, output_size, align_corners, None, None)
    # antialiased, torch takes Keys's a = -0.5 as PIL does
    return _resized(x, align_corners, scale_factors, {"mode": "cubic", "cubic_coeff_a": -0.5})


def _resized(
    x: torch.Tensor, align_corners: bool, factors: Sequence[float], attributes: dict[str, Any]
) -> Any:
    import torch

    # not torch.tensor: a constant that a decomposition brings along is lost
    scales = torch.cat([torch.full((1,), factor, dtype=torch.float32) for factor in (1.0, 1.0, *factors)])
    return torch.onnx.ops.symbolic(
        "Resize",
        [x, None, scales],
        {
            **attributes,
            "antialias": 1,
            "exclude_outside": 1,  # torch's windows end at the image
            "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel",
        },
        dtype=x.dtype,
        shape=(
            *x.shape[:2],
            *(torch.sym_int(size * f) for size, f in zip(x.shape[2:], factors, strict=True)),
        ),
        version=18,
    )
