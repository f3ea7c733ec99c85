"""What the original is asked and spared, and where the budget comes from when there is no float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from deployops.errors import UsageError
from deployops.ort_ops.arrays import to_array
from deployops.validation import Report, validate
from deployops.validation.backends.torch import Widened

Export = Callable[..., Path]
X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def check(model: Any, path: Path, *args: Any, **options: Any) -> Report:
    return validate(model, path, args, latency=False, isolate=False, **options)


class Affine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.5)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.drop(self.linear(v))
        return out


def test_every_submodules_mode_is_restored_and_no_gradient_is_left(export: Export) -> None:
    net = Affine()
    path = export(net.eval(), (X,))
    net.train()
    net.linear.eval()
    report = check(net, path, X)
    assert report.exit_code == 0, report.text()
    assert (net.training, net.linear.training, net.drop.training) == (True, False, True)
    assert all(p.grad is None and p.dtype == torch.float32 for p in net.parameters())


def test_modes_are_restored_after_an_error(export: Export, tmp_path: Path) -> None:
    net = Affine().train()
    with pytest.raises(UsageError):
        check(net, export(net, (X,)), X, samples=[])
    assert net.training


def test_nondeterminism_is_not_passed(export: Export) -> None:
    class Always(nn.Module):
        def forward(self, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return nn.functional.dropout(v, 0.5), v + 1  # active in eval mode too

    class Never(nn.Module):
        def forward(self, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return v * 1.0, v + 1

    report = check(Always(), export(Never(), (X,)), X)
    assert report.exit_code == 3
    verdicts = {c.output: c.verdict for c in report.cells}
    assert sorted(verdicts.values()) == ["not checked", "passed"]
    assert any("nondeterministic: the original differs from itself" in c.reason for c in report.cells)


def test_noise_far_below_the_scale_is_still_nondeterminism(export: Export) -> None:
    class Noisy(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v + 1e-3 * torch.randn_like(v)

    assert check(Noisy(), export(nn.Identity(), (X,)), X).exit_code == 3


def test_a_model_that_writes_into_its_input(export: Export) -> None:
    class Writes(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v.add_(1.0) * 2

    class Sound(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return (v + 1.0) * 2

    sample = X.clone()
    report = check(Writes(), export(Sound(), (X,)), sample)
    assert report.exit_code == 0, report.text()
    assert torch.equal(sample, X)


@pytest.mark.parametrize("kind", ["module", "script", "trace", "exported"])
def test_kinds_of_originals(export: Export, kind: str) -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)).eval()
    path = export(net, (X,))
    batch = torch.export.Dim.DYNAMIC
    model = {
        "module": lambda: net,
        "script": lambda: torch.jit.script(net),
        "trace": lambda: torch.jit.trace(net, (X,)),
        "exported": lambda: torch.export.export(net, (X,), dynamic_shapes={"input": {0: batch}}),
    }[kind]()
    report = check(model, path, X)
    assert report.exit_code == 0, report.text()
    assert len(report.cells) == 4  # three sizes, and the first without the optimiser
    assert all(c.budget and "float64" in c.budget.source for c in report.cells)


class Casts(nn.Module):
    """A dtype written into the forward, which a plain `.double()` leaves in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        buffer = torch.zeros(v.shape[0], 8, dtype=torch.float32)
        buffer[:, :4] = v[:, :4].float()
        out: torch.Tensor = self.linear(buffer.to(torch.float32))
        return out


def test_dtypes_written_into_the_model_are_widened(export: Export) -> None:
    net = Casts().eval()
    with torch.no_grad():
        result = Widened(net, torch.float64, torch.float32).run((X,), {})
    assert result.dtype == torch.float64
    rows = torch.cat([X[:, :4], torch.zeros(4, 4)], 1).double()
    weight, bias = net.linear.weight.detach().double(), net.linear.bias.detach().double()
    assert (result - (rows @ weight.T + bias)).abs().max() < 1e-14
    assert check(net, export(net, (X,)), X).exit_code == 0


@torch.library.custom_op("validation_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    if x.dtype != torch.float32:
        raise TypeError("only float32")
    return x * 2


class Custom(nn.Module):
    def __init__(self, custom: bool) -> None:
        super().__init__()
        self.custom, self.linear = custom, nn.Linear(8, 8)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(twice(v) if self.custom else v * 2)
        return out


def test_an_operator_without_float64_runs_narrow_and_is_named(export: Export) -> None:
    net, plain = Custom(True).eval(), Custom(False).eval()
    plain.load_state_dict(net.state_dict())
    report = check(net, export(plain, (X,)), X)
    assert report.exit_code == 0, report.text()
    budget = report.cells[0].budget
    assert budget is not None
    assert "no float64 kernel, so run in the deployed dtype: validation_test::twice" in budget.source


def test_no_wider_run_at_all_is_said(export: Export) -> None:
    class Stubborn(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            if v.dtype != torch.float32:
                raise TypeError("float32 and nothing else")
            return v * 3

    class Plain(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v * 3

    path = export(Plain(), (X,))
    report = check(Stubborn(), path, X)
    assert report.exit_code == 0
    assert any("float32 and nothing else" in note for note in report.notes)
    budget = report.cells[0].budget
    assert budget is not None
    assert "no wider reference" in budget.source
    # 64 ULPs of the output's scale
    assert budget.atol == pytest.approx(64 * 2**-23 * float(X.abs().max()) * 3)


def test_an_ill_conditioned_original_proves_nothing(export: Export) -> None:
    class Cancels(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return (v * 1e-3 + 1e5) - 1e5  # in float32 all digits of v are lost

    class Same(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v * 1e-3

    report = check(Cancels(), export(Same(), (X,)), X)
    assert report.exit_code == 3
    assert "agreement would prove nothing" in report.cells[0].reason


def test_complex_outputs_are_compared_as_pairs(export: Export) -> None:
    class Turn(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return torch.complex(v, -v)

    class Pairs(nn.Module):
        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return torch.stack([v, -v], -1)

    report = check(Turn(), export(Pairs(), (X,)), X)
    assert report.exit_code == 0
    assert any("view_as_real" in note for note in report.notes)


def test_arrays_of_odd_tensors() -> None:
    assert to_array(torch.tensor(1.5, dtype=torch.bfloat16)).shape == ()
    assert float(to_array(torch.tensor(1.5, dtype=torch.bfloat16))) == 1.5
    assert to_array(X.T).flags.c_contiguous
    assert (to_array(X.T) == X.numpy().T).all()
    assert to_array(torch.tensor([1 + 2j]).conj()).tolist() == [[1.0, -2.0]]
