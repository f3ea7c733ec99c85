"""The tests of the kernels once more, on a library built with AddressSanitizer and UndefinedBehaviorSanitizer.

    python tests/sanitize.py [pytest arguments]

Warnings are errors in that build. First a kernel with a planted fault shows that a fault would be found.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from deployops import compile_library
from deployops.native.compilers import find_cxx

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1", "-O1")
CASES = ("13_noncontiguous_input", "21_fp16_layernorm_overflow", "22_nan_inf_semantics")
TESTS = ("tests/kernels", *(f"tests/cases/test_case_{name}.py" for name in CASES))

FAULTY = """
import torch
from torch import Tensor
from deployops import operator

@operator("planted::{name}", dtypes=("float32",))
def {name}(x: Tensor) -> Tensor:
    return x.clone()

@{name}.fake
def _(x):
    return torch.empty_like(x)

@{name}.samples
def _(draw):
    yield (draw(4),)
"""
KERNEL = """#pragma once
#include "deployops/parallel.h"
#include "deployops/tensor.h"
namespace deployops {{
inline void {name}(const Parallel& par, In<float> x, Out<float> y) {{
  Scratch<float> held = par.scratch<float>(x.numel());
  for (int64_t i = 0; i < x.numel(); ++i) held[i] = x[i];
  {fault}
}}
}}  // namespace deployops
"""
# Beyond the end of heap memory; a conversion that has no result.
FAULTS = {
    "beyond_the_end": ("y[0] = held[x.numel()];", "heap-buffer-overflow"),
    "no_such_integer": (
        "y[0] = float(int32_t(x[0] * 0 + 1e20f));",
        "outside the range of representable values",
    ),
}


def environment() -> dict[str, str]:
    """Python itself is not sanitized, so the sanitizer's library has to come first; after it libstdc++, whose `throw`
    it can only take over where that is loaded from the start."""
    preloaded = []
    for name in ("libasan.so", "libstdc++.so.6"):
        asked = [str(find_cxx().path), f"-print-file-name={name}"]
        found = subprocess.run(asked, capture_output=True, text=True, check=True)
        preloaded.append(found.stdout.strip())
    return os.environ | {
        "LD_PRELOAD": " ".join(preloaded),
        "ASAN_OPTIONS": "detect_leaks=0",
        "OMP_NUM_THREADS": "1",
    }


def plant(name: str, folder: Path) -> str:
    """What a process says that runs the faulty kernel."""
    (folder / "kernels").mkdir(exist_ok=True)
    declaration = folder / f"{name}_ops.py"
    declaration.write_text(FAULTY.format(name=name))
    (folder / "kernels" / f"{name}.h").write_text(KERNEL.format(name=name, fault=FAULTS[name][0]))
    flags = (*FLAGS, "-fsanitize=float-cast-overflow")
    library = compile_library(ops=[str(declaration)], out=folder / name, flags=flags)
    code = (
        "from deployops.ort_ops import check_kernels\nfrom deployops.symbolic import registry\n"
        f"check_kernels({str(library.path)!r}, registry.load([{str(declaration)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        for name, (_, words) in FAULTS.items():
            said = plant(name, Path(folder))
            if words not in said:
                print(f"the planted fault {name} was not found:\n{said[-2000:]}")
                return 1
    library = compile_library(out=ROOT / ".build" / "sanitized", flags=(*FLAGS, "-Werror"))
    print(library.summary(), flush=True)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "auto", *(sys.argv[1:] or TESTS)],
        cwd=ROOT,
        env=environment() | {"DEPLOYOPS_TEST_LIBRARY": str(library.path)},
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
