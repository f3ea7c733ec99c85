"""Sizes and values to trace and check a model with: chosen, drawn at random, or read from a file."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from .input_spec import DTYPES, MOST_BYTES, InputSpec, Symbol, item_bytes

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = [
    "as_tensor",
    "dtype_name",
    "example_size",
    "expect_affordable",
    "fitted",
    "load_npz",
    "other_size",
    "random_tensor",
]

# Where sizes start when nothing is given. Not below 4: a size that meets a constant of the model, or whose
# remainder is 1 (`x[2:]`, a strided convolution), is traced as a special case. Not above what a batch costs.
_BATCH, _SEQUENCE, _SPATIAL = 3, 8, 64
_SPATIAL_STEP = 32  # image models halve their input five times


def _start(role: int) -> tuple[int, int]:
    if role < 0:
        return _SPATIAL, _SPATIAL_STEP
    return (_BATCH, 1) if role == 0 else (_SEQUENCE, 1)


def role_of(spec: InputSpec, axis: int) -> int:
    """The axis that a dim is of, or -1 for a spatial one: images and signals need more than a few pixels."""
    floating = spec.dtype.startswith(("float", "bfloat", "complex"))
    return -1 if floating and axis >= 2 else axis


def example_size(symbol: Symbol, role: int, taken: set[int]) -> int:
    """A size of 2 or more within the range, if possible none of `taken`: nothing is equal by chance."""
    allowed = list(_sizes(symbol, role))
    return next((size for size in allowed if size not in taken), allowed[0])


def other_size(symbol: Symbol, role: int, used: list[int]) -> int:
    """A size within the range that is not in `used`; if there is none, the first one after the example's."""
    fresh = next((size for size in _sizes(symbol, role) if size not in used), None)
    if fresh is not None:
        return fresh
    small = next((size for size in (1, 0) if symbol.allows(size) and size not in used), None)
    if small is not None:
        return small
    return used[-1] if len(used) == 1 else used[1]


def _sizes(symbol: Symbol, role: int) -> Iterator[int]:
    """Sizes of 2 or more that a symbol allows, those to try first in front; at most a few dozen."""
    start, step = _start(role)
    for size in range(start, start + 24 * step, step):
        if symbol.low > start or (found := symbol.at_least(size)) is None:
            break
        yield found
    lowest = symbol.at_least(max(2, symbol.low))
    upwards, downwards = lowest, symbol.at_most(start)
    for _ in range(24):
        if downwards is not None and downwards >= 2:
            yield downwards
            downwards = symbol.at_most(downwards - 1)
        if upwards is not None:
            yield upwards
            upwards = symbol.at_least(upwards + 1)


