"""Real samples from a folder: how they are found, and how files that do not fit or mean harm are refused."""

from __future__ import annotations

import io
import os
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from deployops.errors import UsageError
from deployops.export.inputs.signature import signature_from_specs
from deployops.export.result import TensorSpec
from deployops.validation.backends import Sample
from deployops.validation.inputs.golden import golden_cells
from deployops.validation.inputs.sample_files import read_folder
from deployops.validation.inputs.samples import resolve
from deployops.validation.original import Original

X = np.arange(6, dtype=np.float32).reshape(2, 3)
IMAGE = TensorSpec("x", "float32", ("batch", 3))


def graph_of(inputs: dict[str, tuple[str, list[Any]]], outputs: tuple[str, ...] = ("y",)) -> onnx.GraphProto:
    def info(name: str, dtype: str, shape: Any) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.DataType.Value(dtype.upper()), shape)

    return helper.make_graph(
        [], "g", [info(n, *v) for n, v in inputs.items()], [info(n, "float", None) for n in outputs]
    )


# The layouts.


def test_a_file_for_each_sample_in_the_order_of_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", x=X + 1)
    np.savez_compressed(tmp_path / "a.npz", x=X)
    (tmp_path / "README.txt").write_text("ignored")
    found = read_folder(tmp_path, ["x"])
    assert [s.label for s in found] == ["a.npz", "b.npz"]
    assert found[1].values["x"].tolist() == (X + 1).tolist()


def test_a_file_for_each_input_and_a_golden_output(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "n.npy", np.array(3))
    np.save(tmp_path / "expected_y.npy", X * 2)
    [sample] = read_folder(tmp_path, ["x", "n"], ["y"])
    assert sample.label == tmp_path.name
    assert int(sample.values["n"]) == 3
    assert np.array_equal(sample.golden["y"], X * 2)


def test_a_folder_for_each_sample(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "x.npy", X)
    assert [s.label for s in read_folder(tmp_path, [IMAGE])] == ["cat", "dog"]


def test_arrays_without_names_are_taken_in_order(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", X, X * 2)
    [sample] = read_folder(tmp_path, ["x", "z"])
    assert sample.values["z"].tolist() == (X * 2).tolist()


def test_the_single_output_needs_no_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=X, expected=X * 2)
    [sample] = read_folder(tmp_path, ["x"], ["logits"])
    assert list(sample.golden) == ["logits"]


def test_bfloat16_comes_as_float32(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=X)
    [sample] = read_folder(tmp_path, [TensorSpec("x", "bfloat16", ("n", 3))])
    assert sample.values["x"].dtype == torch.bfloat16


# Refusals: each names the file, the input, what was got and what was expected.


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": X.astype(np.float64)}, ["bad.npz", "'x'", "float64[2, 3]", "float32[batch, 3]"]),
        ({"x": X.astype(np.int32)}, ["bad.npz", "int32[2, 3]", "float32[batch, 3]"]),
        ({"x": X[0]}, ["bad.npz", "'x'", "1 dims", "float32[batch, 3]"]),
        ({"x": X.T}, ["bad.npz", "'x'", "dim 1 is 2 instead of 3"]),
        ({"y": X}, ["bad.npz", "'y'", "no such input", "takes x", "without x"]),
        ({"x": X, "expected_z": X}, ["bad.npz", "'expected_z'", "no such output", "logits"]),
        ({"x": X.astype("U3")}, ["bad.npz", "'x'", "<U3", "numbers or bools"]),
    ],
)
def test_what_does_not_fit(tmp_path: Path, arrays: dict[str, Any], words: list[str]) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    np.savez(tmp_path / "good.npz", x=X)
    with pytest.raises(UsageError) as caught:
        read_folder(tmp_path, [IMAGE], ["logits"])
    for word in words:
        assert word in str(caught.value)
    assert "good.npz" not in str(caught.value)


def test_dims_of_one_name_must_be_equal(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=X, z=X[:1])
    with pytest.raises(UsageError, match="batch is 1 here and 2 as dim 0 of 'x'"):
        read_folder(tmp_path, [IMAGE, TensorSpec("z", "float32", ("batch", 3))])


def test_pickled_objects_are_never_run(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'harm'}",)

    np.savez(tmp_path / "a.npz", x=np.array([Harm()], dtype=object))
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Harm()))
    with pytest.raises(UsageError) as caught:
        read_folder(tmp_path, ["x"])
    assert not (tmp_path / "harm").exists()
    assert "a.npz" in str(caught.value)
    assert "b.npz" in str(caught.value)
    assert "Python objects" in str(caught.value)


