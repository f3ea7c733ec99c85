"""A plan on record is used as it was written, for what it was made for, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deployops.native.plan_record import PlanRecord

PLAN = {"units": ["int entry();"], "names": ["acme::AddK"]}


def record(cache: Path, target: str = "x86_64-linux-gnu", packs: list[str] | None = None) -> PlanRecord:
    return PlanRecord(cache, target, packs, ("native",))


def only(cache: Path) -> Path:
    [path] = (cache / "plans").iterdir()
    return path


def test_it_is_kept_for_its_target_and_packs(tmp_path: Path) -> None:
    record(tmp_path).save(PLAN, ())
    assert record(tmp_path).load() == PLAN
    assert record(tmp_path, "aarch64-linux-gnu").load() is None
    assert record(tmp_path, packs=["acme.py"]).load() is None


def changed(path: Path) -> None:
    """Still JSON, and another program."""
    content = path.read_bytes()
    assert b"int entry" in content
    path.write_bytes(content.replace(b"int entry", b"int Entry"))


def deep(path: Path) -> None:
    path.write_bytes(b"x\n" + b"[" * 100_000)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path) -> None:
    target = path.parent.parent / "outside"
    path.rename(target)
    path.symlink_to(target)


@pytest.mark.parametrize("harm", [changed, deep, pipe, folder, link, Path.unlink])
def test_what_was_changed_is_made_again(harm: Callable[[Path], None], tmp_path: Path) -> None:
    record(tmp_path).save(PLAN, ())
    harm(only(tmp_path))
    before = {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    assert record(tmp_path).load() is None
    record(tmp_path).save(PLAN, ())
    assert record(tmp_path).load() == PLAN
    assert only(tmp_path).is_file()
    assert {p: p.read_bytes() for p in before} == before


def test_the_plan_of_other_packs_is_not_taken(tmp_path: Path) -> None:
    record(tmp_path, packs=["a.py"]).save(PLAN, ())
    first = only(tmp_path)
    record(tmp_path, packs=["b.py"]).save({**PLAN, "names": ["acme::Other"]}, ())
    [second] = set((tmp_path / "plans").iterdir()) - {first}
    first.write_bytes(second.read_bytes())
    assert record(tmp_path, packs=["a.py"]).load() is None
    assert record(tmp_path, packs=["b.py"]).load() == {**PLAN, "names": ["acme::Other"]}


def test_where_it_cannot_be_kept_nothing_happens(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    record(tmp_path / "cache").save(PLAN, ())
    assert record(tmp_path / "cache").load() is None
