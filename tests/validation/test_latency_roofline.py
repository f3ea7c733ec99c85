"""Floors from bytes, operations and a machine's limits. The machines here are made up, but for one that is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployops.validation.latency.cost import Cost
from deployops.validation.latency.gpus import GPUS, gpu
from deployops.validation.latency.graph_cost import ModelCost, NodeCost
from deployops.validation.latency.machine import Bandwidth, Machine, floor_ms, last_cache, this_machine
from deployops.validation.latency.measurement import timing_of
from deployops.validation.latency.record import LatencyRecord
from deployops.validation.latency.roofline import of_machine, of_model, predicted

# 10 GB/s for copies beyond the cache, 100 within; reads are twice as fast; 1 Tflop/s in float32.
MACHINE = Machine("", (Bandwidth(1 << 10, 100e9, 200e9), Bandwidth(1 << 20, 10e9, 20e9)), {"float32": 1e12})


@pytest.mark.parametrize(
    ("read", "written", "flops", "memory", "arithmetic"),
    [
        (10_000_000, 10_000_000, 0, 2.0, 0.0),  # 20 MB at 10 GB/s
        (20_000_000, 0, 0, 1.0, 0.0),  # read only
        (30_000_000, 10_000_000, 0, 2.0 + 1.0, 0.0),  # a copy of 20 MB, and 20 MB more that are read
        (0, 10_000_000, 0, 1.0, 0.0),
        (1_000, 1_000, 0, 2e-5, 0.0),  # in the cache
        (100, 100, 0, 2e-6, 0.0),  # smaller than anything that was measured
        (0, 0, 5_000_000_000, 0.0, 5.0),
    ],
)
def test_what_memory_and_arithmetic_need(
    read: int, written: int, flops: int, memory: float, arithmetic: float
) -> None:
    assert floor_ms(MACHINE, read, written, {"float32": flops}) == pytest.approx((memory, arithmetic))


def test_operations_of_a_dtype_without_a_peak_count_nothing() -> None:
    assert floor_ms(MACHINE, 0, 0, {"int8": 10**12}) == (0.0, 0.0)


def model(read: int, flops: dict[str, int], uncounted: tuple[str, ...] = ()) -> ModelCost:
    node = NodeCost("n", "MatMul", "", "float32", Cost(read, 0, flops.get("float32", 0)))
    small = NodeCost("s", "Op", "acme", "float32", Cost(2048, 2048, 0, counted=False))
    return ModelCost(read, 0, flops, (small, node), uncounted)


def test_the_share_is_the_floor_over_the_measured_time() -> None:
    found = of_model(model(20_000_000, {"float32": 10**9}), MACHINE, "onnxruntime", "s", median=4.0)
    assert (found.floor, found.bound, found.share) == (1.0, "memory", 0.25)
    assert (found.bytes, found.flops, found.machine) == (20_000_000, 10**9, "")
    busy = of_model(model(20_000_000, {"float32": 8 * 10**9}), MACHINE, "onnxruntime", "s", median=16.0)
    assert (busy.floor, busy.bound, busy.share) == (8.0, "compute", 0.5)


def test_what_is_not_in_the_floor_is_said() -> None:
    found = of_model(model(2_000_000, {"int8": 10**9}, ("acme::Op",)), MACHINE, "onnxruntime", "s", 1.0)
    assert "acme::Op" in found.source
    assert "int8, whose peak is not known" in found.source


def test_a_predicted_floor_names_its_machine_and_source_and_has_no_share() -> None:
    h200 = gpu("H200 SXM")
    assert h200 is not None
    found = predicted(model(4_800_000_000, {"float32": 0}), [h200], "s")[0]
    assert (found.candidate, found.machine, found.share) == ("predicted", "H200 SXM", None)
    assert found.floor == pytest.approx(1.0)  # 4.8 GB at 4.8 TB/s
    assert "datasheet" in found.source


def test_every_gpu_has_a_source_and_numbers_of_the_right_size() -> None:
    for machine in GPUS.values():
        assert "NVIDIA" in machine.source
        assert 100e9 < machine.bandwidths[0].copy < 10e12
        assert machine.peaks["float16"] > machine.peaks["float32"] > 1e12
    assert gpu("h100 sxm") is GPUS["H100 SXM"]
    assert gpu("no such GPU") is None


def test_the_last_cache_is_read_from_the_system(tmp_path: Path) -> None:
    for index, size in enumerate(("32K", "1024K", "36M")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert last_cache(tmp_path) == 36 << 20
    assert last_cache(tmp_path / "nothing") == 0


def test_this_machine_is_measured_and_no_larger_working_set_is_faster() -> None:
    found = this_machine(1)
    assert found.peaks["float32"] > 0
    sizes = [b.size for b in found.bandwidths]
    assert sizes == sorted(sizes)
    assert sizes[-1] >= 4 * last_cache() or sizes[-1] == 1 << 30
    for smaller, larger in zip(found.bandwidths, found.bandwidths[1:], strict=False):
        assert smaller.copy >= larger.copy > 0
        assert smaller.read >= larger.read >= larger.copy


def test_a_dtype_that_the_machine_has_no_products_of_has_no_peak() -> None:
    from deployops.validation.latency.machine import _product

    assert _product("int8", 1) == 0.0
    assert _product("no dtype", 1) == 0.0


def test_a_record_says_what_the_machine_can_do() -> None:
    found = of_machine(LatencyRecord(1, (timing_of("a", "s", [1.0] * 20),)), MACHINE)
    assert (found.copy_bandwidth, found.peak_flops) == (10e9, 1e12)
    assert found.bandwidths["read, 1024 bytes"] == 200e9