@pytest.mark.parametrize("dtype", [np.longdouble, np.uint32, "datetime64[s]", "V4", [("a", "f4")]])
def test_dtypes_that_no_model_takes(tmp_path: Path, dtype: Any) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3), dtype))
    with pytest.raises(UsageError, match=r"x\.npy: The data for 'x'"):
        read_folder(tmp_path, [IMAGE])


@pytest.mark.parametrize("array", [np.array(["a"]), np.zeros(2, [("a", "f4")]), np.zeros(2, "complex64")])
def test_expected_outputs_are_numbers(tmp_path: Path, array: Any) -> None:
    np.savez(tmp_path / "a.npz", x=X, expected_y=array)
    with pytest.raises(UsageError, match="an expected output of"):
        read_folder(tmp_path, ["x"], ["y"])


def test_other_byte_orders_and_fortran_order_are_read(tmp_path: Path) -> None:
    for name, array in (("a", X.astype(">f4")), ("b", np.asfortranarray(X)), ("c", X[::-1])):
        np.savez(tmp_path / f"{name}.npz", x=array)
    found = [s.values["x"].tolist() for s in read_folder(tmp_path, [IMAGE])]
    assert found == [X.tolist(), X.tolist(), X[::-1].tolist()]


def packed(path: Path, *names: str) -> None:
    stream = io.BytesIO()
    np.save(stream, X)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        for name in names:
            archive.writestr(name, stream.getvalue())


def test_an_array_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    packed(tmp_path / "a.npz", "x.npy", "x.npy")
    with pytest.raises(UsageError, match="'x' is there twice"):
        read_folder(tmp_path, ["x"])


def test_names_lead_nowhere_and_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    packed(tmp_path / "a\x1b[2J.npz", "../../x.npy", "\x1b]0;owned\x07.npy")
    with pytest.raises(UsageError) as error:
        read_folder(tmp_path, ["x"])
    assert "\x1b" not in str(error.value)
    assert not (tmp_path.parent.parent / "x.npy").exists()


def test_more_arrays_than_any_model_has_inputs_are_refused_unread(tmp_path: Path) -> None:
    packed(tmp_path / "a.npz", *(f"x{k}.npy" for k in range(1001)))
    with pytest.raises(UsageError, match="holds 1,001 arrays"):
        read_folder(tmp_path, ["x"])


@pytest.mark.parametrize("shape", ["(1000000000000, 3)", "(2**62, 2**62)", "(-1, 3)"])
def test_a_header_that_promises_more_than_there_is(tmp_path: Path, shape: str) -> None:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(11 + len(text)) % 64) + b"\n"
    (tmp_path / "x.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + X.tobytes()
    )
    with pytest.raises(UsageError, match="damaged or no numpy file"):
        read_folder(tmp_path, ["x"])


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04rubbish", b"\x93NUMPY\x01\x00", b"\x80\x04}q\x00.", b"no array at all"]
)
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.npz"):
        read_folder(tmp_path, ["x"])


def test_a_truncated_archive(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros(1000))
    (tmp_path / "x.npz").write_bytes(buffer.getvalue()[:-200])
    with pytest.raises(UsageError, match=r"x\.npz"):
        read_folder(tmp_path, ["x"])


def test_an_archive_that_would_not_fit_into_memory_is_not_unpacked(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 4)}
    )
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.getvalue() + b"\0" * 1000)
    with pytest.raises(UsageError, match=r"bomb\.npz"):
        read_folder(tmp_path, ["x"])


def test_a_small_archive_of_much_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deployops.validation.inputs import array_files, sample_files

    monkeypatch.setattr(sample_files, "MOST_BYTES", 100_000)
    np.savez_compressed(tmp_path / "zeros.npz", x=np.zeros(100_000, np.float32))
    assert (tmp_path / "zeros.npz").stat().st_size < 10_000
    monkeypatch.setattr(sample_files, "read_arrays", None)  # it is refused before anything is read
    with pytest.raises(UsageError, match=r"400,128 bytes.* give fewer"):
        read_folder(tmp_path, ["x"])
    monkeypatch.setattr(array_files, "MOST_BYTES", 100_000)
    with pytest.raises(UsageError, match=r"zeros\.npz would take"):
        array_files.read_arrays(tmp_path / "zeros.npz")


