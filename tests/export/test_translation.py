"""Translating without torch's retrace gives what torch's own route gives."""

from __future__ import annotations

import io
import logging
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from deployops.errors import ExportError
from deployops.export.graph import decomposition, passes, translation
from deployops.export.graph.decomposition import without_retrace
from deployops.export.graph.translation import DEFAULT_OPSET, OPSETS, translate, unmapped, user_frame
from deployops.export.graph.type_promotion import promotes_nothing

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


class Call(nn.Module):
    """A function of modules and inputs, as a module."""

    def __init__(self, function: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(modules)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*self.parts, *inputs)


def exported(
    function: Callable[..., Any], args: tuple[Any, ...], *modules: nn.Module, rows: bool = False
) -> torch.export.ExportedProgram:
    """`rows`: dim 0 of every input is dynamic."""
    shapes = (tuple({0: Dim.DYNAMIC} for _ in args),) if rows else None
    inputs = tuple(a.clone() for a in args)
    return torch.export.export(Call(function, *modules).eval(), inputs, dynamic_shapes=shapes)


def run(model: ir.Model, args: tuple[Any, ...]) -> list[Any]:
    content = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: a.numpy() for i, a in zip(session.get_inputs(), args, strict=True)})


def assert_like_torch(
    model: ir.Model, function: Callable[..., Any], args: tuple[Any, ...], *modules: nn.Module
):
    with torch.no_grad():
        expected = Call(function, *modules).eval()(*(a.clone() for a in args))
    expected = expected if isinstance(expected, tuple) else (expected,)
    got = run(model, args)
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.numpy().dtype
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)


def t(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def i(*shape: int) -> torch.Tensor:
    return torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(1))


def add_in_place(first: nn.Module, second: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = F.relu_(first(x))
    z = second(y)
    z += y
    return F.relu_(z)


def residual(conv: nn.Module, norm: nn.Module, relu: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return relu(norm(conv(x))) + x


def conv() -> nn.Module:
    return nn.Conv2d(3, 3, 3, padding=1)


def layer() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")


def kinds(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return x + n * 2 + n / 3 + (n > 1) * x + torch.pow(n, 2) + n.sqrt() + x.double() * n


def assign(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1:] = 7
    return y


# Handled without a retrace: (function, inputs, modules). Inputs have a dynamic first dim.
PLAIN: dict[str, tuple[Any, ...]] = {
    "residual block": (residual, (t(2, 3, 8, 8),), conv(), nn.BatchNorm2d(3), nn.ReLU(inplace=True)),
    "in-place sums": (add_in_place, (t(2, 3, 8, 8),), conv(), conv()),
    "encoder layer": (lambda m, x: m(x), (t(2, 5, 16),), layer()),
    "attention": (lambda m, x: m(x, x, x)[0], (t(2, 5, 16),), nn.MultiheadAttention(16, 4, batch_first=True)),
    "masked attention": (
        lambda q, mask: F.scaled_dot_product_attention(q, q, q, attn_mask=mask),
        (t(2, 2, 5, 4), torch.ones(2, 1, 5, 5).tril() > 0),
    ),
    "rms norm, which writes to a temporary": (lambda n, x: n(x), (t(2, 4),), nn.RMSNorm(4)),
    "lstm": (lambda m, x: m(x)[0], (t(2, 5, 4),), nn.LSTM(4, 6, batch_first=True)),
    "embedding": (lambda e, d, n: d(e(n)), (i(2, 5),), nn.Embedding(9, 4), nn.Dropout(0.5)),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), (t(2, 3, 4), t(2, 4, 5))),
    "promotion": (kinds, (t(2, 3), i(2, 3))),
    "to": (lambda x: x.to(torch.int64) + x.float().int(), (t(2, 3),)),
    "pools": (lambda x: F.adaptive_avg_pool2d(x, (2, 2)).flatten(1) + F.max_pool2d(x, 4).flatten(1), (t(2, 3, 8, 8),)),
    "shapes": (
        lambda x: x.flatten(1).unflatten(1, (3, 16)).reshape(x.shape[0] * 2, -1).contiguous().narrow(1, -4, 4),
        (t(2, 3, 4, 4),),
    ),
    "chunks": (lambda x: sum(c.sum(1) * n for n, c in enumerate(x.chunk(4, 1))), (t(2, 10),)),
    "cumsum": (lambda x: x.cumsum(1) + x.var(1, keepdim=True), (t(4, 3),)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (t(2, 3, 4, 4),)),
    "scatter": (lambda x, n: x.scatter(1, n, 1.0) + x.gather(1, n).sum(), (t(2, 5), i(2, 2))),
    "index_put": (lambda x: x.index_put((torch.tensor([0, 1]),), torch.ones(2, 3)), (t(4, 3),)),
    "norms": (
        lambda g, n, x: g(x) + n(x), (t(2, 4, 5, 5),), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)
    ),
    "transposed convolution": (lambda c, x: c(x), (t(2, 4, 5, 5),), nn.ConvTranspose2d(4, 3, 3, stride=2)),
    "activations": (lambda x: F.silu(x) + F.mish(x) + F.hardswish(x) + F.glu(torch.cat([x, x], 1)), (t(2, 4),)),
    "sizes": (lambda x: x * (x.shape[0] * 2 + 1) + torch.arange(x.shape[0]).unsqueeze(1), (t(3, 4),)),
    "input named as a builtin": (lambda x: x.relu(), (t(2, 3),)),
    "aliases in eval mode": (lambda d, x: F.relu_(x * 2) + d(x * 2), (t(2, 3),), nn.Dropout(0.5)),
}  # fmt: skip

