"""An operator alone: every declared sample in every dtype becomes something to compare, or is said not to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor

from deployops.symbolic import registry
from deployops.symbolic.operator import Operator, operator
from deployops.validation import Report, validate
from deployops.validation.operators import OperatorSubject, operator_subjects

registry.load_builtin()


@pytest.fixture(autouse=True)
def _forget_declarations() -> Iterator[None]:
    before = {op.name for op in registry.all_operators()}
    yield
    for op in registry.all_operators():
        if op.name not in before:
            registry.remove(op)


def compared(subject: OperatorSubject) -> Report:
    return validate(subject.module, subject.onnx or "", samples=subject.samples, latency=False, isolate=False)


def verdicts(op: Operator, folder: Path, *dtypes: str) -> Counter[str]:
    """Of ONNX Runtime as deployed, by verdict; "left out" for samples without a file."""
    return counted(operator_subjects(op, dtypes or None, folder))


def counted(subjects: Iterable[OperatorSubject]) -> Counter[str]:
    found: Counter[str] = Counter()
    for subject in subjects:
        found["left out"] += len(subject.unchecked)
        if subject.onnx is None:
            continue
        report = compared(subject)
        cells = [c for c in report.cells if c.backend == "onnxruntime"]
        found.update(c.verdict for c in cells if c.verdict != "not checked")
        gaps = [b.missing for b in report.backends if b.name == "onnxruntime"]
        if "has no kernel for" in "".join([*gaps, *(c.reason for c in cells)]):
            found["no kernel"] += len(subject.samples)
    return +found


def scaled(name: str, body_factor: float) -> Operator:
    @operator(f"h2_{name}::scale", onnx=f"h2_{name}::Scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.fake
    def _(x: Tensor, k: float = 2.0) -> Tensor:
        return torch.empty_like(x)

    @scale.body
    def _(op: Any, x: Any, k: float) -> Any:
        return op.Mul(x, k * body_factor)

    @scale.samples
    def _(draw: Any) -> Iterator[Any]:
        yield draw(3, 5)
        yield draw(4, 7)
        yield draw(0, 5)
        yield draw.call(draw(2, 2), k=0.5)
        yield draw.edges()
        yield draw.strided(3, 4)

    return scale


def test_every_sample_is_compared_in_every_dtype(tmp_path: Path) -> None:
    op = scaled("every", 1.0)
    subjects = list(operator_subjects(op, None, tmp_path))
    labels = [s.label for subject in subjects for s in subject.samples]
    assert len(labels) == len(set(labels)) == 6 * 4
    assert {subject.dtype for subject in subjects} == {"float32", "float64", "float16", "bfloat16"}
    assert not any(subject.unchecked for subject in subjects)
    assert "float32, sample 3 (x: [2,2], k: 0.5)" in labels
    names = {"float64": "DOUBLE", "float32": "FLOAT", "float16": "FLOAT16", "bfloat16": "BFLOAT16"}
    for subject in subjects:  # narrow ones too are fed in their own dtype
        assert subject.onnx is not None
        [value] = onnx.load(subject.onnx).graph.input
        assert value.type.tensor_type.elem_type == getattr(onnx.TensorProto, names[subject.dtype])
    # ONNX Runtime's CPU provider has no Mul for bfloat16, and this body does not widen
    assert counted(subjects) == {"passed": 18, "no kernel": 6}


def test_a_wrong_body_fails(tmp_path: Path) -> None:
    found = verdicts(scaled("wrong", 1.001), tmp_path, "float32")
    assert found["failed"] == 5  # all but the empty one
    assert found["passed"] == 1


def test_what_the_exporter_refuses_is_noted_and_compared_all_the_same(tmp_path: Path) -> None:
    subjects = list(operator_subjects(scaled("refused", 3.0), ("float32",), tmp_path))
    notes = [n for s in subjects for n in s.notes]
    assert notes
    assert all("export refuses it" in n for n in notes)
    assert sum(len(s.samples) for s in subjects) == 6


def test_absent_inputs_lists_and_attributes(tmp_path: Path) -> None:
    @operator("h2_many::mix", onnx="h2_many::Mix", dtypes=("float32",))
    def mix(x: Tensor, bias: Tensor | None, xs: list[Tensor], mode: str = "sum") -> Tensor:
        total = x if bias is None else x + bias
        for t in xs:
            total = total + t if mode == "sum" else total * t
        return total.clone()

    @mix.fake
    def _(x: Tensor, bias: Tensor | None, xs: list[Tensor], mode: str = "sum") -> Tensor:
        return torch.empty_like(x)

    @mix.body
    def _(op: Any, x: Any, bias: Any, xs: Any, mode: str) -> Any:
        total = op.Identity(x) if bias is None else op.Add(x, bias)
        for t in xs:
            total = op.Add(total, t) if mode == "sum" else op.Mul(total, t)
        return total

    @mix.samples
    def _(draw: Any) -> Iterator[Any]:
        yield draw(3), None, [draw(3), draw(3)]
        yield draw(3), draw(3), [draw(3)]
        yield draw(4), draw(4), []
        yield draw(3), None, [draw(3), draw(3)], "product"

    subjects = list(operator_subjects(mix, None, tmp_path))
    assert counted(subjects) == {"passed": 4}
    names = [s.names for subject in subjects for s in subject.samples]
    assert ("inputs.x", "inputs.bias", "inputs.xs.0") in names


def test_an_operator_that_writes_into_its_input(tmp_path: Path) -> None:
    @operator("h2_write::twice_", onnx="h2_write::Twice", dtypes=("float32",), mutates=("x",))
    def twice(x: Tensor) -> None:
        x.mul_(2)

    @twice.fake
    def _(x: Tensor) -> None:
        return None

    @twice.body
    def _(op: Any, x: Any) -> Any:
        return op.Mul(x, 2.0)

    @twice.samples
    def _(draw: Any) -> Iterator[Any]:
        yield draw(3, 5)

    assert verdicts(twice, tmp_path) == {"passed": 1}


@pytest.mark.parametrize("how", ["none", "stateful", "raises", "undeclared", "misfit"])
def test_what_cannot_be_checked_says_why(how: str, tmp_path: Path) -> None:
    @operator(f"h2_{how}::id", onnx=f"h2_{how}::Id", dtypes=("float32",), stateful=how == "stateful")
    def same(x: Tensor) -> Tensor:
        return x.clone()

    @same.fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    if how != "none":

        @same.samples
        def _(draw: Any) -> Iterator[Any]:
            if how == "raises":
                raise ValueError("no luck")
            yield (draw(3), 1) if how == "misfit" else draw(3)

    words = {
        "none": "no samples are declared",
        "stateful": "two runs need not agree",
        "raises": "cannot be drawn: ValueError: no luck",
        "undeclared": "float16 is not declared; declared are float32",
        "misfit": "the sample has 2 arguments",
    }
    dtypes = ("float16",) if how == "undeclared" else None
    subjects = list(operator_subjects(same, dtypes, tmp_path))
    [cell] = [c for s in subjects for c in s.unchecked]
    assert words[how] in cell.reason
    assert cell.verdict == "not checked"
    assert cell.subject == f"h2_{how}::id"
    assert all(s.onnx is None and not s.samples for s in subjects)


def test_a_reference_that_raises_on_one_sample_spares_the_others(tmp_path: Path) -> None:
    @operator("h2_some::id", onnx="h2_some::Id", dtypes=("float32",))
    def same(x: Tensor) -> Tensor:
        if x.dim() == 3:
            raise ValueError("three dims")
        return x.clone()

    @same.fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    @same.body
    def _(op: Any, x: Any) -> Any:
        return op.Identity(x)

    @same.samples
    def _(draw: Any) -> Iterator[Any]:
        yield draw(1, 2, 3)
        yield draw(3, 5)

    assert verdicts(same, tmp_path) == {"passed": 1, "left out": 1}


def test_without_a_body_the_node_stands_alone(tmp_path: Path) -> None:
    @operator("h2_bodyless::id", onnx="h2_bodyless::Id", dtypes=("float32",))
    def same(x: Tensor) -> Tensor:
        return x.clone()

    @same.fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    @same.samples
    def _(draw: Any) -> Iterator[Any]:
        yield draw(3)

    [subject] = operator_subjects(same, None, tmp_path)
    assert subject.onnx is not None
    model = onnx.load(subject.onnx)
    assert [(n.domain, n.op_type) for n in model.graph.node] == [("h2_bodyless", "Id")]
    assert not model.functions


def test_a_shipped_operator_with_two_outputs_passes(tmp_path: Path) -> None:
    op = next(o for o in registry.all_operators() if o.name == "deployops::add_rms_norm")
    found = verdicts(op, tmp_path, "float16")
    assert found == {"passed": 2 * len(op.make_samples("float16"))}


def test_the_seed_decides_the_calls(tmp_path: Path) -> None:
    op = scaled("seeded", 1.0)

    def first(seed: int) -> Tensor:
        subject = next(operator_subjects(op, ("float32",), tmp_path, seed))
        value: Tensor = subject.samples[0].args[0]["x"]
        return value

    assert torch.equal(first(0), first(0))
    assert not torch.equal(first(0), first(1))
