"""Outputs that depend on earlier calls, or on Python's random numbers, are refused; harmless caches are not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deployops.errors import ExportError
from deployops.export.memory import Memory
from deployops.export.python_state import python_state

X = ["x:float32[2,3]"]
A = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
LOG: list[Tensor] = []
FIRST: Tensor | None = None


class Stateful(torch.nn.Module):
    """`step` computes, with attributes to keep things in."""

    def __init__(self, step: Callable[[Any, Tensor], Tensor], **attributes: Any) -> None:
        super().__init__()
        self.step = step
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, x)


class Box:
    """No module and no container."""

    value: Tensor | None = None


def previous(m: Any, x: Tensor) -> Tensor:
    before = torch.zeros_like(x) if m.kept is None else m.kept
    m.kept = x
    return x + before


def appended(m: Any, x: Tensor) -> Tensor:
    m.kept.append(x)
    return torch.stack(m.kept).sum(0)


def by_key(m: Any, x: Tensor) -> Tensor:
    before = m.kept.get("x", 0)
    m.kept["x"] = x
    return x + before


def moving_average(m: Any, x: Tensor) -> Tensor:
    m.kept = 0.99 * m.kept + 0.01 * x.mean()
    return x - m.kept


def in_place(m: Any, x: Tensor) -> Tensor:
    m.kept.mul_(0.9).add_(x.mean())
    return x - m.kept


def counted(m: Any, x: Tensor) -> Tensor:
    m.kept += 1
    return x * m.kept


def calibrated(m: Any, x: Tensor) -> Tensor:
    """Every later call repeats: only a call from the beginning with other values shows it."""
    if m.kept is None:
        m.kept = x.mean()
    return x - m.kept


def in_an_object(m: Any, x: Tensor) -> Tensor:
    if m.kept.value is None:
        m.kept.value = x.mean()
    return x - m.kept.value


def with_its_own_generator(m: Any, x: Tensor) -> Tensor:
    return x + float(m.kept.random())


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        (previous, lambda: None),
        (appended, list),
        (by_key, dict),
        (moving_average, lambda: 0.0),
        (in_place, lambda: torch.zeros(())),
        (counted, lambda: 0),
        (calibrated, lambda: None),
        (in_an_object, Box),
        (with_its_own_generator, lambda: np.random.default_rng(0)),
        (with_its_own_generator, lambda: random.Random(0)),
    ],
)
def test_outputs_that_depend_on_earlier_calls_are_refused_with_the_attribute(
    deploy: Any, step: Any, kept: Callable[[], Any]
) -> None:
    with pytest.raises(ExportError, match=r"depend on its earlier calls.*changes `0\.kept` \(Stateful\)"):
        deploy(torch.nn.Sequential(Stateful(step, kept=kept())), X)


def test_state_in_a_global_variable_and_in_a_closure(deploy: Any) -> None:
    def first(m: Any, x: Tensor) -> Tensor:
        global FIRST
        FIRST = x.mean() if FIRST is None else FIRST
        return x - FIRST

    count = 0

    def closed(m: Any, x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return x * count

    with pytest.raises(ExportError, match="`FIRST` \\(a global variable of"):
        deploy(Stateful(first), X)
    with pytest.raises(ExportError, match="depend on its earlier calls"):
        deploy(Stateful(closed), X)
    assert FIRST is None
    assert count == 0


def test_state_that_nothing_shows(deploy: Any) -> None:
    class Hidden:
        __slots__ = ("count",)

        def next(self) -> int:
            self.count = getattr(self, "count", 0) + 1
            return self.count

    with pytest.raises(ExportError, match="no attribute of its modules shows"):
        deploy(Stateful(lambda m, x: x * m.kept.next(), kept=Hidden()), X)


# What is harmless


def table(m: Any, x: Tensor) -> Tensor:
    if m.kept is None or m.kept.shape[0] < x.shape[1]:
        m.kept = torch.arange(x.shape[1]).float().cos()
    return x * m.kept[: x.shape[1]]


def noted(m: Any, x: Tensor) -> Tensor:
    m.kept = (x.device, x.dtype)
    m.calls = getattr(m, "calls", 0) + 1
    m.last = x * 2
    LOG.append(x)
    return x + 1


@pytest.mark.parametrize(("step", "expected"), [(table, A * np.cos(np.arange(3))), (noted, A + 1)])
def test_what_is_kept_and_does_not_show_is_exported_and_put_back(
    deploy: Any, step: Any, expected: Any
) -> None:
    net = Stateful(step, kept=None)
    exported = deploy(net, X)
    np.testing.assert_allclose(exported.run(A)[0], expected, rtol=1e-5)
    assert net.kept is None
    assert not hasattr(net, "last")
    assert not hasattr(net, "calls")
    assert LOG == []


def test_a_buffer_registered_as_none_and_built_at_the_first_call(deploy: Any) -> None:
    net = Stateful(table)
    net.register_buffer("kept", None)
    np.testing.assert_allclose(deploy(net, X).run(A)[0], A * np.cos(np.arange(3)), rtol=1e-5)
    assert net.kept is None


def test_a_lazy_module(deploy: Any) -> None:
    net = torch.nn.Sequential(torch.nn.LazyLinear(4))
    exported = deploy(net, X)
    np.testing.assert_allclose(exported.run(A)[0], net(torch.from_numpy(A)).detach(), rtol=1e-5, atol=1e-6)


def test_a_random_model_is_compared_with_the_same_draws(deploy: Any) -> None:
    exported = deploy(Stateful(lambda m, x: x + torch.rand_like(x)), X)
    assert "draws random numbers in eval mode" in exported.notes
    with pytest.raises(ExportError, match="depend on its earlier calls"):
        deploy(Stateful(lambda m, x: counted(m, x) + torch.rand_like(x), kept=0), X)


def test_a_constant_computed_from_a_trial_input_is_refused() -> None:
    """However it went past the comparison of outputs."""
    kept = torch.tensor([0.3, 0.7])
    net = Stateful(lambda m, x: x + m.kept, kept=kept)
    program = torch.export.export(net, (torch.ones(2),))
    Memory(derived=[("`kept` (Stateful)", torch.tensor([0.3, 0.8]))]).refuse_constants(program)
    with pytest.raises(ExportError, match=r"took `kept` \(Stateful\) for a constant"):
        Memory(derived=[("`kept` (Stateful)", kept.clone())]).refuse_constants(program)


def test_the_state_is_read_and_restored_through_every_kind_of_container() -> None:
    generator = torch.Generator().manual_seed(3)
    net = Stateful(table, kept={"a": [1, (torch.zeros(2), {2})]}, array=np.zeros(2), generator=generator)
    net.me = net  # a cycle
    before = python_state(net)
    expected = torch.rand(2, generator=torch.Generator().manual_seed(3))
    net.kept["a"][1][0].add_(1)
    net.kept["a"].append(4)
    net.array += 1
    torch.rand(2, generator=generator)
    assert before.changed(python_state(net)) == [
        "`kept` (Stateful)",
        "`array` (Stateful)",
        "`generator` (Stateful)",
    ]
    before.restore()
    assert before.changed(python_state(net)) == []
    assert len(net.kept["a"]) == 2
    assert not net.kept["a"][1][0].any()
    assert torch.equal(torch.rand(2, generator=generator), expected)


# Python's and numpy's generators


@pytest.mark.parametrize(
    ("draw", "name"), [(random.random, "random"), (lambda: np.random.rand(), "numpy.random")]
)
def test_a_coin_of_python_is_refused_with_its_line(deploy: Any, draw: Any, name: str) -> None:
    def step(m: Any, x: Tensor) -> Tensor:
        heads = draw() > 0.5
        return x + 1 if heads else x

    states = random.getstate(), np.random.get_state()[1].tolist()
    with pytest.raises(ExportError) as refused:
        deploy(Stateful(step), X)
    assert f"draws random numbers from `{name}`, at test_memory.py:" in str(refused.value)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states


def test_a_draw_that_does_not_show_is_a_warning(deploy: Any) -> None:
    def step(m: Any, x: Tensor) -> Tensor:
        random.random()
        return x + 1

    exported = deploy(Stateful(step), X)
    assert "draws random numbers from `random`, at test_memory.py:" in exported.notes
    assert "the outputs were the same" in exported.notes
