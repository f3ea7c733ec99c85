"""Case 05: operators that write into their argument, and modules that write into a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import deployops
from deployops.errors import ExportError

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@torch.library.custom_op("acme05::clip_", mutates_args={"x"})
def clip_(x: Tensor, lim: float) -> None:
    x.clamp_(-lim, lim)


adopted = deployops.adopt("acme05::clip_", onnx="acme05::ClipTo", dtypes=("float32",))


@adopted.body
def _(b: Any, x: Any, lim: float) -> Any:
    return b.Min(b.Max(x, b.tensor(-float(lim), "float32")), b.tensor(float(lim), "float32"))


@deployops.operator("acme05::accumulate", onnx="acme05::Accumulate", dtypes=("float32",), mutates=("total",))
def accumulate(x: Tensor, total: Tensor) -> Tensor:
    total.add_(x)
    return total * 10


@accumulate.fake
def _(x: Tensor, total: Tensor) -> Tensor:
    return torch.empty_like(total)


@accumulate.body
def _(b: Any, x: Any, total: Any) -> Any:
    after = b.Add(total, x)
    return b.Mul(after, 10.0), after


def clipped(x: Any) -> Any:
    return np.clip(x, -1, 1)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        h = x * 3
        torch.ops.acme05.clip_(h, 1.0)
        return h + 1


def test_the_write_is_kept(deploy: Any) -> None:
    exported = deploy(Net(), ["x:float32[batch,3]"])
    assert exported.result.custom_nodes == {"acme05::ClipTo": 1}
    np.testing.assert_allclose(exported.run(X)[0], clipped(3 * X) + 1, rtol=1e-6)


def test_twice_in_a_row_and_seen_through_other_names(deploy: Any) -> None:
    class Chain(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = x * 3
            flat = h.view(-1)  # the same memory
            torch.ops.acme05.clip_(h, 2.0)
            torch.ops.acme05.clip_(h, 1.5)
            return h + 1, flat

    exported = deploy(Chain(), ["x:float32[batch,3]"])
    h = np.clip(3 * X, -1.5, 1.5)
    first, second = exported.run(X)
    np.testing.assert_allclose(first, h + 1, rtol=1e-6)
    np.testing.assert_allclose(second, h.ravel(), rtol=1e-6)


def test_an_operator_that_writes_and_returns(deploy: Any) -> None:
    class Both(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            total = x * 0 + 1
            tens = accumulate(x, total)
            return tens, total

    tens, total = deploy(Both(), ["x:float32[batch,3]"]).run(X)
    np.testing.assert_allclose(total, 1 + X, rtol=1e-6)
    np.testing.assert_allclose(tens, 10 * (1 + X), rtol=1e-6)


def test_a_write_into_a_view_is_refused_with_the_reason(deploy: Any) -> None:
    class View(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            h = x * 3
            torch.ops.acme05.clip_(h[1:], 1.0)
            return h + 1

    with pytest.raises(ExportError, match=r"`x` is a view.*clone"):
        deploy(View(), ["x:float32[batch,3]"])


def test_a_write_into_the_models_own_input_is_said(deploy: Any) -> None:
    class Input(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.ops.acme05.clip_(x, 0.5)
            return x + 1

    example = torch.from_numpy(X.copy())
    exported = deploy(Input(), (example,))
    assert torch.equal(example, torch.from_numpy(X))  # the user's tensor is untouched
    assert "writes into its input `x`" in exported.notes
    np.testing.assert_allclose(exported.run(X)[0], np.clip(X, -0.5, 0.5) + 1, rtol=1e-6)


class AddsInPlace(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.tensor(4.0))

    def forward(self, x: Tensor) -> Tensor:
        self.n.add_(1.0)
        return x + self.n


class Replaces(AddsInPlace):
    def forward(self, x: Tensor) -> Tensor:
        self.n = self.n + 1
        return x + self.n


class ByOperator(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.tensor([4.0]))

    def forward(self, x: Tensor) -> Tensor:
        accumulate(torch.ones(1), self.n)
        return x + self.n


@pytest.mark.parametrize("make", [AddsInPlace, Replaces, ByOperator])
def test_a_buffer_that_forward_writes(deploy: Any, make: Any) -> None:
    net = make()
    exported = deploy(net, ["x:float32[batch,3]"])
    np.testing.assert_allclose(exported.run(X)[0], X + 5, rtol=1e-6)  # as the first call of the original
    assert float(net.n) == 4.0  # the export leaves the module as it was
    assert float(net(torch.zeros(1, 1))) == 5.0
    assert "writes into its buffer `n`" in exported.notes
    assert "keeps nothing" in exported.notes
    np.testing.assert_allclose(exported.run(X)[0], X + 5, rtol=1e-6)  # and so at every call


def test_a_scripted_buffer_is_put_back_too(deploy: Any) -> None:
    net = torch.jit.script(AddsInPlace())
    exported = deploy(net, ["x:float32[batch,3]"])
    assert float(net.n) == 4.0
    assert "writes into its buffer `n`" in exported.notes
    np.testing.assert_allclose(exported.run(X)[0], X + 5, rtol=1e-6)


def test_state_outside_buffers_is_an_error_that_says_so(deploy: Any) -> None:
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x + self.calls

    with pytest.raises(ExportError, match=r"depend on its earlier calls.*changes `calls`"):
        deploy(Counts(), ["x:float32[batch,3]"])


@pytest.mark.parametrize(
    ("name", "call", "expected"),
    [
        ("relu_", lambda x: (x * 3).relu_() + 1, np.maximum(3 * X, 0) + 1),
        ("add_ after a view", lambda x: _add_through_view(x), (3 * X + 1).ravel()),
        ("index assignment", lambda x: _assign(x), np.concatenate([X[:, :1] * 0, X[:, 1:]], 1)),
        ("copy_", lambda x: torch.zeros_like(x).copy_(x) + 1, X + 1),
    ],
)
def test_in_place_operators_of_torch_itself(deploy: Any, name: str, call: Any, expected: Any) -> None:
    class InPlace(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return call(x)

    np.testing.assert_allclose(deploy(InPlace(), ["x:float32[batch,3]"]).run(X)[0], expected, rtol=1e-6)


def _add_through_view(x: Tensor) -> Tensor:
    h = x * 3
    flat = h.view(-1)
    h.add_(1)
    return flat


def _assign(x: Tensor) -> Tensor:
    h = x.clone()
    h[:, 0] = 0
    return h


def test_validate_compares_it_call_by_call(
    command: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets_of_case_05.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.scale = torch.nn.Parameter(torch.tensor(3.0))\n"
        "    def forward(self, x):\n"
        "        h = x * self.scale\n"
        "        torch.ops.acme05.clip_(h, 1.0)\n"
        "        return h + 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    torch.save({"scale": torch.tensor(3.0)}, tmp_path / "net.pt")
    options = [tmp_path / "net.pt", "--model", "nets_of_case_05:Net", "--input", "x:float32[batch,3]"]
    done = command("export", *options, "-o", tmp_path / "net.onnx")
    assert done.code == 0, done.err
    # in this process: the operator is declared in no file that another one could be told to load
    report = deployops.validate(
        tmp_path / "net.pt",
        tmp_path / "net.onnx",
        ["x:float32[batch,3]"],
        factory="nets_of_case_05:Net",
        latency=False,
        sizes=2,
    )
    assert report.exit_code == 0, report.text()


def test_a_buffer_that_is_written_and_returned_has_its_new_value(deploy: Any) -> None:
    class Running(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.full((3,), 4.0))

        def forward(self, x: Tensor) -> Tensor:
            self.total += x.sum(0)
            return self.total

    net = Running()
    exported = deploy(net, ["x:float32[n,3]"])
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(exported.run(x)[0], np.full(3, 6.0, np.float32))
    assert net.total.tolist() == [4.0, 4.0, 4.0]
    report = deployops.validate(net, exported.path, ["x:float32[n,3]"], latency=False)
    assert {c.verdict for c in report.cells} == {"passed"}
