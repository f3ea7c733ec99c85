"""Libraries that do not load are told as the loader would, and manifests are read as anybody's files; nothing is loaded."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deployops.errors import UsageError
from deployops.native.compilers import find_cxx
from deployops.native.elf_file import NotElfError, read_elf
from deployops.trt_plugins.inspection import check_model, limits_for
from deployops.trt_plugins.library_manifest import described_plugins, read_plugins

from .parser_models import model, node

SHOWS = 'extern "C" void* getCreators(int& n) { n = 0; return nullptr; }\n'
pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="libraries of Linux")


def built(folder: Path, source: str, *flags: str, name: str = "libtheirs.so") -> Path:
    (folder / "source.cpp").write_text(source)
    command = [str(find_cxx().path), "-shared", "-fPIC", "-o", str(folder / name), str(folder / "source.cpp")]
    subprocess.run([*command, *flags], check=True)
    return folder / name


def kinds(library: Path, version: str = "10.8", archs: Sequence[int] = ()) -> dict[str, str]:
    limits = limits_for("tensorrt", version)
    found = check_model(model(node("Blur")), limits, [read_plugins(library)], archs=archs)
    return {f.kind: f.what for f in found.findings}


def manifest(library: Path, **changed: Any) -> None:
    """One as `deployops compile` writes it, for a library that has one plugin."""
    content = {
        "format": 1,
        "library": library.name,
        "sha256": hashlib.sha256(library.read_bytes()).hexdigest(),
        "target": "tensorrt",
        "nvcc": "13.0",
        "tensorrt_headers": "10.14",
        "archs": [80, 90],
        "ptx": 80,
        "plugins": [
            {
                "name": "acme::blur",
                "plugin_namespace": "acme",
                "plugin_name": "Blur",
                "plugin_version": "1",
                "inputs": [{"name": "x", "form": "single"}],
                "outputs": ["y"],
                "signatures": [{"inputs": {"x": "float32"}, "outputs": {"y": "float32"}}],
                "attributes": [{"name": "radius", "type": "INT", "required": True, "default": None}],
            }
        ],
    }
    library.with_suffix(".json").write_text(json.dumps(content | changed))


# --- the library -------------------------------------------------------------------------------------------------


def test_a_library_that_loads(tmp_path: Path) -> None:
    assert kinds(built(tmp_path, SHOWS)) == {}


def test_a_symbol_that_no_library_has(tmp_path: Path) -> None:
    found = kinds(built(tmp_path, SHOWS + "void nowhere(); void f() { nowhere(); }"))
    assert list(found) == ["library-missing-symbol"]
    assert "nowhere" in found["library-missing-symbol"]


def test_a_library_that_is_not_there(tmp_path: Path) -> None:
    built(tmp_path, "int gone() { return 1; }", "-Wl,-soname,libgone.so.3", name="libgone.so")
    theirs = built(tmp_path, SHOWS + "int gone(); int f() { return gone(); }", str(tmp_path / "libgone.so"))
    (tmp_path / "libgone.so").unlink()
    assert kinds(theirs) == {
        "library-missing-library": "libtheirs.so needs libgone.so.3, which this machine has not"
    }


def test_its_own_folder_is_looked_in_where_it_says_so(tmp_path: Path) -> None:
    built(tmp_path, "int here() { return 1; }", "-Wl,-soname,libhere.so.3", name="libhere.so.3")
    source = SHOWS + "int here(); int f() { return here(); }"
    assert kinds(built(tmp_path, source, str(tmp_path / "libhere.so.3"), "-Wl,-rpath,$ORIGIN")) == {}


@pytest.mark.parametrize(("version", "kind"), [("8.6", None), ("10.8", "library-other-tensorrt")])
def test_a_library_that_is_tied_to_another_tensorrt(tmp_path: Path, version: str, kind: str | None) -> None:
    built(tmp_path, "int nv() { return 1; }", "-Wl,-soname,libnvinfer.so.8", name="libnvinfer.so")
    theirs = built(tmp_path, SHOWS + "int nv(); int f() { return nv(); }", str(tmp_path / "libnvinfer.so"))
    (tmp_path / "libnvinfer.so").unlink()
    assert set(kinds(theirs, version)) == ({kind} if kind else set())


def test_a_library_that_shows_no_creators(tmp_path: Path) -> None:
    assert set(kinds(built(tmp_path, "int f() { return 1; }"))) == {"library-no-creators"}


def test_a_library_for_another_processor(tmp_path: Path) -> None:
    library = built(tmp_path, SHOWS)
    data = bytearray(library.read_bytes())
    data[18:20] = (183 if data[18] != 183 else 62).to_bytes(2, "little")
    library.write_bytes(data)
    assert set(kinds(library)) == {"library-platform"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "an empty file"),
        (b"MZ\x90\0", "for Windows"),
        (b"\xcf\xfa\xed\xfe\x07", "for macOS"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\0\x3e\0", "a damaged ELF file"),
        (b"#!/bin/sh\n", "does not begin as an ELF file"),
    ],
)
def test_what_is_no_library(tmp_path: Path, content: bytes, told: str) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(content)
    assert told in kinds(library)["library-not-elf"]


def test_damaged_libraries_are_refused_and_nothing_else(tmp_path: Path) -> None:
    import random

    whole = built(tmp_path, SHOWS).read_bytes()
    draw, library, damaged = random.Random(7), tmp_path / "damaged.so", 0
    for _ in range(300):
        data = bytearray(whole[: draw.choice([len(whole), draw.randrange(len(whole))])])
        for _ in range(draw.randrange(1, 40)):
            if data:
                data[draw.randrange(min(len(data), draw.choice([64, 4096, len(data)])))] = draw.randrange(256)
        library.write_bytes(data)
        try:
            read_elf(library)
        except NotElfError:
            damaged += 1
    assert 50 < damaged < 300


# --- the manifest ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "kind"), [(80, None), (86, None), (89, None), (90, None), (100, "hurts"), (75, "would fail")]
)
def test_gpus_that_the_library_has_code_for(tmp_path: Path, arch: int, kind: str | None) -> None:
    library = built(tmp_path, SHOWS)
    manifest(library)
    found = check_model(
        model(node("Blur", radius=3, plugin_namespace="acme")),
        limits_for("tensorrt", "10.8"),
        [read_plugins(library)],
        archs=[arch],
    )
    assert [(f.severity, f.kind) for f in found.findings] == ([(kind, "library-arch")] if kind else [])


def test_a_manifest_of_other_bytes_is_refused(tmp_path: Path) -> None:
    library = built(tmp_path, SHOWS)
    manifest(library)
    assert read_plugins(library).plugins is not None
    library.write_bytes(library.read_bytes() + b"\0")
    with pytest.raises(UsageError, match="was rebuilt or replaced"):
        read_plugins(library)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"format": 2}, "its format is 2"),
        ({"format": True}, "its format is True"),
        (
            {"target": "ort-cpu", "operators": []},
            "is a library for ONNX Runtime, and none of TensorRT plugins",
        ),
        ({"target": "ort-cpu"}, "no manifest of TensorRT plugins but another"),
        ({"plugins": {}}, "`plugins` is {}; expected a list"),
        ({"plugins": [3]}, "stands where an object"),
        ({"plugins": [{"plugin_name": "B"}]}, "`plugin_namespace` is None"),
        ({"archs": ["80"]}, "expected a positive number"),
        ({"sha256": 5}, "`sha256` is 5"),
    ],
)
def test_damaged_manifests(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    library = built(tmp_path, SHOWS)
    manifest(library, **changed)
    with pytest.raises(UsageError) as refused:
        read_plugins(library)
    assert told in str(refused.value)
    assert str(refused.value).isprintable()


def test_the_manifest_in_place_of_the_library(tmp_path: Path) -> None:
    library = built(tmp_path, SHOWS)
    manifest(library)
    with pytest.raises(UsageError, match="is a manifest, not a library"):
        read_plugins(library.with_suffix(".json"))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (3, "`plugins` is 3"),
        ([3], "3 stands where an object"),
        ([{}], "`name` is None"),
        ([{"name": "A", "version": 1}], "`version` is 1"),
        ([{"name": "A", "fields": {"a": "double"}}], "field 'a' has the type 'double'"),
        ([{"name": "A", "fields": {"a": ["INT", -1]}}], "has the length -1"),
        ([{"name": "A", "fields": {"a": ["INT", 1, 2]}}], "has the type ['INT', 1, 2]"),
    ],
)
def test_damaged_descriptions(content: Any, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        described_plugins(content, "plugins.json")
    assert told in str(refused.value)


@pytest.mark.parametrize("names", [("liba.so", "libb.so"), ("libdeployops_trt.so", "libdeployops_trt.so")])
def test_two_libraries_with_one_plugin(tmp_path: Path, names: tuple[str, str]) -> None:
    """Those of deployops all have one name."""
    paths = []
    for folder, name in zip(("a", "b"), names, strict=True):
        (tmp_path / folder).mkdir()
        paths.append(built(tmp_path / folder, SHOWS, name=name))
        manifest(paths[-1])
    limits = limits_for("tensorrt", "10.8")
    found = check_model(model(node("Blur")), limits, [read_plugins(path) for path in paths])
    (twice,) = [f for f in found.findings if f.kind == "plugin-twice"]
    assert twice.severity == "would fail"
    assert all((str(path) if names[0] == names[1] else path.name) in twice.what for path in paths)
    once = check_model(model(node("Blur")), limits, [read_plugins(paths[0])])
    assert not [f for f in once.findings if f.kind == "plugin-twice"]
