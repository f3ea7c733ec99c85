"""A backend that is named must be checked; without a name what is there is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import deployops
from deployops.errors import NotCheckedError
from deployops.symbolic.operators.swish import swish
from deployops.validation import validate
from deployops.validation.backends import BACKENDS
from deployops.validation.choice import choose
from deployops.validation.operator_run import validate_operators
from deployops.validation.options import Options

MISSING = "tensorrt"  # no engine is given: it cannot be used anywhere


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    path = tmp_path_factory.mktemp("named") / "net.onnx"
    deployops.export_model(module, ["input:float32[n,4]"], out=path)
    return module, path


def code(net: tuple[Any, Path], **options: Any) -> int:
    return validate(*net, latency=False, isolate=False, sizes=1, **options).exit_code


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, 0),  # what is there
        ({"backends": ["onnxruntime"]}, 0),
        ({"backends": [MISSING]}, 3),
        ({"backends": ["onnxruntime", MISSING]}, 3),
        ({"backends": ["onnxruntime"], "require": [MISSING]}, 3),
        ({"require": [MISSING]}, 3),
    ],
)
def test_named_is_required(options: dict[str, Any], wanted: int, net: tuple[Any, Path]) -> None:
    assert code(net, **options) == wanted


def test_one_that_cannot_be_opened_is_missing_too(
    net: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> Any:
        raise NotCheckedError("nothing here runs it")

    kind = BACKENDS["onnxruntime, optimiser off"]
    monkeypatch.setitem(BACKENDS, kind.name, replace(kind, open=refuse))
    assert code(net) == 0
    assert code(net, backends=["onnxruntime", kind.name]) == 3


def test_without_a_name_nothing_is_required() -> None:
    assert not any(c.required for c in choose(Options(), shipped=False))
    named = choose(Options(backends=("emulated", "onnxruntime"), required=("tensorrt",)), shipped=False)
    assert {c.kind.name: c.required for c in named} == {
        "emulated": True,
        "onnxruntime": True,
        "tensorrt": True,
    }
    assert not any(c.skipped for c in named)


def test_of_an_operator_as_well() -> None:
    options = {"latency": False, "isolate": False}
    for backends, wanted in ((("onnxruntime",), 0), (("onnxruntime", MISSING), 3)):
        report = validate_operators(
            [swish],
            dtypes=["float32"],
            options=Options(backends=backends, **options),  # type: ignore[arg-type]
        )
        assert report.exit_code == wanted


def test_the_command(net: tuple[Any, Path], command: Callable[..., Any], tmp_path: Path) -> None:
    model = tmp_path / "net.pt2"
    open_batch = ({0: torch.export.Dim("n")},)
    program = torch.export.export(net[0], (torch.zeros(2, 4),), dynamic_shapes=open_batch)
    torch.export.save(program, model)
    arguments = [
        "validate",
        model,
        "--onnx",
        net[1],
        "--no-latency",
        "--sizes",
        1,
        "--backend",
        "onnxruntime",
    ]
    assert command(*arguments).code == 0
    done = command(*arguments, "--backend", MISSING)
    assert done.code == 3
    assert f"not checked, {MISSING} (required): " in done.out
