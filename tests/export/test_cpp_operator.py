"""A C++ operator library (TORCH_LIBRARY): from its `.so` and a model file of any kind to an ONNX model that runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

# One kernel under several names, so that no test sees what another declared. `meta_*` have a Meta kernel.
NAMES = (
    "gap",
    "numbers",
    "bare_state",
    "bare_script",
    "bare_program",
    "meta_state",
    "meta_script",
    "meta_program",
)
SOURCE = """
#include <torch/library.h>

at::Tensor cap(const at::Tensor& x, double limit, at::OptionalIntArrayRef shifts) {
  at::Tensor y = x.contiguous().clone();
  float* p = y.data_ptr<float>();
  float extra = 0;
  if (shifts.has_value()) for (int64_t s : *shifts) extra += s;
  for (int64_t i = 0; i < y.numel(); ++i) {
    if (p[i] > limit) p[i] = float(limit) + 0.5f * (p[i] - float(limit));
    p[i] += extra;
  }
  return y;
}

at::Tensor cap_meta(const at::Tensor& x, double limit, at::OptionalIntArrayRef shifts) {
  return x.new_empty_symint(x.sym_sizes());
}

at::Tensor cap_meta_of_numbers(const at::Tensor& x, double limit, at::OptionalIntArrayRef shifts) {
  return x.new_empty(x.sizes());
}

TORCH_LIBRARY(acmecpp, m) { DEFINITIONS }
TORCH_LIBRARY_IMPL(acmecpp, CPU, m) { KERNELS }
TORCH_LIBRARY_IMPL(acmecpp, Meta, m) { META_KERNELS }
"""
PARTS = {
    "META_KERNELS": "".join(f'm.impl("{n}", cap_meta); ' for n in NAMES if n.startswith("meta"))
    + 'm.impl("numbers", cap_meta_of_numbers);',
    "KERNELS": "".join(f'm.impl("{n}", cap); ' for n in NAMES),
    "DEFINITIONS": "".join(
        f'm.def("{n}(Tensor x, float limit, int[]? shifts=None) -> Tensor"); ' for n in NAMES
    ),
}
FAKE = """
@torch.library.register_fake("acmecpp::{name}")
def _(x, limit, shifts=None):
    return torch.empty_like(x)
"""
PACK = """
import deployops
import torch

op = deployops.adopt("acmecpp::{name}", onnx="acmecpp::{camel}", dtypes=("float32",))

@op.body
def _(b, x, limit, shifts):
    over = b.Add(b.Mul(b.Sub(x, float(limit)), 0.5), float(limit))
    y = b.Where(b.Greater(x, float(limit)), over, x)
    return y if not shifts else b.Add(y, float(sum(shifts)))
"""
NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return torch.ops.acmecpp.{name}(x * self.scale, 1.0, [1, 2]) - torch.ops.acmecpp.{name}(x, 0.5)
"""
X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)


