"""What torch's decompositions assume of the sizes is held against the declared ones, and tried at odd sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deployops.errors import ExportError
from deployops.export.graph import declared_sizes, onnx_functions, passes
from deployops.export.inputs.odd_sizes import odd_sizes
from deployops.export.inputs.signature import signature_from_specs

pytestmark = pytest.mark.filterwarnings("ignore")


class Area(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(self.conv(x), scale_factor=0.5, mode="area")


@pytest.fixture
def torchs_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch's decomposition of adaptive pooling, which looks at `h % (h // 2)`."""

    def clear() -> None:
        onnx_functions.decompositions.cache_clear()
        onnx_functions.better_decompositions.cache_clear()

    monkeypatch.setattr(onnx_functions, "adaptive_poolings", dict)
    clear()
    yield
    monkeypatch.undo()
    clear()


@pytest.mark.usefixtures("torchs_own")
def test_what_a_decomposition_assumes_is_refused_with_the_line_and_the_way_out(deploy: Any) -> None:
    with pytest.raises(ExportError) as error:
        deploy(Area().eval(), ["x:float32[n,3,h,w]"])
    text = str(error.value)
    assert "h %" in text
    assert "test_decomposed_sizes.py:" in text
    assert "adaptive_avg_pool2d" in text
    assert "h%2" in text


@pytest.mark.usefixtures("torchs_own")
def test_what_a_decomposition_assumes_may_hold_at_all_declared_sizes(deploy: Any, run_onnx: Any) -> None:
    model = Area().eval()
    exported = deploy(model, ["x:float32[n,3,h=4..%2,w=4..%2]"])
    x = torch.randn(2, 3, 34, 46)
    (got,) = run_onnx(exported.path, x.numpy())
    np.testing.assert_allclose(got, model(x).detach().numpy(), atol=1e-5)


@pytest.mark.usefixtures("torchs_own")
def test_where_no_assumption_is_noted_odd_sizes_show_it(deploy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared_sizes, "declared_sizes", lambda *_: None)
    with pytest.raises(ExportError, match="differs from the original at n=3, h=73"):
        deploy(Area().eval(), ["x:float32[n,3,h,w]"])


def test_odd_sizes_are_checked_where_the_original_takes_them(deploy: Any) -> None:
    def tried(model: nn.Module, spec: str) -> list[tuple[int, int]]:
        return [(s["h"], s["w"]) for s in deploy(model.eval(), [spec]).result.checked_sizes]

    class Halving(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            n, c, h, w = x.shape
            return x.reshape(n, c, h // 2, 2, w // 2, 2).sum((3, 5))

    assert any(h % 2 and w % 2 and h != w for h, w in tried(nn.Conv2d(3, 3, 1), "x:float32[n,3,h,w]"))
    tried_even = tried(Halving(), "x:float32[n,3,h%2,w%2]")
    assert all(h % 2 == 0 and w % 2 == 0 for h, w in tried_even)
    assert any(h % 4 == 2 and w % 4 == 2 for h, w in tried_even)


@pytest.mark.parametrize(
    "spec", ["x:float32[n,3,h=8..100,w]", "x:float32[n,3,h%32,w=1..64%8]", "x:float32[n,3,h@224,w]"]
)
def test_odd_sizes_keep_to_what_is_declared(spec: str) -> None:
    signature = signature_from_specs([spec])
    found = list(odd_sizes(signature, signature.example_sizes()))
    assert found
    for sizes in found:
        assert all(signature.symbols[name].allows(size) for name, size in sizes.items())
        assert sizes["h"] != sizes["w"]
        assert sizes["h"] != signature.example_sizes()["h"]
    first = signature.symbols["h"].multiple
    assert found[0]["h"] // first % 2 == 1


def test_there_are_no_odd_sizes_without_a_spatial_dim() -> None:
    signature = signature_from_specs(["x:float32[n,seq]"])
    assert list(odd_sizes(signature, signature.example_sizes())) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cat([part.mean(3, keepdim=True) for part in x.chunk(2, 3)], 3),
        lambda x: x.chunk(3, 3)[2],
        lambda x: x.split((x.shape[3] + 2) // 3, 3)[2] * 2,
        lambda x: x.split([x.shape[3] // 3, x.shape[3] - x.shape[3] // 3], 3)[1],
    ],
    ids=["chunk", "one chunk", "split", "split with sizes"],
)
def test_parts_of_a_variable_dim(deploy: Any, run_onnx: Any, function: Callable[[Tensor], Tensor]) -> None:
    class Parts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    exported = deploy(Parts().eval(), ["x:float32[n,3,h,w=8..]"])
    assert not any("Sequence" in n.op_type for n in ir.load(exported.path).graph)
    for w in (8, 13, 31, 64, 65):
        x = torch.randn(2, 3, 5, w)
        (got,) = run_onnx(exported.path, x.numpy())
        expected = function(x).numpy()
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_node_that_the_folder_fails_on_is_kept() -> None:
    """onnxscript's rule for SplitToSequence raises where `split` is a computed scalar."""
    model = ir.from_onnx_text(
        """
        <ir_version: 9, opset_import: ["" : 20]>
        g (float[w, 2] x) => (float[v, 2] y) {
            whole = Shape <start = 0, end = 1> (x)
            two = Constant <value_ints = [2]> ()
            half = Div (whole, two)
            size = Squeeze (half)
            parts = SplitToSequence <axis = 0> (x, size)
            one = Constant <value_int = 1> ()
            y = SequenceAt (parts, one)
        }
        """
    )
    for node in model.graph:
        if node.op_type == "Squeeze":
            node.outputs[0].shape = ir.Shape([])
            node.outputs[0].dtype = ir.DataType.INT64
    passes.optimize(model)
    assert "SplitToSequence" in [n.op_type for n in model.graph]


def test_what_never_holds_does_not_always_hold() -> None:
    """`h == h + 3` has no symbol left once torch has simplified it."""
    found = []

    class Ask(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            h = x.shape[0]
            found.extend([declared_sizes.always(h == h + 3), declared_sizes.always(h + 3 > h)])
            return x + 1

    shapes = ({0: torch.export.Dim.DYNAMIC},)
    torch.export.export(Ask(), (torch.randn(5, 2),), dynamic_shapes=shapes, strict=False)
    assert found[:2] == [False, True]
