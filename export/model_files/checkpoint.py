"""Put a checkpoint's weights into the module they belong to: find them, undo prefixes, load strictly.

Nothing is guessed silently. Which entry was taken, which prefix was removed and which dtype was converted
comes back as notes; several entries that fit equally well, or weights that do not fit, are refused with all
the names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import ModelFileError
from ...symbolic.shown_text import printable

if TYPE_CHECKING:
    import torch

__all__ = ["Weights", "fill_module", "find_weights", "listed"]

_DEPTH = 3  # {"ema": {"module": {...}}} and one more
_SHOWN = 20  # names listed of each kind in an error


@dataclass(frozen=True, slots=True)
class Weights:
    """One state dict of a checkpoint. `entry`: "" for the file's top level, "ema.module" for a nested one."""

    entry: str
    tensors: dict[str, Any]
    ignored: tuple[str, ...]

    @property
    def is_average(self) -> bool:
        """Whether its name says moving average."""
        return bool(re.search(r"(^|[._])(ema|swa|averaged?|teacher)([._]|$)", self.entry, re.IGNORECASE))


@dataclass(slots=True)
class _Fit:
    weights: Weights
    tensors: dict[str, Any]
    undone: str
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        return len(self.missing) + len(self.unexpected) + len(self.shapes)


def find_weights(content: Any) -> list[Weights]:
    """Every state dict in what a checkpoint holds, the outer ones first."""
    return list(_found(content, "", _DEPTH))


def _found(content: Any, entry: str, depth: int) -> Iterator[Weights]:
    import torch

    if isinstance(content, torch.nn.Module):  # only in a trusted file
        content = content.state_dict()
    if not isinstance(content, Mapping) or depth < 0:
        return
    named = {key: value for key, value in content.items() if isinstance(key, str)}
    tensors = {key: value for key, value in named.items() if _is_weight(key, value)}
    if any(isinstance(value, torch.Tensor) for value in tensors.values()):
        ignored = tuple(str(key) for key in content if key not in tensors)
        if hasattr(content, "_metadata") and not ignored:
            tensors = content  # type: ignore[assignment]  # module versions travel with it
        yield Weights(entry, tensors, ignored)
    for key, value in named.items():
        if key not in tensors:
            yield from _found(value, f"{entry}.{key}" if entry else key, depth - 1)


def _is_weight(key: str, value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) or key.endswith("_extra_state")


def fill_module(module: torch.nn.Module, found: list[Weights], where: str) -> list[str]:
    """Load the state dict that fits into the module; returns notes on what was done.

    Raises ModelFileError if none fits (listing missing and unexpected keys and shapes) or if several fit
    and none of them is the plain choice.
    """
    fits = [_best_fit(module, weights) for weights in found]
    exact = [fit for fit in fits if not fit.faults]
    plain = [fit for fit in exact if not fit.weights.is_average]
    if len(plain) > 1 or (not plain and len(exact) > 1):
        names = ", ".join(repr(fit.weights.entry) for fit in plain or exact)
        raise ModelFileError(
            f"{where} holds several state dicts that fit the model: {names}. Save the one you mean alone: "
            "torch.save(torch.load(FILE)[NAME], NEW_FILE)"
        )
    chosen = (plain or exact or sorted(fits, key=lambda fit: (fit.faults, fit.weights.is_average)))[0]
    notes = _conversions(chosen, module)
    try:
        module.load_state_dict(chosen.tensors, strict=True)
    except Exception as reason:
        raise ModelFileError(_misfit(chosen, where, reason)) from None
    return [*_origin(chosen, [fit for fit in exact if fit is not chosen], found), *notes]


def _best_fit(module: torch.nn.Module, weights: Weights) -> _Fit:
    expected = module.state_dict()
    fits = []
    for undone, rename in _renamings(list(weights.tensors)):
        if rename is None:
            fits.append(_compared(weights, weights.tensors, undone, expected))
            continue
        renamed = {rename(key): value for key, value in weights.tensors.items() if rename(key)}
        if len(renamed) == sum(bool(rename(key)) for key in weights.tensors):  # no two keys became one
            fits.append(_compared(weights, renamed, undone, expected))
    return min(fits, key=lambda fit: fit.faults)  # the first of equals: the fewest changes


def _renamings(keys: list[str]) -> Iterator[tuple[str, Callable[[str], str] | None]]:
    """(what is undone, how a key is renamed; "" drops it), from the least to the most."""
    yield "", None
    yield "module., _orig_mod.", _without_wrappers
    if "n_averaged" in keys:  # torch.optim.swa_utils.AveragedModel
        yield "n_averaged, module.", lambda key: "" if key == "n_averaged" else _without_wrappers(key)
    cleaned = [_without_wrappers(key) for key in keys]
    first = {key.split(".", 1)[0] for key in cleaned}
    if len(first) == 1 and all("." in key for key in cleaned):
        prefix = first.pop() + "."
        yield prefix, lambda key: _without_wrappers(_without_wrappers(key)[len(prefix) :])


