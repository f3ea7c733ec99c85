"""The rules that keep the repository livable: who imports whom, what start-up loads, what the wheel holds."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cli", "symbolic", "native", "kernels", "export", "ort_ops", "trt_plugins", "validation")

# package -> what of ours it may import besides itself and `errors`
ALLOWED = {
    "cli": {"symbolic", "native", "ort_ops", "trt_plugins", "export", "validation"},
    "symbolic": set(),
    "kernels": set(),
    "native": {"symbolic"},
    "ort_ops": {"symbolic", "native"},
    "trt_plugins": {"symbolic", "native"},
    "export": {"symbolic", "ort_ops", "trt_plugins"},  # `inspect` holds a model against both runtimes
    "validation": {"symbolic", "ort_ops", "trt_plugins", "export"},
}


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports_of(path: Path) -> set[str]:
    """Our top-level modules that a file imports, relative imports resolved."""
    here = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level + 1]
            parts = (*base, *(node.module or "").split("."))
            names = [parts[0]] if parts[0] else [a.name for a in node.names]
            found.update(names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert not any(m.split(".")[0] == "deployops" for m in modules), (
                f"{path}: imports inside are relative"
            )
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_they_may(package: str) -> None:
    for path in sources(package):
        strangers = imports_of(path) - ALLOWED[package] - {package, "errors", "__version__", ""}
        assert not strangers, f"{path.relative_to(ROOT)} imports {strangers}"


def test_every_folder_says_what_lives_there() -> None:
    for package in PACKAGES:
        for init in (ROOT / package).rglob("__init__.py"):
            text = ast.get_docstring(ast.parse(init.read_text())) or ""
            assert len(text) > 40, f"{init.relative_to(ROOT)} needs a paragraph"


def test_packaging_lists_every_package() -> None:
    import re

    declared = set(re.findall(r'"deployops\.([\w.]+)",', (ROOT / "pyproject.toml").read_text()))
    found = {
        str(init.parent.relative_to(ROOT)).replace("/", ".")
        for package in PACKAGES
        for init in (ROOT / package).rglob("__init__.py")
    }
    assert found <= declared, f"add {sorted(found - declared)} to `packages` in pyproject.toml"


def test_packaging_takes_everything_that_is_not_python() -> None:
    from fnmatch import fnmatch

    import tomllib

    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    known = [f"{package.partition('.')[2].replace('.', '/')}/{p}" for package, ps in data.items() for p in ps]
    files = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    missing = [f for f in files if not any(fnmatch(f, pattern) for pattern in known)]
    assert files
    assert not missing, f"add {missing} to package-data in pyproject.toml"


LIGHT = {"torch", "onnx", "numpy", "onnx_ir", "onnxscript", "onnxruntime", "sympy"}


def loaded_by(code: str) -> set[str]:
    probe = f"import sys\n{code}\nprint(*(m for m in sys.modules if '.' not in m))"
    done = subprocess.run([sys.executable, "-c", probe], text=True, capture_output=True, check=True)
    return set(done.stdout.split("\n")[-2].split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["export", "--help"], ["ops", "--help"]])
def test_help_and_version_load_nothing_heavy(arguments: list[str]) -> None:
    code = f"sys.argv = ['deployops', *{arguments}]\nfrom deployops.cli import main\ntry: main()\nexcept SystemExit: pass"
    assert not loaded_by(code) & LIGHT


def test_the_facade_costs_nothing_until_it_is_used() -> None:
    assert (
        not loaded_by("import deployops, deployops.symbolic, deployops.export, deployops.validation") & LIGHT
    )


@pytest.mark.parametrize("suffix", [".pt", ".onnx"])
def test_identifying_a_file_needs_no_torch(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"x{suffix}"
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    code = (
        f"from deployops import DeployOpsError, inspect_model\ntry: inspect_model({str(file)!r})\n"
        "except DeployOpsError as error: assert 'Git LFS' in str(error)"
    )
    assert not loaded_by(code) & {"torch", "onnxruntime"}


def test_every_name_of_the_facade_resolves_whatever_was_imported_before() -> None:
    code = (
        "import deployops.symbolic.operator, deployops.symbolic.adopt, deployops.validation.files\n"
        "import deployops\n"
        "assert all(callable(getattr(deployops, n)) for n in deployops.__all__ if not n.startswith('__'))"
    )
    loaded_by(code)
