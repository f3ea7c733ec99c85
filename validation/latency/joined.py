"""The profiles of a sample side by side, by the modules of the user's model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .record import ModuleTime, Profile

__all__ = ["joined"]


def joined(profiles: Sequence[Profile]) -> tuple[ModuleTime, ...]:
    """For each sample and module, the time of every candidate in it and in its submodules, the costliest first.

    A candidate without a node in a module is left out there: its nodes were fused into those of another one, and the
    module above has both. Module "" is the whole model.
    """
    times: dict[tuple[str, str], dict[str, float]] = {}
    custom: set[tuple[str, str]] = set()
    for profile in profiles:
        for node in profile.nodes:
            for module in _above(node.module):
                key = (profile.sample, module)
                of = times.setdefault(key, {})
                of[profile.candidate] = of.get(profile.candidate, 0.0) + node.time
                if node.custom:
                    custom.add(key)
    rows = [ModuleTime(key[0], key[1], of, key in custom) for key, of in times.items()]
    return tuple(sorted(rows, key=lambda m: (m.sample, -max(m.times.values()), m.module)))


def _above(module: str) -> Iterator[str]:
    """The module and all it lies in: "a.b", "a", ""."""
    while module:
        yield module
        module = module.rpartition(".")[0]
    yield ""
