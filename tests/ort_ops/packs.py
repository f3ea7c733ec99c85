"""Packs of one operator, written into a folder by the tests that compile them."""

from __future__ import annotations

from pathlib import Path


def written(folder: Path, declaration: str, kernel: str | None, name: str) -> str:
    """A pack of one operator in a folder."""
    head = (
        "import torch\nfrom torch import Tensor\nfrom deployops import operator\n\n"
        f"@operator('built{abs(hash(str(folder))) % 10**6}::{name}', dtypes=('float32',))\n"
    )
    (folder / f"{name}_ops.py").write_text(head + declaration)
    if kernel is not None:
        (folder / f"{name}.h").write_text(
            '#pragma once\n#include "deployops/parallel.h"\n#include "deployops/tensor.h"\n' + kernel
        )
    return str(folder / f"{name}_ops.py")


SAME = """def {0}(x: Tensor) -> Tensor:
    return x.clone()

@{0}.fake
def _(x):
    return torch.empty_like(x)

@{0}.samples
def _(draw):
    yield draw(3),
"""
COPY = """namespace deployops {{
inline void {0}(const Parallel&, In<float> x, Out<float> y) {{
  for (int64_t i = 0; i < x.numel(); ++i) y[i] = {1};
}}
}}
"""