# Left to torch: writes that are seen elsewhere, control flow, complex numbers.
RETRACED: dict[str, tuple[Any, ...]] = {
    "write through a view": (lambda x: (x * 2).view(-1).add_(1).view(x.shape), (t(2, 3),)),
    "view, then write": (lambda x: _view_then_write(x * 2), (t(2, 3),)),
    "assignment": (assign, (t(4, 3),)),
    "write to an input": (lambda x: x.add_(1) * 2, (t(2, 3),)),
    "branch": (lambda x: torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,)), (t(2, 3),)),
    "complex": (lambda x: torch.view_as_real(torch.stft(x, 16, return_complex=True)), (t(2, 64),)),
}


def _view_then_write(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    view = y.view(-1)
    y.add_(1)
    return view * 2, y


@pytest.mark.parametrize("name", PLAIN)
def test_without_a_retrace(name: str) -> None:
    function, args, *modules = PLAIN[name]
    program = exported(function, args, *modules, rows=True)
    before = str(program.graph)
    assert without_retrace(program, DEFAULT_OPSET) is not None, "the retrace was not avoided"
    model = translate(program, opset=None)
    assert str(program.graph) == before
    assert_like_torch(model, function, args, *modules)
    if name != "index_put":  # which names two rows
        larger = tuple(torch.cat([a, a, a]) for a in args)
        assert_like_torch(model, function, larger, *modules)


@pytest.mark.parametrize("name", RETRACED)
def test_with_a_retrace(name: str) -> None:
    function, args, *modules = RETRACED[name]
    program = exported(function, args, *modules)
    assert without_retrace(program, DEFAULT_OPSET) is None
    assert_like_torch(translate(program, opset=None), function, args, *modules)


@pytest.mark.parametrize("name", ["residual block", "promotion", "shapes", "chunks"])
def test_the_two_routes_give_the_same_operators(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def operators() -> Counter[str]:
        model = translate(exported(*PLAIN[name][:2], *PLAIN[name][2:], rows=True), opset=None)
        passes.optimize(model)
        return Counter(node.op_type for node in model.graph)

    short = operators()
    monkeypatch.setattr(decomposition, "without_retrace", lambda *_: None)
    long = operators()
    # One route or the other may compute a size of its own; nothing else.
    assert {op for op, count in ((short - long) + (long - short)).items() if count} <= {
        "Shape", "Squeeze", "Concat", "Gather", "Reshape", "Split", "SplitToSequence", "SequenceAt", "Identity",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("function", "args", "nothing"),
    [
        (lambda x: x * 2.5 + x, (t(2),), True),
        (lambda n: n * 2 + n, (i(2),), True),
        (lambda x: x + 2, (t(2),), False),  # an integer beside floats
        (lambda x: x * 2.5, (t(2).half(),), False),
        (lambda x, n: x + n, (t(2), i(2)), False),
        (lambda n: n / 2, (i(2),), False),
        (lambda n: n.sum(), (i(2).int(),), False),
        (lambda x, n: torch.where(n > 1, x, n), (t(2), i(2)), False),
        (lambda x, n: x + n, (t(2), t(2).double()), False),
    ],
)
def test_implicit_promotion_is_seen(
    function: Callable[..., Any], args: tuple[Any, ...], nothing: bool
) -> None:
    program = exported(function, args)
    assert promotes_nothing(program.graph) is nothing
    assert_like_torch(translate(program, opset=None), function, args)


def test_outputs_that_are_inputs_or_the_same_tensor() -> None:
    function = lambda d, x: (x, d(x), x * 2)  # noqa: E731
    args = (t(2, 3),)
    assert_like_torch(
        translate(exported(function, args, nn.Dropout(0.1)), opset=None), function, args, nn.Dropout(0.1)
    )


def test_symbolic_nodes_need_no_retrace() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.onnx.ops.symbolic("acme::Op", (x,), {"n": 3}, dtype=x.dtype, shape=x.shape, version=2)
        return torch.nn.functional.relu(y)

    program = exported(function, (t(2, 3),), rows=True)
    assert without_retrace(program, DEFAULT_OPSET) is not None
    model = translate(program, opset=None)
    assert [(n.domain, n.op_type) for n in model.graph] == [("acme", "Op"), ("", "Relu")]
    assert model.opset_imports["acme"] == 2


def test_a_failing_shortcut_costs_no_export(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise AttributeError("gone in this torch")

    monkeypatch.setattr(decomposition, "without_retrace", fails)
    assert_like_torch(translate(exported(torch.relu, (t(2),)), opset=None), torch.relu, (t(2),))


def test_names_of_dynamic_dims_are_kept() -> None:
    program = exported(lambda x: x.flatten(1) * 2, (t(2, 3, 4),), rows=True)
    model = translate(program, opset=None, dynamic_shapes=(({0: "batch"},),))
    assert [str(d) for d in model.graph.outputs[0].shape] == ["batch", "12"]


@pytest.mark.parametrize("opset", [*OPSETS[::3], OPSETS[-1]])  # each builds torch's registry anew: a second
def test_opsets_of_the_range_are_exported(opset: int) -> None:
    modules = (nn.LayerNorm(8), nn.Linear(8, 8))
    function = lambda norm, linear, x: F.gelu(linear(norm(x))).softmax(-1).split(4, -1)[1]  # noqa: E731
    model = translate(exported(function, (t(2, 8),), *modules, rows=True), opset=opset)
    assert model.opset_imports[""] == opset
    assert_like_torch(model, function, (t(5, 8),), *modules)


@pytest.mark.parametrize("opset", [7, 17, OPSETS[-1] + 1])
def test_an_opset_out_of_range_is_refused(opset: int) -> None:
    with pytest.raises(ExportError, match=rf"opset {opset} .* 18 to {OPSETS[-1]}"):
        translate(exported(lambda x: x + 1, (t(2),)), opset=opset)


def test_a_conversion_that_stops_short_is_refused() -> None:
    model = translate(exported(lambda x: x + 1, (t(2),)), opset=18)
    with pytest.raises(ExportError, match="stopped at opset 18"):
        translation._require_opset(model, 21)


@torch.library.custom_op("translationtest::first", mutates_args=())
def _first(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torch.library.custom_op("translationtest::second", mutates_args=())
def _second(x: torch.Tensor) -> torch.Tensor:
    return x + 2


for _op in (_first, _second):
    _op.register_fake(torch.empty_like)


class Custom(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.ops.translationtest.first(x).relu()
        x = torch.ops.translationtest.second(x)
        return torch.ops.translationtest.first(x)


def custom_program() -> torch.export.ExportedProgram:
    return torch.export.export(Custom(), (t(2),))


def test_all_unmapped_operators_are_found_with_their_lines() -> None:
    found = unmapped(custom_program(), lambda op: False)
    assert [op.name() for op, _ in found] == ["translationtest::first", "translationtest::second"]
    lines = [user_frame(node) for _, node in found]
    assert lines[0] is not None
    assert lines[0].startswith("test_translation.py:")
    assert lines[0].endswith("in forward: x = torch.ops.translationtest.first(x).relu()")


def test_known_operators_are_not_unmapped() -> None:
    found = unmapped(custom_program(), lambda op: op.name().endswith("first"))
    assert [op.name() for op, _ in found] == ["translationtest::second"]


def test_operators_of_torch_are_mapped() -> None:
    function = lambda n, x: F.adaptive_avg_pool2d(n(x), 1).flatten(1).to(torch.float16)  # noqa: E731
    assert unmapped(exported(function, (t(2, 3, 4, 4),), nn.BatchNorm2d(3)), lambda op: False) == []
    for name in RETRACED:
        function, args, *modules = RETRACED[name]
        assert unmapped(exported(function, args, *modules), lambda op: False) == [], name


def test_operators_on_complex_values_without_a_function_are_unmapped() -> None:
    function = lambda x: torch.view_as_complex(x).exp().cos().real  # noqa: E731
    found = unmapped(exported(function, (t(3, 2),)), lambda op: False)
    assert "aten::cos" in [op.name() for op, _ in found]


def test_unmapped_operators_in_branches_are_found() -> None:
    function = lambda x: torch.cond(x.sum() > 0, lambda v: _first(v), lambda v: v - 1, (x,))  # noqa: E731
    found = unmapped(exported(function, (t(2, 3),)), lambda op: False)
    assert [op.name() for op, _ in found] == ["translationtest::first"]


def test_an_untranslatable_operator_is_an_error_at_a_line() -> None:
    with pytest.raises(
        ExportError, match=r"translationtest.*first(.|\n)*at test_translation.py:\d+ in forward"
    ):
        translate(custom_program(), opset=None)


def test_the_user_line_of_a_library_module_is_the_callers() -> None:
    node = torch.fx.Graph().placeholder("x")
    node.meta["stack_trace"] = (
        '  File "/x/net.py", line 12, in forward\n    y = self.fc(x)\n'
        '  File "/v/site-packages/torch/nn/modules/linear.py", line 130, in forward\n    return F.linear(input)\n'
    )
    assert user_frame(node) == "net.py:12 in forward: y = self.fc(x)"
    node.meta["stack_trace"] = ""
    assert user_frame(node) is None


def test_nothing_is_printed_and_nothing_logged(capfd: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    try:
        translate(exported(lambda x: x * 2, (t(2),)), opset=19)
    finally:
        logging.getLogger().removeHandler(handler)
    assert stream.getvalue() == ""
    assert capfd.readouterr() == ("", "")


def test_logsigmoid_is_right_far_below_zero() -> None:
    # torch's own ONNX function is log(sigmoid(x)), which is -inf from -104 down.
    x = torch.tensor([-200.0, -104.0, -20.0, 0.0, 3.0])
    program = torch.export.export(Call(F.logsigmoid), (x,))
    (got,) = run(translate(program, opset=None), (x,))
    want = [-200.0, -104.0, -20.0 - math.exp(-20), -math.log(2), -math.log1p(math.exp(-3))]
    np.testing.assert_allclose(got, want, rtol=1e-6)