def random_tensor(spec: InputSpec, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """A CPU tensor of `shape`; the same for the same name, shape and seed, whatever other inputs there are.

    Floats are standard normal, or uniform in `value_range`; integers uniform in it (0 or 1 without one: the
    only values that every vocabulary has); bools are fair coins; complex numbers standard normal. The ends of a
    declared range are among the values.
    """
    import torch

    dtype: torch.dtype = getattr(torch, spec.dtype)
    generator = torch.Generator().manual_seed((zlib.crc32(spec.name.encode()) << 16) + seed)
    if spec.dtype == "bool":
        return torch.rand(shape, generator=generator) < 0.5
    limits = DTYPES[spec.dtype]
    if limits is not None:
        low, high = (0, 1) if spec.value_range is None else map(int, spec.value_range)
        # randint excludes its end, which cannot be 2**63.
        drawn = torch.randint(
            low, min(high + 1, limits[1] + (spec.dtype != "int64")), shape, generator=generator
        )
        made = drawn.to(dtype) if high > low else torch.full(shape, low, dtype=dtype)
        return made if spec.value_range is None else _with_ends(made, low, high)
    if spec.value_range is None:
        wide = dtype if spec.dtype in ("float64", "complex64", "complex128") else torch.float32
        return torch.randn(shape, generator=generator, dtype=wide).to(dtype)
    first, last = spec.value_range
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    # Not first + u * (last - first): the difference of two large numbers overflows.
    return _with_ends((first * (1 - uniform) + last * uniform).clamp(first, last).to(dtype), first, last)


def _with_ends(values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """The ends of a declared range are among the values: faults sit there (a type's limit, the last index)."""
    flat = values.view(-1)
    if len(flat) > 1:
        flat[0], flat[-1] = high, low
    return values


def expect_affordable(specs: Iterable[InputSpec], sizes: Mapping[str, int]) -> None:
    """Raises `UsageError` where the inputs at these sizes would take more than `MOST_BYTES` together."""
    needed = {}
    for spec in specs:
        shape = [sizes[dim.name] if isinstance(dim, Symbol) else dim for dim in spec.shape or ()]
        needed[f"{spec.name}: {spec.dtype}{shape}"] = (
            math.prod(shape) * item_bytes(spec.dtype) if spec.is_tensor else 0
        )
    total = sum(needed.values())
    if total > MOST_BYTES:
        raise UsageError(
            f"The inputs would take {total:,} bytes, the largest of them {max(needed, key=lambda k: needed[k])}; expected "
            f"at most {MOST_BYTES:,}. Give smaller sizes: name@SIZE sets the one to trace with, name=LOW..HIGH the range."
        )


def fitted(sample: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A copy of `sample` at another size: its items repeated in turn, or the first ones kept."""
    import torch

    result = sample
    for axis, size in enumerate(shape):
        if result.shape[axis] != size:
            index = torch.arange(size) % max(result.shape[axis], 1)
            if result.shape[axis] == 0 and size:
                return torch.zeros(shape, dtype=sample.dtype)
            result = result.index_select(axis, index)
    # Always a copy: torch.export gives one symbol to the dims of two inputs that are the same tensor.
    return result.clone()


def as_tensor(value: Any, name: str) -> torch.Tensor:
    """A dense CPU tensor without gradient from a tensor or a numpy array. Raises `UsageError` for others."""
    import numpy as np
    import torch

    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            raise UsageError(
                f"The data for {name!r} have the numpy dtype {array.dtype}; expected numbers or bools."
            )
        # torch takes neither the other byte order nor negative strides.
        value = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    if not isinstance(value, torch.Tensor):
        raise UsageError(
            f"The data for {name!r} are a {type(value).__name__}; expected a tensor or an array."
        )
    if value.layout is not torch.strided or value.is_quantized:
        raise UsageError(f"The data for {name!r} are sparse or quantized; ONNX inputs are dense tensors.")
    if dtype_name(value) not in DTYPES:
        raise UsageError(
            f"The data for {name!r} are {dtype_name(value)}; expected one of {', '.join(DTYPES)}."
        )
    return value.detach().cpu()


def dtype_name(tensor: torch.Tensor) -> str:
    """The torch name of a dtype: "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


def data_faults(declared: Iterable[InputSpec], data: Mapping[str, torch.Tensor]) -> list[str]:
    """All ways in which samples contradict the specs; empty if they fit."""
    faults: list[str] = []
    sizes: dict[str, tuple[int, str]] = {}
    specs = {spec.name: spec for spec in declared}
    faults += [
        f"{name!r}: there are data, but no input of that name; inputs: {', '.join(specs) or 'none'}"
        for name in data
        if name not in specs
    ]
    for name, spec in specs.items():
        sample = data.get(name)
        if sample is None:
            continue
        got = f"{dtype_name(sample)}{list(sample.shape)}"
        if spec.shape is None:
            faults.append(f"{name!r}: declared as the Python value {spec}, but there are data, {got}")
            continue
        if dtype_name(sample) != spec.dtype:
            faults.append(f"{name!r}: declared {spec.dtype}, the data are {dtype_name(sample)}")
        if sample.dim() != len(spec.shape):
            faults.append(
                f"{name!r}: declared with {len(spec.shape)} dims, the data have {sample.dim()}: {got}"
            )
            continue
        for axis, (dim, size) in enumerate(zip(spec.shape, sample.shape, strict=True)):
            if isinstance(dim, int):
                if dim != size:
                    faults.append(f"{name!r}: dim {axis} is declared {dim}, the data have {size}")
                continue
            if not dim.allows(size):
                faults.append(f"{name!r}: dim {axis} is declared {dim}, the data have {size}")
            first, origin = sizes.setdefault(dim.name, (size, f"dim {axis} of {name!r}"))
            if first != size:
                faults.append(
                    f"{name!r}: dim {axis}, {dim.name}, is {size} in the data, but {first} as {origin}"
                )
    return faults


def load_npz(path: str | Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a `.npz` file by name; a `.npy` file gives one, named `arr_0`. Runs nothing of the file.

    Raises `UsageError` for files that are missing, damaged, of another kind, or hold Python objects.
    """
    import numpy as np

    path = Path(path)
    expected = "expected a .npz file from numpy.savez(path, x=..., ...) or a .npy file"
    try:
        loaded = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UsageError(f"There is no input data file {path}; {expected}.") from None
    except Exception as error:  # numpy raises what its readers raise: OSError, ValueError, BadZipFile, ...
        # numpy takes anything that is neither .npy nor .npz for a pickle.
        reason = "" if "pickle" in str(error) else f" ({error})"
        raise UsageError(f"{path} is damaged or no numpy file{reason}; {expected}.") from None
    if isinstance(loaded, np.ndarray):
        return {"arr_0": loaded}
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise UsageError(f"{path} is no numpy file; {expected}.")
    with loaded:
        return _arrays(loaded, path)


def _arrays(loaded: Mapping[str, Any], path: Path) -> dict[str, np.ndarray[Any, Any]]:
    import numpy as np

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name in loaded:
        try:
            array = loaded[name]
        except Exception as error:  # as above
            if "Object arrays" in str(error):
                raise UsageError(
                    f"{path}: the array {name!r} holds Python objects, which only unpickling could read; "
                    "save an array of numbers instead."
                ) from None
            raise UsageError(f"{path}: the array {name!r} is damaged ({error}).") from None
        if not isinstance(array, np.ndarray):
            raise UsageError(
                f"{path}: {name!r} is no numpy array; save the inputs with numpy.savez(path, x=...)."
            )
        arrays[name] = array
    if not arrays:
        raise UsageError(f"{path} holds no arrays; save the inputs with numpy.savez(path, x=...).")
    return arrays
