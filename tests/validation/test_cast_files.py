"""Files that are float16 inside and float32 at their ends, as `engine build --precision fp16` makes them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from deployops import export_model, validate
from deployops.trt_plugins.engines.casting.cast_model import cast_model
from deployops.validation.backends import BACKENDS

from .test_sound_pairs import STACKS

Change = Callable[[onnx.ModelProto], None]


class Net(nn.Module):
    """Convolutions, a normalisation, a GELU and a layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 16)
        nn.init.normal_(self.head.bias, std=0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        v = nn.functional.gelu(self.second(nn.functional.gelu(self.first(x))))
        out: torch.Tensor = self.head(self.norm(v.flatten(2).transpose(1, 2)))
        return out


class Norm(nn.Module):
    """A norm of large values by hand: their squares are beyond float16, as are the sums."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.up.weight.data *= 2000

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        v = self.up(x)
        out: torch.Tensor = self.down(v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6))
        return out


IMAGE, ROWS = "x:float32[n,3,h=4..16,6]", "x:float32[n,16]"


def exported(net: nn.Module, inputs: str, folder: Path) -> Path:
    return export_model(net, [inputs], out=folder / "net.onnx").path


def cast(path: Path, precision: Any = "fp16", change: Change | None = None, keep: Any = ()) -> Path:
    """The file cast as for an engine, and then changed."""
    made = cast_model(onnx.load(str(path)), precision, keep=keep).model
    return saved(made, path, change)


def saved(made: onnx.ModelProto, path: Path, change: Change | None) -> Path:
    if change is not None:
        change(made)
    onnx.save(made, str(path.with_name("cast.onnx")))
    return path.with_name("cast.onnx")


def check(net: nn.Module, path: Path, **options: Any) -> Any:
    options = {
        "backends": ["onnxruntime"],
        "latency": False,
        "isolate": False,
        "allow_modified": True,
    } | options
    return validate(net, path, **options)


def weight(shape: tuple[int, ...], by: float) -> Change:
    """One element of the weight of this shape (or of it transposed), off by so much."""

    def change(made: onnx.ModelProto) -> None:
        held = [t for t in made.graph.initializer if tuple(t.dims) in (shape, shape[::-1])]
        array = numpy_helper.to_array(held[0]).copy()
        array.flat[5] += by
        held[0].CopyFrom(numpy_helper.from_array(array, held[0].name))

    return change


def no_bias(made: onnx.ModelProto) -> None:
    for tensor in made.graph.initializer:
        if tuple(tensor.dims) == (16,):
            zeros = np.zeros(16, numpy_helper.to_array(tensor).dtype)
            tensor.CopyFrom(numpy_helper.from_array(zeros, tensor.name))


def epsilon(made: onnx.ModelProto) -> None:
    [norm] = [n for n in made.graph.node if n.op_type == "LayerNormalization"]
    next(a for a in norm.attribute if a.name == "epsilon").f = 0.05


def stray(op_type: str) -> Change:
    """A float32 file in which one node's result is rounded to float16: a cast that was put there by mistake."""

    def change(made: onnx.ModelProto) -> None:
        nodes = list(made.graph.node)
        at = next(k for k, n in enumerate(nodes) if n.op_type == op_type)
        name, nodes[at].output[0] = nodes[at].output[0], "exact"
        nodes[at + 1 : at + 1] = [
            helper.make_node("Cast", ["exact"], ["narrow"], name="stray", to=TensorProto.FLOAT16),
            helper.make_node("Cast", ["narrow"], [name], name="back", to=TensorProto.FLOAT),
        ]
        del made.graph.node[:]
        made.graph.node.extend(nodes)

    return change


def test_a_sound_cast_passes_and_the_report_says_in_which_type(tmp_path: Path) -> None:
    report = check(Net(), cast(exported(Net(), IMAGE, tmp_path)))
    assert report.exit_code == 0, report.text()
    assert {c.dtype for c in report.cells} == {"float16"}
    [note] = [n for n in report.notes if "computes in" in n]
    assert note.startswith("the file computes in float16 (3 of its 3 products and ")
    assert note.endswith("its outputs are rounded to float16 and judged as float16")


@pytest.mark.parametrize(
    "change", [weight((8, 16), 0.25), no_bias, epsilon], ids=["weight", "bias", "epsilon"]
)
def test_faults_of_a_cast_file_are_found(tmp_path: Path, change: Change) -> None:
    report = check(Net(), cast(exported(Net(), IMAGE, tmp_path), change=change))
    assert report.exit_code == 1, report.text()


@pytest.mark.parametrize("op_type", ["Conv", "Gelu", "LayerNormalization"])
def test_one_stray_cast_is_judged_as_float32_and_fails(tmp_path: Path, op_type: str) -> None:
    path = exported(Net(), IMAGE, tmp_path)
    report = check(Net(), saved(onnx.load(str(path)), path, stray(op_type)))
    assert report.exit_code == 1, report.text()
    assert {c.dtype for c in report.cells} == {"float32"}


def test_a_cast_of_less_than_most_is_judged_as_float32_and_the_report_says_so(tmp_path: Path) -> None:
    report = check(Net(), cast(exported(Net(), IMAGE, tmp_path), keep=["Conv"]))
    assert report.exit_code == 1
    assert {c.dtype for c in report.cells} == {"float32"}
    [note] = [n for n in report.notes if "of the file" in n]
    assert note.startswith("of the file, 1 of its 3 products and ")
    assert "judged as float32" in note
    assert "--atol" in note


def test_what_the_cast_keeps_in_float32_may_be_beyond_float16(tmp_path: Path) -> None:
    """Squares of 2000 overflow float16; the cast file adds them up in float32, and is right."""
    net = Norm()
    x = torch.ones(1, 16)
    assert (
        copy.deepcopy(net).half()(x.half()) - net(x)
    ).abs().max() > 0.5  # all that is left there is the bias
    path = exported(net, ROWS, tmp_path)
    report = check(net, cast(path))
    assert report.exit_code == 0, report.text()
    assert any("every result rounded to the digits of float16" in n for n in report.notes)
    report = check(net, cast(path, change=weight((16, 64), 800.0)))
    assert report.exit_code == 1, report.text()


def test_outputs_beyond_the_range_of_the_type_are_not_checked(tmp_path: Path) -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).abs().sum(-1, keepdim=True) * 1e6

    report = check(Large(), cast(exported(Large(), ROWS, tmp_path)))
    assert report.exit_code == 3, report.text()
    assert "are beyond the largest float16, in which the outputs are judged" in report.text()
    assert check(Large(), cast(exported(Large(), ROWS, tmp_path)), rtol=0.05, atol=1.0).exit_code == 0


