"""What is known of a serialised engine: plain data, as the sidecar beside it holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "EngineRecord",
    "Flavor",
    "KeptFloat32",
    "PluginFile",
    "Precision",
    "Profile",
    "Shape",
    "TensorRecord",
]

Flavor = Literal["tensorrt", "tensorrt-rtx"]
Precision = Literal["as exported", "fp32", "fp16", "bf16"]
Shape = tuple[int, ...]
# By input: the smallest, the best and the largest shape (for a shape input: its values).
Profile = Mapping[str, tuple[Shape, Shape, Shape]]


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """An input or output of the model. `dims`: sizes, or names of those that vary."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class PluginFile:
    """A library of plugins that the engine was built with. `name`: the file's alone, no folder."""

    name: str
    sha256: str
    embedded: bool


@dataclass(frozen=True, slots=True)
class KeptFloat32:
    """A node that stays float32 in a model cast to a narrower type, and why."""

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """An engine and what it was built from.

    Attributes:
        engine: the file's name.
        sha256: of the engine.
        bytes: its size.
        flavor: which TensorRT built it.
        tensorrt: the version that did, `10.13.3`.
        platform: `linux-x86_64`.
        archs: compute capabilities it has code for, `sm89`; one alone where it was built for the GPU at hand.
        gpu: the GPU that it was built on, by name; None: without one.
        hardware_compatible: "" for the archs named alone, else "ampere+" (8.0 and newer) or "same compute capability".
        version_compatible: whether newer versions of TensorRT may load it.
        model: the ONNX file's name.
        model_sha256: of that file; of its side files too, where weights are beside it.
        plugins: libraries it needs.
        precision: what the model was cast to before the build.
        kept_float32: what was not cast.
        profiles: in the engine's order.
        inputs, outputs: as in the ONNX model.
        workspace: the limit in bytes; None: TensorRT's own.
        build_seconds: how long the build took.
        warnings: what was said while it was built.
        in_place: whether operators that write into an argument do so in the input's own memory, without a copy.
    """

    engine: str
    sha256: str
    bytes: int
    flavor: Flavor
    tensorrt: str
    platform: str
    archs: tuple[str, ...]
    gpu: str | None
    hardware_compatible: Literal["", "ampere+", "same compute capability"]
    version_compatible: bool
    model: str
    model_sha256: str
    plugins: tuple[PluginFile, ...]
    precision: Precision
    kept_float32: tuple[KeptFloat32, ...]
    profiles: tuple[Profile, ...]
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    workspace: int | None
    build_seconds: float
    warnings: tuple[str, ...]
    in_place: bool
