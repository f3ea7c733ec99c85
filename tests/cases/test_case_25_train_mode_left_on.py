"""Case 25: a model left in training mode is exported in eval mode; what eval does not switch off is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deployops.errors import ExportError

X = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)


def make_net() -> torch.nn.Sequential:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 16),
        torch.nn.BatchNorm1d(16),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(16, 4),
    )
    net(torch.randn(64, 8))  # moves the running statistics
    return net


def by_definition(net: torch.nn.Sequential, x: Any) -> Any:
    """Eval mode, in float64: running statistics, no dropout."""
    first, norm, _, _, last = ({n: t.double().numpy() for n, t in m.state_dict().items()} for m in net)
    h = x @ first["weight"].T + first["bias"]
    h = (h - norm["running_mean"]) / np.sqrt(norm["running_var"] + 1e-5) * norm["weight"] + norm["bias"]
    return np.maximum(h, 0) @ last["weight"].T + last["bias"]


@pytest.mark.parametrize("training", [True, False])
def test_the_file_behaves_as_in_eval_mode_and_the_module_is_as_before(deploy: Any, training: bool) -> None:
    net = make_net().train(training)
    net[4].train(False)  # a mixed state comes back too
    modes = [m.training for m in net.modules()]
    statistics = {k: v.clone() for k, v in net.state_dict().items()}
    exported = deploy(net, ["x:float32[batch,8]"])
    assert "Dropout" not in exported.ops
    np.testing.assert_allclose(exported.run(X)[0], by_definition(net, X), atol=1e-5)
    np.testing.assert_array_equal(exported.run(X)[0], exported.run(X)[0])
    assert ("was in training mode" in exported.notes) == training
    assert [m.training for m in net.modules()] == modes
    assert all(torch.equal(v, statistics[k]) for k, v in net.state_dict().items())


def test_modes_come_back_after_a_failure_too(deploy: Any) -> None:
    class Fails(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("not today")

    net = Fails().train()
    with pytest.raises(ExportError, match="not today"):
        deploy(net, ["x:float32[batch,8]"])
    assert net.training
    assert net.drop.training


def test_a_pickled_module_in_training_mode(deploy: Any, tmp_path: Path) -> None:
    net = make_net().train()
    torch.save(net, tmp_path / "net.pt")
    exported = deploy(tmp_path / "net.pt", ["x:float32[batch,8]"], trust=True)
    assert "was in training mode" in exported.notes
    np.testing.assert_allclose(exported.run(X)[0], by_definition(net, X), atol=1e-5)


def random_call(name: str) -> Any:
    functional = torch.nn.functional
    return {
        "dropout": lambda x: functional.dropout(x, 0.5),
        "dropout2d": lambda x: functional.dropout2d(x[None, :, :, None], 0.5),
        "alpha_dropout": lambda x: functional.alpha_dropout(x, 0.5, training=True),
        "rand_like": lambda x: x + torch.rand_like(x),
        "randn": lambda x: x + torch.randn(1, 8),
        "attention": lambda x: functional.scaled_dot_product_attention(*[x[None, None]] * 3, dropout_p=0.5),
    }[name]


@pytest.mark.parametrize("name", ["dropout", "dropout2d", "alpha_dropout", "rand_like", "randn", "attention"])
def test_randomness_that_eval_leaves_on_is_a_warning_with_the_line(deploy: Any, name: str) -> None:
    call = random_call(name)

    class Random(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return call(x)

    exported = deploy(Random().eval(), ["x:float32[batch,8]"])
    assert "warning: " in exported.notes
    assert "draws random numbers in eval mode too" in exported.notes
    assert Path(__file__).name in exported.notes
    assert "not checked" in exported.notes  # never passed off as compared
    assert exported.result.checked_sizes == ()


def test_functional_dropout_is_in_the_file_as_it_is_in_the_model(deploy: Any, run_onnx: Any) -> None:
    class Always(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.dropout(x, 0.5)

    exported = deploy(Always().eval(), ["x:float32[batch,8]"])
    ones = np.ones((400, 8), np.float32)
    first, second = exported.run(ones)[0], exported.run(ones)[0]
    assert set(np.unique(first)) == {0.0, 2.0}  # kept values are scaled by 1 / (1 - p)
    assert abs(first.mean() - 1) < 0.2
    assert (first != second).any()
    assert "F.dropout needs training=self.training" in exported.notes


@pytest.mark.parametrize(
    "call",
    [
        lambda self, x: torch.nn.functional.dropout(x, 0.5, training=self.training),
        lambda self, x: torch.nn.functional.dropout(x, 0.0),
        lambda self, x: torch.nn.functional.scaled_dot_product_attention(*[x[None, None]] * 3),
    ],
    ids=["training=self.training", "p = 0", "attention without dropout"],
)
def test_what_draws_nothing_in_eval_mode_is_no_warning(deploy: Any, call: Any) -> None:
    class Quiet(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return call(self, x)

    exported = deploy(Quiet(), ["x:float32[batch,8]"])
    assert "random" not in exported.notes
    assert exported.result.checked_sizes


def test_batch_norm_without_running_statistics_is_a_warning(deploy: Any) -> None:
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4, track_running_stats=False)
    ).eval()
    exported = deploy(net, ["x:float32[batch=2..64,8]"])
    assert "warning: `1` (BatchNorm1d) keeps no running statistics" in exported.notes
    h = net[0](torch.from_numpy(X)).detach().double().numpy()
    expected = (h - h.mean(0)) / np.sqrt(h.var(0) + 1e-5)
    np.testing.assert_allclose(exported.run(X)[0], expected, atol=1e-5)


def test_a_module_that_eval_does_not_reach_is_refused(deploy: Any) -> None:
    class Stubborn(torch.nn.Dropout):
        def train(self, mode: bool = True) -> Any:
            return super().train(True)

    with pytest.raises(ExportError, match=r"eval\(\) leaves 1 in training mode"):
        deploy(torch.nn.Sequential(torch.nn.Linear(8, 8), Stubborn(0.5)), ["x:float32[batch,8]"])


def test_a_program_traced_in_training_mode_is_found(deploy: Any) -> None:
    program = torch.export.export(make_net().train(), (torch.from_numpy(X),))
    with pytest.raises(
        ExportError, match=r"(?s)batch normalisation runs in training mode.*after model\.eval\(\)"
    ):
        deploy(program)


def test_validate_does_not_pass_a_model_that_is_random(command: Any, tmp_path: Path) -> None:
    class Always(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.dropout(x, 0.5)

    program = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Always().eval(), (torch.from_numpy(X),)), program)
    done = command("export", program)
    assert done.code == 0, done.err
    assert "not checked" in done.out
    done = command("validate", program, "--onnx", tmp_path / "net.onnx", "--no-latency")
    assert done.code == 3, done.out + done.err
    assert "nondeterministic" in done.out
