"""What a model keeps outside its buffers: attributes of its modules and classes, globals that its methods read, and what
lists, dicts and closures in them hold.

Nothing is deep-copied, for not every model can be: containers are copied one level each, plain tensors by value.
"""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import random
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .user_code import is_library

__all__ = ["PythonState", "python_state"]

_MOST = 100_000  # values looked at; a tokenizer's vocabulary in an attribute holds no state
_DEPTH = 100
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "deployops"}


@dataclass(slots=True)
class PythonState:
    """The values at one moment, by place, and how to bring them back."""

    leaves: dict[str, Any] = field(default_factory=dict)  # "encoder.cache[0]" -> a number, text or tensor
    owners: dict[str, str] = field(default_factory=dict)  # the same -> "`encoder.cache` (Encoder)"
    restorers: list[Callable[[], Any]] = field(default_factory=list)
    seen: dict[int, Any] = field(default_factory=dict)  # keeps what is in it alive, so that ids stay theirs
    is_whole: bool = True  # False: there was more than is looked at

    def restore(self) -> None:
        """Every place holds again what it held, tensors with their values."""
        for restore in self.restorers:
            restore()

    def changed(self, later: PythonState) -> list[str]:
        """The attributes, with their module's class, that hold another value in `later`."""
        places = {**later.owners, **self.owners}
        found = [places[p] for p in places if not _equal(self.leaves.get(p, ...), later.leaves.get(p, ...))]
        return list(dict.fromkeys(found))

    def tensors_unlike(self, other: PythonState) -> list[tuple[str, Any]]:
        """Tensors of this state that have another value in `other`, with their attributes."""
        import torch

        return [
            (self.owners[place], value)
            for place, value in self.leaves.items()
            if isinstance(value, torch.Tensor) and not _equal(value, other.leaves.get(place, ...))
        ]


def python_state(model: Any) -> PythonState:
    """The state of `model` and its submodules now. Parameters, registered buffers and TorchScript have none here."""
    import torch

    state = PythonState()
    if not isinstance(model, torch.nn.Module):
        return state
    registered = [*model.parameters(), *model.buffers()]
    if any(map(torch.nn.parameter.is_lazy, registered)):
        state.is_whole = False  # the first call makes another class of a lazy module: there is no way back
        return state
    state.seen = {id(t): t for t in registered}
    _walk(state, model, "", "", 0)
    return state


def _walk(state: PythonState, value: Any, place: str, owner: str, depth: int) -> None:
    import numpy as np
    import torch

    if isinstance(value, _PLAIN):
        state.leaves[place], state.owners[place] = value, owner
        return
    if id(value) in state.seen:
        return
    if len(state.seen) + len(state.leaves) > _MOST or depth > _DEPTH:
        state.is_whole = False
        return
    state.seen[id(value)] = value
    if isinstance(value, torch.nn.Module):
        if not isinstance(value, torch.jit.ScriptModule):
            _walk_module(state, value, place, depth)
        return
    if isinstance(value, (torch.Tensor, np.ndarray, torch.Generator, np.random.Generator, random.Random)):
        _keep(state, value, place, owner)
        return
    for key, item in _items(state, value):
        _walk(state, item, f"{place}{key}", owner, depth + 1)


def _walk_module(state: PythonState, module: Any, path: str, depth: int) -> None:
    import torch

    state.restorers += [_restorer(vars(module)), _restorer(module._buffers)]
    standard = vars(torch.nn.Module()).keys()
    kind = type(module).__name__
    for name, item in list(vars(module).items()):
        if name not in standard:
            place = f"{path}.{name}".lstrip(".")
            _walk(state, item, place, f"`{place}` ({kind})", depth + 1)
    for name, item in module._buffers.items():  # registered as None and built at the first call
        place = f"{path}.{name}".lstrip(".")
        _walk(state, item, place, f"`{place}` ({kind})", depth + 1)
    for name, item in module._modules.items():
        _walk(state, item, f"{path}.{name}".lstrip("."), "", depth + 1)
    for cls in type(module).__mro__:
        if _is_users(cls) and id(cls) not in state.seen:
            state.seen[id(cls)] = cls
            _walk_class(state, cls, depth)


def _walk_class(state: PythonState, cls: type, depth: int) -> None:
    """Attributes of the class, and what its methods read from their module's globals."""
    for name, item in list(vars(cls).items()):
        if isinstance(item, (types.FunctionType, staticmethod, classmethod)):
            _walk(state, getattr(item, "__func__", item), f"{cls.__name__}.{name}", "", depth + 1)
        elif _is_data(item) and not name.startswith("__"):
            state.restorers.append(functools.partial(_restore_attribute, cls, name, item))
            place = f"{cls.__name__}.{name}"
            _walk(state, item, place, f"`{place}` (of the class)", depth + 1)


def _walk_globals(state: PythonState, function: types.FunctionType, depth: int) -> None:
    namespace = function.__globals__
    for name in function.__code__.co_names:
        item = namespace.get(name, namespace)
        place = f"{namespace.get('__name__')}:{name}"
        if isinstance(item, types.FunctionType) and not is_library(item.__code__.co_filename):
            _walk(state, item, place, "", depth + 1)
        elif item is not namespace and _is_data(item) and place not in state.leaves:
            state.restorers.append(functools.partial(_restore_item, namespace, name, item))
            _walk(
                state, item, place, f"`{name}` (a global variable of {namespace.get('__name__')})", depth + 1
            )


