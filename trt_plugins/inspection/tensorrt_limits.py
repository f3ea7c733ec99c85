"""What each TensorRT's ONNX parser takes: `tensorrt_operators.json`, which `benchmarks/collect_tensorrt_operators.py` writes.

How a parser finds a plugin is in its source (onnx-tensorrt 10.0 to 10.10) and was seen with TensorRT-RTX 1.7.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ...errors import UsageError

__all__ = ["Flavor", "TensorRTLimits", "limits_for"]

Flavor = Literal["tensorrt", "tensorrt-rtx"]

_FILE = Path(__file__).parent.parent / "tensorrt_operators.json"
_TITLES: dict[Flavor, str] = {"tensorrt": "TensorRT", "tensorrt-rtx": "TensorRT-RTX"}
_NEWEST: dict[Flavor, int] = {"tensorrt": 11, "tensorrt-rtx": 1}  # major versions that there are: from 1 on
_FIRST_RTX = (1, 0)  # made from TensorRT 10.12: newer than all that changed how plugins are found


@dataclass(frozen=True, slots=True)
class TensorRTLimits:
    """What is known of one version.

    Attributes:
        version: as given, `10.8.0`.
        collected: the version whose operators are known, the same or the nearest older one; None: none is.
        operators: names that the parser takes for operators of its own, whatever a node's domain.
        types: element types that it knows.
        opsets: the oldest and newest that it is made for; other ones are read all the same.
        later: names that are operators of newer parsers.
    """

    flavor: Flavor
    version: str
    collected: str | None
    operators: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    opsets: tuple[int, int] = (9, 9)
    later: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        return f"{_TITLES[self.flavor]} {self.version}"

    @property
    def release(self) -> tuple[int, ...]:
        return _release(self.version)

    @property
    def exact(self) -> bool:
        """Whether the operators are those of this very version."""
        return self.collected is not None and _release(self.collected) == self.release[:2]

    @property
    def is_known(self) -> bool:
        """Whether there is such a major version."""
        return 1 <= _release(self.version)[0] <= _NEWEST[self.flavor]

    @property
    def taken_from(self) -> str:
        """Of a version that is not known: which one it is held against."""
        return "" if self.collected is None else f"; what is said is true of {self.collected}"

    @property
    def finds_by_domain(self) -> bool:
        """A plugin is looked for in the namespace of the node's domain, where that in its attribute has none."""
        return self._since((10, 10))

    @property
    def plugin_before_body(self) -> bool:
        """A plugin is taken before a model-local function of the node's name."""
        return self._since((10, 7))

    @property
    def wants_every_output(self) -> bool:
        """A plugin's node must name all outputs of the plugin; before, it could leave out the last ones."""
        return self._since((10, 6))

    @property
    def takes_plugins_v3(self) -> bool:
        """Whether it has IPluginV3, which libraries of deployops consist of."""
        return self._since((10, 0))

    def _since(self, release: tuple[int, int]) -> bool:
        return self.release >= (_FIRST_RTX if self.flavor == "tensorrt-rtx" else release)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"flavor": self.flavor, "version": self.version, "operators_of": self.collected}


def limits_for(flavor: Flavor, version: str) -> TensorRTLimits:
    """The limits of a version, `10.8` or longer: its own, or those of the nearest older one that is known.

    Raises UsageError for what is no version.
    """
    if flavor not in _TITLES:
        raise UsageError(f"flavor is {flavor!r}; expected {' or '.join(_TITLES)}")
    if not isinstance(version, str) or not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,5}){1,3}", version):
        raise UsageError(f"{_TITLES[flavor]}'s version is {version!r}; expected X.Y, as in 10.8 (RTX: 1.7)")
    entries: Mapping[str, Any] = _content()[flavor]
    older = [v for v in entries if _release(v) <= _release(version)[:2]]
    if not older:
        return TensorRTLimits(flavor, version, None, later=_all_operators())
    entry = entries[older[-1]]
    operators = frozenset(entry["operators"].split())
    return TensorRTLimits(
        flavor,
        version,
        older[-1],
        operators,
        frozenset(entry["types"].split()),
        (entry["opsets"][0], entry["opsets"][1]),
        _all_operators() - operators,
    )


@lru_cache(maxsize=1)
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return content


def _all_operators() -> frozenset[str]:
    content = _content()
    return frozenset(
        name
        for flavor in _TITLES
        for entry in content[flavor].values()
        for name in entry["operators"].split()
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
