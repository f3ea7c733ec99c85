"""A fault planted at a known node of an exported file is found at that node, in few runs, with the user's module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from .bisected_models import (
    Blocks,
    Edit,
    Image,
    attribute,
    bisected,
    dropped,
    edited,
    exported,
    op_type,
    rounded,
    seeded,
    weight,
    x,
)

MOST_RUNS = 12  # of the issue, for 200 nodes

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
Files = dict[Any, tuple[nn.Module, Path]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Exports are slow and do not change."""
    folder = tmp_path_factory.mktemp("bisected")
    found = {}
    for dtype in (torch.float32, torch.float16):
        for name, net, shape in (("blocks", Blocks(3), (2, 7, 16)), ("image", Image(), (2, 3, 9, 9))):
            net = seeded(net, dtype)
            path = folder / f"{name}_{str(dtype)[6:]}.onnx"
            found[name, dtype] = net, exported(net, x(*shape, dtype=dtype), path)
    net = seeded(Blocks(12))
    found["deep", torch.float32] = net, exported(net, x(2, 7, 16), folder / "deep.onnx")
    return found


def off_by_one(array: Any) -> Any:
    array[3, 4] += 0.5
    return array


# value, fault, module, text of the line
BLOCKS: dict[str, tuple[str, Edit, str, str]] = {
    "epsilon": (
        "layer_norm_1",
        attribute("layer_norm_1", "epsilon", 0.1),
        "blocks.1.norm",
        "self.qkv(self.norm(x))",
    ),
    "axis": ("softmax_1", attribute("softmax_1", "axis", 1), "blocks.1", "torch.softmax"),
    "transposed weight": ("linear_1", weight("linear_1", lambda w: w.T.copy()), "blocks.0.proj", "self.proj"),
    "weight": ("linear_5", weight("linear_5", off_by_one), "blocks.1.proj", "self.proj"),
    "dropped bias": ("linear_2", dropped("linear_2", 1), "blocks.0.up", "self.up"),
    "dropped residual": ("add_3", dropped("add_3", 0), "blocks.1", "x + self.down"),
    "operator": ("add", op_type("add", "Sub"), "blocks.0", "x + self.proj"),
    "scale": ("div_2", weight("div_2", lambda k: k * k.dtype.type(1.25)), "blocks.2", "/ 4"),
    "order": ("transpose", attribute("transpose", "perm", [2, 1, 0]), "blocks.0", "k.transpose"),
}


@DTYPES
@pytest.mark.parametrize("fault", BLOCKS)
def test_the_node_is_named(fault: str, dtype: torch.dtype, files: Files) -> None:
    net, path = files["blocks", dtype]
    value, edit, module, line = BLOCKS[fault]
    batch = 7 if fault == "order" else 3  # so that the wrong order fits
    found = bisected(net, edited(path, edit), x(batch, 7, 16, dtype=dtype))
    assert found.culprit is not None, found.text
    assert (found.culprit.output, found.culprit.module) == (value, module)
    assert line in found.culprit.line
    assert found.culprit.line.startswith("bisected_models.py:")
    assert found.runs <= MOST_RUNS
    assert "the file says something else than the original" in found.text or "shape" in found.text


IMAGE: dict[str, tuple[str, Edit, str]] = {
    "padding": ("conv2d_1", attribute("conv2d_1", "pads", [1, 1, 1, 1]), "body"),
    "dilation": ("conv2d", attribute("conv2d", "pads", [2, 0, 0, 2]), "stem"),
    "epsilon": ("getitem", attribute("getitem", "epsilon", 0.05), "bn"),
    "clamp": ("relu", op_type("relu", "Identity"), ""),
    "axis of an integer output": ("output_1", attribute("output_1", "select_last_index", 1), ""),
}


@DTYPES
@pytest.mark.parametrize("fault", IMAGE)
def test_the_node_is_named_in_a_convolutional_net(fault: str, dtype: torch.dtype, files: Files) -> None:
    net, path = files["image", dtype]
    value, edit, module = IMAGE[fault]
    sample = x(3, 3, 9, 9, dtype=dtype)
    if "integer" in fault:
        sample[0] = 0  # the same everywhere in the middle: first and last maximum are two
    found = bisected(net, edited(path, edit), sample)
    assert found.culprit is not None, found.text
    assert (found.culprit.output, found.culprit.module) == (value, module)
    assert found.runs <= MOST_RUNS


