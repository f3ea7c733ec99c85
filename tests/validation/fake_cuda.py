"""A stand-in for torch's CUDA on a machine without one: tensors stay on the CPU, the queue is a virtual clock.

It runs every path of `latency.cuda` and `latency.torch_on_gpu`, in the order in which a GPU would be told; it says nothing
of what a GPU does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch


class FakeCuda:
    """`log`: what was given to the device. A kernel takes 1 ms, launched alone 0.25 ms more; a graph is one launch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.now = 0.0
        self.capturing = False
        self.refuses_capture = ""
        self.broken = False
        self.clock = [1980, 1980]
        self.modules: list[torch.nn.Module] = []
        self._install(monkeypatch)

    def launch(self, what: str, ms: float) -> None:
        self.log.append(what)
        if not self.capturing:
            self.now += ms

    def _install(self, patch: pytest.MonkeyPatch) -> None:
        fake = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                assert enable_timing, "elapsed_time of an event without timing raises"
                self.at: float | None = None
                self.waited = False

            def record(self, stream: Any = None) -> None:
                self.at = fake.now

            def synchronize(self) -> None:
                assert self.at is not None, "an event that was not recorded is never reached"
                self.waited = True

            def elapsed_time(self, end: Event) -> float:
                assert end.waited, "torch raises where the second event has not been reached"
                assert self.at is not None
                assert end.at is not None
                return end.at - self.at

        class Stream:
            def wait_stream(self, other: Any) -> None:
                fake.log.append("wait for a stream")

        class Guard:
            def __init__(self, *_: Any, **__: Any) -> None: ...
            def __enter__(self) -> None: ...
            def __exit__(self, *_: object) -> None: ...

        class Graph:
            def replay(self) -> None:
                fake.launch("replay", 1.0)

        class Capture(Guard):
            def __enter__(self) -> None:
                fake.log.append("capture")
                fake.capturing = True

            def __exit__(self, *_: object) -> None:
                fake.capturing = False
                if fake.refuses_capture:
                    raise RuntimeError(fake.refuses_capture)

        def synchronize(device: Any = None) -> None:
            if fake.broken:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")

        for name, value in {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "Event": Event,
            "Stream": Stream,
            "device": Guard,
            "stream": Guard,
            "graph": Capture,
            "CUDAGraph": Graph,
            "synchronize": synchronize,
            "current_stream": Stream,
            "get_device_name": lambda k=0: "Fake GPU",
            "clock_rate": lambda device: fake.clock.pop(0),
            "power_draw": lambda device: 300_000,
            "temperature": lambda device: 60,
        }.items():
            patch.setattr(torch.cuda, name, value)
        patch.setattr(torch.Tensor, "pin_memory", lambda self: self)
        patch.setattr(torch.Tensor, "to", self._to(torch.Tensor.to))
        patch.setattr(torch.nn.Module, "to", self._module_to())
        patch.setattr(torch, "empty_like", self._empty_like(torch.empty_like))

    @staticmethod
    def _to(real: Callable[..., Any]) -> Callable[..., Any]:
        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if args and str(args[0]).startswith("cuda"):
                return OnFake(tensor.clone())
            if args and args[0] == "cpu" and isinstance(tensor, OnFake):
                return tensor.as_subclass(torch.Tensor)
            return real(tensor, *args, **kwargs)

        return to

    def _module_to(self) -> Callable[..., Any]:
        def to(module: Any, *args: Any, **kwargs: Any) -> Any:
            assert str(args[0]).startswith("cuda")
            self.modules.append(module)
            module.register_forward_hook(lambda *_: self.launch("kernel", 1.25))
            return module

        return to

    @staticmethod
    def _empty_like(real: Callable[..., Any]) -> Callable[..., Any]:
        def empty_like(tensor: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
            made = real(tensor, *args, **kwargs)
            return OnFake(made) if str(device).startswith("cuda") else made

        return empty_like


class OnFake(torch.Tensor):
    """A tensor that says that it lies on the GPU, and whatever is computed from it too."""

    @staticmethod
    def __new__(cls, data: torch.Tensor) -> OnFake:
        return data.as_subclass(cls)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", 0)


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)
