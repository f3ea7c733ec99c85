"""Optimization profiles: derived from the ranges that the export recorded, or given and held against the model.

TensorRT checks little of a profile and late; what it refuses, it refuses with the name of a function. Here everything is
checked before a build begins, and all that is wrong with all profiles is said at once.
"""

from __future__ import annotations

import difflib
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import UsageError
from .profile_text import read_profile, shape_text
from .record import Profile, Shape, TensorRecord
from .source_model import SizeRange, SourceModel

__all__ = ["Profiles", "resolve_profiles"]

_ROLES = ("smallest", "best", "largest")
_UNNAMED = "?"


@dataclass(frozen=True, slots=True)
class Profiles:
    """The profiles of an engine, in order. `notes`: what the user should know of how they came about."""

    profiles: tuple[Profile, ...]
    notes: tuple[str, ...] = ()


def resolve_profiles(model: SourceModel, given: Sequence[str | Mapping[str, Any]] = ()) -> Profiles:
    """The given profiles, checked; without any, one derived from the ranges that the model was exported with.

    Raises UsageError with all that is wrong with a profile, or with what to write where none can be derived.
    """
    if given:
        profiles = [_blanks_back(model, read_profile(one)) for one in given]
        told = []
        for number, profile in enumerate(profiles, 1):
            faults = _faults(model, profile)
            if faults:
                which = f"profile {number}" if len(profiles) > 1 else "the profile"
                told.append("\n  ".join([f"{which} does not fit {model.path.name}:", *faults]))
        if told:
            raise UsageError("\n".join(told))
        # inputs in the model's order, so that equal profiles are equal
        order = [i.name for i in model.inputs]
        scalars = {
            i.name for i in model.inputs if not i.dims and not holds_values(i)
        }  # nothing to say of them
        return Profiles(tuple({n: p[n] for n in order if n in p and n not in scalars} for p in profiles))
    return _derived(model)


def holds_values(tensor: TensorRecord) -> bool:
    """Whether a profile can only mean the values of this input: whole numbers, a few of them, no dim that varies.

    TensorRT calls it a shape input where the model makes shapes of it, and wants a range for each value.
    """
    return tensor.dtype in ("int32", "int64") and len(tensor.dims) <= 1 and not _variable(tensor)


def _variable(tensor: TensorRecord) -> list[str]:
    return [dim for dim in tensor.dims if isinstance(dim, str)]


def _blanks_back(model: SourceModel, profile: Profile) -> Profile:
    """Names of inputs that begin or end with blanks, which the text of a profile does not show."""
    known = {tensor.name for tensor in model.inputs}
    by_stripped: dict[str, list[str]] = {}
    for name in known:
        by_stripped.setdefault(name.strip(), []).append(name)
    found: dict[str, tuple[Shape, Shape, Shape]] = {}
    for name, shapes in profile.items():
        alike = by_stripped.get(name.strip(), [])
        own = alike[0] if name not in known and len(alike) == 1 else name
        if own in found:
            raise UsageError(
                f"a profile has the input {_shown(own)} twice, once with other blanks in its name"
            )
        found[own] = shapes
    return found


def _shown(name: str) -> str:
    """A name for a message, with what cannot be seen."""
    return f"`{name}`" if name.isprintable() and name == name.strip() else repr(name)


def _folded(name: str) -> str:
    """A name without case, width and what cannot be seen."""
    return "".join(
        c for c in unicodedata.normalize("NFKC", name).casefold() if c.isprintable() and not c.isspace()
    )


# --- given ones --------------------------------------------------------------------------------------------------


def _faults(model: SourceModel, profile: Profile) -> list[str]:
    known = {tensor.name: tensor for tensor in model.inputs}
    found = []
    for name in profile:
        if name not in known:
            alike = [n for n in known if _folded(n) == _folded(name)] or difflib.get_close_matches(
                name, known, 1
            )
            meant = f"; did you mean {_shown(alike[0])}?" if alike else ""
            if "=" in name:
                meant = " (between the inputs of a profile stands `;`)"
            found.append(
                f"the model has no input {_shown(name)}; it has {', '.join(map(_shown, known))}{meant}"
            )
    for tensor in model.inputs:
        if tensor.name in profile:
            found += _faults_of_input(model, tensor, profile[tensor.name])
        elif _variable(tensor):
            found.append(f"`{tensor.name}` is missing: {_wanted(model, tensor)}")
    return found + _unequal(known, profile)


