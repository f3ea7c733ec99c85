"""Files that are no ONNX model, given where one is read: exit code 2 and a line that says what it is and what to do.

What each file is comes from how it was made here: by zipfile, gzip, torch, or the bytes that its format begins with.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from deployops import inspect_model
from deployops.errors import ModelFileError, UsageError
from deployops.export.onnx_file.integrity import read_model, verify_digest
from deployops.ort_ops.session import session
from deployops.trt_plugins.engines.build import build_engine
from deployops.validation.files import validate


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("docs/readme.txt", "hello")
    return buffer.getvalue()


def saved(what: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    what(buffer)
    return buffer.getvalue()


def script() -> bytes:
    return saved(lambda to: torch.jit.save(torch.jit.script(torch.nn.ReLU()), to))


def state(old: bool = False) -> bytes:
    weights = torch.nn.Linear(2, 2).state_dict()
    return saved(lambda to: torch.save(weights, to, _use_new_zipfile_serialization=not old))


def program() -> bytes:
    made = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    return saved(lambda to: torch.export.save(made, to))


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
# By what nobody loads with deployops: what it is, and what to do.
STRANGERS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "web page": (lambda: b"<!DOCTYPE html><title>Sign in</title>", "a web page", "download it again"),
    "LFS pointer": (lambda: LFS, "a Git LFS pointer", "run `git lfs pull`"),
    "zip": (zipped, "a zip archive", "unpack it first"),
    "half a zip": (lambda: zipped()[:40], "a zip archive", "get it again"),
    "gzip": (lambda: gzip.compress(b"model"), "a gzip archive", "unpack it first"),
    "empty": (lambda: b"", "an empty file (0 bytes)", "get it again"),
    "text": (lambda: b"hello world\n", "a text file that begins 'hello world'", "give the model"),
    "PDF": (lambda: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF document", "give the model"),
    "engine": (lambda: b"ftrt" + bytes(60), "a serialized engine of TensorRT", "ONNX model that it was built from"),
    "engine of RTX": (lambda: b"vtrt" + bytes(60), "a serialized engine of TensorRT-RTX", "deployops engine show"),
}  # fmt: skip
# Models of PyTorch.
MODELS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "TorchScript": (script, "a TorchScript archive", "deployops export"),
    "state dict": (state, "", "deployops export"),
    "old state dict": (lambda: state(old=True), "", "deployops export"),
    "exported program": (program, "a torch.export archive", "deployops export"),
}
READERS: dict[str, Callable[[Path], Any]] = {
    "engine build": lambda path: build_engine(path, out=path.with_suffix(".engine")),
    "session": session,
    "validate": lambda path: validate(torch.nn.ReLU(), path),
    "verify_digest": verify_digest,
    "read_model": read_model,
}


@pytest.fixture(params=[*STRANGERS, *MODELS])
def told(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str, str]:
    content, what, advice = (STRANGERS | MODELS)[request.param]
    path = tmp_path / "net.onnx"
    path.write_bytes(content())
    return path, what, advice


@pytest.mark.parametrize("reader", READERS)
def test_whoever_reads_a_model_says_what_the_file_is_and_what_to_do(
    told: tuple[Path, str, str], reader: str
) -> None:
    path, what, advice = told
    with pytest.raises(ModelFileError) as caught:
        READERS[reader](path)
    text = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in text
    if "is damaged" not in text:  # `validate` looks into archives
        assert text.startswith(f"{path} is not an ONNX model but ")
    assert what.removeprefix("a ") in text
    assert advice in text


@pytest.mark.parametrize("name", STRANGERS)
def test_inspect_ends_with_2_for_what_is_no_model(command: Any, tmp_path: Path, name: str) -> None:
    content, what, _ = STRANGERS[name]
    path = tmp_path / "net.pt"
    path.write_bytes(content())
    done = command("inspect", path)
    assert done.code == 2, done.out
    assert not done.out
    assert what.removeprefix("a ") in done.err
    assert name.startswith("engine") or len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_pytorch_is_told_and_not_held_against_a_runtime(
    command: Any, tmp_path: Path, name: str
) -> None:
    content, what, advice = MODELS[name]
    path = tmp_path / "net.onnx"
    path.write_bytes(content())
    done = command("inspect", path)
    assert done.code == 0, done.err
    assert what in done.out
    with pytest.raises(UsageError, match="is not an ONNX model but") as caught:
        inspect_model(path, tensorrt="10.8")
    assert advice in str(caught.value)


def test_a_large_file_of_another_kind_is_not_told_to_be_a_large_model(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    with path.open("wb") as stream:
        stream.write(b"\x1f\x8b\x08")
        stream.truncate(3 << 30)  # no block is written
    for read in (read_model, lambda p: build_engine(p, out=tmp_path / "net.engine")):
        with pytest.raises(ModelFileError, match="a gzip archive; unpack it first"):
            read(path)


def test_an_onnx_model_that_is_cut_short_is_damaged_and_nothing_else(tmp_path: Path) -> None:
    import onnx

    value = onnx.helper.make_tensor_value_info("x", 1, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value], [value])
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString()[:-3])
    for read in (session, verify_digest, lambda p: build_engine(p, out=tmp_path / "net.engine")):
        with pytest.raises(ModelFileError, match="damaged, or not an ONNX model"):
            read(path)  # type: ignore[operator]
