"""The file beside an engine: the same record back, and nothing a stranger writes into it gets past the reader."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployops.errors import ModelFileError, UsageError
from deployops.trt_plugins.engines.record import EngineRecord, KeptFloat32, PluginFile, TensorRecord
from deployops.trt_plugins.engines.sidecar import engine_file, read_sidecar, sidecar_path, write_sidecar

from .records import engine_record

RECORD = engine_record(
    flavor="tensorrt-rtx",
    tensorrt="1.7.1.116",
    archs=("sm86", "sm120"),
    gpu=None,
    model_sha256="cd" * 32,
    plugins=(PluginFile("libdeployops_trt.so", "ef" * 32, True),),
    kept_float32=(KeptFloat32("/norm/Pow", "Pow", "its result leaves the range"),),
    profiles=({"x": ((1, 3), (4, 3), (8, 3)), "größe \x1b[2J": ((), (), ())},),
    inputs=(TensorRecord("x", "float32", ("n", 3)), TensorRecord("größe \x1b[2J", "int64", ())),
    outputs=(TensorRecord("y", "float32", ("n", "…")),),
    workspace=2 << 30,
    build_seconds=0.25,
    warnings=("a warning",),
)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    path = tmp_path / "net.engine"
    path.write_bytes(b"engine")
    return path


def test_what_is_written_is_read(engine: Path) -> None:
    assert write_sidecar(engine, RECORD) == sidecar_path(engine) == engine.with_name("net.engine.json")
    assert read_sidecar(engine) == RECORD
    assert (
        os.listdir(engine.parent) == ["net.engine", "net.engine.json"] or len(os.listdir(engine.parent)) == 2
    )


def test_none_is_no_error(engine: Path) -> None:
    assert read_sidecar(engine) is None


def test_equal_engines_have_equal_sidecars_but_for_the_time(engine: Path) -> None:
    write_sidecar(engine, RECORD)
    first = sidecar_path(engine).read_text()
    write_sidecar(engine, replace(RECORD, build_seconds=9.5))
    second = sidecar_path(engine).read_text()
    changed = [(a, b) for a, b in zip(first.splitlines(), second.splitlines(), strict=True) if a != b]
    assert changed == [(' "build_seconds": 0.25,', ' "build_seconds": 9.5,')]
    assert str(engine.parent) not in second


def test_the_digest_is_that_of_the_content(engine: Path) -> None:
    # sha256 of "engine", from coreutils' sha256sum
    import hashlib

    found = engine_file(engine)
    assert (found.bytes, found.sha256) == (6, hashlib.sha256(b"engine").hexdigest())
    with pytest.raises(UsageError, match=r"gone\.engine cannot be read: No such file"):
        engine_file(engine.with_name("gone.engine"))


def plain() -> dict[str, Any]:
    return json.loads(json.dumps({"format": 1, **_dict(RECORD)}))  # type: ignore[no-any-return]


def _dict(record: EngineRecord) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(record)


def refused(engine: Path, content: Any) -> str:
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    sidecar_path(engine).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ModelFileError) as error:
        read_sidecar(engine)
    line = str(error.value)
    assert line.isprintable()
    assert len(line) < 600
    return line


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("bytes", "2052", "`bytes`"),
        ("bytes", True, "`bytes`"),
        ("bytes", -1, "not negative"),
        ("sha256", "AB" * 32, "sha256"),
        ("sha256", "ab", "sha256"),
        ("flavor", "tensorflow", "`flavor`"),
        ("archs", ["sm89", "../../x"], "archs"),
        ("archs", "sm89", "`archs`"),
        ("engine", "../net.engine", "without a folder"),
        ("model", "/etc/passwd", "without a folder"),
        ("model", "a\u0000b", "without a folder"),
        ("plugins", [{"name": "a/b.so", "sha256": "ab" * 32, "embedded": True}], "without a folder"),
        ("plugins", [{"name": "b.so", "sha256": "ab" * 32}], "embedded"),
        ("plugins", [{"name": "b.so", "sha256": "ab" * 32, "embedded": True, "more": 1}], "`plugins.more`"),
        ("tensorrt", "newest", "version"),
        ("tensorrt", "10.1\u001b[2J", "version"),
        ("platform", "linux x86", "platform"),
        ("build_seconds", 1e999, "JSON"),
        ("build_seconds", -1.0, "build_seconds"),
        ("build_seconds", 1e300, "build_seconds"),
        ("engine", "a\u001b[2J.engine", "control characters"),
        ("archs", [], "some GPU"),
        ("version_compatible", True, "version"),
        ("profiles", [{"x": [[4], [2], [8]]}], "the smallest, the best and the largest"),
        ("profiles", [{"x": [[-4], [2], [8]]}], "below 0"),
        ("profiles", [{"z": [[1], [2], [8]]}], "no input"),
        ("inputs", [{"name": "x", "dtype": "float32", "dims": []}] * 2, "twice"),
        ("profiles", [{"x": [[1], [2, 3], [4]]}], "ranks"),
        ("profiles", [{"x": [[1], [2]]}], "profiles"),
        ("inputs", [{"name": "x", "dtype": "float32", "dims": [-5]}], "below 0"),
        ("hardware_compatible", "all", "hardware_compatible"),
        ("version_compatible", 1, "version_compatible"),
        ("gpu", 7, "gpu"),
        ("warnings", [[]], "warnings"),
        ("unheard", 1, "`unheard`"),
    ],
)
def test_wrong_values_are_named(engine: Path, key: str, value: Any, word: str) -> None:
    line = refused(engine, plain() | {key: value})
    assert word in line
    assert "Get it again from where the engine came from" in line


@pytest.mark.parametrize("key", [*plain()])
def test_every_missing_key_is_refused(engine: Path, key: str) -> None:
    assert key in refused(engine, {k: v for k, v in plain().items() if k != key})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"format": 0}',
        b'{"format": true}',
        b'{"format": 1.0}',
        b"1" * 5000,
        b'{"format": 1, "format": 1}',
    ],
)
def test_what_is_no_sidecar(engine: Path, content: bytes) -> None:
    assert "does not describe an engine" in refused(engine, content)


def test_the_engine_is_of_the_flavor_that_the_sidecar_says(engine: Path) -> None:
    write_sidecar(engine, RECORD)
    engine.write_bytes(
        b"ftrt" + bytes(4) + bytes(16) + bytes([10, 13, 3, 9]) + bytes(64)
    )  # TensorRT's own, RECORD's is RTX's
    with pytest.raises(ModelFileError, match="first bytes are those of tensorrt"):
        read_sidecar(engine)


def test_a_newer_format_says_what_to_do(engine: Path) -> None:
    line = refused(engine, {"format": 2, "anything": []})
    assert "has format 2; this deployops reads up to 1" in line


def test_sizes_are_bounded(engine: Path) -> None:
    assert "more than 16 MiB" in refused(engine, b" " * (17 << 20))


def test_a_folder_or_a_pipe_is_no_sidecar(engine: Path) -> None:
    sidecar_path(engine).mkdir()
    with pytest.raises(ModelFileError, match=r"cannot be read"):
        read_sidecar(engine)
    sidecar_path(engine).rmdir()
    os.mkfifo(sidecar_path(engine))  # reading it would wait for ever
    with pytest.raises(ModelFileError, match="not a regular file"):
        read_sidecar(engine)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(data=st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_value_anywhere_is_taken_whole_or_refused_in_a_line(engine: Path, data: st.DataObject) -> None:
    """Replace one value by anything: the reader gives back exactly what the file says, or a ModelFileError."""
    given_ = copy.deepcopy(plain())
    place: Any = given_
    key: Any = data.draw(st.sampled_from(sorted(given_)))
    while isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(
            st.sampled_from(sorted(place)) if isinstance(place, dict) else st.integers(0, len(place) - 1)
        )
    place[key] = data.draw(JSON)
    sidecar_path(engine).write_text(json.dumps(given_))
    refusal = ""
    record = None
    try:
        record = read_sidecar(engine)
    except ModelFileError as error:
        refusal = str(error)
    if record is None:
        assert refusal
        assert refusal.isprintable()
    else:
        assert json.loads(json.dumps({"format": 1, **_dict(record)})) == given_
