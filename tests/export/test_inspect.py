"""`inspect` says what can be read of a file without torch and without running anything of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from deployops import inspect_model
from deployops.errors import ModelFileError


@torch.library.custom_op("inspect_test::plus", mutates_args=())
def plus(x: torch.Tensor) -> torch.Tensor:
    return x + 1


plus.register_fake(torch.empty_like)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> Any:
        return torch.ops.inspect_test.plus(torch.ops.inspect_test.plus(self.linear(x))), ids


def test_a_program_has_its_inputs_outputs_and_custom_operators(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch")
    arguments = (torch.randn(3, 4), torch.arange(5))
    program = torch.export.export(Net(), arguments, dynamic_shapes=({0: batch}, None))
    torch.export.save(program, tmp_path / "net.pt2")
    found = inspect_model(tmp_path / "net.pt2")
    assert [str(t) for t in found.inputs] == ["x: float32[x_dim_0, 4]", "ids: int64[5]"]
    assert [str(t) for t in found.outputs] == ["result 0: float32[x_dim_0, 2]", "result 1: int64[5]"]
    assert found.custom_operators == {"inspect_test::plus": 2}


def test_torchscript_has_its_custom_operators(tmp_path: Path) -> None:
    torch.jit.trace(Net(), (torch.randn(3, 4), torch.arange(5))).save(str(tmp_path / "net.ts"))
    found = inspect_model(tmp_path / "net.ts")
    assert found.custom_operators == {"inspect_test::plus": 2}
    assert "2 × inspect_test::plus" in found.summary()


def test_a_checkpoint_has_its_tensors_by_name_and_dtype(tmp_path: Path) -> None:
    state = {**Net().state_dict(), "half": torch.ones(2).half(), "count": torch.tensor(3)}
    torch.save({"epoch": 3, "model": state}, tmp_path / "net.pt")
    found = inspect_model(tmp_path / "net.pt")
    assert found.weights == {k: str(v.dtype).removeprefix("torch.") for k, v in state.items()}
    assert "tensors 4 (2 float32, 1 float16, 1 int64): linear.weight" in found.summary()


def test_a_cut_list_says_how_much_is_missing(tmp_path: Path) -> None:
    layers = [
        getattr(torch.nn, n)() for n in ("ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "ELU", "SELU", "CELU")
    ]
    layers += [torch.nn.Mish(), torch.nn.Hardtanh(), torch.nn.Hardswish(), torch.nn.Softplus()]
    torch.save(torch.nn.Sequential(*layers), tmp_path / "net.pt")
    found = inspect_model(tmp_path / "net.pt")
    assert f"and {len(found.unsafe_globals) - 10} more" in found.summary()


def test_nothing_of_it_needs_torch(tmp_path: Path) -> None:
    torch.save(Net().state_dict(), tmp_path / "net.pt")
    code = (
        f"import sys\nfrom deployops import inspect_model\nassert inspect_model({str(tmp_path / 'net.pt')!r}).weights\n"
        "assert not {'torch', 'onnx', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("content", [b"", b"\x01\x02nothing known" * 9, b"\x00" * 64])
def test_a_file_of_no_kind_is_an_error_of_one_line(command: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(ModelFileError):
        inspect_model(tmp_path / "x.pt")
    done = command("inspect", tmp_path / "x.pt")
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1


def test_a_torchscript_archive_whose_save_raised_is_not_taken_for_a_checkpoint(tmp_path: Path) -> None:
    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    class Calls(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return Odd.apply(x)

    traced = torch.jit.trace(Calls(), torch.ones(2))
    with pytest.raises(RuntimeError):
        traced.save(str(tmp_path / "half.ts"))
    if not (tmp_path / "half.ts").exists():
        pytest.skip("this torch leaves nothing behind")
    with pytest.raises(ModelFileError, match="TorchScript archive that was not written to its end"):
        inspect_model(tmp_path / "half.ts")


def test_of_a_model_without_a_digest_it_is_said_that_its_bytes_could_not_be_checked(
    command: Any, tmp_path: Path
) -> None:
    import onnx

    from deployops import export_model

    value = onnx.helper.make_tensor_value_info("x", 1, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value], [value])
    graph.output[0].name = "y"
    onnx.save(
        onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)]),
        tmp_path / "m.onnx",
    )
    done = command("inspect", tmp_path / "m.onnx")
    assert done.code == 0
    [line] = [line for line in done.out.splitlines() if line.startswith("  digest  the model has no digest")]
    assert "whether it is what was exported cannot be told" in line
    export_model(torch.nn.ReLU(), ["x:float32[2]"], out=tmp_path / "ours.onnx")
    assert "no digest" not in command("inspect", tmp_path / "ours.onnx").out


def test_an_unknown_rank_is_told_from_a_single_number(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["s"], ["t"])],
        "g",
        [info("x", TensorProto.FLOAT, None), info("s", TensorProto.FLOAT, [])],
        [info("y", TensorProto.FLOAT, None), info("t", TensorProto.FLOAT, [])],
    )
    save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(tmp_path / "m.onnx"),
    )
    found = inspect_model(tmp_path / "m.onnx").to_dict()
    assert found["inputs"] == ["x: float32[...]", "s: float32[]"]
    assert found["outputs"] == ["y: float32[...]", "t: float32[]"]
