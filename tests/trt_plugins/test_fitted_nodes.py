"""Nodes of plugins, changed to what TensorRT's parser takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops.errors import UsageError
from deployops.trt_plugins.fitted_nodes import fit_plugin_nodes

PLUGIN = {
    "plugin_namespace": "acme",
    "plugin_name": "Select",
    "outputs": ["rows", "values"],
    "data_sizes": ["size"],
}


def model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    inputs = [value(n, TensorProto.FLOAT, [2]) for n in ("x", "y", "select_size")]
    graph = helper.make_graph(list(nodes), "g", inputs, [value("out", TensorProto.FLOAT, None)])
    return helper.make_model(graph)


def select(inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Select", inputs, outputs, name="select", domain="acme", **attributes)


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def test_sizes_and_unused_outputs_get_names_of_their_own() -> None:
    made = model(select(["x"], ["", "out"]))
    [line] = fit_plugin_nodes(made, [PLUGIN])
    [node] = made.graph.node
    assert list(node.output) == [
        "select_rows",
        "out",
        "select_size_",
    ]  # `select_size` is an input of the model
    assert line == "select (acme::Select): output select_rows, select_size_ named"
    assert fit_plugin_nodes(made, [PLUGIN]) == []  # once is enough


def test_the_first_input_stands_for_an_absent_one() -> None:
    made = model(select(["x", "", "y", ""], ["out", "v", "s"], deployops_absent_inputs=""))
    fit_plugin_nodes(made, [PLUGIN])
    [node] = made.graph.node
    assert list(node.input) == ["x", "x", "y"]  # one at the end is left out
    assert attributes(node) == {"deployops_absent_inputs": b"1"}


def test_a_shape_input_does_not_stand_for_a_tensor() -> None:
    made = model(select(["y", "x", "", "x"], ["out", "v", "s"], tensorrt_plugin_shape_input_indices=[0]))
    fit_plugin_nodes(made, [PLUGIN])
    assert list(made.graph.node[0].input) == ["y", "x", "x", "x"]
    assert attributes(made.graph.node[0])["deployops_absent_inputs"] == b"2"


def test_without_a_first_input_nothing_stands_in() -> None:
    with pytest.raises(UsageError, match="leaves out its first input"):
        fit_plugin_nodes(model(select(["", "x"], ["out", "v", "s"])), [PLUGIN])


def test_nodes_of_other_plugins_are_left_alone() -> None:
    node = helper.make_node("Other", ["x", "", "y"], ["out"], domain="acme")
    made = model(node)
    assert fit_plugin_nodes(made, [PLUGIN]) == []
    assert made.graph.node[0] == node


def test_nodes_in_branches_are_fitted_too() -> None:
    value = helper.make_tensor_value_info
    branch = helper.make_graph([select(["x"], ["a", "b"])], "b", [], [value("a", TensorProto.FLOAT, None)])
    made = model(helper.make_node("If", ["y"], ["out"], then_branch=branch, else_branch=branch))
    assert len(fit_plugin_nodes(made, [PLUGIN])) == 2
    for attribute in made.graph.node[0].attribute:
        assert len(attribute.g.node[0].output) == 3


def test_a_fitted_export_is_no_damaged_one(tmp_path: Path) -> None:
    """As docs/tensorrt.md has it: fit, save, inspect, build. Changed after that without a word, it is what it was: unknown."""
    import torch

    from deployops import export_model, inspect_model
    from deployops.errors import ModelFileError
    from deployops.symbolic.graph_inspection.file_kind import UNVERIFIED
    from deployops.trt_plugins.engines.source_model import read_source_model

    file = tmp_path / "m.onnx"
    export_model(torch.nn.Linear(2, 2).eval(), (torch.zeros(1, 2),), out=file)
    exported = onnx.load(str(file))
    assert fit_plugin_nodes(exported, [PLUGIN]) == []
    assert "deployops.digest" in {p.key for p in exported.metadata_props}  # nothing was changed
    exported.graph.node.append(select([exported.graph.input[0].name], ["rows_of_it"]))
    exported.opset_import.add(domain="acme", version=1)
    edited, fitted = tmp_path / "edited.onnx", tmp_path / "fitted.onnx"
    onnx.save(exported, str(edited))
    assert fit_plugin_nodes(exported, [PLUGIN])
    onnx.save(exported, str(fitted))
    assert read_source_model(fitted).provenance == UNVERIFIED
    assert "for TensorRT alone" in inspect_model(fitted).summary()
    for refuse in (read_source_model, inspect_model):
        with pytest.raises(ModelFileError, match="allow-modified"):
            refuse(edited)
    assert "digest does not hold" in read_source_model(edited, allow_modified=True).provenance
    found = inspect_model(edited, allow_modified=True)
    assert (found.digest, "digest does not hold" in found.summary()) == ("", True)