def test_a_users_own_tolerance_is_against_the_original_as_given(tmp_path: Path) -> None:
    path = cast(exported(Net(), IMAGE, tmp_path))
    loose, tight = (check(Net(), path, atol=a) for a in (0.05, 1e-7))
    assert (loose.exit_code, tight.exit_code) == (0, 1)
    assert any(n.endswith("its outputs are held against your tolerance") for n in loose.notes)


def test_bfloat16_is_judged_as_bfloat16(tmp_path: Path) -> None:
    """By onnx's reference: ONNX Runtime's CPU has no such kernels."""
    from onnx.reference import ReferenceEvaluator

    from deployops.validation import Sample
    from deployops.validation.original import Original
    from deployops.validation.parity.compare import compare_output
    from deployops.validation.precision import in_the_files_precision

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layers(x)
            return out

    net = Dense().eval()
    x = torch.randn(9, 16)
    path = exported(net, ROWS, tmp_path)
    for change, verdict in ((None, "passed"), (weight((16, 32), 1.0), "failed")):
        made = onnx.load(str(cast(path, "bf16", change)))
        (got,) = ReferenceEvaluator(made).run(None, {"x": x.numpy()})
        with torch.no_grad():
            original, [sample] = in_the_files_precision(Original(net), made, [Sample("s", (x,))])
            [expected] = original.expected(sample)
            cell = compare_output("s", "y", "reference", np.asarray(got), expected)
        assert (cell.verdict, cell.dtype) == (verdict, "bfloat16"), cell.reason


