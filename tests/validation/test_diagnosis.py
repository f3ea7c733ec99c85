"""Each cause of a difference is named where it is planted, and an innocent failure is not blamed on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional as F

from deployops.ort_ops.arrays import to_array
from deployops.validation import Sample
from deployops.validation.backends import BACKENDS, Request
from deployops.validation.backends.torch import evaluating
from deployops.validation.diagnosis import before, explain, float16_overflow
from deployops.validation.diagnosis.file_values import inside_file
from deployops.validation.diagnosis.training_mode import modules_in_training
from deployops.validation.original import Original
from deployops.validation.record import Finding


def graph_of(
    nodes: list[Any] = [],  # noqa: B006 - read only
    dtype: int = TensorProto.FLOAT,
    outputs: tuple[str, ...] = ("y",),
    constants: dict[str, Any] | None = None,
) -> onnx.GraphProto:
    return helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", dtype, None)],
        [helper.make_tensor_value_info(o, dtype, None) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )


def seeded(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=generator) / max(p.shape[-1], 1) ** 0.5
    return module.eval()


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def of(
    model: Any, candidate: Any, *args: torch.Tensor, graph: onnx.GraphProto | None = None, **options: Any
) -> list[Finding]:
    """What is found where `candidate` computes the file's outputs."""
    sample = Sample("example", args)
    with evaluating(model), torch.no_grad():
        original = Original(model)
        expected = original.expected(sample)
        result = candidate(*(a.clone() for a in args))
        got = [to_array(r) for r in (result if isinstance(result, tuple) else (result,))]
        outputs = ("y",) if len(got) == 1 else tuple(f"y{k}" for k in range(len(got)))
        return explain(original, sample, got, expected, graph or graph_of(outputs=outputs), **options)


def kinds(findings: list[Finding]) -> list[str]:
    return [f.kind for f in findings]


# Before anything runs: training mode and random numbers.


def nodes_before(*nodes: Any, constants: dict[str, Any] | None = None) -> list[Finding]:
    return before(lambda v: v, graph_of(list(nodes), constants=constants))


def dropout(*inputs: str) -> Any:
    return helper.make_node("Dropout", ["x", *inputs], ["y"], name="drop")


def test_an_active_dropout_is_training_mode() -> None:
    [found] = nodes_before(dropout("r", "t"), constants={"r": np.float32(0.5), "t": np.array(True)})
    assert found.kind == "training mode"
    assert "Dropout 'drop'" in found.text
    assert "eval()" in found.advice
    assert found.severity == "note"  # the cells fail by themselves


@pytest.mark.parametrize(
    ("inputs", "constants"),
    [
        ((), {}),
        (("r",), {"r": np.float32(0.5)}),
        (("r", "t"), {"r": np.float32(0.5), "t": np.array(False)}),
        (("r", "t"), {"r": np.float32(0.0), "t": np.array(True)}),
    ],
)
def test_a_dropout_that_drops_nothing_is_innocent(inputs: tuple[str, ...], constants: dict[str, Any]) -> None:
    assert nodes_before(dropout(*inputs), constants=constants) == []


def test_a_dropout_whose_mode_is_a_constant_node_or_an_input() -> None:
    true = helper.make_node("Constant", [], ["t"], value=numpy_helper.from_array(np.array(True)))
    [found] = nodes_before(true, dropout("", "t"))
    assert "is active:" in found.text or "that is active" in found.text
    [found] = nodes_before(dropout("", "training"))
    assert "where the value 'training' is true" in found.text


@pytest.mark.parametrize("training", [0, 1])
def test_batch_normalization_in_training_mode(training: int) -> None:
    node = helper.make_node(
        "BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], name="bn", training_mode=training
    )
    assert kinds(nodes_before(node)) == ["training mode"] * training


def test_nodes_of_inner_graphs_and_of_functions_are_read_too() -> None:
    inner = helper.make_graph([helper.make_node("RandomNormalLike", ["x"], ["z"], name="noise")], "i", [], [])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    assert kinds(nodes_before(branch)) == ["randomness", "randomness"]
    function = helper.make_function(
        "acme",
        "F",
        ["a"],
        ["b"],
        [helper.make_node("Bernoulli", ["a"], ["b"])],
        [helper.make_opsetid("", 20)],
    )
    assert kinds(before(lambda v: v, graph_of(), [function])) == ["randomness"]


def test_nodes_that_are_not_random_are_innocent() -> None:
    assert (
        nodes_before(
            helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Bernoulli", ["x"], ["z"], domain="acme")
        )
        == []
    )


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(self.drop(v))
        return out


def test_a_module_in_training_mode() -> None:
    net = Dropped().train()
    training = modules_in_training(net)
    [found] = before(net.eval(), graph_of(), training=training)
    assert found.kind == "training mode"
    assert "(Dropped, drop, norm); it is compared in eval mode" in found.text
    assert before(net, graph_of()) == []


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("how", ["export", "trace"])
def test_a_program_traced_in_training_mode(how: str, training: bool) -> None:
    net = Dropped().train(training)
    if how == "export":
        model: Any = torch.export.export(net, (x(3, 4),)).module()
    else:
        model = torch.jit.trace(net, (x(3, 4),), check_trace=False)
    found = before(model, graph_of())
    assert kinds(found) == ["training mode"] * training
    if training:
        assert "cannot be switched off" in found[0].text
        assert "dropout" in found[0].text


