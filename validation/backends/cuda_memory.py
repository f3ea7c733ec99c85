"""Memory, a stream and a clock on the GPU: by torch where it has CUDA, else by pycuda. Bytes only, so that every dtype fits.

Not checked on a machine without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...errors import NotCheckedError

__all__ = ["Buffer", "Device", "open_device", "tensor_of"]

Array = npt.NDArray[Any]


class Buffer(Protocol):
    """Bytes on the GPU, freed with the object. `address` is a number."""

    address: int
    size: int


class Device(Protocol):
    """The GPU. Copies and runs are in the order of one stream; `timed` is milliseconds by events on it.

    `adopt`: a tensor of torch's that lies on this GPU as a buffer, without a copy; None for anything else. `begin` and `end`
    put what is between them in order with the caller's stream of torch. `tensor`: a buffer as a tensor of torch's on the GPU
    (of host memory, on the host); the two last raise NotCheckedError where torch has no CUDA.
    """

    name: str
    stream: int

    def empty(self, size: int) -> Buffer: ...
    def upload(self, array: Array) -> Buffer: ...
    def download(self, buffer: Buffer, size: int) -> Array: ...
    def synchronize(self) -> None: ...
    def timed(self, call: Callable[[], object]) -> float: ...
    def adopt(self, value: Any) -> Buffer | None: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...
    def tensor(self, place: Any, dtype: str, shape: tuple[int, ...]) -> Any: ...


def open_device() -> Device:
    """Raises NotCheckedError where neither package reaches a GPU."""
    import torch

    if torch.cuda.is_available():
        return _Torch()
    try:
        return _Pycuda()
    except (
        Exception
    ) as error:  # pycuda raises its own where the driver is not there, ImportError where it is not
        raise NotCheckedError(
            f"torch has no CUDA here, and pycuda does not start ({type(error).__name__}: {error}): "
            "install a torch for CUDA, or pycuda"
        ) from error


class _TorchBuffer:
    def __init__(self, size: int, device: Any) -> None:
        import torch

        # an address even of nothing: TensorRT takes no null
        self.tensor = torch.empty(max(size, 1), dtype=torch.uint8, device=device)
        self.address = int(self.tensor.data_ptr())
        self.size = size


class _Adopted:
    """A caller's tensor, kept alive as long as the engine has its address."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.address = int(tensor.data_ptr())
        self.size = tensor.numel() * tensor.element_size()


class _Torch:
    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._device = torch.device("cuda", torch.cuda.current_device())
        self._stream = torch.cuda.Stream(self._device)
        self.stream = int(self._stream.cuda_stream)
        self.name = torch.cuda.get_device_name(self._device)

    def empty(self, size: int) -> _TorchBuffer:
        # made on this stream, so that torch's allocator does not hand the memory on while the stream uses it
        with self._torch.cuda.stream(self._stream):
            return _TorchBuffer(size, self._device)

    def upload(self, array: Array) -> _TorchBuffer:
        raw = _bytes_of(array)
        buffer = self.empty(raw.size)
        with self._torch.cuda.stream(self._stream):
            if raw.size:
                buffer.tensor[: raw.size].copy_(self._torch.from_numpy(raw))
        return buffer

    def download(self, buffer: Buffer, size: int) -> Array:
        assert isinstance(buffer, _TorchBuffer)
        with self._torch.cuda.stream(self._stream):
            found: Array = buffer.tensor[:size].cpu().numpy()
        self.synchronize()
        return found

    def synchronize(self) -> None:
        self._stream.synchronize()

    def timed(self, call: Callable[[], object]) -> float:
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(self._stream)
        call()
        end.record(self._stream)
        end.synchronize()
        return float(begin.elapsed_time(end))

    def adopt(self, value: Any) -> Buffer | None:
        if not isinstance(value, self._torch.Tensor) or value.device != self._device or not value.numel():
            return None
        # the caller's stream may still be writing it; torch must not hand the memory on while ours reads it
        self._stream.wait_stream(self._torch.cuda.current_stream(self._device))
        tensor = value.detach()
        if not tensor.is_contiguous():
            with self._torch.cuda.stream(self._stream):
                tensor = tensor.contiguous()
            value.record_stream(self._stream)
        tensor.record_stream(self._stream)
        return _Adopted(tensor)

    def begin(self) -> None:
        self._stream.wait_stream(self._torch.cuda.current_stream(self._device))

    def end(self) -> None:
        self._torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def tensor(self, place: Any, dtype: str, shape: tuple[int, ...]) -> Any:
        return tensor_of(
            self._torch, place, dtype, shape, self._device, self._torch.cuda.current_stream(self._device)
        )


class _PycudaBuffer:
    def __init__(self, size: int, driver: Any) -> None:
        self.memory = driver.mem_alloc(max(size, 1))
        self.address = int(self.memory)
        self.size = size


class _Pycuda:
    def __init__(self) -> None:
        import_module("pycuda.autoprimaryctx")  # the context that TensorRT uses too
        self._driver = import_module("pycuda.driver")
        self._stream = self._driver.Stream()
        self.stream = int(self._stream.handle)
        self.name = str(self._driver.Context.get_device().name())

    def empty(self, size: int) -> _PycudaBuffer:
        return _PycudaBuffer(size, self._driver)

    def upload(self, array: Array) -> _PycudaBuffer:
        raw = _bytes_of(array)
        buffer = self.empty(raw.size)
        if raw.size:
            self._driver.memcpy_htod_async(buffer.memory, raw, self._stream)
            self.synchronize()  # `raw` may be gone before an unpinned copy has read it
        return buffer

    def download(self, buffer: Buffer, size: int) -> Array:
        assert isinstance(buffer, _PycudaBuffer)
        found = np.empty(size, np.uint8)
        if size:
            self._driver.memcpy_dtoh_async(found, buffer.memory, self._stream)
        self.synchronize()
        return found

    def synchronize(self) -> None:
        self._stream.synchronize()

    def timed(self, call: Callable[[], object]) -> float:
        begin, end = self._driver.Event(), self._driver.Event()
        begin.record(self._stream)
        call()
        end.record(self._stream)
        end.synchronize()
        return float(end.time_since(begin))

    def adopt(self, value: Any) -> Buffer | None:
        return None  # only torch makes tensors on the GPU, and it has no CUDA here

    def begin(self) -> None:
        raise NotCheckedError("tensors on the GPU need a torch with CUDA; arrays are run by pycuda")

    def end(self) -> None:
        self.begin()

    def tensor(self, place: Any, dtype: str, shape: tuple[int, ...]) -> Any:
        self.begin()


def tensor_of(torch: Any, place: Any, dtype: str, shape: tuple[int, ...], device: Any, reader: Any) -> Any:
    """The bytes of a buffer as a tensor: no copy on the GPU. `place`: a buffer, host memory, or None for an empty output.

    `reader`: the stream that will use it.
    """
    kind = getattr(torch, dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if place is None or not count:
        return torch.empty(shape, dtype=kind, device=device)
    size = count * torch.empty((), dtype=kind).element_size()
    if isinstance(place, np.ndarray):
        return torch.from_numpy(place[:size].copy()).view(kind).reshape(shape)
    if reader is not None:
        place.tensor.record_stream(reader)
    raw = place.tensor
    if raw.dtype != torch.uint8:  # an input that the output shares its memory with
        raw = raw.reshape(-1).view(torch.uint8)
    return raw[:size].view(kind).reshape(shape)


def _bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