@pytest.mark.parametrize("what", ["missing", "file", "empty", "mixed"])
def test_folders_that_are_none(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "f"
    if what == "file":
        folder.write_bytes(b"")
    elif what != "missing":
        folder.mkdir()
    if what == "mixed":
        np.save(folder / "x.npy", X)
        np.savez(folder / "a.npz", x=X)
    words = {
        "missing": "no such folder",
        "file": "not a folder",
        "empty": "no samples",
        "mixed": "cannot be told",
    }
    with pytest.raises(UsageError, match=words[what]):
        read_folder(folder, ["x"])


# Through `resolve`.


class Two(nn.Module):
    def forward(self, image: torch.Tensor, k: float = 1.0, mask: torch.Tensor | None = None) -> torch.Tensor:
        return image * k + (0 if mask is None else mask)


def test_the_folder_comes_first_and_takes_the_form_of_the_example(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=X, mask=X)
    example = {"image": torch.ones(2, 3), "mask": torch.ones(2, 3)}
    graph = graph_of({"image": ("float", ["n", 3]), "mask": ("float", ["n", 3])})
    found = resolve(Two(), graph, example, None, None, 3, 0, folder=tmp_path)
    assert [s.label for s in found] == ["a.npz", "example", "n=3", "n=4"]
    assert found[0].kwargs["image"].tolist() == X.tolist()


def test_python_values_come_from_the_signature(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=X, expected=X * 3)
    signature = signature_from_specs(["image:float32[n,3]", "k:float=3.0"])
    graph = graph_of({"image": ("float", ["n", 3])}, ("y",))
    found = resolve(Two(), graph, None, signature, None, 2, 0, folder=tmp_path)
    assert found[0].args[1] == 3.0
    assert np.array_equal(found[0].golden["y"], X * 3)
    assert not found[1].golden


def test_the_files_own_names_serve_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", in0=X)
    graph = graph_of({"in0": ("float", ["n", 3])})
    found = resolve(Two(), graph, (torch.ones(4, 3),), None, None, 1, 0, folder=tmp_path)
    assert found[0].args[0].tolist() == X.tolist()


def test_a_folder_is_enough(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=X)
    np.savez(tmp_path / "b.npz", image=X[:1])
    graph = graph_of({"image": ("float", ["n", 3])})
    found = resolve(Two(), graph, None, None, None, 2, 0, "quick", tmp_path)
    labels = [s.label for s in found]
    assert labels == ["a.npz", "b.npz", "n=3", "a.npz, large", "a.npz, tiny"]
    by_other = resolve(Two(), graph_of({"image": ("float", ["n", 5])}), (torch.ones(2, 5),), None, None, 1, 0)
    assert len(by_other) == 1
    with pytest.raises(UsageError, match="dim 1 is 3 instead of 5"):
        resolve(Two(), graph_of({"image": ("float", ["n", 5])}), None, None, None, 2, 0, folder=tmp_path)


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="give one of inputs, signature and samples; got none"):
        resolve(Two(), graph_of({}), None, None, None, 2, 0)


# Golden outputs.


def cells_of(golden: dict[str, Any], dtype: torch.dtype = torch.float32) -> list[Any]:
    net = nn.Linear(8, 4).to(dtype).eval()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(3)))
        x = torch.randn(5, 8, generator=torch.Generator().manual_seed(4)).to(dtype)
        exact = x.double().numpy() @ net.weight.double().numpy().T + net.bias.double().numpy()
        values = {n: v(exact) for n, v in golden.items()}
        sample = Sample("cat.npz", (x,), golden=values)
        expected = Original(net).expected(sample)
        return golden_cells(sample, ["y"], [e.array for e in expected], expected, "pytorch")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("stored", ["float64", "float32"])
def test_a_golden_output_passes_as_float64_and_as_float32(dtype: torch.dtype, stored: str) -> None:
    [cell] = cells_of({"y": lambda exact: exact.astype(stored)}, dtype)
    assert cell.verdict == "passed", cell.reason
    assert cell.judged_as == "golden"
    assert cell.budget is not None
    assert cell.budget.source.startswith("twice")


def test_another_golden_output_fails() -> None:
    [cell] = cells_of({"y": lambda exact: exact + 1e-4})
    assert cell.verdict == "failed"
    assert "not the golden output" in cell.reason
    [cell] = cells_of({"y": lambda exact: exact[:1]})
    assert cell.verdict == "failed"


def test_golden_values_of_an_output_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="expected values for z"):
        cells_of({"z": lambda exact: exact})


def test_classes_are_equal_in_any_integer_type() -> None:
    x = torch.tensor([1.0, 3.0, 2.0])
    sample = Sample("a", (x,), golden={"label": np.array(1, np.int32)})
    expected = Original(lambda v: v.argmax()).expected(sample)
    [cell] = golden_cells(sample, ["label"], [np.array(1)], expected, "onnxruntime")
    assert cell.verdict == "passed", cell.reason
    [cell] = golden_cells(sample, ["label"], [np.array(2)], expected, "onnxruntime")
    assert cell.verdict == "failed"
