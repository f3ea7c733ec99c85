"""Where a node comes from in the user's model, told in the same words by every command."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from deployops import inspect_model
from deployops.symbolic.node_source import SOURCE_KEY, source_words
from deployops.validation.diagnosis.graph_nodes import described_node

# As torch 2.13 writes them.
_SCOPES = "['', 'stem', 'stem.conv', 'conv2d']"
_STACK = (
    'File "/home/ann/net.py", line 13, in forward\n    return self.stem(x) * 2\n  File "/home/ann/net.py", line 8, in forward\n'
    '    y = self.conv(x)\n  File "/venv/lib/python3.11/site-packages/torch/nn/modules/conv.py", line 565, in forward\n'
    "    return self._conv_forward(input, self.weight, self.bias)"
)


def node(**metadata: str) -> onnx.NodeProto:
    made = helper.make_node("Conv", ["x", "w"], ["y"], name="node_conv2d")
    for key, value in metadata.items():
        made.metadata_props.add(key=key.replace("__", "."), value=value)
    return made


def test_of_torchs_exporter_module_and_line() -> None:
    told = node(pkg__torch__onnx__name_scopes=_SCOPES, pkg__torch__onnx__stack_trace=_STACK)
    assert source_words(told) == "stem.conv, net.py:8"


def test_of_ours_the_module() -> None:
    assert source_words(node(deployops__source="encoder.layers.3.norm1")) == "encoder.layers.3.norm1"
    assert SOURCE_KEY == "deployops.source"


def test_of_others_nothing() -> None:
    assert source_words(node()) == ""
    assert source_words(node(pkg__torch__onnx__name_scopes="['', '_guard', 'mul']")) == ""


@pytest.mark.parametrize(
    "scopes",
    ["[", "3", "{}", "[1, 2, 3]", "None", "(" * 5000, "[" * 5000, "__import__('os')", "'a' 'b'", "\x00"],
)
def test_scopes_of_a_hostile_file_are_read_as_text_alone(scopes: str) -> None:
    assert source_words(node(pkg__torch__onnx__name_scopes=scopes)) == ""


def test_what_is_told_is_short_and_printable() -> None:
    words = source_words(node(deployops__source="\x1b[31m" + "a" * 10_000))
    assert words.isprintable()
    assert len(words) <= 120


def test_validate_names_a_node_with_it() -> None:
    assert described_node(node(deployops__source="stem.conv")) == "Conv 'node_conv2d' (stem.conv)"
    assert described_node(node()) == "Conv 'node_conv2d'"


def test_inspect_names_a_node_with_it(tmp_path: Path) -> None:
    erf = helper.make_node("Erf", ["x"], ["t"], name="n0")
    erf.metadata_props.add(key=SOURCE_KEY, value="head.gelu")
    custom = helper.make_node("Foo", ["t"], ["y"], domain="acme")
    custom.metadata_props.add(key=SOURCE_KEY, value="head.foo")
    ends = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, [2]) for n in ("x", "y")]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    model = helper.make_model(
        helper.make_graph([erf, custom], "g", ends[:1], ends[1:]), opset_imports=opsets, ir_version=9
    )
    onnx.save(model, tmp_path / "m.onnx")
    found = inspect_model(tmp_path / "m.onnx", runtime="onnxruntime==1.32.0", tensorrt="10.8")
    assert found.checked is not None
    assert found.tensorrt is not None
    wanted = "the node that makes 'y' (head.foo)"
    assert {f.kind: f.where for f in found.checked.findings if f.severity == "would fail"} == {
        "no-kernel": "'n0' (head.gelu)",
        "no-library": wanted,
    }
    assert wanted in [f.where for f in found.tensorrt.findings]


class _Stem(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


_LINE = _Stem.forward.__code__.co_firstlineno + 1


def test_a_model_of_torchs_exporter_is_told_by_module_and_line(tmp_path: Path) -> None:
    path = tmp_path / "raw.onnx"
    model = torch.nn.Sequential(_Stem()).eval().double()
    torch.onnx.export(
        model, (torch.zeros(1, 3, 8, 8, dtype=torch.float64),), str(path), dynamo=True, verbose=False
    )
    found = inspect_model(path, runtime="onnxruntime==1.32.0").checked
    assert found is not None
    [where] = [f.where for f in found.findings if f.kind == "no-kernel"]
    assert where.endswith(f"(0.conv, {Path(__file__).name}:{_LINE})")
