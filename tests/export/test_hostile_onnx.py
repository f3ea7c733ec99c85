"""ONNX files and inputs made to fail inside of deployops, or to take all memory: each is refused in one line."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops import inspect_model
from deployops.errors import ModelFileError, UsageError
from deployops.export.inputs.input_text import parse_input
from deployops.export.inputs.signature import signature_from_specs
from deployops.export.onnx_file.integrity import read_model, verify_digest
from deployops.export.onnx_file.write import write_model

DEEP = "[" * 100_000


def model(
    path: Path, metadata: dict[str, str], *, ours: bool = True, name: str = "add", **external: str
) -> Path:
    """A model as `write_model` writes it, whose digest is right whatever its metadata say."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], [0.0] * 4)
    if external:
        weight.ClearField("float_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in external.items():
            weight.external_data.add(key=key, value=value)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", 4]) for n in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"], name=name)], "g", ends[:1], ends[1:], [weight]
    )
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], producer_name="deployops" if ours else "x"
    )
    if ours:
        metadata = {**metadata, "deployops.digest": "0" * 64}
    for key, text in metadata.items():
        made.metadata_props.add(key=key, value=text)
    content = made.SerializeToString(deterministic=True)
    if ours:
        at = content.rindex(b"deployops.digest") + len("deployops.digest") + 2
        content = content[:at] + hashlib.sha256(content).hexdigest().encode() + content[at + 64 :]
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "data",
    [
        "{bad",
        "[1]",
        "7",
        "null",
        '{"file": 1}',
        '[{"file": 5, "bytes": 1, "sha256": "x"}]',
        '[{"file": "a", "bytes": "a", "sha256": "x"}]',
        '[{"file": "a", "bytes": true, "sha256": "x"}]',
        '[{"file": "a", "bytes": 1, "sha256": 2}]',
        '[{"file": "a\\u0000b", "bytes": 1, "sha256": "x"}]',
        json.dumps([{"file": "a" * 5000, "bytes": 1, "sha256": "x"}]),
        '[{"file": "../../../etc/passwd", "bytes": 1, "sha256": "x"}]',
        '[{"file": "\\u001b[2Ja", "bytes": 1, "sha256": "x"}]',
        DEEP,
    ],
)
def test_side_files_that_are_none_are_one_line(tmp_path: Path, data: str) -> None:
    path = model(tmp_path / "m.onnx", {"deployops.data": data})
    with pytest.raises(ModelFileError) as caught:
        verify_digest(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    # A new model may take the place of such a file.
    write_model(onnx.load(model(tmp_path / "good.onnx", {})), path)
    verify_digest(path)


@pytest.mark.parametrize("manifest", [DEEP, "[]", "3", "{bad", '{"inputs": [' + "9" * 5000 + "]}"])
def test_a_manifest_that_is_none_is_one_line(command: Any, tmp_path: Path, manifest: str) -> None:
    path = model(tmp_path / "m.onnx", {"deployops.manifest": manifest})
    for read in (read_model, inspect_model):
        with pytest.raises(ModelFileError, match="manifest"):
            read(path)
    done = command("inspect", path)
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("offset", ["zz", "-5", "1e3", "９", "9" * 5000, " 1"])
def test_external_data_at_no_offset_are_one_line(tmp_path: Path, offset: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    for key in ("offset", "length"):
        path = model(tmp_path / "m.onnx", {}, ours=False, location="w.bin", **{key: offset})
        with pytest.raises(ModelFileError, match="damaged") as caught:
            verify_digest(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("location", ["", ".", "a\0b", "a" * 5000, "\x1b[2J"])
def test_external_data_at_no_place_are_one_line(tmp_path: Path, location: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        verify_digest(model(tmp_path / "m.onnx", {}, ours=False, location=location, length="16"))
    assert str(caught.value).isprintable()


def test_a_function_of_the_model_refers_outside_as_little_as_its_graph(tmp_path: Path) -> None:
    value = TensorProto(data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    value.external_data.add(key="location", value="../../etc/passwd")
    made = onnx.load(model(tmp_path / "m.onnx", {}, ours=False))
    body = helper.make_node("Constant", [], ["c"])
    body.attribute.append(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=value))
    made.functions.append(helper.make_function("f", "F", [], ["c"], [body], [helper.make_opsetid("", 20)]))
    (tmp_path / "f.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(ModelFileError, match="outside its folder"):
        verify_digest(tmp_path / "f.onnx")


def test_what_inspect_prints_moves_no_cursor(command: Any, tmp_path: Path) -> None:
    hostile = "\x1b[31mEVIL\x1b[0m\x07\n\u202e"
    manifest = json.dumps({"deployops": hostile, "torch": [hostile]})
    path = model(tmp_path / "m.onnx", {"deployops.manifest": manifest})
    made = onnx.load(path)
    made.producer_name = "x"
    del made.metadata_props[:]
    made.metadata_props.add(key="deployops_", value="")
    made.graph.input[0].name = hostile
    made.graph.output[0].type.tensor_type.shape.dim[0].dim_param = hostile
    made.graph.node.append(helper.make_node(hostile, ["x"], ["z"], domain=hostile))
    (tmp_path / "names.onnx").write_bytes(made.SerializeToString())
    for file in (path, tmp_path / "names.onnx"):
        text = inspect_model(file).summary()
        assert "EVIL" in text
        assert all(line.isprintable() for line in text.split("\n"))
        assert not any(line.startswith("EVIL") for line in text.split("\n"))
        done = command("inspect", file, "--json")
        assert json.loads(done.out)
        assert done.out.replace("\n", "").isprintable()


# Inputs that take all memory or time


@pytest.mark.parametrize(
    "spec",
    ["x:float32[b@99999999999,4]", "x:float32[100000,1000000,4]", "x:float32[9999999999,4]",
     "x:complex128[300000000]", "x:float32[a=99999999999..,4]", "x:bool[" + "10," * 12 + "1]"],
)  # fmt: skip
def test_inputs_beyond_the_memory_are_refused_at_once(spec: str) -> None:
    started = time.monotonic()
    with pytest.raises(UsageError, match="expected at most 4,294,967,296"):
        signature_from_specs([spec], None).make()
    assert time.monotonic() - started < 2


def test_inputs_count_together_and_at_every_size() -> None:
    with pytest.raises(UsageError, match="The inputs would take"):
        signature_from_specs([f"x{i}:float32[1000000,300]" for i in range(4)], None).make()
    signature = signature_from_specs(["x:float32[b]"], None)
    with pytest.raises(UsageError, match=r"name=LOW\.\.HIGH"):
        signature.make({"b": 2**40})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("x:float32[" + "1," * 4000 + "4]", "64 dims"),
        ("x:float32[" + "1," * 64 + "4]", "64 dims"),
        ("x" * 20_000 + ":float32[4]", "10,000 characters"),
        ("x" + ".0" * 40 + ":float32[4]", "32 levels"),
    ],
)
def test_texts_beyond_any_model_are_refused_at_once(spec: str, words: str) -> None:
    started = time.monotonic()
    with pytest.raises(UsageError, match=words) as caught:
        parse_input(spec)
    assert time.monotonic() - started < 1
    assert len(str(caught.value)) < 1000


def test_what_models_have_is_read() -> None:
    assert len(parse_input("x:float32[" + "1," * 63 + "4]").shape or ()) == 64
    assert parse_input("x.0.a.1:float32[4]").name == "x.0.a.1"