@pytest.mark.parametrize("stack", [s for s in STACKS if s not in ("softmax", "elementwise")])
def test_no_false_alarm(tmp_path: Path, stack: str) -> None:
    make, shape = STACKS[stack]
    torch.manual_seed(3)
    net, x = make().eval(), torch.randn(*shape)
    path = export_model(net, (x,), out=tmp_path / "net.onnx").path
    report = check(net, cast(path), inputs=(x,))
    assert report.exit_code == 0, report.text()
    assert {c.dtype for c in report.cells} == {"float16"}


# --- where it diverges --------------------------------------------------------------------------------------------


def test_bisection_names_the_faulty_node_of_a_cast_file(tmp_path: Path) -> None:
    report = check(Net(), cast(exported(Net(), IMAGE, tmp_path), change=weight((8, 16), 0.5)), bisect=True)
    [found] = report.bisections
    assert found.culprit is not None, found.text
    assert found.culprit.module == "head", found.text
    assert [n.split()[0] for n in found.culprit.among] == ["Cast", "MatMul", "Add", "Cast"]
    assert "the file says something else than the original" in found.text
    assert "is not `head.weight` of the original: 1 of 128 elements, by 0.5 at most" in found.text
    assert found.reference.startswith("the original, traced at the inputs that the file records")
    assert "fails to run" not in found.text


def test_bisection_of_a_sound_cast_file_accuses_nobody(tmp_path: Path) -> None:
    report = check(Net(), cast(exported(Net(), IMAGE, tmp_path)), atol=1e-7, bisect=True)
    [found] = report.bisections
    assert found.culprit is None, found.text
    assert "the errors add up" in found.text


def test_bisection_finds_a_fault_in_a_node_that_stays_float32(tmp_path: Path) -> None:
    report = check(Net(), cast(exported(Net(), IMAGE, tmp_path), change=epsilon), bisect=True)
    [found] = report.bisections
    assert found.culprit is not None, found.text
    assert found.culprit.module == "norm", found.text
    assert "LayerNormalization" in " ".join((found.culprit.op_type, *found.culprit.among))


def test_bisection_where_the_whole_cast_overflows_says_what_it_holds_the_file_against(tmp_path: Path) -> None:
    path = cast(exported(Norm(), ROWS, tmp_path), change=weight((16, 64), 800.0))
    [found] = check(Norm(), path, bisect=True).bisections
    assert found.culprit is None
    assert "cast to the file's dtype, the original overflows" in found.text + found.reference


# --- engines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp16", "as exported"])
def test_an_engine_is_judged_by_what_its_sidecar_says(
    tmp_path: Path, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in for the engine is the cast file in ONNX Runtime; beside it the uncast file stays float32."""
    from .test_backends_tensorrt import sidecar

    path = exported(Net(), IMAGE, tmp_path)
    narrow = cast(path)
    engine = tmp_path / "net.engine"
    engine.write_bytes(b"engine")
    from deployops.trt_plugins.engines.source_model import read_source_model

    sidecar(engine, precision=precision, model_sha256=read_source_model(path).sha256)
    stand_in = replace(
        BACKENDS["tensorrt"],
        missing=lambda request: "",
        open=lambda request: BACKENDS["onnxruntime"].open(replace(request, onnx=narrow)),
    )
    monkeypatch.setitem(BACKENDS, "tensorrt", stand_in)
    report = check(Net(), path, backends=["onnxruntime", "tensorrt"], engine=engine, allow_modified=False)
    judged = {c.backend: c.dtype for c in report.cells}
    verdicts = {(c.backend, c.verdict) for c in report.cells}
    if precision == "fp16":
        assert report.exit_code == 0, report.text()
        assert judged == {"onnxruntime": "float32", "tensorrt": "float16"}
        assert any("the engine net.engine computes in float16 (its sidecar says" in n for n in report.notes)
    else:
        assert verdicts == {("onnxruntime", "passed"), ("tensorrt", "failed")}
        assert set(judged.values()) == {"float32"}
    worst = max(c.metrics.max_abs for c in report.cells if c.backend == "onnxruntime")
    assert math.isfinite(worst)
    assert worst < 1e-5
