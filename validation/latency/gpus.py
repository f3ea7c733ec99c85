"""Published limits of GPUs, for floors that are *predicted*: nothing here was measured.

Memory bandwidth and the dense rates of matrix products, without structured sparsity; datasheets that print rates with
sparsity are halved. float32 is that of TF32 where the GPU has it, because TensorRT uses it unless told not to: a floor is a
lower bound. Rates are at boost clocks, which long work does not hold.
"""

from __future__ import annotations

from .machine import Bandwidth, Machine

__all__ = ["GPUS", "gpu"]

_T = 1e12


def _gpu(name: str, gigabytes: float, source: str, **tera: float) -> Machine:
    rate = gigabytes * 1e9
    return Machine(name, (Bandwidth(0, rate, rate),), {k: v * _T for k, v in tera.items()}, source)


def _hopper(name: str, gigabytes: float, source: str) -> Machine:
    return _gpu(
        name, gigabytes, source, float64=67, float32=494.5, float16=989.5, bfloat16=989.5, float8e4m3fn=1979,
        float8e5m2=1979, int8=1979,
    )  # fmt: skip


def _ampere(name: str, gigabytes: float, source: str) -> Machine:
    return _gpu(name, gigabytes, source, float64=19.5, float32=156, float16=312, bfloat16=312, int8=624)


_TABLE = (
    _gpu("T4", 320, "NVIDIA T4 datasheet", float32=8.1, float16=65, int8=130),
    _gpu("V100 SXM2", 900, "NVIDIA V100 datasheet", float64=7.8, float32=15.7, float16=125),
    _gpu("A10", 600, "NVIDIA A10 datasheet", float32=62.5, float16=125, bfloat16=125, int8=250),
    _ampere("A100 40GB", 1555, "NVIDIA A100 datasheet"),
    _ampere("A100 80GB SXM", 2039, "NVIDIA A100 datasheet"),
    _hopper("H100 SXM", 3350, "NVIDIA H100 datasheet, rates with sparsity halved"),
    _hopper("H200 SXM", 4800, "NVIDIA H200 datasheet, rates with sparsity halved"),
    _gpu(
        "L4", 300, "NVIDIA L4 datasheet, rates with sparsity halved", float32=60, float16=121, bfloat16=121,
        float8e4m3fn=242.5, float8e5m2=242.5, int8=242.5,
    ),
    _gpu(
        "L40S", 864, "NVIDIA L40S datasheet, without sparsity", float32=183, float16=362, bfloat16=362,
        float8e4m3fn=733, float8e5m2=733, int8=733,
    ),
    _gpu(
        "RTX 4090", 1008, "NVIDIA Ada GPU architecture, whitepaper, appendix A, without sparsity; float16 with float16 "
        "accumulation", float32=82.6, float16=330.3, bfloat16=165.2, float8e4m3fn=660.6, float8e5m2=660.6, int8=660.6,
    ),
    _gpu(
        "Jetson AGX Orin 64GB", 204.8, "NVIDIA Jetson AGX Orin Series technical brief: 170 sparse int8 TOPS of the GPU, "
        "halved for dense, and halved again for float16", float32=21.25, float16=42.5, bfloat16=42.5, int8=85,
    ),
)  # fmt: skip
# by name
GPUS: dict[str, Machine] = {machine.name: machine for machine in _TABLE}


def gpu(name: str) -> Machine | None:
    """By its name, whatever the case: "h100 sxm"; None for one that is not here."""
    return next((m for m in _TABLE if m.name.casefold() == name.casefold()), None)
