"""The model of `make demo`: a small audio denoiser with custom operators. Run as a program it writes model.pt."""

import torch
from snake import snake
from torch import Tensor, nn

from deployops.symbolic.operators.rms_norm import rms_norm
from deployops.symbolic.operators.swish import swish


class Block(nn.Module):
    """Convolution, snake, and a gate with a learnable slope; (batch, channels, time) in and out."""

    def __init__(self, channels: int, alpha: float) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 5, padding=2)
        self.gate = nn.Conv1d(channels, channels, 1)
        self.weight = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.ones(()))
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        h = rms_norm(x.transpose(1, 2), self.weight).transpose(1, 2)
        h = snake(self.conv(h), self.alpha)
        return x + h * swish(self.gate(x), self.beta)


class Denoiser(nn.Module):
    """(batch, 8, time) -> the same, with the noise taken away once trained."""

    def __init__(self, channels: int = 32, depth: int = 4) -> None:
        super().__init__()
        self.into = nn.Conv1d(8, channels, 7, padding=3)
        self.blocks = nn.ModuleList(Block(channels, alpha=0.5 + 0.25 * k) for k in range(depth))
        self.out = nn.Conv1d(channels, 8, 7, padding=3)

    def forward(self, noisy: Tensor) -> Tensor:
        h = self.into(noisy)
        for block in self.blocks:
            h = block(h)
        return noisy - self.out(h)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.save({"model": Denoiser().state_dict(), "epoch": 12}, "model.pt")
    print("wrote model.pt, a training checkpoint")
