"""Decisions: labels, the best K, rows in any order, boxes. Expected verdicts are built by hand, not by our code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from deployops.errors import UsageError
from deployops.validation.original import Expected
from deployops.validation.parity import budget as parity
from deployops.validation.parity.compare import compare_output
from deployops.validation.parity.matching import matched
from deployops.validation.parity.modes import allowed, parse
from deployops.validation.record import Cell

from .candidates import cell, expected

RNG = np.random.default_rng(0)


def scores(array: np.ndarray, margin: float) -> Expected:
    """An original whose every element may be off by `margin`."""
    return Expected(array, None, parity.user(margin, 0.0))


def judged(got: np.ndarray, reference: Expected, mode: str) -> Cell:
    return compare_output("s", "y", "onnxruntime", got, reference, mode)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("labels:argmax", ("labels", "argmax")),
        ("a:b:topk:5", ("a:b", "topk:5")),
        ("boxes:boxes", ("boxes", "boxes")),
        ("out:boxes:4", ("out", "boxes:4")),
        ("x:set", ("x", "set")),
        ("x:values", ("x", "values")),
    ],
)
def test_parse(text: str, found: tuple[str, str]) -> None:
    assert parse(text) == found


@pytest.mark.parametrize(
    "text", ["labels", "labels:", ":argmax", "x:topk", "x:topk:0", "x:topk:-1", "x:topk:²", "x:median"]
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(UsageError, match="NAME:MODE"):
        parse(text)


def test_argmax() -> None:
    want = np.float32([[0.1, 0.7, 0.2], [0.5, 0.499, 0.0]])
    moved = np.float32([[0.3, 0.4, 0.3], [0.499, 0.5, 0.0]])
    assert judged(moved, scores(want, 0.2), "argmax").verdict == "passed"
    tie = judged(moved, scores(want, 1e-3), "argmax")
    assert (tie.verdict, tie.judged_as) == ("passed", "argmax")
    assert "1 of 2 rows are ties" in tie.reason
    wrong = judged(moved, scores(want, 1e-4), "argmax")
    assert wrong.verdict == "failed"
    assert "row 1: the largest is element 1, the original's 0" in wrong.reason


def test_argmax_with_values_far_off_is_a_matter_of_the_decision_only() -> None:
    want = RNG.standard_normal((50, 10)).astype(np.float32)
    assert judged(3 * want + 5, scores(want, 1e-6), "argmax").verdict == "passed"
    assert judged(-want, scores(want, 1e-6), "argmax").verdict == "failed"


def test_argmax_of_a_lost_nan_fails() -> None:
    want, got = np.float32([[1, np.nan, 2]]), np.float32([[1, 9, 2]])
    assert judged(got, scores(want, 1e-6), "argmax").verdict == "failed"


def test_topk_is_a_set_with_a_margin() -> None:
    want = np.float32([[5, 4, 3, 2.999, 0]])
    assert judged(np.float32([[4, 5, 3, 2.9, 0]]), scores(want, 1e-6), "topk:3").verdict == "passed"
    swapped = np.float32([[5, 4, 2.9, 3, 0]])
    assert judged(swapped, scores(want, 1e-3), "topk:3").verdict == "passed"
    assert judged(swapped, scores(want, 1e-4), "topk:3").verdict == "failed"
    assert judged(np.float32([[5, 0, 3, 2, 4]]), scores(want, 1e-3), "topk:3").verdict == "failed"
    # the best two are the same in both: the third does not matter
    assert judged(swapped, scores(want, 0.0), "topk:2").verdict == "passed"


def test_topk_of_indices_is_a_set() -> None:
    want = Expected(np.int64([[3, 1, 2], [0, 4, 5]]), None, parity.EXACT)
    assert judged(np.int64([[2, 3, 1], [5, 0, 4]]), want, "topk:3").verdict == "passed"
    assert judged(np.int64([[2, 3, 1], [5, 0, 1]]), want, "topk:3").verdict == "failed"


class Label(nn.Module):
    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return (v * 2048 + v * torch.tensor([0.0, 1.0], dtype=v.dtype)).argmax(1)


def test_labels_where_the_original_itself_is_undecided() -> None:
    """2048 + 1 is 2048 in float16, equal to the first; in float64 the second is larger."""
    reference = expected(Label().half(), (torch.tensor([[1.0, 1.0], [0.5, 0.0]]).half(),))
    assert reference.array.tolist() == [0, 0]
    assert reference.undecided is not None
    assert reference.undecided.tolist() == [1, 0]
    assert cell(reference, np.int64([1, 0]), "argmax").verdict == "passed"
    wrong = cell(reference, np.int64([1, 1]), "argmax")
    assert wrong.verdict == "failed"
    assert "1 of 2 decisions differ" in wrong.reason
    assert expected(Label(), (torch.tensor([[1.0, 1.0]]),)).undecided is None


def test_either_label_passes_where_the_wider_run_decides_otherwise() -> None:
    want = Expected(np.int64([1, 2]), None, parity.EXACT, undecided=np.int64([1, 7]))
    assert judged(np.int64([1, 7]), want, "argmax").verdict == "passed"
    assert "1 of 2 are ties" in judged(np.int64([1, 7]), want, "argmax").reason
    assert judged(np.int64([7, 2]), want, "argmax").verdict == "failed"
    assert (
        judged(np.int64([1, 7]), want, "values").verdict == "failed"
    )  # asked for the values, they must be equal


def test_rows_in_any_order() -> None:
    want = RNG.standard_normal((200, 5)).astype(np.float32)
    got = want[RNG.permutation(200)] + np.float32(1e-5)
    assert judged(got, scores(want, 1e-4), "values").verdict == "failed"
    assert judged(got, scores(want, 1e-4), "set").verdict == "passed"
    got[17, 3] += 0.01
    lost = judged(got, scores(want, 1e-4), "set")
    assert lost.verdict == "failed"
    assert "1 of 200 rows" in lost.reason


def test_a_row_counts_as_often_as_it_occurs() -> None:
    want, got = np.float32([[1, 2], [1, 2], [3, 4]]), np.float32([[1, 2], [3, 4], [3, 4]])
    assert judged(got, scores(want, 1e-4), "set").verdict == "failed"
    whole = Expected(want.astype(np.int64), None, parity.EXACT)
    assert judged(got.astype(np.int64), whole, "set").verdict == "failed"
    assert judged(want[::-1].astype(np.int64), whole, "set").verdict == "passed"


def test_sets_are_compared_item_by_item() -> None:
    want = np.float32([[[1], [2]], [[3], [4]]])
    assert judged(want[:, ::-1], scores(want, 1e-4), "set").verdict == "passed"
    assert judged(want[::-1], scores(want, 1e-4), "set").verdict == "failed"


def detections() -> np.ndarray:
    boxes = RNG.uniform(0, 600, (30, 4))
    kept = np.concatenate([boxes, np.linspace(0.95, 0.3, 30)[:, None], RNG.integers(0, 9, (30, 1))], 1)
    return kept.astype(np.float32)


def test_boxes_in_any_order_and_some_at_the_threshold() -> None:
    want = detections()
    reference = scores(want, 1e-3)
    assert judged(want[::-1], reference, "boxes").verdict == "passed"
    extra = np.concatenate([want, [[1, 2, 3, 4, 0.3005, 0]]]).astype(np.float32)
    found = judged(extra, reference, "boxes")
    assert found.verdict == "passed"
    assert "1 new ones are at the threshold" in found.reason
    assert judged(want[:-1], reference, "boxes").verdict == "passed"  # the lowest one, at 0.3
    assert judged(want[1:], reference, "boxes").verdict == "failed"  # the best one
    high = np.concatenate([want, [[1, 2, 3, 4, 0.5, 0]]]).astype(np.float32)
    assert judged(high, reference, "boxes").verdict == "failed"
    moved = want.copy()
    moved[3, 0] += 1
    assert judged(moved, reference, "boxes").verdict == "failed"
    relabelled = want.copy()
    relabelled[3, 5] += 1
    assert judged(relabelled, reference, "boxes").verdict == "failed"


def test_the_score_may_stand_elsewhere() -> None:
    want = detections()[:, [4, 0, 1, 2, 3, 5]]
    assert judged(want[:-1], scores(want, 1e-3), "boxes:0").verdict == "passed"
    # column 4 is a coordinate here, and the last box is not the lowest by it
    assert judged(want[:-1], scores(want, 1e-3), "boxes").verdict == "failed"


@pytest.mark.parametrize("missing", ["got", "want"])
def test_no_boxes_at_all(missing: str) -> None:
    want, none = detections(), np.zeros((0, 6), np.float32)
    assert judged(none, scores(none, 1e-3), "boxes").verdict == "passed"
    got, want = (none, want) if missing == "got" else (want, none)
    assert judged(got, scores(want, 1e-3), "boxes").verdict == "failed"


def test_the_only_box_is_not_at_the_threshold() -> None:
    want = detections()[:1]
    assert judged(np.zeros((0, 6), np.float32), scores(want, 1e-3), "boxes").verdict == "failed"


def test_a_shape_without_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="has no rows"):
        judged(np.float32(1).reshape(()), scores(np.float32(1).reshape(()), 1.0), "set")
    with pytest.raises(UsageError, match="without axes"):
        judged(np.float32(1).reshape(()), scores(np.float32(2).reshape(()), 1.0), "argmax")


def test_matching_is_what_brute_force_finds() -> None:
    for _ in range(20):
        want = RNG.standard_normal((40, 3))
        got = want[RNG.permutation(40)][:35] + RNG.uniform(-1e-3, 1e-3, (35, 3))
        pairs, lost, new = matched(got, want, np.full(want.shape, 1e-3))
        near = {(i, j) for i in range(40) for j in range(35) if np.abs(got[j] - want[i]).max() <= 1e-3}
        assert len(pairs) == 35
        assert set(pairs) <= near
        assert (len(lost), new) == (5, [])


def test_what_is_allowed_follows_the_bands() -> None:
    bands = (parity.Band(1, 4, 1e-2, 1, 1), parity.Band(1, -9, 1e-5, 1, 1))
    budget = parity.Budget(1e-2, 1e-3, 1.0, "test", bands=bands)
    slack = allowed(np.float32([100.0, 1.0, -1.0, 0.0, 1e-9]), budget)
    assert slack == pytest.approx([0.11, 1.01e-3, 1.01e-3, 1e-5, 1e-5])


@pytest.mark.parametrize(("mode", "width"), [("topk:4", 4), ("topk:99", 4), ("argmax", 1)])
def test_a_mode_that_nothing_can_fail_is_no_pass(mode: str, width: int) -> None:
    want = RNG.standard_normal((3, width)).astype(np.float32)
    assert judged(-want, scores(want, 1e-6), mode).verdict == "not checked"


def test_boxes_of_one_score_are_not_excused_by_it() -> None:
    want = np.concatenate([RNG.uniform(0, 600, (8, 4)), np.ones((8, 1))], 1).astype(np.float32)
    reference = scores(want, 1e-3)
    assert judged(want[::-1], reference, "boxes").verdict == "passed"
    assert judged(want[:1], reference, "boxes").verdict == "not checked"
    assert judged(np.concatenate([want, want]), reference, "boxes").verdict == "not checked"
