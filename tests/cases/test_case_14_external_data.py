"""Case 14: a model and the file of its weights are one unit: written, checked, loaded and refused together."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import deployops
from deployops.errors import ModelFileError

X = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def linear() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(64, 64).eval()


@pytest.fixture(scope="module")
def unit(linear: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unit")
    result = deployops.export_model(linear, ["x:float32[n,64]"], out=folder / "lin.onnx", external_data=True)
    assert result.path.name == "lin.onnx"
    assert len(result.files) == 2
    return folder / "lin.onnx"


def data_of(path: Path) -> Path:
    (name,) = {
        e.value
        for t in onnx.load(str(path), load_external_data=False).graph.initializer
        for e in t.external_data
        if e.key == "location"
    }
    return path.parent / name


@pytest.fixture
def copy(unit: Path, tmp_path: Path) -> Path:
    """The unit, copied somewhere else."""
    for file in (unit, data_of(unit)):
        shutil.copy(file, tmp_path)
    return tmp_path / unit.name


def test_by_path_it_loads_and_computes_what_the_weights_say(linear: Any, copy: Path, run_onnx: Any) -> None:
    weight, bias = (p.detach().numpy().astype(np.float64) for p in (linear.weight, linear.bias))
    np.testing.assert_allclose(run_onnx(copy, X)[0], X @ weight.T + bias, atol=1e-5)
    onnx.checker.check_model(str(copy), full_check=True)


def test_the_location_is_a_bare_name_beside_the_model(unit: Path) -> None:
    assert data_of(unit).parent == unit.parent
    assert os.sep not in data_of(unit).name


def lose(copy: Path) -> None:
    data_of(copy).unlink()


def cut(copy: Path) -> None:
    data = data_of(copy)
    data.write_bytes(data.read_bytes()[:1000])


def flip(copy: Path) -> None:
    data = data_of(copy)
    content = bytearray(data.read_bytes())
    content[4097] ^= 4
    data.write_bytes(content)


def exchange(copy: Path) -> None:
    """The right size, the wrong export: what happens when two exports share a folder."""
    data = data_of(copy)
    data.write_bytes(bytes(data.stat().st_size))


def escape(copy: Path) -> None:
    model = onnx.load(str(copy), load_external_data=False)
    model.producer_name = "another tool"
    del model.metadata_props[:]
    data = data_of(copy)
    outside = copy.parent.parent / "outside.bin"
    shutil.copy(data, outside)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../outside.bin"
    copy.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lose, ["lin.onnx", "not there|missing|no such"]),
        (cut, ["1,?000|short|cut|truncated"]),
        (flip, ["digest|damaged|changed"]),
        (exchange, ["digest|damaged|changed"]),
        (escape, ["outside"]),
    ],
    ids=["missing", "truncated", "flipped bit", "of another export", "outside the folder"],
)
def test_a_bad_unit_is_refused_in_one_clear_message(
    copy: Path, command: Any, damage: Any, words: list[str]
) -> None:
    damage(copy)
    import re

    for arguments in (["inspect", copy], ["validate", "net.pt", "--onnx", copy]):
        done = command(*arguments)
        assert done.code == 2, done.out
        assert "Traceback" not in done.err
        for word in words:
            assert re.search(word, done.err, re.IGNORECASE), done.err


def test_inspect_verifies_the_whole_unit(copy: Path, command: Any) -> None:
    done = command("inspect", copy)
    assert done.code == 0, done.err
    assert "checked" in done.out  # the digest covers the data


def test_writing_over_an_older_unit_leaves_no_mixture(linear: Any, copy: Path, run_onnx: Any) -> None:
    torch.manual_seed(1)
    other = torch.nn.Linear(64, 64).eval()
    deployops.export_model(other, ["x:float32[n,64]"], out=copy, external_data=True)
    np.testing.assert_allclose(run_onnx(copy, X)[0], other(torch.from_numpy(X)).detach().numpy(), atol=1e-5)
    deployops.inspect_model(copy)
    deployops.export_model(other, ["x:float32[n,64]"], out=copy, external_data=False)
    assert not any(
        p.name.endswith(".data") and p.stat().st_size
        for p in copy.parent.iterdir()
        if p == data_or_none(copy)
    )
    deployops.inspect_model(copy)


def data_or_none(path: Path) -> Path | None:
    external = [
        t for t in onnx.load(str(path), load_external_data=False).graph.initializer if t.external_data
    ]
    return data_of(path) if external else None


def test_above_two_gigabytes_is_read_without_loading_it(tmp_path: Path, command: Any) -> None:
    """The case's sparse 2.24 GB file: identified and listed at once."""
    count = 40000 * 14000
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(4 * count)
    weight = onnx.TensorProto(
        name="w",
        data_type=TensorProto.FLOAT,
        dims=[40000, 14000],
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", str(4 * count))):
        weight.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "r"], ["y"])],
        "g",
        [helper.make_tensor_value_info("r", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 14000])],
        [weight],
    )
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(model, str(tmp_path / "m.onnx"))
    done = command("inspect", tmp_path / "m.onnx")
    assert done.code == 0, done.err
    assert "y: float32[2, 14000]" in done.out
    with open(tmp_path / "w.bin", "r+b") as file:
        file.truncate(4 * count - 1)
    with pytest.raises(ModelFileError):
        deployops.inspect_model(tmp_path / "m.onnx")
