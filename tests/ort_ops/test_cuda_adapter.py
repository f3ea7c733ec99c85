"""The adapter for ONNX Runtime's CUDA provider, under a fake ONNX Runtime and on the emulated device: no GPU ran it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from deployops.symbolic import registry
from deployops.symbolic.checking.error_budget import faults
from deployops.symbolic.checking.sample_runs import sound_runs
from deployops.symbolic.checking.tally import Tally
from deployops.symbolic.operator import Operator

from .fake_ort import STREAM, FakeRuntime, built

HERE = Path(__file__).resolve().parent
PACKS = [HERE / "cuda_pack" / "cuda_pack.py", HERE.parent / "trt_plugins" / "pack" / "pack.py"]

registry.load_builtin()
SHIPPED = [op for op in registry.all_operators() if op.name.startswith("deployops::")]


USED = {
    "stream_of",
    "forgets",
    "elsewhere",
    "refuses",
    "beyond",
    "two",
    "attributes",
    "parts",
    "add_all",
    "shift_",
    "plus",
    "row_sums",
}


@pytest.fixture(scope="module")
def packs() -> dict[str, Operator]:
    found = {op.name.partition("::")[2]: op for op in registry.load([str(p) for p in PACKS])}
    return {name: op for name, op in found.items() if name in USED}


@pytest.fixture(scope="module")
def runtime(packs: dict[str, Operator]) -> Iterator[FakeRuntime]:
    made = FakeRuntime(built(sorted([*SHIPPED, *packs.values()], key=lambda op: op.name)))
    yield made
    made.close()


def test_every_operator_is_for_the_cuda_provider_and_its_tensors_are_in_its_memory(
    runtime: FakeRuntime,
) -> None:
    names = {(domain, name) for domain, name, *_ in runtime.operators}
    assert {(op.domain, op.op_type) for op in SHIPPED} <= names
    assert {provider for _, _, provider, *_ in runtime.operators} == {"CUDAExecutionProvider"}
    # OrtMemTypeDefault: what the provider's own allocator gives
    assert {m for *_, memory, _ in runtime.operators for m in memory.split(",") if m} == {"0"}


@pytest.mark.parametrize("op", SHIPPED, ids=lambda op: op.name)
def test_every_shipped_kernel_through_the_adapter(op: Operator, runtime: FakeRuntime) -> None:
    tally = Tally(op.name, "adapter")
    ran: dict[str, int] = {}
    for run, by_torch in sound_runs(op, tally):
        bound = op.interface.bind((), run.arguments)
        reply = runtime.run(
            op, op.interface.flat_inputs(bound), dict(bound.attributes), [t.dtype for t in by_torch]
        )
        assert "error" not in reply, f"{run}: {reply['error']}"
        assert reply["live"] == 0
        assert reply["statuses"] == 0
        for k, fault in enumerate(faults(run, reply["tensors"], by_torch, run.exact())):
            assert not fault, f"{run}: output {k}: {fault}"
        ran[str(by_torch[0].dtype)] = ran.get(str(by_torch[0].dtype), 0) + 1
    assert ran.keys() == {f"torch.{d}" for d in ("float16", "bfloat16", "float32", "float64")}, ran


@pytest.mark.parametrize("name", ["attributes", "parts", "add_all", "two"])
def test_attributes_lists_and_several_outputs(
    name: str, packs: dict[str, Operator], runtime: FakeRuntime
) -> None:
    op = packs[name]
    ran = 0
    for run, by_torch in sound_runs(op, Tally(op.name, "adapter")):
        bound = op.interface.bind((), run.arguments)
        reply = runtime.run(
            op, op.interface.flat_inputs(bound), dict(bound.attributes), [t.dtype for t in by_torch]
        )
        assert "error" not in reply, reply
        for got, want in zip(reply["tensors"], by_torch, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-2 if want.dtype.itemsize == 2 else 1e-6, atol=1e-2)
            assert got.shape == want.shape
        ran += 1
    assert ran >= 3


def test_a_missing_attribute_has_its_default(packs: dict[str, Operator], runtime: FakeRuntime) -> None:
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    [y] = runtime.run(packs["attributes"], [x], {"count": 3}, [torch.float64])["tensors"]
    assert torch.equal(y, x * 3 + 0.1)


def test_an_argument_that_is_written_into_is_copied_on_the_device(
    packs: dict[str, Operator], runtime: FakeRuntime
) -> None:
    x, by = torch.arange(6.0).reshape(2, 3), torch.full((2, 3), 10.0)
    reply = runtime.run(packs["shift_"], [x, by], {}, [torch.float32])
    assert torch.equal(reply["tensors"][0], x + by)
    assert torch.equal(x, torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_an_output_that_the_model_leaves_out_goes_to_memory_of_the_provider(
    wanted: tuple[bool, bool], packs: dict[str, Operator], runtime: FakeRuntime
) -> None:
    x = torch.arange(6.0)
    reply = runtime.run(packs["two"], [x], {}, [torch.float32] * 2, wanted=wanted)
    assert (reply["allocated"], reply["live"]) == (1, 0)
    for got, factor, there in zip(reply["tensors"], (2, 3), wanted, strict=True):
        assert torch.equal(got, x * factor) if there else got is None


def test_a_workspace_is_memory_of_the_provider_for_the_call_alone(
    packs: dict[str, Operator], runtime: FakeRuntime
) -> None:
    x = torch.arange(2000.0).reshape(2, 1000)
    reply = runtime.run(packs["row_sums"], [x], {}, [torch.float32])
    assert "error" not in reply, reply
    assert (reply["allocated"], reply["live"]) == (1, 0)
    assert torch.equal(reply["tensors"][0], x.sum(1))
    none = runtime.run(packs["row_sums"], [torch.empty(0, 7)], {}, [torch.float32])
    assert (none["allocated"], none["tensors"][0].shape) == (0, (0,))


def test_an_output_bound_over_an_input(packs: dict[str, Operator], runtime: FakeRuntime) -> None:
    # `parts` moves numbers to other places: reading what it has written already would show
    x = torch.arange(12.0).reshape(2, 6)
    reply = runtime.run(packs["parts"], [x], {}, [torch.float32] * 2, over=0)
    assert (reply["allocated"], reply["live"]) == (1, 0)
    assert torch.equal(reply["tensors"][0], x[:, :3])
    assert torch.equal(reply["tensors"][1], x[:, 3:].t())


def test_kernels_are_launched_on_the_stream_of_the_session(
    packs: dict[str, Operator], runtime: FakeRuntime
) -> None:
    [y] = runtime.run(packs["stream_of"], [torch.zeros(5, dtype=torch.int64)], {}, [torch.int64])["tensors"]
    assert y.tolist() == [STREAM] * 5


def test_a_launch_on_another_stream_than_the_sessions_is_told(
    packs: dict[str, Operator], runtime: FakeRuntime
) -> None:
    # the emulated device takes it for an error; a GPU would compute something wrong now and then
    reply = runtime.run(packs["elsewhere"], [torch.ones(4)], {}, [torch.float32])
    assert reply["error"].startswith(
        "1 cudapack::Elsewhere (float32, node 'the_node'): cudaErrorInvalidResourceHandle"
    )


def test_what_a_launcher_refuses_is_told_with_operator_and_node(
    packs: dict[str, Operator], runtime: FakeRuntime
) -> None:
    reply = runtime.run(packs["refuses"], [torch.ones(4)], {}, [torch.float32])
    assert reply["error"] == (
        "2 cudapack::Refuses (float32, node 'the_node'): x is (4,); expected a matrix"
    )  # 2: ORT_INVALID_ARGUMENT


def test_an_error_of_cuda_is_told(packs: dict[str, Operator], runtime: FakeRuntime) -> None:
    reply = runtime.run(packs["beyond"], [torch.ones(4)], {}, [torch.float32])
    assert reply["error"].startswith(
        "1 cudapack::Beyond (float32, node 'the_node'): cudaErrorMemoryAllocation"
    )
    assert reply["statuses"] == 0


def test_a_launch_that_failed_unseen_is_told_and_blamed_on_nobody_else(
    packs: dict[str, Operator], runtime: FakeRuntime
) -> None:
    reply = runtime.run(packs["forgets"], [torch.ones(2, 2)], {}, [torch.float32])
    assert reply["error"].startswith(
        "1 cudapack::Forgets (float32, node 'the_node'): cudaErrorInvalidConfiguration"
    )
    x = torch.ones(4)
    assert torch.equal(runtime.run(packs["forgets"], [x], {}, [torch.float32])["tensors"][0], x)


def test_a_missing_input_or_attribute_is_refused(packs: dict[str, Operator], runtime: FakeRuntime) -> None:
    reply = runtime.run(packs["plus"], [torch.ones(2), None], {}, [torch.float32])
    assert "the input `y` is missing" in reply["error"]
    reply = runtime.run(packs["attributes"], [torch.ones(2)], {}, [torch.float32])
    assert "the attribute `count` (INT) is missing" in reply["error"]