class Noisy(nn.Module):
    """Dropout that eval mode does not reach."""

    def __init__(self, active: bool = True) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), _Always(active))

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.block(v)
        return out


class _Always(nn.Module):
    def __init__(self, active: bool) -> None:
        super().__init__()
        self.active = active

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return F.dropout(v, 0.5, self.active)


def test_randomness_of_the_original_is_named_with_its_module() -> None:
    net = seeded(Noisy())
    [found] = of(net, net, x(4, 8))
    assert found.kind == "training mode"
    assert "F.dropout in `block.1` (_Always)" in found.text


def test_an_inactive_dropout_is_not_randomness() -> None:
    net = seeded(Noisy(False))
    found = kinds(of(net, lambda v: net(v) * 1.5, x(4, 8)))
    assert "randomness" not in found
    assert "training mode" not in found


def test_a_candidate_that_differs_from_itself() -> None:
    net = seeded(nn.Linear(8, 8))
    first = to_array(net(x(4, 8)) + 0.1 * x(4, 8))
    again = [first + np.float32(0.1)]
    [found] = of(net, lambda v: net(v) + 0.1 * x(4, 8), x(4, 8), again=again, backend="onnxruntime")
    assert found.kind == "nondeterminism"
    assert "onnxruntime differs from itself in y on example: 32 of 32 elements, by up to 0.1" in found.text
    found_again = of(net, lambda v: net(v) + 0.1 * x(4, 8), x(4, 8), again=[first])
    assert "nondeterminism" not in kinds(found_again)


def test_equal_nans_are_no_nondeterminism() -> None:
    array = np.array([math.nan, math.inf, 1.0], np.float32)
    net = nn.Identity()
    found = of(net, lambda v: v * 2, x(3), again=[to_array(x(3) * 2)])
    assert "nondeterminism" not in kinds(found)
    from deployops.validation.diagnosis.nondeterminism import differs_from_itself

    assert list(differs_from_itself([array], [array.copy()], ["y"], "b", "s")) == []


# Integers.


BIG = torch.tensor([2**31 - 1, 5, 2**31 - 3, -7, 2**30, 12])


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (
            lambda v: (v * 3).to(torch.int32).to(torch.int64),
            "the candidate computes y in int32: 3 values outside its range wrapped around",
        ),
        (
            lambda v: (v * 3).clamp(-(2**31), 2**31 - 1),
            "the candidate computes y in int32: 3 values outside its range were clipped",
        ),
        (lambda v: (v * 3).to(torch.int16).to(torch.int64), "int16"),
        (lambda v: (v * 3).to(torch.uint8).to(torch.int64), "uint8"),
    ],
)
def test_integers_in_a_narrower_type(candidate: Callable[[torch.Tensor], torch.Tensor], words: str) -> None:
    [found] = of(lambda v: v * 3, candidate, BIG)
    assert found.kind == "integer overflow"
    assert words in found.text


def test_an_original_that_wraps_where_the_candidate_does_not() -> None:
    wrapped = (BIG * 3).to(torch.int32).double()
    [found] = of(lambda v: (v * 3).to(torch.int32).double(), lambda v: (v * 3).double(), BIG)
    assert found.kind == "integer overflow"
    assert "the original computes, and the candidate does not, y in int32" in found.text
    assert bool((wrapped != (BIG * 3).double()).any())


