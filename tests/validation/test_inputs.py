"""What a model is run on: sizes, distributions, layouts; reproducible, in the domain of the inputs, said in the label."""

from __future__ import annotations

import itertools
import math
from typing import Any

import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from torch import nn

from deployops.errors import UsageError
from deployops.export.inputs.signature import signature_from_specs
from deployops.symbolic.memory_layouts import LAYOUTS, copied, laid_out
from deployops.validation import Sample
from deployops.validation.inputs.distributions import FULL, QUICK, drawn
from deployops.validation.inputs.samples import resolve
from deployops.validation.inputs.sizes import (
    MOST_GROWN_BYTES,
    MOST_INPUT_BYTES,
    MOST_SETS,
    OpenDim,
    size_sets,
)


def graph_of(**inputs: tuple[str, list[Any]]) -> onnx.GraphProto:
    values = [
        helper.make_tensor_value_info(n, TensorProto.DataType.Value(t.upper()), d)
        for n, (t, d) in inputs.items()
    ]
    return helper.make_graph([], "g", values, [])


def tensors(sample: Sample) -> list[torch.Tensor]:
    return [v for v in (*sample.args, *sample.kwargs.values()) if isinstance(v, torch.Tensor)]


def of_specs(*specs: str, sweep: Any = "full", notes: Any = None, model: Any = None) -> list[Sample]:
    class Any_(nn.Module):
        def forward(self, x: torch.Tensor, y: Any = None) -> torch.Tensor:
            return x

    return resolve(
        model or Any_(), graph_of(), None, signature_from_specs(specs), None, 3, 0, sweep, notes=notes
    )


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


X = torch.randn(4, 6, generator=generator())


# Sweeps.


def test_without_a_sweep_only_sizes() -> None:
    labels = [s.label for s in of_specs("x:float32[n,8]", sweep=None)]
    assert len(labels) == 3
    assert all(label.startswith("n=") and "," not in label for label in labels)


def test_quick_adds_two_cheap_runs_at_the_examples_size() -> None:
    plain = of_specs("x:float32[n,8]", sweep=None)
    quick = of_specs("x:float32[n,8]", sweep="quick")
    assert [s.label for s in quick[:3]] == [s.label for s in plain]
    assert [s.label for s in quick[3:]] == [f"{plain[0].label}, {kind}" for kind in QUICK]
    assert all(torch.isfinite(s.args[0]).all() for s in quick)


def test_full_tries_the_ends_of_the_declared_ranges() -> None:
    found = of_specs("x:float32[n=0..300@5,8]")
    sizes = {len(s.args[0]) for s in found}
    assert {0, 1, 5, 300, 31, 32, 33, 64, 127, 128, 129} <= sizes
    assert all(0 <= n <= 300 for n in sizes)


def test_full_keeps_multiples_and_ranges() -> None:
    found = of_specs("x:float32[n=8..64%8@16,8]")
    sizes = {s.args[0].shape[0] for s in found}
    assert {8, 16, 64} <= sizes
    assert all(n % 8 == 0 and 8 <= n <= 64 for n in sizes)


def test_zero_is_tried_only_where_it_is_declared() -> None:
    assert 0 not in {s.args[0].shape[0] for s in of_specs("x:float32[n,8]")}


def test_labels_are_all_different_and_say_everything() -> None:
    found = of_specs("x:float32[n=1..9@4,6]")
    labels = [s.label for s in found]
    assert len(labels) == len(set(labels))
    base = labels[0]
    for kind in FULL:
        assert any(label.startswith(f"{base}, {kind}") for label in labels), kind
    for layout in LAYOUTS:
        assert f"{base}, {layout}" in labels
    assert f"{base}, normal, seed 1" in labels


def test_the_same_seed_gives_the_same_bits_and_another_others() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, again = (
        of_specs("x:float32[n,6]", "y:int64[n]=0..9"),
        of_specs("x:float32[n,6]", "y:int64[n]=0..9"),
    )
    assert torch.equal(torch.get_rng_state(), state)  # the global generator is nobody's but the user's
    for a, b in zip(first, again, strict=True):
        assert a.label == b.label
        for u, v in zip(tensors(a), tensors(b), strict=True):
            assert u.stride() == v.stride()
            assert u.numpy().tobytes() == v.numpy().tobytes()
    signature = signature_from_specs(["x:float32[n,6]"])
    other = resolve(lambda x: x, graph_of(), None, signature, None, 3, 7, "full")
    assert not torch.equal(other[0].args[0], first[0].args[0])


def test_whole_numbers_keep_their_domain() -> None:
    found = of_specs("x:uint8[n,3]=0..255", "y:int64[n]=5..9")
    for sample in found:
        assert int(sample.args[1].min() if sample.args[1].numel() else 5) >= 5
        assert int(sample.args[1].max() if sample.args[1].numel() else 9) <= 9
        assert sample.args[0].dtype == torch.uint8