def _faults_of_input(
    model: SourceModel, tensor: TensorRecord, shapes: tuple[Shape, Shape, Shape]
) -> list[str]:
    if holds_values(tensor):
        count = int(tensor.dims[0]) if tensor.dims else 1
        if any(len(values) != count for values in shapes):
            return [
                f"`{tensor.name}` holds {count} whole number{'' if count == 1 else 's'}, and the profile gives ranges for "
                f"{'its value: 1' if count == 1 else f'their values: {count}'} in each shape"
                if count
                else f"`{tensor.name}` holds no numbers; leave it out of the profile"
            ]
        names = [f"value {k}" for k in range(count)]
        return [
            f for k, axis in enumerate(names) if (f := _disorder(tensor.name, axis, [s[k] for s in shapes]))
        ]
    rank = len(tensor.dims)
    wrong = next((shape for shape in shapes if len(shape) != rank), None)
    if wrong is not None:
        return [
            f"`{tensor.name}` has {rank} dims, {shape_text(tensor.dims)}; {shape_text(wrong) or 'the shape that is given'} has "
            f"{len(wrong)}"
            if rank
            else f"`{tensor.name}` is a scalar, and has no dims; leave it out of the profile"
        ]
    found = []
    for axis, dim in enumerate(tensor.dims):
        sizes = [shape[axis] for shape in shapes]
        where = f"dim {axis}" if isinstance(dim, int) or dim == _UNNAMED else f"dim {axis}, `{dim}`,"
        if any(size < 0 for size in sizes):
            found.append(
                f"`{tensor.name}`, {where} has a negative size; give the three sizes that it varies between"
            )
        elif isinstance(dim, int):
            other = next((size for size in sizes if size != dim), None)
            if other is not None:
                found.append(
                    f"`{tensor.name}`, dim {axis} is fixed at {dim} in the model, and {other} is given"
                )
        else:
            found += [
                f
                for f in (_disorder(tensor.name, where, sizes), _outside(model, tensor.name, dim, sizes))
                if f
            ]
    return found


def _disorder(name: str, where: str, sizes: Sequence[int]) -> str:
    if sizes[0] <= sizes[1] <= sizes[2]:
        return ""
    return f"`{name}`, {where} goes {sizes[0]}, {sizes[1]}, {sizes[2]}; expected the smallest, the best, the largest"


