"""Case 06: complex numbers inside a model are lowered to pairs of real ones; at its boundary that is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

X = np.sin(np.arange(64, dtype=np.float32) * 0.7).reshape(1, 64)
PAIRS = np.stack([X[0, :8].reshape(2, 4), X[0, 8:16].reshape(2, 4)], -1)  # real, imaginary
COMPLEX = PAIRS[..., 0] + 1j * PAIRS[..., 1]


class Magnitude(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stft(x, n_fft=16, hop_length=8, window=self.window, return_complex=True).abs()


class Fourier(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x)


class Conjugated(torch.nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return (z * z.conj()).real


class Weights(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.complex(torch.eye(4), 2 * torch.eye(4)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(x.to(torch.complex64) @ self.weight)


def stft_magnitude(x: Any) -> Any:
    """The definition, in float64: centred frames, reflected edges, a periodic Hann window."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (8, 8)), mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(16) / 16)
    frames = np.stack([padded[:, k : k + 16] * window for k in range(0, padded.shape[1] - 15, 8)], -1)
    return np.abs(np.fft.rfft(frames, axis=1))


@pytest.mark.parametrize("spec", ["x:float32[1,64]", "x:float32[batch,64]"])
def test_inside_the_model(deploy: Any, spec: str) -> None:
    exported = deploy(Magnitude(), [spec])
    np.testing.assert_allclose(exported.run(X)[0], stft_magnitude(X), atol=2e-6)
    assert "complex" not in exported.notes


def test_a_complex_output_is_a_pair_and_said_to_be(deploy: Any) -> None:
    exported = deploy(Fourier(), ["x:float32[1,64]"])
    got = exported.run(X)[0]
    assert got.shape == (1, 64, 2)
    assert got.dtype == np.float32
    expected = np.fft.fft(X.astype(np.float64))
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], expected, atol=2e-5)
    assert "output `output` is complex in PyTorch" in exported.notes
    assert "last dim of 2" in exported.notes


def test_a_complex_input_is_a_pair_and_said_to_be(deploy: Any) -> None:
    exported = deploy(Conjugated(), ["z:complex64[batch,4]"])
    assert exported.dims("z") == ["batch", 4, 2]
    np.testing.assert_allclose(exported.run(PAIRS)[0], np.abs(COMPLEX) ** 2, rtol=1e-5)
    assert "input `z` is complex in PyTorch" in exported.notes


def test_complex_weights(deploy: Any) -> None:
    exported = deploy(Weights(), ["x:float32[batch,4]"])
    x = X[0, :8].reshape(2, 4)
    np.testing.assert_allclose(exported.run(x)[0], np.stack([x, 2 * x], -1), rtol=1e-6)


@pytest.mark.parametrize(
    ("net", "spec"), [("Fourier", "x:float32[1,64]"), ("Conjugated", "z:complex64[batch,4]")]
)
def test_validate_compares_the_pairs(command: Any, tmp_path: Path, net: str, spec: str) -> None:
    program = tmp_path / "net.pt2"
    example = torch.from_numpy(X) if net == "Fourier" else torch.from_numpy(COMPLEX)
    torch.export.save(torch.export.export(globals()[net](), (example,)), program)
    options = [program] if net == "Conjugated" else [program, "--input", spec]
    done = command("export", *options, "-o", tmp_path / "net.onnx")
    assert done.code == 0, done.err
    assert "is complex in PyTorch" in done.out
    done = command("validate", *options, "--onnx", tmp_path / "net.onnx", "--no-latency")
    assert done.code == 0, done.out + done.err
