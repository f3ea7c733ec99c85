"""Case 40: cube roots of negative numbers, zeros and subnormals are np.cbrt's; a formula that is not is exported as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deployops.symbolic import registry

registry.load_builtin()
X = np.array(
    [-27, -8, -1, -1e-30, -0.0, 0.0, 1e-30, 1e-45, 1, 8, 27, 1e38, np.inf, -np.inf, np.nan], np.float32
)
TRUTH = np.cbrt(X.astype(np.float64))


class CubeRoot(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.deployops.cube_root(x)


@pytest.mark.parametrize("mode", ["function", "standard"])
def test_the_shipped_operator_is_cbrt_everywhere(deploy: Any, mode: str) -> None:
    got = deploy(CubeRoot(), ["x:float32[n]"], custom_ops=mode).run(X)[0]
    np.testing.assert_allclose(got.astype(np.float64), TRUTH, rtol=5e-7)  # NaN and inf in the same places
    assert np.signbit(got[4])  # -0.0 keeps its sign
    assert not np.signbit(got[5])


def test_its_gradient_is_right_and_finite_at_zero() -> None:
    x = torch.tensor([-8.0, -0.0, 0.0, 8.0], requires_grad=True)
    torch.ops.deployops.cube_root(x).sum().backward()
    assert torch.isfinite(x.grad).all()
    np.testing.assert_allclose(x.grad[[0, 3]], [1 / 12, 1 / 12], rtol=1e-6)


FORMS = {
    "pow": lambda t: t.pow(1 / 3),
    "sign and abs": lambda t: t.sign() * t.abs().pow(1 / 3),
    "exp and log": lambda t: t.sign() * torch.exp(torch.log(t.abs()) / 3),
}


@pytest.mark.parametrize("form", list(FORMS))
def test_a_models_own_formula_is_exported_as_it_is(deploy: Any, form: str) -> None:
    class Own(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return FORMS[form](x)

    got = deploy(Own(), ["x:float32[n]"]).run(X)[0]
    with np.errstate(invalid="ignore", divide="ignore"):
        wide = X.astype(np.float64)
        expected = {
            "pow": np.power(wide, 1 / 3),
            "sign and abs": np.sign(wide) * np.abs(wide) ** (1 / 3),
            "exp and log": np.sign(wide) * np.exp(np.log(np.abs(wide)) / 3),
        }[form]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_the_copysign_form_exports_and_keeps_the_sign_of_zero(deploy: Any) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.copysign(x.abs().pow(1 / 3), x), torch.signbit(x)

    exported = deploy(Net(), ["x:float32[n]"])
    x = np.array([-27.0, -8.0, -0.0, 0.0, 1e-30, 27.0, np.inf, -np.inf], np.float32)
    root, negative = exported.run(x)
    np.testing.assert_allclose(root, np.cbrt(x), rtol=2e-6)
    np.testing.assert_array_equal(np.signbit(root), np.signbit(x))
    np.testing.assert_array_equal(negative, np.signbit(x))


def test_the_kernel_gives_what_numpy_gives(shipped_library: str) -> None:
    from deployops.native.cpu_library import CpuLibrary
    from deployops.symbolic.operators.cube_root import cube_root

    kernels = CpuLibrary(shipped_library)
    x = torch.from_numpy(X)
    for dtype in (torch.float32, torch.float64):
        for level in kernels.levels:
            [y] = kernels.run(cube_root, (x.to(dtype),), level=level)
            want = np.cbrt(x.to(dtype).double().numpy()).astype(y.numpy().dtype)
            np.testing.assert_allclose(y.numpy(), want, rtol=2.3e-16 if dtype == torch.float64 else 1e-7)
            np.testing.assert_array_equal(np.signbit(y.numpy()), np.signbit(want))
