"""Real samples from a folder: inputs by name, and the outputs that are expected of them.

Two layouts. A `.npz` for each sample, with an array for each input under its name; or one `.npy` for each input,
`<input>.npy`, of a single sample. A folder of folders of the second kind holds several. The output that a person
or another program vouches for goes next to its inputs, as `expected_<output>`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ...errors import UsageError
from ...export.inputs.example_inputs import as_tensor, dtype_name
from ...export.inputs.input_spec import DTYPES, MOST_BYTES
from ...export.result import TensorSpec
from .array_files import read_arrays, unpacked_bytes
from .file_inputs import UNNAMED

if TYPE_CHECKING:
    import torch

__all__ = ["GOLDEN", "FolderSample", "read_folder"]

Array = npt.NDArray[Any]

GOLDEN = "expected"  # `expected_logits` is the golden value of the output `logits`
_LAYOUTS = (
    "expected a .npz for each sample (numpy.savez('cat.npz', x=...)), or one .npy for each input (x.npy), in the folder "
    "itself or in one folder for each sample"
)


@dataclass(frozen=True, slots=True)
class FolderSample:
    """What one file, or one folder of `.npy` files, holds.

    Attributes:
        label: name of the file or folder.
        values: tensors by input name.
        golden: expected outputs by output name, as stored.
    """

    label: str
    values: Mapping[str, torch.Tensor]
    golden: Mapping[str, Array] = field(default_factory=dict)


def read_folder(
    path: str | os.PathLike[str],
    names: Sequence[str | TensorSpec],
    outputs: Sequence[str] | None = None,
    also: Mapping[str, str] | None = None,
) -> list[FolderSample]:
    """The samples of a folder, in the order of their names. Nothing in a file is executed.

    Args:
        names: the inputs, all of which each sample must have; a `TensorSpec` is held to its dtype and dims too.
        outputs: of the model, for golden values; None: any name is taken.
        also: other names of the inputs, such as those in the ONNX file -> the name in `names`.

    Raises:
        UsageError: no such folder, no sample in it, a file that is damaged, is no numpy file, holds Python objects
            or does not fit. The message names the file and the input, and what was got and expected.
    """
    folder = Path(path)
    if not folder.is_dir():
        what = "a file, not a folder" if folder.exists() else "no such folder"
        raise UsageError(f"{folder}: {what}; {_LAYOUTS}")
    wanted = {s.name: s for n in names for s in [n if isinstance(n, TensorSpec) else TensorSpec(n, "", ())]}
    checked = {n.name for n in names if isinstance(n, TensorSpec)}
    found: list[FolderSample] = []
    faults: list[str] = []
    for label, files in _groups(folder):
        try:
            arrays = _stored(label, files, wanted, also or {})
        except UsageError as error:
            faults.append(str(error))
            continue
        sample, wrong = _fitted(label, arrays, wanted, checked, outputs)
        faults += wrong
        found.append(sample)
    if faults:
        shown = [f"  - {fault}" for fault in faults[:20]]
        more = [f"  - and {len(faults) - 20} more"] if len(faults) > 20 else []
        raise UsageError("\n".join([f"The samples in {folder} do not fit the model:", *shown, *more]))
    if not found:
        raise UsageError(f"{folder} holds no samples; {_LAYOUTS}")
    return found


def _groups(folder: Path) -> list[tuple[str, list[Path]]]:
    """(label, files) of each sample, by name. Raises UsageError where layouts are mixed or all is too large."""
    archives, arrays = _files(folder, ".npz"), _files(folder, ".npy")
    inner = {f.name: files for f in sorted(folder.iterdir()) if f.is_dir() and (files := _files(f, ".npy"))}
    kinds = [
        name
        for name, there in ((".npz files", archives), (".npy files", arrays), ("folders of .npy", inner))
        if there
    ]
    if len(kinds) > 1:
        raise UsageError(
            f"{folder} holds {' and '.join(kinds)}, so what one sample is cannot be told; {_LAYOUTS}"
        )
    every = [*archives, *arrays, *(f for files in inner.values() for f in files)]
    total = sum(map(unpacked_bytes, every))
    if total > MOST_BYTES:
        raise UsageError(
            f"The samples in {folder} take {total:,} bytes, all of which are held at once; expected at most "
            f"{MOST_BYTES:,}: give fewer of them"
        )
    if archives:
        return [(file.name, [file]) for file in archives]
    return [(folder.name, arrays)] if arrays else list(inner.items())


def _files(folder: Path, suffix: str) -> list[Path]:
    return sorted(f for f in folder.iterdir() if f.is_file() and f.suffix.lower() == suffix)


def _stored(
    label: str, files: list[Path], wanted: Mapping[str, TensorSpec], also: Mapping[str, str]
) -> dict[str, tuple[Path, Array]]:
    """Arrays by the name that `wanted` has for them, each with its file."""
    arrays: dict[str, tuple[Path, Array]] = {}
    for file in files:
        for name, array in read_arrays(file).items():
            stored = file.stem if file.suffix.lower() == ".npy" else name
            known = stored if stored in wanted or stored not in also else also[stored]
            if known in arrays:
                raise UsageError(
                    f"{_shown(label)}: the input {known!r} is there twice, the second time as {stored!r}"
                )
            arrays[known] = (file, array)
    unnamed = [f"arr_{k}" for k in range(len(wanted))]
    if sorted(arrays) == sorted(unnamed) and not set(unnamed) & set(wanted):
        return {name: arrays[k] for name, k in zip(wanted, unnamed, strict=True)}
    return arrays


def _fitted(
    label: str,
    arrays: Mapping[str, tuple[Path, Array]],
    wanted: Mapping[str, TensorSpec],
    checked: set[str],
    outputs: Sequence[str] | None,
) -> tuple[FolderSample, list[str]]:
    values: dict[str, torch.Tensor] = {}
    golden: dict[str, Array] = {}
    faults: list[str] = []
    sizes: dict[str, tuple[int, str]] = {}
    for name, (file, array) in arrays.items():
        where = f"{_shown(file.name)}: {name!r}"
        if name in wanted:
            try:
                values[name] = _tensor(array, name, wanted[name])
            except UsageError as error:
                faults.append(f"{_shown(file.name)}: {error}")
                continue
            faults += [f"{where}: {f}" for f in _misfit(values[name], wanted[name], sizes, name in checked)]
        elif (output := _golden_name(name, outputs)) is not None:
            if array.dtype.kind not in "biuf":
                faults.append(f"{where}: an expected output of {array.dtype}; expected numbers or bools")
            golden[output] = array
        elif name.partition("_")[0] == GOLDEN:
            faults.append(f"{where}: no such output; the model has {', '.join(outputs or ()) or 'none'}")
        else:
            faults.append(f"{where}: no such input; the model takes {', '.join(wanted) or 'none'}")
    missing = [str(spec) if spec.dtype else name for name, spec in wanted.items() if name not in arrays]
    if missing:
        there = [_shown(name) for name in list(arrays)[:20]]
        more = f" and {len(arrays) - 20} more" if len(arrays) > 20 else ""
        faults.append(
            f"{_shown(label)}: without {', '.join(missing)}; it has {', '.join(there) or 'nothing'}{more}"
        )
    return FolderSample(label, {n: values[n] for n in wanted if n in values}, golden), faults


def _shown(name: str) -> str:
    """A stranger's name in a message: nothing of it acts on a terminal."""
    name = name if len(name) <= 100 else f"{name[:100]}…"
    return name if name.isprintable() else repr(name)[1:-1]


