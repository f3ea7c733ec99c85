"""The operators that come with deployops, read from their locked signatures: no declaration is imported, and no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

__all__ = ["newest_shipped", "shipped_versions"]

_LOCK = Path(__file__).parent.parent / "symbolic" / "operators.lock.json"


def shipped_versions(domain: str, op_type: str) -> tuple[int, ...]:
    """The versions of a shipped operator; none for an operator of somebody else."""
    return _versions().get(f"{domain}::{op_type}", ())


def newest_shipped(domain: str) -> int:
    """The newest version of any shipped operator of a domain; 0 where there is none."""
    found = (v for name, versions in _versions().items() if name.startswith(f"{domain}::") for v in versions)
    return max(found, default=0)


@lru_cache(maxsize=1)
def _versions() -> Mapping[str, tuple[int, ...]]:
    content = json.loads(_LOCK.read_text(encoding="utf-8"))
    return {name: tuple(sorted(map(int, found))) for name, found in content["operators"].items()}
