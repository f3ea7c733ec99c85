"""What a pass does not show is said, in words that are true; and a budget that lets everything pass gives no pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from deployops.validation import Report, Sample, validate
from deployops.validation.inputs.whole_numbers import not_tried
from deployops.validation.original import Original
from deployops.validation.parity.compare import compare_output


class Two(nn.Module):
    """`unused` is multiplied by nothing; the second output is the same whatever comes in."""

    def forward(self, v: torch.Tensor, unused: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tanh(v) + 0 * unused.clamp(0, 1), torch.full_like(v, 0.25)


def said(report: Report, kind: str = "evidence") -> list[str]:
    return [f.text for f in report.findings if f.kind == kind]


def run(net: nn.Module, path: Path, samples: list[Sample] | None = None, **options: Any) -> Report:
    return validate(
        net, path, samples=samples, latency=False, isolate=False, backends=["onnxruntime"], **options
    )


def x(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_an_input_without_effect_and_a_constant_output(export: Callable[..., Path]) -> None:
    net = Two().eval()
    path = export(net, (x(3, 5), x(3, 5, seed=1)))
    samples = [Sample(str(k), (x(3, 5, seed=k), x(3, 5, seed=k + 9))) for k in range(3)]
    report = run(net, path, samples)
    assert report.exit_code == 0, report.text()
    texts = said(report)
    assert any("no output of the original changed when unused was given other values" in t for t in texts)
    assert any("is 0.25 in every element of every sample" in t for t in texts)
    assert len(texts) == 2
    assert {f.severity for f in report.findings} == {"note"}


def test_the_same_array_on_every_sample(export: Callable[..., Path]) -> None:
    class Positions(nn.Module):
        def forward(self, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return v * 2, torch.arange(5.0) + 0 * v.clamp(0, 0)

    net = Positions().eval()
    path = export(net, (x(3, 5),))
    report = run(net, path, [Sample(str(k), (x(3, 5, seed=k),)) for k in range(3)])
    [text] = said(report)
    assert "is the same on all samples of one shape, whatever their inputs are" in text


def test_a_sound_model_on_several_samples_has_nothing_said_of_it(export: Callable[..., Path]) -> None:
    class Sum(nn.Module):
        def forward(self, v: torch.Tensor, mask: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return torch.where(mask, v, -v) * ids

    net = Sum().eval()
    mask, ids = torch.tensor([True, False, True]), torch.tensor([1, 2, 3])
    path = export(net, (x(4, 3), mask, ids), open_axis=False)
    samples = [Sample(str(k), (x(4, 3, seed=k), mask, ids)) for k in range(2)]
    assert said(run(net, path, samples)) == []


def test_a_single_sample_is_said_to_be_one(export: Callable[..., Path]) -> None:
    net = nn.Linear(4, 3).eval()
    path = export(net, (x(2, 4),), open_axis=False)
    [text] = said(run(net, path, inputs=(x(2, 4),)))
    assert text.startswith("one sample: ")
    path = export(net, (x(2, 4),))
    assert said(run(net, path, inputs=(x(2, 4),))) == []


@pytest.mark.parametrize(
    ("value", "note"),
    [
        (x(3, 4).abs(), "no negative value of input was tried: its values are from"),
        (torch.ones(3, 4), "input is 1 in every element of every sample"),
        (x(3, 4), None),
    ],
)
def test_values_that_were_not_tried(
    value: torch.Tensor, note: str | None, export: Callable[..., Path]
) -> None:
    net = nn.Linear(4, 3).eval()
    report = run(net, export(net, (value,)), inputs=(value,))
    found = [n for n in report.notes if "was tried" in n]
    assert len(found) == (note is not None)
    assert note is None or found[0].startswith(note)


def test_a_declared_range_needs_no_negative_value(export: Callable[..., Path]) -> None:
    net = nn.Linear(4, 3).eval()
    report = run(net, export(net, (x(3, 4),)), inputs=["input:float32[batch,4]=0..1"])
    assert not [n for n in report.notes if "was tried" in n]


class Whole(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return self.function(v)


@pytest.mark.parametrize(
    ("function", "large", "said"),
    [
        (lambda v: v.prod(-1), False, "prod"),
        (lambda v: (v + 1) * v, False, "mul"),
        (lambda v: v.cumsum(-1), False, "cumsum"),
        (lambda v: v.prod(-1), True, None),
        (lambda v: v + 1, False, None),
        (lambda v: v * 2.5, False, None),
        (lambda v: torch.nn.functional.one_hot(v, 40).sum(-1).float().prod(-1), False, None),
    ],
)
def test_products_of_large_whole_numbers_are_said_not_to_be_tried(
    function: Callable[[torch.Tensor], torch.Tensor], large: bool, said: str | None
) -> None:
    """ONNX Runtime's ReduceProd of int64 clips where PyTorch wraps around: no sample of small numbers shows it."""
    v = torch.tensor([[3, 5, 7], [30, 2, 1]])
    sample = Sample("s", (v * 2**31 if large else v,))
    found = list(not_tried(Whole(function), [sample], {}))
    assert len(found) == (said is not None)
    assert said is None or f"the original has a `{said}` of it" in found[0]
    assert not list(not_tried(Whole(function), [sample], {"v": (0, 40)}))


def test_the_report_says_so(export: Callable[..., Path]) -> None:
    net = Whole(lambda v: v.prod(-1)).eval()
    v = torch.tensor([[3, 5, 7], [30, 2, 1]])
    report = run(net, export(net, (v,)), inputs=(v,), sweep="full")
    assert any("no whole number of v beyond" in n for n in report.notes), report.notes


# A budget that allows a tenth of the output.


def cancelling(factor: float) -> tuple[Any, np.ndarray]:
    """x + 3e6 - 3e6: what is left of x has an error of 0.07, less than a tenth of it; 4 times that is more."""
    net = Original(lambda v: (v + 3e6) - 3e6)
    sample = Sample("s", (x(40, 40),))
    with torch.no_grad():
        expected = net.expected(sample)[0]
    assert not expected.budget.hopeless
    return expected, (expected.array * np.float32(factor)).astype(np.float32)


@pytest.mark.parametrize("factor", [1.02, 1.1, 1.3])
def test_what_a_wide_budget_lets_pass_is_no_pass(factor: float) -> None:
    expected, got = cancelling(factor)
    cell = compare_output("s", "y", "b", got, expected)
    assert cell.verdict != "passed"
    if cell.verdict == "not checked":
        assert "too coarse to tell" in cell.reason


def test_and_a_large_error_fails_all_the_same() -> None:
    expected, got = cancelling(9.0)
    assert compare_output("s", "y", "b", got, expected).verdict == "failed"


def test_the_command_does_not_pass_it(export: Callable[..., Path]) -> None:
    class Cancelling(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return (v * self.factor + 3e6) - 3e6

    path = export(Cancelling(1.3).eval(), (x(40, 40),))
    report = run(Cancelling(1.0).eval(), path, [Sample("s", (x(40, 40),))])
    assert report.exit_code in (1, 3), report.text()
