"""Finding operators: declared twice, packs from files, modules and entry points, packs that fail."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from deployops.errors import DeclarationError, UsageError
from deployops.symbolic import Operator, operator, registry

PACK = """
from __future__ import annotations
import torch
from torch import Tensor
from deployops.symbolic import operator

@operator("t_registry::{name}", onnx="t_registry::{type}")
def {name}(x: Tensor, k: float = {k}) -> Tensor:
    return x * k
"""


def pack(folder: Path, module: str, name: str, type: str = "", k: float = 1.0) -> Path:
    path = folder / f"{module}.py"
    path.write_text(PACK.format(name=name, type=type or name.capitalize() + "Op", k=k))
    return path


def find(name: str) -> Operator | None:
    return next((o for o in registry.all_operators() if o.name == f"t_registry::{name}"), None)


@pytest.fixture(autouse=True)
def _forget_modules() -> Any:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("t_registry", "deployops_pack_")):
            del sys.modules[name]


# --- lookup ---------------------------------------------------------------------------------------------------


def test_an_operator_is_found_by_overload_and_by_onnx_name() -> None:
    @operator("t_registry::found", onnx="t_registry::Found")
    def found(x: Tensor) -> Tensor:
        return x + 1

    assert registry.by_overload(found.overload) is found
    assert registry.by_onnx_name("t_registry", "Found") is found
    assert registry.by_onnx_name("t_registry", "Lost") is None
    assert found in registry.all_operators()
    registry.remove(found)
    assert registry.by_overload(found.overload) is None


def test_the_shipped_operators_are_loaded_once_and_listed_by_name() -> None:
    registry.load_builtin()
    names = [o.name for o in registry.all_operators()]
    assert names == sorted(names)
    assert {"deployops::relu", "deployops::attention"} <= set(names)
    registry.load_builtin()
    assert [o.name for o in registry.all_operators()] == names


def test_one_operator_of_a_pack(tmp_path: Path) -> None:
    path = pack(tmp_path, "t_registry_two", "left")
    path.write_text(
        path.read_text() + PACK.format(name="right", type="RightOp", k=2).partition("operator\n")[2]
    )
    for place in (f"{path}::left", f"{path}::t_registry::left", f"{path}::t_registry::LeftOp"):
        assert [op.name for op in registry.load([place])] == ["t_registry::left"]
    assert {op.name for op in registry.load([f"{path}::left", f"{path}::right"])} == {
        "t_registry::left",
        "t_registry::right",
    }
    with pytest.raises(UsageError, match="declares no operator `middle`; it has left, right"):
        registry.load([f"{path}::middle"])
    for name in ("left", "right"):
        registry.remove(find(name))  # type: ignore[arg-type]


# --- twice ----------------------------------------------------------------------------------------------------


def test_the_same_declaration_again_replaces_itself() -> None:
    for k in (1, 2):

        @operator("t_registry::again", onnx="t_registry::Again")
        def again(x: Tensor, k: int = k) -> Tensor:
            return x * k

    found = find("again")
    assert found is again
    assert found.interface.attributes[0].default == 2
    import torch

    assert again(torch.ones(1)).item() == 2


def test_another_function_of_the_same_file_is_refused() -> None:
    @operator("t_registry::twice", onnx="t_registry::Twice")
    def first(x: Tensor) -> Tensor:
        return x + 1

    def second(x: Tensor) -> Tensor:
        return x + 2

    for name, onnx in (
        ("t_registry::twice", "t_registry::Twice2"),
        ("t_registry::twice2", "t_registry::Twice"),
    ):
        with pytest.raises(
            DeclarationError, match="is declared already, as t_registry::twice = t_registry::Twice"
        ):
            operator(name, onnx=onnx)(second)


def test_another_file_is_refused(tmp_path: Path) -> None:
    first, second = (pack(tmp_path, f"t_registry_{k}", "shared") for k in "ab")
    registry.load([str(first)])
    with pytest.raises(
        DeclarationError, match=r"declared already.*in t_registry_a\.py: give one of them another name"
    ):
        registry.load([str(second)])


def test_a_notebook_cell_run_again_replaces_itself() -> None:
    """Each run of a cell is a pseudo-file of its own."""
    for k in (1, 2):
        text = PACK.format(name="cell", type="Cell", k=float(k))
        scope: dict[str, Any] = {}
        exec(compile(text, f"/tmp/ipykernel_1/{k}.py", "exec"), scope)
    found = find("cell")
    assert found is scope["cell"]
    assert found.interface.attributes[0].default == 2.0


def test_a_declaration_that_was_refused_leaves_the_name_free() -> None:
    def late(x: Tensor, k: int = 2**40) -> Tensor:
        raise NotImplementedError

    with pytest.raises(DeclarationError):
        operator("t_registry::late", onnx="t_registry::Late")(late)
    assert find("late") is None

    def other(x: Tensor) -> Tensor:
        return x + 1

    assert operator("t_registry::late", onnx="t_registry::Late")(other) is find("late")


def test_the_decorator_is_the_decorator_whatever_was_imported_first() -> None:
    code = (
        "import deployops.symbolic.registry, deployops.symbolic.operator, deployops.symbolic.adopt\n"
        "import deployops; from deployops.symbolic import operator, adopt\n"
        "print(callable(deployops.operator), callable(deployops.adopt), callable(operator), callable(adopt))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 4


# --- packs ----------------------------------------------------------------------------------------------------


def test_a_file_is_loaded_once(tmp_path: Path) -> None:
    path = pack(tmp_path, "t_registry_file", "filed")
    registry.load([str(path)])
    found = find("filed")
    assert found is not None
    assert Path(found.source) == path
    registry.load([str(path)])
    assert find("filed") is found


def test_a_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(tmp_path, "t_registry_module", "moduled")
    monkeypatch.syspath_prepend(tmp_path)
    registry.load(["t_registry_module"])
    assert find("moduled") is not None


def test_a_file_named_like_an_imported_module_is_another_one(tmp_path: Path) -> None:
    path = pack(tmp_path, "json", "jsoned")
    registry.load([str(path)])
    assert find("jsoned") is not None
    import json

    assert hasattr(json, "dumps")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("import t_registry_missing", "No module named 't_registry_missing'"),
        ("x = 1\nraise ValueError('out of order')", "at line 2: ValueError: out of order"),
        ("def f(:", "SyntaxError"),
        ("import sys\n1 / 0", "at line 2: ZeroDivisionError"),
    ],
)
def test_a_pack_that_fails_is_said_with_its_line(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "t_registry_broken.py"
    path.write_text(content)
    for _ in range(2):  # and again: nothing half-loaded stays behind
        with pytest.raises(UsageError) as caught:
            registry.load([str(path)])
        assert reason in str(caught.value)
        assert "t_registry_broken.py" in str(caught.value)


def test_an_import_that_fails_inside_is_told_from_a_place_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t_registry_inner.py").write_text("x = 1\nimport t_registry_missing.part\n")
    (tmp_path / "t_registry_raiser.py").write_text("raise ModuleNotFoundError('install acme')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for place in ("t_registry_inner", str(tmp_path / "t_registry_inner.py")):
        with pytest.raises(
            UsageError, match=r"was found, but.* its import of `t_registry_missing` failed"
        ) as caught:
            registry.load([place])
        assert "Give an importable module" not in str(caught.value)
    with pytest.raises(UsageError, match=r"was found, but.* install acme"):
        registry.load(["t_registry_raiser"])
    for place in ("t_registry_nowhere", "t_registry_nowhere.sub"):
        with pytest.raises(UsageError, match="Give an importable module") as caught:
            registry.load([place])
        assert "was found" not in str(caught.value)


def test_the_file_of_a_package_is_to_be_given_by_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t_registry_acme" / "ops"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "scale.py").write_text("k = 2.0\n")
    path = pack(folder, "packaged", "packaged")
    path.write_text(path.read_text() + "\nfrom .scale import k\n")
    with pytest.raises(
        UsageError, match=r"at line \d+ imports from its package .* a file by itself"
    ) as caught:
        registry.load([str(path)])
    module = str(caught.value).rpartition("--ops ")[2]
    assert module == "t_registry_acme.ops.packaged"
    monkeypatch.syspath_prepend(tmp_path)
    assert [op.name for op in registry.load([module])] == ["t_registry::packaged"]


def test_the_file_of_a_shipped_operator_is_to_be_given_by_its_module() -> None:
    file = Path(registry.__file__).parent / "operators" / "relu.py"
    with pytest.raises(UsageError, match=r"give .* --ops deployops\.symbolic\.operators\.relu$"):
        registry.load([str(file)])
    assert [op.name for op in registry.load(["deployops.symbolic.operators.relu"])] == ["deployops::relu"]


def test_a_file_in_no_package_that_imports_from_one_is_told_what_to_give(tmp_path: Path) -> None:
    path = tmp_path / "t_registry_alone.py"
    path.write_text("from .scale import k\n")
    with pytest.raises(UsageError, match=r"at line 1 imports from its package .* --ops PACKAGE\.MODULE$"):
        registry.load([str(path)])


def test_a_wrong_declaration_in_a_pack_is_a_declaration_error(tmp_path: Path) -> None:
    path = tmp_path / "t_registry_wrong.py"
    path.write_text(PACK.format(name="wrong", type="Relu", k=1.0))
    with pytest.raises(DeclarationError, match="standard ONNX operator"):
        registry.load([str(path)])


@pytest.mark.parametrize("place", ["t_registry_nowhere", "nowhere/t_registry.py", "t_registry.nothing.py"])
def test_a_place_where_nothing_is_is_said(place: str) -> None:
    with pytest.raises(UsageError, match="--ops"):
        registry.load([place])


def entry_point(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    point = metadata.EntryPoint(name=name, value=value, group=registry.ENTRY_POINTS)
    monkeypatch.setattr(
        metadata, "entry_points", lambda group: [point] if group == registry.ENTRY_POINTS else []
    )


def test_installed_packs_are_loaded_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(tmp_path, "t_registry_installed", "installed")
    monkeypatch.syspath_prepend(tmp_path)
    entry_point(monkeypatch, "acme", "t_registry_installed")
    assert registry.load_entry_points() == ["acme"]
    assert find("installed") is not None


def test_an_installed_pack_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entry_point(monkeypatch, "acme", "t_registry_uninstalled")
    with pytest.raises(
        UsageError, match=r"the operator pack `acme` \(t_registry_uninstalled\) cannot be imported"
    ):
        registry.load_entry_points()


def test_files_of_one_name_are_each_run_once(tmp_path: Path) -> None:
    text = """import torch
from deployops import operator
RUNS = []

@operator("{0}::same_stem")
def same_stem(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@same_stem.fake
def _(x): return torch.empty_like(x)

@same_stem.samples
def _(draw): yield draw(3),
"""
    files = []
    for owner in ("firststem", "secondstem"):
        (tmp_path / owner).mkdir()
        files.append(tmp_path / owner / "stem_pack.py")
        files[-1].write_text(text.format(owner))
    first = [registry.load([str(file)])[0] for file in files]
    again = [registry.load([str(file)])[0] for file in files]
    assert [op.name for op in first] == ["firststem::same_stem", "secondstem::same_stem"]
    assert all(a is b for a, b in zip(first, again, strict=True))
    assert all(op.sample_function is not None for op in again)