def _outside(model: SourceModel, name: str, dim: str, sizes: Sequence[int]) -> str:
    declared = model.ranges.get(dim)
    wrong = [size for size in sizes if declared is not None and not declared.allows(size)]
    if declared is None or not wrong:
        return ""
    if all(declared.within(size) for size in wrong):
        size, multiple = wrong[0], declared.multiple
        near = [near for k in (0, 1) if declared.allows(near := (size // multiple + k) * multiple)]
        return (
            f"`{name}`: `{dim}` was exported for {declared}, and {size} is no multiple of {multiple}: give "
            f"{' or '.join(map(str, near)) or 'one that is'}"
        )
    wrong = [size for size in wrong if not declared.within(size)]
    return (
        f"`{name}`: `{dim}` was exported for {declared}, and {wrong[0]} is outside: the model was traced and checked within "
        "this range. Export it again with a wider one"
    )


def _unequal(known: Mapping[str, TensorRecord], profile: Profile) -> list[str]:
    """Dims of one name are one number, in each of the three shapes."""
    found = []
    seen: dict[tuple[str, int], tuple[int, str]] = {}
    for name, shapes in profile.items():
        tensor = known.get(name)
        if tensor is None or holds_values(tensor) or any(len(s) != len(tensor.dims) for s in shapes):
            continue
        for axis, dim in enumerate(tensor.dims):
            if isinstance(dim, int) or dim == _UNNAMED:
                continue
            for k, shape in enumerate(shapes):
                size, first = seen.setdefault((dim, k), (shape[axis], name))
                if size != shape[axis]:
                    found.append(
                        f"`{dim}` is one size in the model, and the {_ROLES[k]} shapes give it two: {size} in `{first}`, "
                        f"{shape[axis]} in `{name}`"
                    )
    return found


# --- derived ones ------------------------------------------------------------------------------------------------


def _derived(model: SourceModel) -> Profiles:
    varying = [tensor for tensor in model.inputs if _variable(tensor)]
    if not varying:
        return Profiles(())
    names = list(dict.fromkeys(dim for tensor in varying for dim in _variable(tensor)))
    open_ = [dim for dim in names if dim not in model.ranges or model.ranges[dim].high is None]
    if open_:
        raise UsageError(_no_ranges(model, varying, open_))
    sizes = {dim: _three_sizes(model.ranges[dim]) for dim in names}
    profile = {
        tensor.name: tuple(
            tuple(dim if isinstance(dim, int) else sizes[dim][k] for dim in tensor.dims) for k in range(3)
        )
        for tensor in varying
    }
    faults = _faults(model, profile)  # type: ignore[arg-type]
    if faults:  # of a manifest that was edited
        raise UsageError(
            "\n  ".join([f"the ranges recorded in {model.path.name} do not fit it; give a profile:", *faults])
        )
    unknown = [dim for dim in names if model.ranges[dim].example is None]
    notes: tuple[str, ...] = ()
    if unknown:
        listed = ", ".join(f"`{dim}` = {sizes[dim][1]}" for dim in unknown)
        notes = (
            f"the profile is derived from the declared ranges, and is best at the largest size of {listed}: "
            "no typical size was recorded. Give a profile, or export with one, as in n=1..64@8",
        )
    return Profiles((profile,), notes)  # type: ignore[arg-type]


def _three_sizes(declared: SizeRange) -> tuple[int, int, int]:
    multiple, high = declared.multiple, declared.high
    assert high is not None
    least, most = -(-declared.low // multiple) * multiple, high // multiple * multiple
    return least, most if declared.example is None else declared.example, most


def _no_ranges(model: SourceModel, varying: Sequence[TensorRecord], open_: Sequence[str]) -> str:
    listed = ", ".join("a dim without a name" if dim == _UNNAMED else f"`{dim}`" for dim in open_)
    return (
        f"{model.path.name} has no largest size recorded for {listed}, and an engine is built for ranges. Give a profile "
        f"for the inputs that vary:\n  {_wanted(model, *varying)}\nor export the model with ranges, as in "
        "--input 'x:float32[n=1..64,3,224,224]'"
    )


def _wanted(model: SourceModel, *tensors: TensorRecord) -> str:
    """What to write for these inputs, with the names of dims in the place of sizes."""
    entries = []
    for tensor in tensors:
        shapes = [
            shape_text([dim if isinstance(dim, int) else f"<{role} {dim}>" for dim in tensor.dims])
            for role in _ROLES
        ]
        entries.append(f"{tensor.name}={','.join(shapes)}")
    unsayable = [tensor.name for tensor in tensors if not _can_be_text(model, tensor.name)]
    if unsayable:
        return (
            f"no text can name {', '.join(map(repr, unsayable))}; in Python, give dicts of shapes by input: "
            f"build_engine(…, profiles=[{{{unsayable[0]!r}: ((…), (…), (…))}}])"
        )
    return f"--profile {shlex.quote('; '.join(entries))}"


def _can_be_text(model: SourceModel, name: str) -> bool:
    """Whether a text with this name is read as a profile of it; of blanks around it only where no other name is alike."""
    if name != name.strip() and sum(i.name.strip() == name.strip() for i in model.inputs) > 1:
        return False
    try:
        return list(read_profile(f"{name}=1")) == [name.strip() or name]
    except UsageError:
        return False