def _is_users(kind: type) -> bool:
    return kind.__module__.split(".")[0] not in _LIBRARIES and kind is not object


def _is_data(value: Any) -> bool:
    """Numbers, texts, tensors, arrays and containers."""
    import numpy as np
    import torch

    kinds = (*_PLAIN, list, dict, set, collections.deque, torch.Tensor, np.ndarray)
    return isinstance(value, kinds) and not isinstance(value, enum.Enum)


def _restore_attribute(cls: type, name: str, value: Any) -> None:
    if vars(cls).get(name) is not value:
        setattr(cls, name, value)


def _restore_item(namespace: dict[str, Any], name: str, value: Any) -> None:
    if namespace.get(name) is not value:
        namespace[name] = value


def _items(state: PythonState, value: Any) -> Iterator[tuple[str, Any]]:
    """What a container, a function or a plain object holds; a restorer is noted for each that can be changed."""
    if isinstance(value, dict):
        state.restorers.append(_restorer(value))
        yield from ((f"[{k!r}]", v) for k, v in list(value.items()))
    elif isinstance(value, (list, collections.deque)):
        state.restorers.append(_restorer(value))
        yield from ((f"[{k}]", v) for k, v in enumerate(list(value)))
    elif isinstance(value, set):
        state.restorers.append(_restorer(value))
        yield "", sorted(map(repr, value))
    elif isinstance(value, tuple):
        yield from ((f"[{k}]", v) for k, v in enumerate(value))
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            try:
                content = cell.cell_contents
            except ValueError:  # not set yet
                continue
            state.restorers.append(functools.partial(setattr, cell, "cell_contents", content))
            yield f".{name}", content
        if not is_library(value.__code__.co_filename):
            _walk_globals(state, value, 0)
    elif isinstance(value, types.MethodType):
        yield "", value.__self__
        yield "", value.__func__
    elif isinstance(value, functools.partial):
        yield from (("", value.func), (".args", value.args), (".keywords", value.keywords))
    elif _is_plain_object(value):
        state.restorers.append(_restorer(vars(value)))
        yield from ((f".{k}", v) for k, v in list(vars(value).items()))


def _is_plain_object(value: Any) -> bool:
    """Whether it is somebody's own, with attributes: no class, no module of Python, nothing of a library we know."""
    if isinstance(value, (types.SimpleNamespace, argparse.Namespace)):
        return True
    if isinstance(value, (type, types.ModuleType, enum.Enum)):
        return False
    return _is_users(type(value)) and isinstance(getattr(value, "__dict__", None), dict)


def _restorer(container: Any) -> Callable[[], None]:
    """Puts back what a container holds now, in place, where it holds something else."""
    kept = container.copy()

    def restore() -> None:
        if isinstance(container, dict):
            if [*map(id, container), *map(id, container.values())] != [
                *map(id, kept),
                *map(id, kept.values()),
            ]:
                container.clear()
                container.update(kept)
        elif isinstance(container, set):
            if container != kept:
                container.clear()
                container.update(kept)
        elif [*map(id, container)] != [*map(id, kept)]:
            container.clear()
            container.extend(kept)

    return restore


def _keep(state: PythonState, value: Any, place: str, owner: str) -> None:
    """A tensor, an array or a generator: by value, because it may be written into."""
    import numpy as np
    import torch

    restore: Callable[[], Any]
    if isinstance(value, torch.Tensor):
        if value.device.type == "meta":
            return
        try:
            copy, version = value.detach().clone(), None if value.is_inference() else value._version
        except (RuntimeError, NotImplementedError):  # a subclass or layout that has none
            state.is_whole = False
            return
        state.leaves[place] = copy
        restore = functools.partial(_restore_tensor, value, copy, version)
    elif isinstance(value, np.ndarray):
        state.leaves[place] = array = value.copy()
        restore = functools.partial(_restore_array, value, array)
    elif isinstance(value, random.Random):
        state.leaves[place] = value.getstate()
        restore = functools.partial(value.setstate, value.getstate())
    elif isinstance(value, torch.Generator):
        state.leaves[place] = value.get_state()
        restore = functools.partial(value.set_state, value.get_state())
    else:
        bits = value.bit_generator
        state.leaves[place] = repr(bits.state)
        restore = functools.partial(setattr, bits, "state", bits.state)
    state.owners[place] = owner
    state.restorers.append(restore)


def _restore_tensor(tensor: Any, copy: Any, version: int | None) -> None:
    import torch

    if version is not None and tensor._version != version:
        with torch.no_grad():
            tensor.copy_(copy)


def _restore_array(array: Any, copy: Any) -> None:
    if array.flags.writeable and array.tobytes() != copy.tobytes():
        array[...] = copy


def _equal(a: Any, b: Any) -> bool:
    import numpy as np
    import torch

    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a is b:
            return True
        if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout:
            return False
        try:
            return bool(((a == b) | ((a != a) & (b != b))).all())
        except (RuntimeError, NotImplementedError):
            return False
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, (torch.Tensor, np.ndarray)) or isinstance(b, (torch.Tensor, np.ndarray)):
        return False
    return type(a) is type(b) and bool(a == b or a != a)
