"""What a build does for nodes of plugins that TensorRT's parser takes less of than ONNX allows, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

from deployops import export_model
from deployops.symbolic.operator import Operator
from deployops.symbolic.operators.scale_bias_act import scale_bias_act
from deployops.trt_plugins.engines.build import BuildError, build_engine
from deployops.trt_plugins.engines.sidecar import read_sidecar
from deployops.trt_plugins.library import PluginLibrary


def test_sizes_that_the_data_decides_and_an_absent_input(
    rtx: Path, pack: dict[str, Operator], pack_library: PluginLibrary, tmp_path: Path
) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            total = pack["add_all"](x, None, [y, y])  # the bias is absent before a list that is given
            return pack["positives"](total) * 2

    model = tmp_path / "net.onnx"
    export_model(Net(), ["x:float32[n=1..16@4,7]", "y:float32[n,7]"], out=model, custom_ops="node")
    before = model.read_bytes()
    engine = build_engine(
        model, out=tmp_path / "net.engine", archs=["sm86", "sm89"], plugins=[pack_library.path]
    )
    assert engine.record.bytes == engine.path.stat().st_size > 1000
    assert [p.name for p in engine.record.plugins] == [pack_library.path.name]
    assert model.read_bytes() == before  # what is for TensorRT alone is not written into it
    # the manifest says what the nodes need: without it the parser refuses them
    bare = tmp_path / "bare.so"
    bare.write_bytes(pack_library.path.read_bytes())
    with pytest.raises(BuildError, match="absent before one that is given"):
        build_engine(model, out=tmp_path / "bare.engine", archs=["sm89"], plugins=[bare])


def test_weights_in_side_files_are_found_where_nodes_were_changed(
    rtx: Path, pack: dict[str, Operator], pack_library: PluginLibrary, tmp_path: Path
) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 512))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return pack["positives"](x @ self.weight)

    model = tmp_path / "net.onnx"
    export_model(Net(), ["x:float32[n=1..16@4,64]"], out=model, custom_ops="node", external_data=True)
    assert sum(path.is_file() for path in tmp_path.iterdir()) == 2
    engine = build_engine(model, out=tmp_path / "net.engine", archs=["sm89"], plugins=[pack_library.path])
    assert engine.record.bytes > 64 * 512 * 4


def test_bodies_of_which_tensorrt_would_run_the_first_for_all_are_refused(rtx: Path, tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale, bias = torch.ones(3), torch.zeros(3)
            return scale_bias_act(scale_bias_act(x, scale, bias, "relu"), scale, bias, "tanh")

    model = tmp_path / "net.onnx"
    export_model(Net(), ["x:float32[n=1..4@2,3,5]"], out=model)
    with pytest.raises(BuildError, match=r"without a word(.|\n)*bodies") as refused:
        build_engine(model, out=tmp_path / "net.engine", archs=["sm89"])
    assert "--custom-ops" in str(refused.value)
    assert not (tmp_path / "net.engine").exists()


def test_outputs_in_place_where_they_are_asked_for(
    rtx: Path, pack: dict[str, Operator], pack_library: PluginLibrary, tmp_path: Path
) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
            y = x * 2
            pack["shift_"](y, by)
            return y + 1

    model = tmp_path / "net.onnx"
    export_model(Net(), ["x:float32[n=1..16@4,7]", "by:float32[n,7]"], out=model, custom_ops="node")
    engines = [
        build_engine(
            model,
            out=tmp_path / f"{in_place}.engine",
            archs=["sm89"],
            plugins=[pack_library.path],
            in_place=in_place,
        )
        for in_place in (False, True)
    ]
    assert [read_sidecar(e.path) == e.record for e in engines] == [True, True]
    assert [e.record.in_place for e in engines] == [False, True]
    assert [e.cached for e in engines] == [False, False]
    assert engines[0].record.sha256 != engines[1].record.sha256


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("most", 2**40, "beyond 32 bits"),
        ("foo", 1, "'foo', which the plugin does not know"),
        ("most", 0.5, "FLOAT"),
    ],
)
def test_attributes_that_the_plugin_would_not_see_as_they_are_refuse_the_build(
    rtx: Path,
    pack: dict[str, Operator],
    pack_library: PluginLibrary,
    tmp_path: Path,
    name: str,
    value: Any,
    said: str,
) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, limit: torch.Tensor) -> Any:
            return pack["above"](x, limit)

    path = tmp_path / "net.onnx"
    export_model(Net(), ["x:float32[n=1..16@4,7]", "limit:float32[n]"], out=path, custom_ops="node")
    model = onnx.load(path)
    del model.metadata_props[:]
    model.producer_name = "another tool"
    [node] = [n for n in model.graph.node if n.op_type == "Above"]
    for attribute in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(attribute)
    node.attribute.append(onnx.helper.make_attribute(name, value))
    onnx.save(model, path)
    with pytest.raises(BuildError, match=said):
        build_engine(
            path,
            out=tmp_path / "net.engine",
            archs=["sm89"],
            plugins=[pack_library.path],
            profiles=["x=1x7,4x7,16x7; limit=1,4,16"],
        )


def test_a_library_without_code_for_the_gpu_is_refused(
    rtx: Path, exported_with_plugin: Path, engine_library: PluginLibrary, tmp_path: Path
) -> None:
    library = tmp_path / engine_library.path.name
    library.write_bytes(engine_library.path.read_bytes())
    manifest = json.loads(engine_library.manifest.read_text())
    library.with_suffix(".json").write_text(json.dumps({**manifest, "archs": [90], "ptx": 90}))
    with pytest.raises(BuildError, match="no code for sm_86"):
        build_engine(exported_with_plugin, out=tmp_path / "a.engine", archs=["sm86"], plugins=[library])
    built = build_engine(exported_with_plugin, out=tmp_path / "b.engine", archs=["sm120"], plugins=[library])
    assert any("PTX" in text for text in built.record.warnings)


def test_a_manifest_is_read_once(
    rtx: Path,
    exported_with_plugin: Path,
    engine_library: PluginLibrary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from deployops.native import kernel_manifest

    read: list[Path] = []
    plain = kernel_manifest.json_content

    def counted(path: Path, *more: Any) -> Any:
        read.append(path)
        return plain(path, *more)

    monkeypatch.setattr(kernel_manifest, "json_content", counted)
    build_engine(
        exported_with_plugin,
        out=tmp_path / "m.engine",
        archs=["sm89"],
        precision="fp16",
        plugins=[engine_library.path],
    )
    assert read == [engine_library.manifest]