def test_two_hundred_nodes(files: Files) -> None:
    net, path = files["deep", torch.float32]
    late = attribute("layer_norm_9", "epsilon", 0.1)
    found = bisected(net, edited(path, late), x(3, 7, 16))
    assert found.nodes >= 200
    assert found.culprit is not None
    assert (found.culprit.output, found.culprit.module) == ("layer_norm_9", "blocks.9.norm")
    assert found.runs <= MOST_RUNS


def test_of_two_faults_the_first_is_named(files: Files) -> None:
    net, path = files["deep", torch.float32]
    early = attribute("softmax_2", "axis", 1)
    found = bisected(net, edited(path, early, dropped("linear_30", 1)), x(3, 7, 16))
    assert found.culprit is not None
    assert found.culprit.output == "softmax_2"


@pytest.mark.parametrize("memory", [20_000, 60_000])
def test_values_that_do_not_fit_in_one_run_are_halved_first(memory: int, files: Files) -> None:
    net, path = files["deep", torch.float32]
    found = bisected(net, edited(path, attribute("layer_norm_7", "epsilon", 0.1)), x(3, 7, 16), memory=memory)
    assert found.culprit is not None, found.text
    assert found.culprit.output == "layer_norm_7"
    assert found.runs <= MOST_RUNS


def test_a_value_that_goes_through_a_narrower_dtype(files: Files) -> None:
    """The values between have no counterpart: the group is said, and its last node named."""
    net, path = files["blocks", torch.float32]
    found = bisected(net, edited(path, rounded("softmax", to=10, back=1)), x(3, 7, 16))
    assert found.culprit is not None
    assert (found.culprit.node, found.culprit.op_type) == ("back_softmax", "Cast")
    assert found.text.startswith("One of 3 nodes, of which Cast `back_softmax` is the last,")
    assert [n.split()[0] for n in found.culprit.among] == ["Softmax", "Cast", "Cast"]
    # the casts round, as written: that is the file's doing, and no backend's
    assert "the file says something else than the original" in found.text


def test_a_weight_that_is_not_the_models_is_said(files: Files) -> None:
    net, path = files["blocks", torch.float32]
    found = bisected(net, edited(path, weight("linear_5", off_by_one)), x(3, 7, 16))
    assert (
        "is not `blocks.1.proj.weight` of the original: 1 of 256 elements, by 0.5 at most, at [3, 4]"
        in found.text
    )


def test_ranges_of_the_inputs(files: Files) -> None:
    net, path = files["image", torch.float32]
    sample = x(3, 3, 9, 9)
    found = bisected(net, edited(path, attribute("conv2d", "pads", [2, 0, 0, 2])), sample)
    assert found.culprit is not None
    ranges = {r.name: r for r in found.culprit.inputs}
    assert set(ranges) == {"x", "stem.weight", "stem.bias"}
    assert (ranges["x"].low, ranges["x"].high) == (float(sample.min()), float(sample.max()))
    assert ranges["x"].shape == (3, 3, 9, 9)
    assert ranges["stem.weight"].high == float(net.stem.weight.detach().max())


def test_nan_in_an_input_is_counted(files: Files) -> None:
    net, path = files["image", torch.float32]
    sample = x(3, 3, 9, 9)
    sample[0, 0, 0, 0], sample[1, 0, 0, 0] = np.nan, np.inf
    found = bisected(net, edited(path, attribute("conv2d_1", "dilations", [2, 2])), sample)
    assert found.culprit is not None
    given = found.culprit.inputs[0]
    assert given.nan > 0
    assert np.isfinite([given.low, given.high]).all()


@DTYPES
@pytest.mark.parametrize("name", ["blocks", "image"])
def test_nothing_is_named_in_a_sound_file(name: str, dtype: torch.dtype, files: Files) -> None:
    """No tolerance at all makes every output fail: each step is within its own budget nevertheless."""
    net, path = files[name, dtype]
    sample = x(3, 7, 16, dtype=dtype) if name == "blocks" else x(3, 3, 9, 9, dtype=dtype)
    found = bisected(net, path, sample, atol=0.0)
    assert found.culprit is None
    assert "No single node explains it" in found.text or "did not fail again" in found.text


def test_a_file_that_passes_is_said_to(files: Files) -> None:
    net, path = files["blocks", torch.float32]
    found = bisected(net, path, x(3, 7, 16))
    assert found.culprit is None
    assert "did not fail again" in found.text
    assert found.runs == 1


def test_two_searches_give_the_same_record(files: Files) -> None:
    net, path = files["blocks", torch.float32]
    faulty = edited(path, attribute("layer_norm_1", "epsilon", 0.1))
    assert bisected(net, faulty, x(3, 7, 16)) == bisected(net, faulty, x(3, 7, 16))
