"""Released signatures never change: the lock file says which, and in words what would."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops.errors import DeclarationError, UsageError
from deployops.symbolic import Operator, operator, registry
from deployops.symbolic.checking import lock


def base(x: Tensor, w: Tensor | None = None, beta: float = 1.0, axis: int = -1) -> Tensor:
    raise NotImplementedError


def declare(function: Callable[..., Any] = base, **options: Any) -> Operator:
    """`t_lock::op`, declared anew."""
    known = next((o for o in registry.all_operators() if o.name == "t_lock::op"), None)
    if known:
        registry.remove(known)
    return operator("t_lock::op", onnx="t_lock::LockedOp", **options)(function)


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    path = tmp_path / lock.FILE_NAME
    lock.write(path, [declare()])
    return path


def differences(op: Operator, path: Path) -> list[str]:
    return lock.compare([op], lock.read(path))


def test_the_shipped_operators_are_what_was_released() -> None:
    registry.load_builtin()
    shipped = [o for o in registry.all_operators() if o.domain == "deployops"]
    path = lock.lock_file(shipped[0])
    assert path is not None
    assert path.name == "operators.lock.json"
    assert lock.compare(shipped, lock.read(path)) == []


def test_an_unchanged_operator_differs_in_nothing(locked: Path) -> None:
    assert differences(declare(), locked) == []


def test_the_file_is_sorted_json_that_writing_again_does_not_change(locked: Path) -> None:
    before = locked.read_bytes()
    lock.write(locked, [declare()])
    assert locked.read_bytes() == before
    content = json.loads(before)
    entry = content["operators"]["t_lock::LockedOp"]["1"]
    assert entry["torch"] == "t_lock::op(Tensor x, Tensor? w=None, float beta=1.0, int axis=-1) -> (Tensor)"
    assert before.endswith(b"}\n")
    assert [p.name for p in locked.parent.iterdir()] == [locked.name]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            lambda x, w=None, beta=2.0, axis=-1: ...,
            "attribute `beta` changed its default from 1.0 to 2.0: raise version to 2 or restore it",
        ),
        (lambda x, w=None, axis=-1: ..., "attribute `beta` is gone"),
        (lambda x, w=None, beta=1.0, axis=-1, mode="a": ..., "attribute `mode` is new"),
        (
            lambda x, w=None, axis=-1, beta=1.0: ...,
            "the attributes changed their order from (beta, axis) to (axis, beta)",
        ),
        (lambda x, beta=1.0, axis=-1: ..., "input `w` is gone"),
        (lambda x, w=None, beta=1.0, axis=0.5: ..., "attribute `axis` changed its type from INT to FLOAT"),
        (lambda x, beta=1.0, w=None, axis=-1: ..., "its torch schema changed"),
    ],
)
def test_a_change_is_told_in_words(locked: Path, changed: Any, words: str) -> None:
    kinds = {"x": Tensor, "w": Tensor | None, "beta": float, "axis": int, "mode": str, "return": Tensor}
    changed.__name__ = "base"
    changed.__annotations__ = {n: kinds[n] for n in (*changed.__code__.co_varnames, "return")}
    if changed.__defaults__ and 0.5 in changed.__defaults__:
        changed.__annotations__["axis"] = float
    found = differences(declare(changed), locked)
    assert any(words in line for line in found), found
    assert all(line.startswith("t_lock::LockedOp v1: ") for line in found)
    assert all(line.endswith("raise version to 2 or restore it") for line in found)


def test_dtypes_outputs_and_their_names_are_locked(locked: Path) -> None:
    found = differences(declare(dtypes=("float32",), outputs=("result",)), locked)
    assert any(
        "input `x` changed its dtypes from (float32, float64, float16, bfloat16) to (float32)" in line
        for line in found
    )
    assert any("output `y` is gone" in line for line in found)


def test_another_torch_name_is_a_change(locked: Path) -> None:
    registry.remove(declare())
    renamed = operator("t_lock::renamed", onnx="t_lock::LockedOp")(base)
    assert any("torch schema changed" in line for line in differences(renamed, locked))


def test_a_raised_version_is_new_until_locked_and_the_old_one_stays(locked: Path) -> None:
    def base(x: Tensor, beta: float = 2.0) -> Tensor:
        raise NotImplementedError

    second = declare(base, version=2)
    assert differences(second, locked) == ["t_lock::LockedOp v2 is not locked yet: run `deployops ops lock`"]
    lock.write(locked, [second])
    assert differences(second, locked) == []
    assert sorted(lock.read(locked)["t_lock::LockedOp"]) == [1, 2]


def test_a_lowered_version_is_refused(locked: Path) -> None:
    lock.write(locked, [declare(version=3)])
    (line,) = differences(declare(version=2), locked)
    assert "version 3 is locked already" in line


def test_a_removed_operator_is_missed(locked: Path) -> None:
    (line,) = lock.compare([], lock.read(locked))
    assert "t_lock::LockedOp v1 is locked, but no longer declared" in line


def test_locking_over_a_change_is_refused_and_leaves_the_file(locked: Path) -> None:
    before = locked.read_bytes()

    def base(x: Tensor, beta: float = 2.0) -> Tensor:
        raise NotImplementedError

    with pytest.raises(DeclarationError, match="beta"):
        lock.write(locked, [declare(base)])
    assert locked.read_bytes() == before
    lock.write(locked, [declare(base)], replace=True)
    assert differences(declare(base), locked) == []


def test_every_kind_of_default_is_json(tmp_path: Path) -> None:
    def base(
        xs: list[Tensor],
        a: list[int] = (1, 2),  # type: ignore[assignment]
        b: bool = True,
        c: str = 'é"'[1:],
        d: torch.dtype = torch.float16,
        e: float | None = None,
        *,
        f: list[str] | None = None,
    ) -> list[Tensor]:
        raise NotImplementedError

    op = declare(base)
    path = tmp_path / "x.json"
    lock.write(path, [op])
    defaults = {a["name"]: a["default"] for a in lock.read(path)[op.onnx_name][1]["attributes"]}
    assert defaults == {"a": [1, 2], "b": 1, "c": '"', "d": 10, "e": None, "f": None}
    assert lock.compare([op], lock.read(path)) == []


def test_a_pack_is_locked_beside_its_file(tmp_path: Path) -> None:
    pack = tmp_path / "t_lock_pack.py"
    pack.write_text(
        "from torch import Tensor\nfrom deployops.symbolic import operator\n"
        "@operator('t_lock::packed', onnx='t_lock::Packed')\n"
        "def packed(x: Tensor) -> Tensor:\n    return x + 1\n"
    )
    registry.load([str(pack)])
    op = next(o for o in registry.all_operators() if o.name == "t_lock::packed")
    path = lock.lock_file(op)
    assert path == tmp_path / "operators.lock.json"
    assert lock.read(path) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 1}',
        '{"format": 2, "operators": {}}',
        '{"format": 1, "operators": {"a": 3}}',
    ],
)
def test_a_file_that_is_no_lock_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "operators.lock.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"operators\.lock\.json"):
        lock.read(path)
