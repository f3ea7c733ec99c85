"""What a machine can do at most: bytes per second by how much is touched, operations per second by dtype.

This machine's are measured, with the number of threads that the candidates have:

- A copy, counted as in STREAM (McCalpin, 1995): read and written bytes, and none for a cache line that is fetched before
  it is overwritten. A read alone, which on most machines is faster for each byte.
- For working sets of several sizes, because what fits a cache does not wait for the memory; the largest lies beyond the
  last cache.
- A matrix product, by torch and by ONNX Runtime: the faster one.

Each is the best of several runs: a limit, not what is usual.
"""

from __future__ import annotations

import ctypes
import math
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

__all__ = ["Bandwidth", "Machine", "floor_ms", "last_cache", "this_machine"]

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_IN_CACHE = (1 << 18, 1 << 20, 1 << 22, 1 << 24)
_LEAST_BEYOND, _MOST_BEYOND = 1 << 27, 1 << 30
_REPEATS = 5
_SECONDS = 0.02  # for each measurement in a cache
_PRODUCT = 1024
_SMALL_PRODUCT = 256  # for dtypes that the processor only emulates, which take seconds for the other
_LONG_S = 0.3


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second of a working set of `size` bytes and more."""

    size: int
    copy: float
    read: float


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine's limits.

    Attributes:
        name: empty for the one that this runs on.
        bandwidths: ascending in size; where a larger working set is faster, the smaller one counts as fast.
        peaks: dtype -> operations per second of a matrix product.
        source: where published numbers are from.
    """

    name: str
    bandwidths: tuple[Bandwidth, ...]
    peaks: dict[str, float]
    source: str = ""

    def bandwidth(self, size: int) -> Bandwidth:
        """That of the largest measured working set that is not larger than `size`."""
        fitting = [b for b in self.bandwidths if b.size <= size]
        return fitting[-1] if fitting else self.bandwidths[0]


def floor_ms(machine: Machine, read: int, written: int, flops: dict[str, int]) -> tuple[float, float]:
    """Milliseconds that memory and arithmetic need at least, each by itself: max(both) is the roofline's floor.

    What is read and written in equal parts goes at the speed of a copy, what is read beyond that at the speed of a read.
    A dtype without a known peak counts nothing: the floor is then lower than it could be.
    """
    rate = machine.bandwidth(read + written)
    both = min(read, written)
    beyond = abs(read - written) / (rate.read if read > written else rate.copy)
    memory = 2 * both / rate.copy + beyond
    arithmetic = sum(n / machine.peaks[dtype] for dtype, n in flops.items() if machine.peaks.get(dtype))
    return memory * 1e3, arithmetic * 1e3


@lru_cache(maxsize=8)
def this_machine(threads: int, dtypes: tuple[str, ...] = ("float32",)) -> Machine:
    """Measure this machine: about two seconds. torch's threads are those that the caller has set."""
    beyond = min(max(4 * last_cache(), _LEAST_BEYOND), _MOST_BEYOND)
    sizes = [s for s in _IN_CACHE if s < beyond] + [beyond]
    found = [Bandwidth(s, _copy(s, threads), _read(s, threads)) for s in sizes]
    peaks = {dtype: peak for dtype in dtypes if (peak := _product(dtype, threads))}
    return Machine("", tuple(_descending(found)), peaks)


def last_cache(folder: Path = _CACHES) -> int:
    """Bytes of the largest cache of the first core; 0 where the system does not tell."""
    found = []
    for path in folder.glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KMG]?)", path.read_text().strip())
        if match:
            found.append(int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]])
    return max(found, default=0)


def _descending(found: Sequence[Bandwidth]) -> list[Bandwidth]:
    """What a large working set reaches, a small one could reach."""
    out: list[Bandwidth] = []
    copy = read = 0.0
    for b in reversed(found):
        copy, read = max(copy, b.copy), max(read, b.read, b.copy)
        out.append(Bandwidth(b.size, copy, read))
    return out[::-1]


def _copy(size: int, threads: int) -> float:
    """Bytes read and written per second where source and target together are `size` bytes."""
    import numpy as np

    part = max(64, size // threads // 2)
    arrays = [(np.ones(part, np.uint8), np.zeros(part, np.uint8)) for _ in range(threads)]
    # ctypes lets go of the interpreter, and calls the memmove that everything else calls
    work = [_repeated_copy(s.ctypes.data, t.ctypes.data, part) for s, t in arrays]
    return 2 * part * threads / _best(work, part * 2)


def _repeated_copy(source: int, target: int, part: int) -> Callable[[int], object]:
    def run(times: int) -> None:
        for _ in range(times):
            ctypes.memmove(target, source, part)

    return run


def _read(size: int, threads: int) -> float:
    """Bytes read per second by a maximum over integers, which is vectorised and keeps nothing."""
    import numpy as np

    count = max(16, size // threads // 4)
    arrays = [np.ones(count, np.int32) for _ in range(threads)]

    def reading(array: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Callable[[int], object]:
        def run(times: int) -> None:
            for _ in range(times):
                array.max()

        return run

    return 4 * count * threads / _best([reading(a) for a in arrays], 4 * count)


def _best(work: Sequence[Callable[[int], object]], size: int) -> float:
    """Seconds of one pass, all threads at once; the best of some runs."""
    # long enough for the start of the threads not to count, from a guess of 10 GB/s
    times = max(1, math.ceil(_SECONDS / (size / 1e10)))
    with ThreadPoolExecutor(len(work)) as pool:
        best = math.inf
        for _ in range(_REPEATS):
            start = time.perf_counter()
            if len(work) == 1:
                work[0](times)
            else:
                list(pool.map(lambda run: run(times), work))
            best = min(best, time.perf_counter() - start)
    return best / times


def _product(dtype: str, threads: int) -> float:
    """Operations per second of a square matrix product; 0 where torch knows no such dtype or product."""
    import torch

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        return 0.0

    def rate(n: int) -> float:
        a = torch.ones(n, n, dtype=torch.float32).to(kind)
        return 2 * n**3 / _shortest(lambda: a @ a)

    try:
        found = rate(_SMALL_PRODUCT)
        if 2 * _PRODUCT**3 / found < _LONG_S:
            found = max(found, rate(_PRODUCT))
    except RuntimeError:
        return 0.0
    return max(found, 2 * _PRODUCT**3 / _runtime_product(threads)) if dtype == "float32" else found


def _runtime_product(threads: int) -> float:
    """Seconds of the same by ONNX Runtime; infinite where it is not installed."""
    import numpy as np
    from onnx import TensorProto, helper, save

    from ...errors import NotCheckedError
    from ...ort_ops.session import session

    n = _PRODUCT
    value = [helper.make_tensor_value_info(k, TensorProto.FLOAT, [n, n]) for k in ("a", "b", "c")]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "g", value[:2], value[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory(prefix="deployops-peak-") as folder:
        path = Path(folder) / "product.onnx"
        save(model, str(path))
        try:
            opened = session(path, threads=threads)
        except NotCheckedError:
            return math.inf
        feed = {"a": np.ones((n, n), np.float32), "b": np.ones((n, n), np.float32)}
        return _shortest(lambda: opened.run(None, feed))


def _shortest(call: Callable[[], object]) -> float:
    """Seconds of the shortest of some calls; of two where one takes long."""
    call()
    best = math.inf
    for done in range(_REPEATS):
        if done >= 2 and best > _LONG_S:
            break
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