@pytest.mark.parametrize(
    "candidate",
    [
        lambda v: v * 3 + 2**32,  # a multiple of 2**32 everywhere: no type does that
        lambda v: (
            (v * 3).to(torch.int32).to(torch.int64) + (v == 12)
        ),  # one element that no wrapping explains
        lambda v: v * 4,
        lambda v: (v * 3).clamp(min=0),  # a ReLU
    ],
)
def test_other_integers_are_not_blamed_on_overflow(candidate: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert "integer overflow" not in kinds(of(lambda v: v * 3, candidate, BIG))


# float16.


class Squares(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Identity()
        self.norm = _Norm()

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(self.first(v))
        return out


class _Norm(nn.Module):
    def forward(self, v: torch.Tensor) -> torch.Tensor:
        wide = v.float()
        return (wide / (wide * wide).mean(-1, keepdim=True).sqrt()).to(v.dtype)


def naive(v: torch.Tensor) -> torch.Tensor:
    return v / (v * v).mean(-1, keepdim=True).sqrt()


HALF = graph_of(dtype=TensorProto.FLOAT16)


def test_the_first_operator_beyond_float16_is_named_with_its_module_and_range() -> None:
    values = (x(2, 16) * 100).half()
    values[0, 3] = 2000.0
    [found] = of(Squares(), lambda v: naive(v) * math.nan, values, graph=HALF)
    assert found.kind == "float16 overflow"
    assert "`norm` (aten.mul.Tensor)" in found.text
    assert "4e+06" in found.text or "4,000,000" in found.text
    assert "65,504" in found.text
    assert found.where == "norm"


def test_nan_without_large_values_is_not_blamed_on_float16() -> None:
    found = of(Squares(), lambda v: naive(v) * math.nan, x(2, 16).half(), graph=HALF)
    assert "float16 overflow" not in kinds(found)


def test_a_float32_file_has_no_float16_overflow() -> None:
    assert "float16 overflow" not in kinds(of(Squares(), lambda v: naive(v) * math.nan, x(2, 16) * 1e4))


def test_a_norm_that_the_file_spells_out_is_named_by_its_node() -> None:
    """`layer_norm` is one operator of the original: only the file's own values show the square."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="/norm/Mul"),
        helper.make_node("ReduceMean", ["square"], ["mean"], name="/norm/ReduceMean"),
        helper.make_node("Div", ["x", "mean"], ["y"], name="/norm/Div"),
    ]
    values = (x(2, 16) * 100).half()
    values[0, 3] = 2000.0
    array = values.numpy()
    with np.errstate(all="ignore"):
        inside = {"x": array, "square": array * array, "mean": (array * array).mean(-1, keepdims=True)}
    [found] = of(
        nn.LayerNorm(16).half(),
        lambda v: v * math.nan,
        values,
        graph=graph_of(nodes, TensorProto.FLOAT16),
        file_values=lambda names: {n: inside[n] for n in ("x", *names) if n in inside},
    )
    assert found.kind == "float16 overflow"
    assert "Mul '/norm/Mul'" in found.text
    assert "x up to 2,000" in found.text
    assert found.where == "/norm/Mul"


def test_values_inside_a_file_are_read_by_a_backend(tmp_path: Path) -> None:
    """The same overflow, in a real file on ONNX Runtime."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="/norm/Mul"),
        helper.make_node("ReduceMean", ["square"], ["mean"], name="/norm/ReduceMean"),
        helper.make_node("Div", ["x", "mean"], ["y"], name="/norm/Div"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["n", 16])],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    values = (x(2, 16) * 100).half()
    values[0, 3] = 2000.0
    kind = BACKENDS["onnxruntime, optimiser off"]
    inside = inside_file(path, [("x", values)], lambda file: kind.open(Request(onnx=file, isolate=False)))
    found = inside(["square", "mean", "y"])
    assert found["square"].dtype == np.float16
    assert np.isinf(found["square"][0, 3])
    assert found["square"][1, 0] == np.float16(float(values[1, 0]) ** 2)
    [cause] = of(nn.LayerNorm(16).half(), lambda v: v * math.nan, values, graph=graph, file_values=inside)
    assert cause.where == "/norm/Mul"


@pytest.mark.parametrize(
    ("divisor", "told"), [([0.0, 1.0], "`s` is 0 there"), ([1e-3, 1.0], "beyond 65,504")]
)
def test_a_division_by_what_became_0_is_no_overflow(divisor: list[float], told: str) -> None:
    graph = helper.make_graph([helper.make_node("Div", ["d", "s"], ["y"], name="only")], "g", [], [])
    d, s = np.array([1000.0, 1.0], np.float16), np.array(divisor, np.float16)
    with np.errstate(all="ignore"):
        values = {"d": d, "s": s, "y": d / s}
    assert not np.isfinite(values["y"]).all()
    found = float16_overflow._in_the_file(graph, lambda names: values)
    assert found is not None
    assert told in found[1]


def test_wrong_numbers_that_follow_from_an_inf_inside_the_file_are_told_as_overflow() -> None:
    """x / norm(x) is 0 where the norm is Inf: no output shows it."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="/norm/Mul"),
        helper.make_node("Div", ["x", "square"], ["y"], name="/norm/Div"),
    ]
    values = (x(2, 16) * 1000).half()
    with np.errstate(all="ignore"):
        inside = {"x": values.numpy(), "square": values.numpy() * values.numpy()}

    def explained(known: dict[str, Any]) -> list[str]:
        found = of(
            Squares(),
            lambda v: v * 0,
            values,
            graph=graph_of(nodes, TensorProto.FLOAT16),
            file_values=lambda names: {n: known[n] for n in ("x", *names) if n in known},
        )
        return [f.text for f in found if f.kind == "float16 overflow"]

    [text] = explained(inside)
    assert "wrong numbers follow from it in y" in text
    assert "beyond 65,504" in text
    assert not explained({**inside, "square": np.ones((2, 16), np.float16)})


def test_a_mask_of_infinities_is_no_overflow() -> None:
    mask = numpy_helper.from_array(np.array([0, -np.inf], np.float16), "mask")
    graph = helper.make_graph(
        [helper.make_node("Add", ["s", "mask"], ["y"], name="masked")], "g", [], [], [mask]
    )
    values = {"s": np.ones(2, np.float16), "y": np.array([1, -np.inf], np.float16)}
    assert float16_overflow._in_the_file(graph, lambda names: values) is None
