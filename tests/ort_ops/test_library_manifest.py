"""A library's manifest is read and believed only where it is one, and belongs to the bytes beside it."""

from __future__ import annotations

import copy
import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deployops.errors import UsageError
from deployops.ort_ops.library_manifest import read_manifest

GOOD: dict[str, Any] = {
    "format": 1,
    "library": "libacme.so",
    "sha256": "",
    "target": "ort-cpu",
    "platform": f"{sys.platform}-{platform.machine()}",
    "compiler": {"kind": "gcc", "version": "12.2"},
    "flags": ["-O3"],
    "levels": ["x86-64", "x86-64-v3"],
    "operators": [
        {
            "domain": "acme",
            "op_type": "Mix",
            "version": 2,
            "name": "acme::mix",
            "inputs": [
                {"name": "x", "form": "single", "type": "T"},
                {"name": "mask", "form": "optional", "type": "M"},
                {"name": "more", "form": "variadic", "type": "T"},
            ],
            "outputs": [{"name": "y", "form": "single", "type": None}],
            "signatures": [
                {"inputs": {"x": "float32", "mask": "bool", "more": "float32"}, "outputs": {"y": "float32"}}
            ],
            "attributes": [{"name": "eps", "type": "FLOAT", "required": False, "default": 1e-6}],
            "kernel": {"file": "mix.h", "sha256": "0" * 64},
        }
    ],
}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A library of a few bytes, which is no native code, and a manifest beside it that belongs to it."""

    def run(
        change: Callable[[dict[str, Any]], Any] = lambda content: None, text: str | bytes | None = None
    ) -> Path:
        library = tmp_path / "libacme.so"
        library.write_bytes(b"never loaded")
        content = copy.deepcopy(GOOD)
        content["sha256"] = hashlib.sha256(b"never loaded").hexdigest()
        change(content)
        raw = json.dumps(content) if text is None else text
        (tmp_path / "libacme.json").write_bytes(raw if isinstance(raw, bytes) else raw.encode())
        return library

    return run


def refused(library: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_manifest(library)
    text = str(caught.value)
    assert text.isprintable(), repr(text)
    assert len(text) < 1000
    return text


def test_what_is_in_it_is_read(write: Write) -> None:
    manifest = read_manifest(write())
    assert (manifest.name, manifest.target, manifest.levels) == (
        "libacme.so",
        "ort-cpu",
        ("x86-64", "x86-64-v3"),
    )
    (operator,) = manifest.operators
    assert (operator.onnx_name, operator.version, operator.name) == ("acme::Mix", 2, "acme::mix")
    assert [(a.name, a.form) for a in operator.inputs] == [
        ("x", "single"),
        ("mask", "optional"),
        ("more", "variadic"),
    ]
    assert operator.signatures[0].inputs == {"x": "float32", "mask": "bool", "more": "float32"}
    assert (operator.attributes[0].type, operator.attributes[0].default) == ("FLOAT", 1e-6)


def test_a_path_as_text_will_do(write: Write) -> None:
    assert read_manifest(str(write())).operators


def test_no_library(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "libnothere.so")
    assert "cannot be read" in refused(tmp_path / ("x" * 300 + ".so"))


def test_a_folder_in_the_place_of_a_library(tmp_path: Path) -> None:
    text = refused(tmp_path)
    assert "is a folder" in text
    assert ".so" in text


def test_a_manifest_in_the_place_of_its_library(write: Write) -> None:
    assert "is a manifest, not a library. Give the library itself" in refused(write().with_suffix(".json"))


def test_no_manifest(write: Write) -> None:
    library = write()
    library.with_suffix(".json").unlink()
    assert "has no manifest: libacme.json is not beside it" in refused(library)


def test_a_rebuilt_library(write: Write) -> None:
    library = write()
    library.write_bytes(b"another build")
    assert "rebuilt or replaced since libacme.json was written" in refused(library)


def test_another_platform(write: Write) -> None:
    text = refused(write(lambda c: c.update(platform="beos-m68k")))
    assert "is built for 'beos-m68k'" in text
    assert platform.machine() in text


@pytest.mark.parametrize("number", [0, 2, "1", None, [1], True, 1.0])
def test_another_format(write: Write, number: Any) -> None:
    assert "this deployops reads 1" in refused(write(lambda c: c.update(format=number)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        '"text"',
        "\x00\x01",
        b"\xff\xfe\x00",
        "[" * 200_000,
        '{"a":' * 100_000,
        "9" * 100_000,
        '{"format": 1, "format": 1}',
        '{"a": {"\\u001b[2J": 1, "\\u001b[2J": 2}}',
    ],
)
def test_text_that_is_no_manifest(write: Write, text: str | bytes) -> None:
    started = time.monotonic()
    assert "no library manifest" in refused(write(text=text))
    assert time.monotonic() - started < 5


def test_a_manifest_of_any_size_is_not_read(write: Write) -> None:
    assert "more than 16 MB" in refused(write(text=b" " * (17 << 20)))


def operator(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = content["operators"][0]
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.pop("operators"),
        lambda c: c.update(operators={}),
        lambda c: c.update(operators=[3]),
        lambda c: c.update(operators=[operator(c)] * 20_000),
        lambda c: c.update(sha256=3),
        lambda c: c.update(flags=[1]),
        lambda c: c.update(levels="x86-64"),
        lambda c: c.update(compiler=[]),
        lambda c: c.update(platform=None),
        lambda c: operator(c).pop("op_type"),
        lambda c: operator(c).update(domain=None),
        lambda c: operator(c).update(version=0),
        lambda c: operator(c).update(version=-1),
        lambda c: operator(c).update(version=True),
        lambda c: operator(c).update(version=2**40),
        lambda c: operator(c).update(version="1"),
        lambda c: operator(c).update(inputs=[["x"]]),
        lambda c: operator(c)["inputs"][0].update(form="several"),
        lambda c: operator(c)["inputs"][0].update(type=7),
        lambda c: operator(c).update(signatures=[{"inputs": {"x": 1}, "outputs": {}}]),
        lambda c: operator(c).update(signatures=[{"inputs": {"x": "float32"}, "outputs": {}}]),
        lambda c: operator(c)["attributes"][0].update(type="TENSOR"),
        lambda c: operator(c)["attributes"][0].update(required="no"),
    ],
)
def test_fields_of_another_kind(write: Write, change: Callable[[dict[str, Any]], Any]) -> None:
    assert "no library manifest" in refused(write(change))


@pytest.mark.parametrize("name", ["\x1b[31mEVIL\x07", "a\nb", "\u202eabc", "x" * 1_000_000])
def test_a_message_moves_no_cursor(write: Write, name: str) -> None:
    refused(write(lambda c: c.update(platform=name)))
    refused(write(lambda c: operator(c).update(op_type=name, signatures=[{"inputs": {}, "outputs": {}}])))
    refused(write(lambda c: c.update(format=name)))


def test_a_library_of_that_name_in_a_folder_of_that_name(tmp_path: Path) -> None:
    folder = tmp_path / "\x1b[2J"
    folder.mkdir()
    (folder / "lib.so").write_bytes(b"x")
    refused(folder / "lib.so")


def test_what_deployops_writes_is_read(write: Write) -> None:
    from deployops.ort_ops.manifest_writer import describe
    from deployops.symbolic import registry

    registry.load_builtin()
    shipped = [op for op in registry.all_operators() if op.name.startswith("deployops::")]
    entries = [describe(op) | {"kernel": {"file": "k.h", "sha256": "0" * 64}} for op in shipped]
    read = read_manifest(write(lambda c: c.update(operators=json.loads(json.dumps(entries)))))
    assert {o.onnx_name for o in read.operators} == {op.onnx_name for op in shipped}
    swish = next(o for o in read.operators if o.op_type == "SwishBeta")
    assert {s.inputs["x"] for s in swish.signatures} == {"float32", "float64", "float16", "bfloat16"}