def _golden_name(name: str, outputs: Sequence[str] | None) -> str | None:
    if name == GOLDEN and outputs is not None and len(outputs) == 1:
        return outputs[0]
    if not name.startswith(f"{GOLDEN}_"):
        return None
    output = name.removeprefix(f"{GOLDEN}_")
    return output if outputs is None or output in outputs else None


def _tensor(array: Array, name: str, spec: TensorSpec) -> torch.Tensor:
    try:
        tensor = as_tensor(array, name)
    except TypeError:  # a numpy dtype that torch has not: float128
        raise UsageError(
            f"The data for {name!r} have the numpy dtype {array.dtype}; expected {spec.dtype or 'another'}."
        ) from None
    if spec.dtype == "bfloat16" and dtype_name(tensor) == "float32":
        return tensor.bfloat16()  # numpy files have no bfloat16
    return tensor


def _misfit(
    tensor: torch.Tensor, spec: TensorSpec, sizes: dict[str, tuple[int, str]], checked: bool
) -> list[str]:
    """In what a tensor differs from what the model takes."""
    if not checked:
        return []
    got = f"{dtype_name(tensor)}{list(tensor.shape)}"
    expected = f"{spec.dtype}[{', '.join(map(str, spec.dims))}]"
    if spec.dtype in DTYPES and dtype_name(tensor) != spec.dtype:
        return [f"got {got}, expected {expected}: save it as {spec.dtype} (.astype)"]
    if tensor.dim() != len(spec.dims):
        return [f"got {got}, which has {tensor.dim()} dims; expected {expected}"]
    faults = []
    for axis, (size, dim) in enumerate(zip(tensor.shape, spec.dims, strict=True)):
        if isinstance(dim, int):
            if size != dim:
                faults.append(f"got {got}, expected {expected}: dim {axis} is {size} instead of {dim}")
            continue
        if dim == UNNAMED:
            continue
        first, origin = sizes.setdefault(dim, (size, f"dim {axis} of {spec.name!r}"))
        if first != size:
            faults.append(f"got {got}, expected {expected}: {dim} is {size} here and {first} as {origin}")
    return faults
