"""Which element goes where: windows, padding, resizing, axes, indices; and integers."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .fault import HALVES, IMAGE, Fault, rand

INTS = torch.arange(-60, 60).reshape(10, 12)


def shuffled(x: torch.Tensor, column_row_depth: bool) -> torch.Tensor:
    n, c, h, w = x.shape
    if column_row_depth:
        return F.pixel_shuffle(x, 2)
    return x.reshape(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // 4, 2 * h, 2 * w)


LAYOUT = (
    Fault(
        "a window off by one",
        lambda x, m: F.avg_pool1d(x, 3, 1),
        lambda x, m: F.avg_pool1d(x, 3, 1).roll(1, -1),
        (rand(2, 4, 40),),
    ),
    Fault(
        "padding on the other side",
        lambda x, m: F.conv2d(F.pad(x, (0, 1, 0, 1)), m.w),
        lambda x, m: F.conv2d(F.pad(x, (1, 0, 1, 0)), m.w),
        (IMAGE,),
        {"w": rand(5, 4, 2, 2) / 4},
    ),
    Fault(
        "padding: edges for zeros",
        lambda x, m: F.pad(x, (1, 1, 1, 1)),
        lambda x, m: F.pad(x, (1, 1, 1, 1), mode="replicate"),
        (IMAGE,),
    ),
    Fault(
        "padding: reflected for repeated",
        lambda x, m: F.pad(x, (2, 2, 2, 2), mode="replicate"),
        lambda x, m: F.pad(x, (2, 2, 2, 2), mode="reflect"),
        (IMAGE,),
    ),
    Fault(
        "pooling counts the padding",
        lambda x, m: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        lambda x, m: F.avg_pool2d(x, 3, 1, 1),
        (IMAGE,),
    ),
    Fault(
        "max pooling pads with zero",
        lambda x, m: F.max_pool2d(x, 3, 1, 1),
        lambda x, m: F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 1),
        (IMAGE,),
    ),
    Fault(
        "dilation ignored",
        lambda x, m: F.conv2d(x, m.w, dilation=2, padding=2),
        lambda x, m: F.conv2d(x, m.w, padding=1),
        (IMAGE,),
        {"w": rand(5, 4, 3, 3) / 6},
    ),
    Fault(
        "convolution: kernel flipped",
        lambda x, m: F.conv2d(x, m.w),
        lambda x, m: F.conv2d(x, m.w.flip(-1, -2)),
        (IMAGE,),
        {"w": rand(5, 4, 3, 3) / 6},
    ),
    Fault(
        "groups: the second half first",
        lambda x, m: F.conv2d(x, m.w, groups=2),
        lambda x, m: F.conv2d(x.roll(2, 1), m.w, groups=2),
        (IMAGE,),
        {"w": rand(4, 2, 3, 3) / 4},
    ),
    Fault(
        "resize: aligned corners",
        lambda x, m: F.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x, m: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        (IMAGE,),
    ),
    Fault(
        "resize: nearest rounds up",
        lambda x, m: F.interpolate(x, size=(6, 6), mode="nearest"),
        lambda x, m: F.interpolate(x.roll(-1, -1), size=(6, 6), mode="nearest"),
        (IMAGE,),
    ),
    Fault(
        "pixel shuffle: depth first",
        lambda x, m: shuffled(x, True),
        lambda x, m: shuffled(x, False),
        (rand(2, 8, 5, 5),),
    ),
    Fault(
        "channels last read as first",
        lambda x, m: x.permute(0, 2, 3, 1).flatten(1),
        lambda x, m: x.flatten(1),
        (IMAGE,),
    ),
    Fault(
        "red and blue swapped",
        lambda x, m: x * m.k,
        lambda x, m: x * m.k.flip(1),
        (rand(2, 3, 8, 8),),
        {"k": torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)},
    ),
    Fault(
        "scale on the wrong axis",
        lambda x, m: x * m.k,
        lambda x, m: x * m.k[:, None],
        (rand(24, 24),),
        {"k": 1 + 0.1 * rand(24)},
    ),
    Fault("cumulative sum: exclusive", lambda x, m: x.cumsum(1), lambda x, m: x.cumsum(1) - x),
    Fault("cumulative sum: reversed", lambda x, m: x.cumsum(1), lambda x, m: x.flip(1).cumsum(1).flip(1)),
    Fault(
        "an index from the end taken as zero",
        lambda x, m: x[:, torch.tensor([-1, 2])],
        lambda x, m: x[:, torch.tensor([0, 2])],
    ),
    Fault(
        "a gather off by one", lambda x, m: x[:, torch.arange(0, 30)], lambda x, m: x[:, torch.arange(1, 31)]
    ),
    Fault("top-k ascending", lambda x, m: x.topk(5, 1).values, lambda x, m: x.topk(5, 1).values.flip(1)),
    Fault("a slice's step ignored", lambda x, m: x[:, ::2], lambda x, m: x[:, :30]),
    Fault(
        "positions off by one",
        lambda x, m: x + m.p[1:61],
        lambda x, m: x + m.p[:60],
        (rand(50, 60),),
        {"p": 0.05 * rand(61, seed=2)},
    ),
    Fault(
        "labels: the last of equals",
        lambda x, m: x.argmax(1),
        lambda x, m: 7 - x.flip(1).argmax(1),
        (torch.arange(48).reshape(6, 8) % 3 * 1.0,),
        exported=False,
    ),
    Fault(
        "labels off by one",
        lambda x, m: x.argmax(1),
        lambda x, m: x.argmax(1) + 1,
        (rand(30, 8),),
        mode="argmax",
    ),
    Fault(
        "truncation for floor",
        lambda x, m: torch.div(x, 7, rounding_mode="floor"),
        lambda x, m: torch.div(x, 7, rounding_mode="trunc"),
        (INTS,),
        dtypes=("float32",),
        exported=False,
    ),
    Fault(
        "int32 for int64",
        lambda x, m: x * 100_000_000,
        lambda x, m: (x * 100_000_000).to(torch.int32).to(torch.int64),
        (INTS,),
        dtypes=("float32",),
    ),
    Fault(
        "rounding for truncation to int",
        lambda x, m: (x * 1.5).to(torch.int64),
        lambda x, m: torch.round(x * 1.5).to(torch.int64),
        (HALVES,),
    ),
    Fault(
        "uint8 saturates",
        lambda x, m: x.to(torch.uint8),
        lambda x, m: x.clamp(0, 255).to(torch.uint8),
        (INTS * 5,),
        dtypes=("float32",),
        exported=False,
    ),
)
