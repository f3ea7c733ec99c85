"""The CPU kernels as the torch implementation of their operators. Each test in a process of its own: it cannot be undone."""

from __future__ import annotations

import subprocess
import sys

from deployops.ort_ops import Library

from .conftest import PACK

HEAD = f"""
import torch
from deployops.ort_ops import use_in_torch
from deployops.symbolic import registry
from deployops.errors import DeployOpsError
ops = {{op.name.partition("::")[2]: op for op in registry.load([{str(PACK)!r}])}}
"""


def run(code: str, library: Library) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"{HEAD}library = {str(library.path)!r}\n{code}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_operator_runs_the_kernel(pack_library: Library) -> None:
    # only the kernel throws
    out = run(
        "x = -torch.ones(3)\n"
        "ops['picky'](x)\n"
        "print(use_in_torch(library, [ops['picky']]))\n"
        "try: ops['picky'](x)\n"
        "except DeployOpsError as e: print(e)",
        pack_library,
    )
    assert out == "['pack::picky']\npack::picky: no negative numbers: number 0\n"


def test_tensors_that_are_not_dense_and_writing_in_place(pack_library: Library) -> None:
    out = run(
        "use_in_torch(library, list(ops.values()))\n"
        "x = torch.arange(24.).reshape(4, 6).t()[1::2]\n"
        "before, by = x.clone(), torch.ones(3, 4)\n"
        "y = ops['shift_'](x, by, 2)\n"
        "print(torch.equal(x, before + 2), torch.equal(y, (before + 2).sum(-1)))",
        pack_library,
    )
    assert out == "True True\n"


def test_gradients_and_compiled_graphs_are_as_before(pack_library: Library) -> None:
    out = run(
        "limit = ops['limit']\n"
        "@limit.backward\n"
        "def _(grad, x, low, high):\n"
        "    return grad * 3\n"
        "use_in_torch(library, [limit])\n"
        "x = torch.tensor([-2., 0., 2.], requires_grad=True)\n"
        "limit(x, -1.0, 1.0).sum().backward()\n"
        "print(x.grad.tolist())\n"
        "print(torch.compile(lambda t: limit(t, -1.0, 1.0) + 1, backend='eager')(x.detach()).tolist())",
        pack_library,
    )
    assert out == "[3.0, 3.0, 3.0]\n[0.0, 1.0, 2.0]\n"


def test_a_library_without_the_operator(pack_library: Library) -> None:
    out = run(
        "registry.load_builtin()\n"
        "relu = next(o for o in registry.all_operators() if o.name == 'deployops::relu')\n"
        "try: use_in_torch(library, [relu])\n"
        "except DeployOpsError as e: print(e)",
        pack_library,
    )
    assert out.startswith(
        "libdeployops_ort_cpu.so has no kernel of deployops::relu; it has pack::add_all, pack::gather_rows"
    )
