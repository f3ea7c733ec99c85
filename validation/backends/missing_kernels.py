"""What to do where ONNX Runtime's CPU has no kernel for the dtype of a model."""

from __future__ import annotations

__all__ = ["with_advice"]


def with_advice(text: str) -> str:
    """The text of a refusal; where it is about bfloat16, which the CPU provider hardly has, with what can be done here."""
    if "has no kernel for" not in text or "(bfloat16" not in text:
        return text
    return (
        f"{text}. ONNX Runtime's CPU has few kernels for bfloat16, its CUDA provider and TensorRT have them. Without a GPU, "
        "export the model in float32 (or float16) and validate that: its graph is the same but for the dtypes"
    )
