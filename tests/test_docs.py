"""What README and tutorial show is run as it stands: python blocks in order, files, `deployops` commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = ["README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))]


def blocks(page: str) -> list[tuple[str, str]]:
    return [(m[1], m[2]) for m in BLOCK.finditer((ROOT / page).read_text())]


def script_of(page: str) -> str:
    """The page as one Python program: blocks that name a file write it, commands run in between."""
    lines = ["import subprocess, pathlib, sys"]
    for language, text in blocks(page):
        if language == "python":
            named = re.match(r"# ([\w/]+\.py)\n", text)
            lines.append(f"pathlib.Path({named[1]!r}).write_text({text!r})" if named else text)
        elif language == "cpp" and (named := re.match(r"// ([\w/]+\.h)\n", text)):
            lines.append(f"pathlib.Path({named[1]!r}).parent.mkdir(exist_ok=True)")
            lines.append(f"pathlib.Path({named[1]!r}).write_text({text!r})")
        elif language == "console":
            commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.MULTILINE)
            ours = [c for c in commands if not c.startswith(("make", "git", "pip"))]
            lines += [f"subprocess.run({c!r}, shell=True, check=True)" for c in ours]
    return "\n".join(lines)


@pytest.mark.parametrize("page", [p for p in PAGES if any(k == "python" for k, _ in blocks(p))])
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    (tmp_path / "page.py").write_text(script_of(page))
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=environment,
        text=True,
        capture_output=True,
        timeout=500,
    )
    assert done.returncode == 0, f"{page}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_lead_somewhere(page: str) -> None:
    text = BLOCK.sub("", (ROOT / page).read_text())
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_every_command_and_option_of_the_reference_exists() -> None:
    from click.testing import CliRunner

    from deployops.cli import cli

    names = (
        "export", "validate", "inspect", "compile", "engine build", "engine show", "emulate", "ops check", "ops new",
    )  # fmt: skip
    helps = {name: CliRunner().invoke(cli, [*name.split(), "--help"]).output for name in names}
    for page in PAGES:
        for command in re.findall(
            rf"deployops ({'|'.join(names)})\b([^\n`]*(?:\\\n[^\n`]*)*)",
            (ROOT / page).read_text(),
        ):
            for option in re.findall(r"(?<!\S)(--[\w-]+)", command[1]):
                assert option in helps[command[0]], f"{page}: deployops {command[0]} has no {option}"
