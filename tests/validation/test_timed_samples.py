"""Of an operator alone the largest declared sample is timed, and a small one is said to be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from deployops.validation.timed_samples import largest, of_each_shape


def expectation(size: int) -> Any:
    x = torch.zeros(size)
    outputs = [SimpleNamespace(array=np.zeros(size, np.float32))]
    return SimpleNamespace(inputs=[("x", x)], outputs=outputs, sample=SimpleNamespace(label=str(size)))


def test_the_largest_is_taken_wherever_it_stands() -> None:
    chosen, notes = largest([expectation(n) for n in (1, 0, 100_000, 3)], "acme::op")
    assert [e.sample.label for e in chosen] == ["100000"]
    assert notes == []


def test_a_small_one_is_said_to_be() -> None:
    chosen, (note,) = largest([expectation(2), expectation(5)], "acme::op")
    assert [e.sample.label for e in chosen] == ["5"]
    assert "has 10 elements, so that its time is mostly the overhead of a call" in note


def test_nothing_is_timed_where_all_are_empty() -> None:
    assert largest([expectation(0)], "acme::op") == (
        [],
        ["acme::op is not timed where all of its samples are empty"],
    )


def test_of_a_model_the_example_is_timed() -> None:
    assert [e.sample.label for e in of_each_shape([expectation(2), expectation(9)], 1)] == ["2"]
