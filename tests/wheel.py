"""The wheel test of `make wheel-test`: build it, install it into an empty environment, use it from there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

NET = """
import torch
from deployops.symbolic.operators.cube_root import cube_root
class Net(torch.nn.Module):
    def forward(self, x):
        return cube_root(x) + 1
torch.save(Net().state_dict(), "net.pt")
"""


def run(*command: str | Path, cwd: Path) -> str:
    print("+", *[Path(str(c)).name for c in command], flush=True)
    done = subprocess.run([str(c) for c in command], cwd=cwd, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nwheel test: this failed with exit code {done.returncode}")
    return done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools would pack what lies there
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, cwd=folder)
        shutil.rmtree(ROOT / "build", ignore_errors=True)
        (wheel,) = folder.glob("*.whl")
        names = zipfile.ZipFile(wheel).namelist()
        strays = [
            n for n in names if n.split("/")[1:2] in (["tests"], ["examples"], ["benchmarks"], ["docs"])
        ]
        assert not strays, f"the wheel has {strays}"
        for needed in (
            "deployops/py.typed",
            "deployops/symbolic/operators.lock.json",
            "deployops/cli/__init__.py",
        ):
            assert needed in names, f"the wheel lacks {needed}"
        sources = {str(p.relative_to(ROOT)) for p in _package_sources()}
        missing = sources - {n.removeprefix("deployops/") for n in names}
        assert not missing, (
            f"the wheel lacks {sorted(missing)}: add the folder to `packages` in pyproject.toml"
        )
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, "-c", ROOT / "constraints.txt", f"{wheel}[cpu]", cwd=folder)
        deployops = folder / "env" / "bin" / "deployops"
        print(run(deployops, "--version", cwd=folder).strip())
        listed = run(deployops, "ops", "list", cwd=folder)
        assert "deployops::cube_root" in listed, listed
        (folder / "net.py").write_text(NET)
        run(python, "net.py", cwd=folder)
        command = (deployops, "export", "net.pt", "--model", "net:Net", "--input", "x:float32[batch,4]")
        print(run(*command, cwd=folder).strip())
        run(
            deployops,
            "validate",
            "net.pt",
            "--model",
            "net:Net",
            "--onnx",
            "net.onnx",
            "--no-latency",
            cwd=folder,
        )
        print("wheel test: passed", flush=True)


def _package_sources() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "*.py", "*.j2", "*.json"], cwd=ROOT, text=True, capture_output=True
    )
    apart = ("tests/", "examples/", "benchmarks/", "docs/")
    return [ROOT / n for n in done.stdout.splitlines() if not n.startswith(apart)]


if __name__ == "__main__":
    main()
