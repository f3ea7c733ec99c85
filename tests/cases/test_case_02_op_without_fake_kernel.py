"""Case 02: an operator without fake kernel and translation. Both gaps, of every operator, are named in one run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import deployops
from deployops.errors import ExportError

X = np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[Any]:
    library = torch.library.Library("acme02", "FRAGMENT")
    library.define("leaky_cap(Tensor x, float cap) -> Tensor")
    library.impl("leaky_cap", lambda x, cap: torch.where(x > cap, cap + 0.1 * (x - cap), x), "CPU")
    library.define("split_sign(Tensor x) -> (Tensor, Tensor)")
    library.impl("split_sign", lambda x: (x.clamp(min=0), x.clamp(max=0)), "CPU")
    library.define("shift(Tensor x, int by) -> Tensor")
    library.impl("shift", lambda x, by: x + by, "CPU")
    torch.library.register_fake("acme02::shift", lambda x, by: torch.empty_like(x), lib=library)
    yield library
    library._destroy()


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.acme02.leaky_cap(x, 1.0) + 1


class ThreeOps(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = torch.ops.acme02.split_sign(x)
        return torch.ops.acme02.leaky_cap(a, 1.0) + torch.ops.acme02.shift(b, 2)


def line_of(method: Any, text: str) -> int:
    import inspect

    lines, start = inspect.getsourcelines(method)
    return start + next(k for k, line in enumerate(lines) if text in line)


def test_both_gaps_of_the_operator_in_one_error(deploy: Any) -> None:
    with pytest.raises(ExportError) as caught:
        deploy(Net(), ["x:float32[batch,4]"])
    text = str(caught.value)
    assert "acme02::leaky_cap" in text
    assert "(1) it has no fake kernel" in text
    assert "(2) it has no declaration" in text
    assert "acme02::leaky_cap(Tensor x, float cap) -> Tensor" in text
    assert f"{Path(__file__).name}:{line_of(Net.forward, 'leaky_cap')}" in text
    assert "Traceback" not in text


def test_every_operator_is_listed_at_once_with_its_own_gaps(deploy: Any) -> None:
    with pytest.raises(ExportError) as caught:
        deploy(ThreeOps(), ["x:float32[batch,4]"])
    text = str(caught.value)
    assert "3 operators" in text
    for name in ("leaky_cap", "split_sign", "shift"):
        assert f"{Path(__file__).name}:{line_of(ThreeOps.forward, name)}" in text
    assert text.count("no fake kernel") == 2  # shift has one
    assert text.count("no declaration") == 3


def test_the_stubs_can_be_pasted_and_then_the_model_exports(
    deploy: Any, tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ExportError) as caught:
        deploy(ThreeOps(), ["x:float32[batch,4]"])
    pasted = str(caught.value).partition("before the export):\n")[2]
    assert len(re.findall(r"(?m)^(?:@torch|op = )", pasted)) == 5
    (tmp_path / "pack_of_case_02.py").write_text(pasted)
    (tmp_path / "nets_of_case_02.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.ones(4))\n"
        "    def forward(self, x):\n"
        "        a, b = torch.ops.acme02.split_sign(x * self.weight)\n"
        "        return torch.ops.acme02.leaky_cap(a, 1.0) + torch.ops.acme02.shift(b, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    torch.save({"weight": torch.ones(4)}, tmp_path / "net.pt")
    options = ["--model", "nets_of_case_02:Net", "--input", "x:float32[batch,4]"]
    without = command("export", tmp_path / "net.pt", *options)
    assert without.code == 1
    assert "3 operators" in without.err
    assert "--ops" in without.err
    done = command("export", tmp_path / "net.pt", *options, "--ops", tmp_path / "pack_of_case_02.py")
    assert done.code == 0, done.err
    for node in ("acme02::LeakyCap", "acme02::SplitSign", "acme02::Shift"):
        assert node in done.out


def test_with_both_declared_and_a_body_it_runs(deploy: Any, library: Any) -> None:
    library.define("leaky_cap2(Tensor x, float cap) -> Tensor")
    library.impl("leaky_cap2", lambda x, cap: torch.where(x > cap, cap + 0.1 * (x - cap), x), "CPU")
    torch.library.register_fake("acme02::leaky_cap2", lambda x, cap: torch.empty_like(x), lib=library)
    op = deployops.adopt("acme02::leaky_cap2", onnx="acme02::LeakyCap2", dtypes=("float32",))

    @op.body
    def _(b: Any, x: Any, cap: float) -> Any:
        over = b.Add(b.Mul(b.Sub(x, float(cap)), 0.1), float(cap))
        return b.Where(b.Greater(x, float(cap)), over, x)

    class Declared(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.acme02.leaky_cap2(x, 1.0) + 1

    exported = deploy(Declared(), ["x:float32[batch,4]"])
    expected = np.where(X > 1, 1 + 0.1 * (X - 1), X) + 1
    np.testing.assert_allclose(exported.run(X)[0], expected, rtol=1e-6)
    assert exported.dims("output") == ["batch", 4]


def test_an_operator_of_torch_that_has_no_translation_is_named_with_its_line(deploy: Any) -> None:
    class Special(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.modified_bessel_k0(x) + torch.special.airy_ai(x)

    with pytest.raises(ExportError) as caught:
        deploy(Special(), ["x:float32[batch,4]"])
    text = str(caught.value)
    assert "aten.special_modified_bessel_k0" in text
    assert "aten.special_airy_ai" in text
    assert f"{Path(__file__).name}:{line_of(Special.forward, 'bessel_k0')}" in text
    assert "--ops FILE" not in text  # nothing of it goes into a file of declarations


def test_an_operator_whose_fake_kernel_lies_is_found(deploy: Any, library: Any) -> None:
    library.define("halve(Tensor x) -> Tensor")
    library.impl("halve", lambda x: x[:, ::2].contiguous(), "CPU")
    torch.library.register_fake("acme02::halve", lambda x: torch.empty_like(x), lib=library)
    op = deployops.adopt("acme02::halve", onnx="acme02::Halve", dtypes=("float32",))

    @op.body
    def _(b: Any, x: Any) -> Any:
        i64 = "int64"
        return b.Slice(
            x, b.tensor([0], i64), b.tensor([1 << 40], i64), b.tensor([1], i64), b.tensor([2], i64)
        )

    class Halve(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.acme02.halve(x)

    with pytest.raises(
        ExportError, match=r"halve returns float32\[\d+, 2\]; its fake kernel promises float32\[\d+, 4\]"
    ):
        deploy(Halve(), ["x:float32[batch,4]"])