def test_an_example_of_indices_gives_no_index_that_it_does_not_hold() -> None:
    index = torch.tensor([3, 7, 7, 11])
    graph = graph_of(x=("int64", ["n"]))
    notes: dict[str, None] = {}
    found = resolve(lambda x: x, graph, (index,), None, None, 3, 0, "full", notes=notes)
    assert len(found) > 5
    assert all(set(s.args[0].tolist()) <= {3, 7, 11} for s in found)
    assert any("no input is floating-point" in n for n in notes)


@pytest.mark.parametrize("kind", FULL)
def test_a_declared_range_of_values_is_kept(kind: str) -> None:
    example = torch.rand(40, generator=generator()) * 4 - 1
    made = drawn(example, kind, generator(), (-1.0, 3.0))
    if kind.startswith("with"):
        assert made is None  # NaN is outside every range
        return
    assert made is not None
    assert float(made.min()) >= -1.0
    assert float(made.max()) <= 3.0
    if kind == "large":
        assert set(made.tolist()) == {-1.0, 3.0}


@pytest.mark.parametrize("kind", ["normal", "uniform", "large", "tiny", "constant"])
def test_inputs_without_negative_values_get_none(kind: str) -> None:
    made = drawn(torch.rand(50, generator=generator()) + 0.1, kind, generator())
    assert made is not None
    assert float(made.min()) >= 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_what_each_distribution_promises(dtype: torch.dtype) -> None:
    example = (3 * torch.randn(32, 32, generator=generator())).to(dtype)
    made = {kind: drawn(example, kind, generator()) for kind in FULL}
    assert all(v is not None and v.dtype == dtype and v.shape == example.shape for v in made.values())
    size = {k: float(v.double().abs().nan_to_num(0, 0, 0).max()) for k, v in made.items() if v is not None}
    assert size["large"] > (20 if dtype.itemsize == 2 else 100)
    assert size["tiny"] < 0.01
    zeros, constant = made["zeros"], made["constant"]
    assert zeros is not None
    assert bool((zeros[0] == 0).all())
    assert 0.4 < float((zeros == 0).double().mean()) < 0.65
    assert constant is not None
    assert len(constant[0].unique()) == 1
    assert float((constant.double() / constant[0, 0].double() - 1).abs().max()) < 0.01
    assert made["with NaN"] is not None
    assert bool(made["with NaN"].flatten()[[0, -1]].isnan().all())
    assert made["with Inf"] is not None
    assert {math.inf, -math.inf} <= set(made["with Inf"].flatten().tolist())
    low = made["with -0 and subnormals"]
    assert low is not None
    flat = low.flatten()
    assert math.copysign(1, float(flat[0])) == -1
    assert float(flat[0]) == 0
    smallest = torch.finfo(dtype).smallest_normal
    assert bool(((flat.double().abs() < smallest) & (flat != 0)).any())


def test_large_float16_numbers_are_finite() -> None:
    made = drawn(torch.full((1000,), 60000.0, dtype=torch.float16), "large", generator())
    assert made is not None
    assert bool(torch.isfinite(made).all())


def test_python_values_and_missing_ones_stay() -> None:
    class Scale(nn.Module):
        def forward(self, x: torch.Tensor, k: float, mask: Any = None) -> torch.Tensor:
            return x * k

    found = resolve(Scale(), graph_of(x=("float", ["n", 6])), (X, 2.0, None), None, None, 3, 0, "full")
    assert len(found) > 10
    assert all(s.args[1:] == (2.0, None) for s in found)


def test_given_samples_are_taken_as_they_are_and_that_is_said() -> None:
    notes: dict[str, None] = {}
    found = resolve(nn.Identity(), graph_of(), None, None, [("a", (X,))], 3, 0, "full", notes=notes)
    assert [s.label for s in found] == ["a"]
    assert any("taken as they are" in n for n in notes)


def test_an_unknown_sweep_is_refused() -> None:
    with pytest.raises(UsageError, match="quick or full, not 'huge'"):
        resolve(nn.Identity(), graph_of(), (X,), None, None, 3, 0, "huge")  # type: ignore[arg-type]


def test_repeated_items_differ_and_stay_in_the_examples_range() -> None:
    found = resolve(nn.Identity(), graph_of(x=("float", ["n", 6])), (X,), None, None, 3, 0)
    grown = found[2].args[0]
    assert grown.shape == (8, 6)
    assert len(grown.unique()) >= grown.numel() - 4  # all but the extremes, which stay
    assert float(grown.min()) >= float(X.min())
    assert float(grown.max()) <= float(X.max())
    nearest = (grown[:, None] / X[None] - 1).abs().amax(-1).amin(1)  # to the item that it repeats
    assert float(nearest.max()) <= 2**-6 + 1e-6


def test_masks_and_classes_as_floats_keep_their_values() -> None:
    mask = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    for sample in resolve(nn.Identity(), graph_of(x=("float", ["n", 3])), (mask,), None, None, 4, 0):
        assert set(sample.args[0].unique().tolist()) <= {0.0, 1.0}


