"""What eval mode does not switch off in the original: one line, which says what to do and is true of what it names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import deployops
from deployops.validation.record import Finding

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A layer, and what stands behind it."""

    def __init__(self, behind: Callable[[torch.Tensor], torch.Tensor] | None, stays: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 8)
        self.behind: Any = behind or nn.Identity()
        self.stays = stays

    def train(self, mode: bool = True) -> Net:
        super().train(mode)
        if self.stays:  # a train() of its own
            self.behind.train()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.behind(self.layer(x))
        return out


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer alone."""
    out = tmp_path_factory.mktemp("net") / "net.onnx"
    return deployops.export_model(Net(None), ["x:float32[batch,8]"], out=out).path


def told(model: Any, path: Path) -> tuple[str, list[Finding]]:
    report = deployops.validate(model, path, (X,), latency=False, isolate=False, backends=["onnxruntime"])
    return report.verdict, [f for f in report.findings if f.kind in ("training mode", "randomness")]


def with_axes(function: Callable[..., torch.Tensor], axes: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda v: function(v.reshape(*v.shape, *[1] * axes), 0.5, training=True).reshape(v.shape)


def attention(v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(v[None], v[None], v[None], dropout_p=0.5)[0]


DROPS = {
    "F.dropout": lambda v: F.dropout(v, 0.5),  # training=True is its default
    "F.dropout1d": with_axes(F.dropout1d, 1),
    "F.dropout2d": with_axes(F.dropout2d, 2),
    "F.dropout3d": with_axes(F.dropout3d, 3),
    "F.alpha_dropout": with_axes(F.alpha_dropout, 0),
    "F.feature_alpha_dropout": with_axes(F.feature_alpha_dropout, 0),
    "F.rrelu": lambda v: F.rrelu(v, training=True),
}


@pytest.mark.parametrize("name", DROPS)
def test_a_function_called_with_training_true(name: str, path: Path) -> None:
    verdict, [found] = told(Net(DROPS[name]).eval(), path)
    assert verdict == "not checked"
    assert f"{name} in Net is called with training=True" in found.text
    assert found.advice == f"pass `training=self.training` to {name}"


def test_attention_is_told_its_own_argument(path: Path) -> None:
    verdict, [found] = told(Net(attention).eval(), path)
    assert verdict == "not checked"
    assert "F.scaled_dot_product_attention in Net is called with dropout_p above 0" in found.text
    assert "dropout_p=p if self.training else 0.0" in found.advice
    assert "training=self.training" not in found.advice


RANDOM_MODULES = (nn.Dropout(), nn.AlphaDropout(), nn.FeatureAlphaDropout(), nn.RReLU())


@pytest.mark.parametrize("module", RANDOM_MODULES, ids=lambda m: type(m).__name__)
def test_a_module_that_eval_does_not_reach(module: nn.Module, path: Path) -> None:
    """`call eval()` would be no help: it was called."""
    verdict, [found] = told(Net(module, stays=True).eval(), path)
    assert verdict == "not checked"
    assert f"`behind` ({type(module).__name__}) is in training mode" in found.text
    assert "see that eval() reaches `behind`" in found.advice


def stochastic_depth(v: torch.Tensor) -> torch.Tensor:
    return v * (torch.rand(len(v), 1) > 0.3) / 0.7


@pytest.mark.parametrize(
    ("drawn", "name"),
    [
        (stochastic_depth, "torch.rand"),
        (lambda v: v + torch.randn_like(v), "torch.randn_like"),
        (lambda v: F.gumbel_softmax(v), "gumbel_softmax"),
    ],
)
def test_numbers_drawn_by_hand_are_not_told_of_dropout(
    drawn: Callable[[torch.Tensor], torch.Tensor], name: str, path: Path
) -> None:
    verdict, [found] = told(Net(drawn).eval(), path)
    assert verdict == "not checked"
    assert found.kind == "randomness"
    assert name in found.text
    assert "if self.training" in found.advice
    assert "dropout" not in found.advice


@pytest.mark.parametrize(
    ("net", "text", "advice"),
    [
        (
            Net(nn.BatchNorm1d(8), stays=True),
            "`behind` (BatchNorm1d) is in training mode",
            "see that eval() reaches `behind`",
        ),
        (
            Net(nn.BatchNorm1d(8, track_running_stats=False)),
            "`behind` (BatchNorm1d) has no running statistics",
            "track_running_stats=True",
        ),
        (
            Net(lambda v: F.batch_norm(v, None, None, training=True)),
            "F.batch_norm in Net is called with training=True",
            "and running statistics",
        ),
    ],
    ids=["stays", "without", "function"],
)
def test_statistics_of_the_batch(net: Net, text: str, advice: str, path: Path) -> None:
    verdict, [found] = told(net.eval(), path)
    assert verdict == "failed"
    assert text in found.text
    assert advice in found.advice


def test_instance_norm_always_takes_its_own_statistics(path: Path) -> None:
    def normed(v: torch.Tensor) -> torch.Tensor:
        return F.instance_norm(v[None])[0]

    assert told(Net(normed).eval(), path) == ("failed", [])


@pytest.mark.parametrize("how", ["export", "trace"])
@pytest.mark.parametrize("name", ["F.dropout", "F.alpha_dropout", "F.rrelu", "attention"])
def test_traced_programs_are_told_once_where_it_is_written_down(name: str, how: str, path: Path) -> None:
    net = Net(DROPS.get(name, attention)).eval()
    model = (
        torch.export.export(net, (X,)) if how == "export" else torch.jit.trace(net, (X,), check_trace=False)
    )
    verdict, [found] = told(model, path)
    assert verdict == "not checked"
    assert "traced in training mode" in found.text
    assert "pass `self.training` there" in found.advice


def test_a_model_that_is_in_eval_mode_is_told_nothing(path: Path) -> None:
    assert told(Net(nn.Sequential(nn.Dropout(), nn.BatchNorm1d(8, affine=False))).eval(), path)[1] == []


def test_an_active_dropout_of_the_file_is_one_line(tmp_path: Path) -> None:
    """Case 25: no word of atomic additions beside it."""
    net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4))
    torch.onnx.export(
        net.train(),
        (X,),
        str(tmp_path / "m.onnx"),
        dynamo=False,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
    )
    report = deployops.validate(net.eval(), tmp_path / "m.onnx", (X,), latency=False, isolate=False)
    assert report.verdict == "failed"
    [found] = [f for f in report.findings if f.kind != "evidence"]
    assert found.kind == "training mode"
    assert "F.dropout in the model needs `training=self.training`" in found.advice
