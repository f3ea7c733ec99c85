"""A report that was edited is refused where its numbers say something else; one that was not is read, however it was judged."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from deployops.cli import cli
from deployops.errors import ModelFileError
from deployops.validation import Report, Sample, validate
from deployops.validation.record import Limits
from deployops.validation.reports.command import read_report
from deployops.validation.reports.contradictions import expect_consistent
from deployops.validation.reports.json_file import dumps, to_dict
from deployops.validation.reports.rejudge import rejudged

Edit = Callable[[dict[str, Any]], Any]


class Both(nn.Module):
    """Values, and whole numbers."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 40)).to(dtype)

    def forward(self, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inner(v), (v > 0).long()


def compared(tmp: Path, dtype: torch.dtype = torch.float32, wrong: bool = False, **options: Any) -> Report:
    net = Both(dtype).eval()
    x = torch.randn(6, 24, generator=torch.Generator().manual_seed(1)).to(dtype)
    path = tmp / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {"input_names": ["v"], "output_names": ["y", "label"], "dynamic_axes": {"v": {0: "batch"}}}
        torch.onnx.export(net, (x,), str(path), dynamo=False, opset_version=20, **names)  # type: ignore[arg-type]
    if wrong:
        with torch.no_grad():
            net.inner[2].bias[3] += 0.5  # type: ignore[index,operator]
    options.setdefault("inputs", (x,))
    return validate(net, path, latency=False, isolate=False, backends=["onnxruntime"], **options)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return compared(tmp_path_factory.mktemp("failed"), wrong=True)


def file_of(report: Report | dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_text(dumps(report) if isinstance(report, Report) else json.dumps(report))
    return path


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_a_report_as_written_is_read_and_so_is_one_judged_again(
    dtype: torch.dtype, wrong: bool, tmp_path: Path
) -> None:
    report = compared(tmp_path, dtype, wrong)
    assert report.verdict == ("failed" if wrong else "passed")
    assert read_report(file_of(report, tmp_path)) == report
    for atol, rtol in ((1e-9, 0.0), (1e-3, 1e-3), (0.1, 3e-3), (1.0, 0.0), (0.0, 0.3), (0.49, 0.02)):
        again = rejudged(report, Limits(atol, rtol))
        assert read_report(file_of(again, tmp_path)) == again
        more = rejudged(again, Limits(2 * atol, rtol))
        assert read_report(file_of(more, tmp_path)) == more


@pytest.mark.parametrize("tolerance", [{"atol": 1e-3}, {"rtol": 1e-9}, {"atol": 0.6, "rtol": 1e-2}])
def test_so_is_one_with_the_users_tolerance(tolerance: dict[str, float], tmp_path: Path) -> None:
    report = compared(tmp_path, wrong=True, **tolerance)
    assert read_report(file_of(report, tmp_path)) == report


def test_so_is_one_with_golden_outputs_and_modes(tmp_path: Path) -> None:
    net = Both(torch.float32).eval()
    x = torch.randn(6, 24, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        y = net(x)[0].numpy()
    for golden in (y, y + 0.1):
        samples = [Sample("cat", (x,), golden={"y": golden}), Sample("dog", (x * 2,))]
        report = compared(tmp_path, inputs=None, samples=samples, outputs=["y:topk:3"])
        assert {c.judged_as for c in report.cells} == {"topk:3", "values", "golden"}
        assert read_report(file_of(report, tmp_path)) == report


def first(plain: dict[str, Any], verdict: str = "failed", output: str = "y") -> dict[str, Any]:
    return next(c for c in plain["cells"] if c["verdict"] == verdict and c["output"] == output)


def everywhere(**values: Any) -> Edit:
    """Set these in every failed cell."""

    def edit(plain: dict[str, Any]) -> None:
        for cell in plain["cells"]:
            if cell["verdict"] == "failed":
                for path, value in values.items():
                    place = cell
                    *parts, last = path.split("__")
                    for part in parts:
                        place = place[part]
                    place[last] = value(place[last]) if callable(value) else value
                cell["verdict"] = "passed"

    return edit


def wide_bands(factor: float) -> Edit:
    def edit(plain: dict[str, Any]) -> None:
        everywhere(metrics__mismatches=0, metrics__over=0.5)(plain)
        for cell in plain["cells"]:
            budget = cell["budget"]
            for name in ("atol", "rms", "gain"):
                if isinstance(budget[name], float):
                    budget[name] *= factor
            for band in budget["bands"]:
                for name in ("atol", "rms", "bias"):
                    band[name] *= factor

    return edit


EDITS: dict[str, tuple[Edit, str]] = {
    "the verdict alone": (everywhere(), "says passed, its numbers say failed"),
    "a failure of what passed": (
        lambda p: first(p, "passed", "label").update(verdict="failed"),
        "says failed, its numbers say passed",
    ),
    "no mismatches": (everywhere(metrics__mismatches=0), "out of budget"),
    "no mismatches, little used": (
        everywhere(metrics__mismatches=0, metrics__over=0.5),
        "needs atol|uses",
    ),
    "identical": (everywhere(metrics__identical=True), "identical, and off by"),
    "no elements": (everywhere(metrics__count=0, metrics__compared=0), "its shape"),
    "no elements, no shape": (everywhere(metrics__count=0, shape=[0]), "compared"),
    "no numbers": (everywhere(metrics=None), "no numbers that show it"),
    "no budget": (everywhere(budget=None), "no numbers that show it"),
    "a smaller difference": (
        everywhere(metrics__mismatches=0, metrics__over=0.5, metrics__max_abs=1e-9),
        "do not fit together",
    ),
    "wider bands": (wide_bands(1e4), "do not fit together"),
    "a tolerance nobody set": (
        everywhere(budget__source="user tolerance, atol 1, rtol 0", budget__atol=1.0),
        "the report has none",
    ),
    "an unknown source": (everywhere(budget__source="trust me", budget__own_max=None), "own error"),
    "an original that is off": (
        everywhere(budget__own_max=10.0, budget__own_rms=9.0, budget__hopeless=False),
        "is derived|hopeless",
    ),
    "an exact budget": (
        everywhere(budget__exact=True, metrics__identical=True),
        "exact budget",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_report_is_refused_and_the_cell_is_named(name: str, failed: Report, tmp_path: Path) -> None:
    edit, words = EDITS[name]
    plain = copy.deepcopy(to_dict(failed))
    edit(plain)
    for key in ("verdict", "exit_code"):  # whoever edits the cells takes these along
        plain.pop(key)
    with pytest.raises(
        ModelFileError, match=r"the report contradicts itself: cell .* on onnxruntime"
    ) as error:
        read_report(file_of(plain, tmp_path))
    assert re.search(words, str(error.value)), str(error.value)


def test_the_limits_cannot_be_widened_alone(tmp_path: Path) -> None:
    report = compared(tmp_path, wrong=True, atol=1e-3)
    plain = to_dict(report)
    plain["limits"]["atol"] = 1.0
    with pytest.raises(ModelFileError, match=r"a tolerance of user tolerance, atol 0\.001"):
        read_report(file_of(plain, tmp_path))
    for cell in plain["cells"]:
        if not cell["budget"]["exact"]:
            cell["budget"] |= {"atol": 1.0, "source": "user tolerance, atol 1, rtol 0"}
    # the numbers pass these limits, and every cell still says that it failed
    with pytest.raises(ModelFileError, match="says failed, its numbers say passed"):
        read_report(file_of(plain, tmp_path))


def test_a_missing_backend_cannot_have_passed(failed: Report, tmp_path: Path) -> None:
    plain = to_dict(failed)
    plain["backends"][0]["missing"] = "not installed"
    with pytest.raises(ModelFileError, match="that the report says was missing"):
        read_report(file_of(plain, tmp_path))


def test_the_command_ends_with_2_and_says_what_contradicts(failed: Report, tmp_path: Path) -> None:
    plain = to_dict(failed)
    everywhere()(plain)
    plain.pop("verdict"), plain.pop("exit_code")
    result = CliRunner().invoke(cli, ["report", str(file_of(plain, tmp_path))])
    assert result.exit_code != 0
    assert isinstance(result.exception, ModelFileError)
    assert result.exception.exit_code == 2
    assert "the report contradicts itself: cell y at" in str(result.exception)


@pytest.mark.parametrize("mode", ["argmax", "topk:3", "set", "boxes", "nothing"])
def test_a_mode_that_nobody_asked_for_is_refused(mode: str, failed: Report, tmp_path: Path) -> None:
    """Its metrics are those of a comparison by value, which a decision may disagree with: the verdict cannot tell."""
    plain = copy.deepcopy(to_dict(failed))
    for cell in plain["cells"]:
        cell["judged_as"] = mode
        cell["verdict"] = "passed"
    plain["verdict"], plain["exit_code"] = "passed", 0
    with pytest.raises(ModelFileError, match=r"do not ask for|contradicts|verdict"):
        read_report(file_of(plain, tmp_path))
    again = copy.deepcopy(plain)
    again["environment"]["outputs"] = ["other:argmax"]
    with pytest.raises(ModelFileError):
        read_report(file_of(again, tmp_path))


def test_a_mode_that_says_nothing_of_an_output_is_refused(failed: Report) -> None:
    cell = next(c for c in failed.cells if c.verdict == "failed" and c.output == "y")
    size = cell.shape[-1]
    edited = replace(cell, judged_as=f"topk:{size}", verdict="passed", reason="")
    report = replace(
        failed, cells=(edited,), environment=failed.environment | {"outputs": [f"y:topk:{size}"]}
    )
    with pytest.raises(ModelFileError, match="the same whatever the values are"):
        expect_consistent(report)
