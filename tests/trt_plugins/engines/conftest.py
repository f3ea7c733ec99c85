"""What the tests of built engines share: TensorRT-RTX on the path, exported models, a library of plugins."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from deployops import export_model
from deployops.native.nvcc import Nvcc
from deployops.symbolic import registry
from deployops.trt_plugins.headers import Headers
from deployops.trt_plugins.library import PluginLibrary, compile_plugins

PACK = Path(__file__).resolve().parent / "pack" / "pack.py"


@pytest.fixture
def rtx(tensorrt_rtx: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """TensorRT-RTX can be imported, and nothing is in the cache."""
    monkeypatch.syspath_prepend(str(tensorrt_rtx))
    monkeypatch.setenv("DEPLOYOPS_CACHE", str(tmp_path / "cache"))
    return tensorrt_rtx


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of standard operators, exported for ranges, weights included."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding=1)
            self.head = nn.Linear(8, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.conv(x)).mean((2, 3))
            return torch.softmax(self.head(y), -1)

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("exported") / "net.onnx"
    export_model(Net().eval(), ["x:float32[n=1..64@8,3,h=8..64%4@16,w=8..64%4@16]"], out=path)
    return path


@pytest.fixture(scope="session")
def engine_library(nvcc: Nvcc, headers: Headers, tmp_path_factory: pytest.TempPathFactory) -> PluginLibrary:
    """The plugin of enginepack::scaled, for one architecture."""
    return compile_plugins(
        registry.load([str(PACK)]),
        archs=[80],
        out=tmp_path_factory.mktemp("engine-plugins"),
        nvcc=str(nvcc.path),
        tensorrt_root=headers.folder,
    )


@pytest.fixture(scope="session")
def exported_with_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with one node of enginepack::Scaled between standard operators."""
    [scaled] = registry.load([str(PACK)])

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(scaled(x + 1.0, 0.5))

    path = tmp_path_factory.mktemp("exported") / "scaled.onnx"
    export_model(Net(), ["x:float32[n=1..16@4,7]"], out=path, custom_ops="node")
    return path
