"""What makes no sense as an argument is refused before anything is loaded or written, with what would make sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from deployops import export_model, inspect_model, session, validate
from deployops.errors import UsageError

X = ["x:float32[batch,4]"]


@pytest.fixture
def net() -> torch.nn.Module:
    return torch.nn.Linear(4, 4)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("custom_ops", "bla", "one of 'function', 'node', 'standard', not 'bla'"),
        ("opset", "20", "opset is a number"),
        ("opset", True, "opset is a number"),
        ("opset", 99, "opset 99"),
        ("external_data", "yes", "external_data is True, False or None"),
        ("output_names", "y", "output_names is a list of names"),
        ("output_names", [1], "output_names is a list of names"),
        ("dynamic", ["batch"], "dynamic is names of dims"),
        ("dynamic", {"x": "batch"}, r"dynamic\['x'\] is a name by axis"),
        ("data", [1], "data is arrays by input name"),
        ("factory", 3, "factory is a text"),
        ("trust", "no", "trust is True or False"),
        ("out", 3, "out is the path"),
        ("out", "", "out is the path"),
    ],
)
def test_export_model(net: torch.nn.Module, tmp_path: Path, option: str, value: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        export_model(net, X, **{"out": tmp_path / "x.onnx", option: value})
    assert not list(tmp_path.iterdir())


def test_a_single_text_is_a_list_of_one(net: torch.nn.Module, tmp_path: Path) -> None:
    result = export_model(net, "x:float32[batch,4]", out=tmp_path / "x.onnx")
    assert len(result.inputs) == 1
    assert validate(net, result.path, "x:float32[batch,4]", latency=False).exit_code == 0


def test_a_description_among_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="all texts, or all values"):
        export_model(torch.nn.Bilinear(4, 4, 4), (torch.ones(2, 4), X[0]), out=tmp_path / "x.onnx")


def test_a_folder_that_does_not_exist_is_not_made(net: torch.nn.Module, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        export_model(net, X, out=tmp_path / "new" / "x.onnx")
    assert not (tmp_path / "new").exists()


def test_validate_session_and_inspect(net: torch.nn.Module, tmp_path: Path) -> None:
    path = export_model(net, X, out=tmp_path / "x.onnx").path
    for option, value in (("sizes", "3"), ("atol", "0"), ("trust", 1), ("libraries", [3]), ("data", 5)):
        with pytest.raises(UsageError, match=option):
            validate(net, path, **{option: value})
    for option, value in (("threads", "2"), ("optimize", "no"), ("libraries", [3])):
        with pytest.raises(UsageError, match=option):
            session(path, **{option: value})
    for call in (inspect_model, session):
        with pytest.raises(UsageError, match="is the path of a file"):
            call(3)  # type: ignore[operator]


# What a file brings along


def test_only_what_was_there_is_said_to_be_removed(deploy: Any, tmp_path: Path) -> None:
    (tmp_path / "plain_net.py").write_text("import torch\ndef net(): return torch.nn.Linear(4, 4)\n")
    state = {f"module.{k}": v for k, v in torch.nn.Linear(4, 4).state_dict().items()}
    torch.save(state, tmp_path / "net.pt")
    exported = deploy(
        tmp_path / "net.pt", X[0].replace("x:", "input:"), factory=f"{tmp_path}/plain_net.py:net"
    )
    assert "removed from the keys: module." in exported.notes
    assert "_orig_mod" not in exported.notes


def test_tied_weights_that_are_small_are_stored_once(deploy: Any) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(50, 16)
            self.head = torch.nn.Linear(16, 50, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids: torch.Tensor) -> Any:
            return self.head(self.embedding(ids))

    exported = deploy(Tied(), ["ids:int64[batch,n]=0..49"])
    assert [list(t.dims) for t in exported.proto.graph.initializer] == [[50, 16]]


@pytest.mark.parametrize("shape", ["batch,5,8", "5,8", "batch,2,3,5,8"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_without_a_dim_of_heads(deploy: Any, shape: str, causal: bool) -> None:
    class Attention(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    deploy(Attention(), [f"{n}:float32[{shape}]" for n in "qkv"])  # compared with the original at other sizes
