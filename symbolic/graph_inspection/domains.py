"""Domains whose operators nobody has to bring: ONNX's own, and those that come with ONNX Runtime."""

from __future__ import annotations

__all__ = ["BUILT_IN", "STANDARD", "is_custom"]

STANDARD = frozenset({"", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"})
BUILT_IN = frozenset(
    {
        "com.microsoft",
        "com.microsoft.experimental",
        "com.microsoft.nchwc",
        "com.ms.internal.nhwc",
        "org.pytorch.aten",
    }
)


def is_custom(domain: str) -> bool:
    """Does somebody have to bring a kernel or a body for it?"""
    return domain not in STANDARD and domain not in BUILT_IN