# Sizes.


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.one_of(st.none(), st.integers(20, 5000)), st.integers(1, 4), st.booleans()
        ),
        min_size=1,
        max_size=4,
    )
)
def test_every_size_is_allowed_new_and_affordable(raw: list[tuple[int, int | None, int, bool]]) -> None:
    dims = [
        OpenDim(f"d{i}", 12, low, high, step, spatial) for i, (low, high, step, spatial) in enumerate(raw)
    ]

    def bytes_at(sizes: Any) -> int:
        return 4 * math.prod(sizes.values())

    found = size_sets(dims, bytes_at)
    example = {d.name: 12 for d in dims}
    assert len(found.sets) <= MOST_SETS
    keys = [tuple(s.values()) for s in found.sets]
    assert len(keys) == len(set(keys))
    assert tuple(example.values()) not in keys
    base = max(bytes_at(example), 1)
    for sizes in found.sets:
        assert list(sizes) == list(example)
        assert all(d.allows(sizes[d.name]) for d in dims)
        size = bytes_at(sizes)
        assert size <= MOST_INPUT_BYTES
        assert size * max(size / base, 1) <= MOST_GROWN_BYTES


def test_what_costs_too_much_is_named() -> None:
    found = size_sets([OpenDim("s", 8, 1, 10**6)], lambda sizes: 8 * sizes["s"])
    assert any("memory" in line and "s=1000000" in line for line in found.left_out)
    assert all(s["s"] < 10**6 for s in found.sets)


def test_without_a_declared_end_a_sweep_stays_near_the_example() -> None:
    image = 3 * 224 * 224 * 4
    found = size_sets([OpenDim("batch", 4)], lambda sizes: image * sizes["batch"])
    assert max(s["batch"] for s in found.sets) == 16
    assert any("no highest size is declared: batch=17" in line for line in found.left_out)
    declared = size_sets([OpenDim("batch", 4, 1, 64)], lambda sizes: image * sizes["batch"])
    assert max(s["batch"] for s in declared.sets) == 64


def test_what_is_too_many_is_named() -> None:
    dims = [OpenDim(n, 5, 0, 300) for n in "abcd"]
    found = size_sets(dims, lambda _: 1)
    assert len(found.sets) == MOST_SETS
    assert any(f"at most {MOST_SETS} sets" in line for line in found.left_out)
    ends = {(n, v) for s in found.sets for n, v in s.items() if v in (0, 1, 300)}
    assert {(n, v) for n in "abcd" for v in (0, 1, 300)} <= ends  # the ends of every dim come first


def test_images_are_not_shrunk_to_a_pixel() -> None:
    found = size_sets([OpenDim("n", 2), OpenDim("h", 64, spatial=True)], lambda _: 1)
    assert all(s["h"] >= 32 and s["h"] % 32 == 0 for s in found.sets)
    assert any(s["h"] != 64 for s in found.sets)


def test_a_sweep_reports_what_it_left_out() -> None:
    notes: dict[str, None] = {}
    of_specs("x:float32[n=1..100000000@4,8]", notes=notes)
    assert any("left out for their memory" in n and "n=100000000" in n for n in notes)


# Layouts.


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_not_contiguous_and_hold_the_values(layout: str) -> None:
    made = laid_out(X, layout)
    assert made is not None
    assert not made.is_contiguous()
    if layout == "expanded":
        assert torch.equal(made, X[:1].repeat(4, 1))
        assert made.stride(0) == 0
    else:
        assert torch.equal(made, X)


def test_no_layout_of_a_single_number() -> None:
    assert all(laid_out(torch.ones(1), layout) is None for layout in LAYOUTS)
    assert laid_out(torch.ones(5), "transposed storage") is None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_copy_keeps_the_strides_and_shares_nothing(layout: str) -> None:
    made = laid_out(torch.arange(12.0).reshape(3, 4), layout)
    assert made is not None
    twin = copied(made)
    assert torch.equal(twin, made)
    assert twin.stride() == made.stride()
    assert twin.untyped_storage().data_ptr() != made.untyped_storage().data_ptr()


@given(st.lists(st.integers(0, 4), min_size=0, max_size=4), st.randoms(use_true_random=False))
def test_copies_of_any_view_are_equal(shape: list[int], random: Any) -> None:
    whole = torch.arange(max(math.prod(s + 2 for s in shape), 1)).reshape([s + 2 for s in shape])
    view = whole
    for axis, size in enumerate(shape):
        view = view.narrow(axis, random.randrange(3), size)
    order = list(range(len(shape)))
    random.shuffle(order)
    view = view.permute(order)
    assert torch.equal(copied(view), view)
    assert torch.equal(copied(torch.arange(6).unfold(0, 3, 1)), torch.arange(6).unfold(0, 3, 1))


def test_layouts_reach_the_samples_of_a_sweep() -> None:
    found = {s.label: s for s in of_specs("x:float32[4,6]")}
    for layout in LAYOUTS:
        assert not found[f"example, {layout}"].args[0].is_contiguous()
    others = itertools.chain(*(tensors(s) for n, s in found.items() if not n.endswith(LAYOUTS)))
    assert all(t.is_contiguous() for t in others)