def by_definition(x: Any) -> Any:
    def cap(v: Any, limit: float, extra: float) -> Any:
        return np.where(v > limit, limit + 0.5 * (v - limit), v) + extra

    return cap(2 * x, 1.0, 3) - cap(x, 0.5, 0)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `.so`, built by the compiler alone: torch's own build helper takes a minute."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler, "a C++ compiler is needed"
    folder = tmp_path_factory.mktemp("cpp")
    source = SOURCE
    for mark, code in PARTS.items():
        source = source.replace(mark, code)
    (folder / "op.cpp").write_text(source)
    root = Path(torch.__file__).parent
    standard = "20" if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12) else "17"
    command = [
        compiler, f"-std=c++{standard}", "-O0", "-fPIC", "-shared", str(folder / "op.cpp"), "-o", str(folder / "libop.so"),
        f"-I{root / 'include'}", f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
    ]  # fmt: skip
    built = subprocess.run(command, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder / "libop.so"


def net_of(name: str, folder: Path) -> Any:
    """The module, from a file that --model can name."""
    (folder / f"net_{name}.py").write_text(NET.format(name=name))
    scope: dict[str, Any] = {"__name__": f"net_{name}"}
    exec(compile(NET.format(name=name), str(folder / f"net_{name}.py"), "exec"), scope)
    return scope["Net"]().eval()


def pack_of(name: str, folder: Path) -> Path:
    camel = "".join(part.title() for part in name.split("_"))
    text = PACK.format(name=name, camel=camel) + ("" if name.startswith("meta") else FAKE.format(name=name))
    (folder / f"pack_{name}.py").write_text(text)
    return folder / f"pack_{name}.py"


def write_state(name: str, folder: Path, library: Path) -> list[str]:
    torch.save(net_of(name, folder).state_dict(), folder / "model.pt")
    return ["--model", f"{folder / f'net_{name}.py'}:Net"]


def write_script(name: str, folder: Path, library: Path) -> list[str]:
    torch.ops.load_library(str(library))
    net = net_of(name, folder)
    torch.jit.trace(net, torch.from_numpy(X)).save(str(folder / "model.pt"))
    return []


def write_program(name: str, folder: Path, library: Path) -> list[str]:
    """By a process of its own: the fake kernel that the trace needs is none of the file's."""
    cached = library.with_name(f"{name}.pt2")
    if not cached.exists():
        make_program(name, cached, library)
    shutil.copy(cached, folder / "model.pt")
    return []


def make_program(name: str, path: Path, library: Path) -> None:
    script = (
        f"import torch\ntorch.ops.load_library({str(library)!r})\n"
        + ("" if name.startswith("meta") else FAKE.format(name=name))
        + NET.format(name=name)
        + "batch = torch.export.Dim('batch', min=1, max=64)\n"
        + "program = torch.export.export(Net().eval(), (torch.ones(3, 4),), dynamic_shapes={'x': {0: batch}})\n"
        + f"torch.export.save(program, {str(path)!r})\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)


WRITE = {"state": write_state, "script": write_script, "program": write_program}


@pytest.mark.parametrize("kind", ["state", "script", "program"])
@pytest.mark.parametrize("kernel", ["bare", "meta"])
def test_the_whole_way_to_a_running_model(
    command: Any, library: Path, tmp_path: Path, run_onnx: Any, kernel: str, kind: str
) -> None:
    name = f"{kernel}_{kind}"
    options = ["--load-library", library, "--ops", pack_of(name, tmp_path), "--input", "x:float32[batch,4]"]
    options += WRITE[kind](name, tmp_path, library)
    done = command("export", tmp_path / "model.pt", "-o", tmp_path / "out.onnx", *options)
    assert done.code == 0, done.err
    assert f"2 × acmecpp::{kernel.title()}{kind.title()} (with bodies)" in done.out
    np.testing.assert_allclose(run_onnx(tmp_path / "out.onnx", X)[0], by_definition(X), rtol=1e-6, atol=1e-6)
    done = command(
        "validate", tmp_path / "model.pt", "--onnx", tmp_path / "out.onnx", "--no-latency", *options
    )
    assert done.code == 0, done.out + done.err


def test_without_meta_kernel_and_adoption_both_gaps_are_listed(
    command: Any, library: Path, tmp_path: Path
) -> None:
    options = write_state("gap", tmp_path, library)
    done = command(
        "export", tmp_path / "model.pt", "--load-library", library, "--input", "x:float32[batch,4]", *options
    )
    assert done.code == 1
    assert "acmecpp::gap(Tensor x, float limit, int[]? shifts=None) -> Tensor" in done.err
    assert "(1) it has no fake kernel" in done.err
    assert "(2) it has no declaration" in done.err
    assert 'register_fake("acmecpp::gap")' in done.err
    assert 'deployops.adopt("acmecpp::gap", onnx="acmecpp::Gap")' in done.err
    assert "net_gap.py:10 in " in done.err
    assert "--ops FILE.py" in done.err
    assert not list(tmp_path.glob("*.onnx"))


@pytest.mark.parametrize("kind", ["script", "program", "state"])
def test_without_its_library_the_message_says_what_is_missing(
    library: Path, tmp_path: Path, kind: str
) -> None:
    """In a process that never loaded it."""
    name = f"meta_{kind}"
    options = WRITE[kind](name, tmp_path, library)
    done = subprocess.run(
        [sys.executable, "-m", "deployops.cli", "export", str(tmp_path / "model.pt"), "--input", "x:float32[batch,4]", *options],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode in (1, 2), done.stdout
    assert "acmecpp" in done.stderr
    assert name in done.stderr
    assert "--load-library" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "word"),
    [(None, "does not exist|no such file"), (b"not a library", "libop|not.*library|invalid")],
)
def test_a_library_that_cannot_be_loaded_is_one_clear_line(
    command: Any, tmp_path: Path, content: bytes | None, word: str
) -> None:
    import re

    path = tmp_path / "libop.so"
    if content is not None:
        path.write_bytes(content)
    done = command("export", tmp_path / "model.pt", "--load-library", path)
    assert done.code == 2
    assert "libop.so" in done.err
    assert re.search(word, done.err, re.IGNORECASE), done.err
    assert "Traceback" not in done.err


def test_a_meta_kernel_that_takes_sizes_for_numbers_is_named(
    command: Any, library: Path, tmp_path: Path
) -> None:
    """`x.sizes()` in C++ fixes every dim of the model; the line of the call alone would mislead."""
    options = write_state("numbers", tmp_path, library)
    pack = tmp_path / "pack.py"
    pack.write_text(PACK.format(name="numbers", camel="Numbers"))
    done = command(
        "export", tmp_path / "model.pt", "--load-library", library, "--ops", pack, "--input", "x:float32[batch,4]", *options
    )  # fmt: skip
    assert done.code == 1
    assert "`batch` can only be" in done.err
    assert "net_numbers.py:10" in done.err
    assert "fake kernel of acmecpp::numbers" in done.err
    assert "sym_sizes" in done.err