def _without_wrappers(key: str) -> str:
    # DataParallel and DDP add a prefix; torch.compile adds a component wherever it was applied.
    key = re.sub(r"(^|\.)_orig_mod(?=\.)", "", key).lstrip(".")
    return re.sub(r"^(module\.)+", "", key)


def _compared(weights: Weights, tensors: dict[str, Any], undone: str, expected: Mapping[str, Any]) -> _Fit:
    fit = _Fit(weights, tensors, undone)
    # torch itself supplies this counter where an old file lacks it.
    fit.missing = [key for key in expected if key not in tensors and not key.endswith("num_batches_tracked")]
    fit.unexpected = [key for key in tensors if key not in expected]
    for key, value in tensors.items():
        want, got = _shape(expected.get(key)), _shape(value)
        if want is not None and got is not None and want != got:
            fit.shapes.append(f"{key}: {got} in the file, {want} in the model")
    return fit


def _shape(value: Any) -> tuple[int, ...] | None:
    import torch

    if not isinstance(value, torch.Tensor) or torch.nn.parameter.is_lazy(value):
        return None
    return tuple(value.shape)


def _misfit(fit: _Fit, where: str, reason: Exception) -> str:
    entry = f" (entry {fit.weights.entry!r})" if fit.weights.entry else ""
    lines = [f"{where}: its weights{entry} do not fit the model"]
    for title, names in (("missing in the file", fit.missing), ("not in the model", fit.unexpected)):
        if names:
            lines.append(f"  {title} ({len(names)}): {listed(names)}")
    if fit.shapes:
        lines.append(f"  other shapes ({len(fit.shapes)}): {listed(fit.shapes, '; ')}")
    if len(lines) == 1:
        lines.append(f"  {printable(' '.join(str(reason).split()))[:500]}")
    lines.append("  Give the --model that these weights were saved from, built with the same arguments.")
    return "\n".join(lines)


def _origin(chosen: _Fit, others: list[_Fit], found: list[Weights]) -> Iterator[str]:
    if chosen.weights.entry:
        yield f"weights taken from the checkpoint's entry {chosen.weights.entry!r}"
    for fit in others:
        yield f"the entry {fit.weights.entry or 'at top level'!r} fits the model too and was not used"
    if not others and len(found) > 1:
        unused = [weights.entry for weights in found if weights is not chosen.weights and weights.entry]
        if unused:
            yield f"other tensors in the checkpoint were not used: {listed(unused)}"
    if chosen.undone:
        yield f"removed from the keys: {printable(_removed(chosen))}"
    if chosen.weights.ignored and not chosen.weights.entry:
        yield f"entries without tensors were not used: {listed(list(chosen.weights.ignored))}"


def _removed(fit: _Fit) -> str:
    """Of the wrappers' names that are undone, those that the keys had."""
    keys = list(fit.weights.tensors)
    parts = [
        p for p in fit.undone.split(", ") if any(k == p or k.startswith(p) or f".{p}" in k for k in keys)
    ]
    return ", ".join(parts) or fit.undone


def _conversions(fit: _Fit, module: torch.nn.Module) -> list[str]:
    """load_state_dict converts dtypes without a word; these are the words."""
    import torch

    exact: Counter[str] = Counter()
    rounded: Counter[str] = Counter()
    expected = module.state_dict()
    for key, value in fit.tensors.items():
        target = expected.get(key)
        if (
            not isinstance(value, torch.Tensor)
            or not isinstance(target, torch.Tensor)
            or value.dtype == target.dtype
        ):
            continue
        pair = f"{_name(value.dtype)} in the checkpoint, {_name(target.dtype)} in the model"
        back = value.to(target.dtype).to(value.dtype)
        same = torch.allclose(back, value, rtol=0, atol=0, equal_nan=True) if value.numel() else True
        (exact if same else rounded)[pair] += 1
    notes = [f"{count} tensors are {pair}: converted without loss" for pair, count in exact.items()]
    return notes + [f"{count} tensors are {pair}: ROUNDED, values changed" for pair, count in rounded.items()]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def listed(names: list[str], separator: str = ", ") -> str:
    """Names for a message, printable, at most twenty and a count of the rest."""
    shown = [name if name.isprintable() else repr(name) for name in names[:_SHOWN]]
    rest = len(names) - len(shown)
    return separator.join(shown) + (f" and {rest} more" if rest else "")
