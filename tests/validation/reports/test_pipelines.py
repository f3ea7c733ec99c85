"""The pipelines that users copy: valid by the schemas of GitHub and GitLab, and every command in them is one of ours."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from deployops.cli import cli

ROOT = Path(__file__).resolve().parents[3]
PIPELINES = {"github-actions.yml": "vendor.github-workflows", "gitlab-ci.yml": "vendor.gitlab-ci"}


def loaded(name: str) -> Any:
    yaml = pytest.importorskip("ruamel.yaml")
    return yaml.YAML(typ="safe").load((ROOT / "examples" / "ci" / name).read_text())


def shell(name: str) -> list[str]:
    """The lines that a pipeline runs."""
    data = loaded(name)
    if name.startswith("github"):
        texts = [step["run"] for job in data["jobs"].values() for step in job["steps"] if "run" in step]
    else:
        texts = [
            line
            for job in data.values()
            if isinstance(job, dict)
            for line in (*job.get("before_script", ()), *job.get("script", ()))
        ]
    return [line for text in texts for line in text.splitlines()]


def commands(lines: list[str]) -> Iterator[list[str]]:
    """Calls of deployops, without what the shell does with their output."""
    for line in lines:
        if line.strip().startswith("deployops "):
            line = line.replace("$SWEEP", "quick")  # the one variable whose value an option checks
            yield shlex.split(re.split(r"\s(?:>>|\|\|)\s", line)[0], comments=True)[1:]


def parse(words: list[str]) -> None:
    """As the command line does; raises click.ClickException."""
    with click.Context(cli, info_name="deployops") as top:
        name, command, rest = cli.resolve_command(top, words)
        assert command is not None
        command.make_context(name, list(rest), parent=top).close()


def of_docs() -> list[str]:
    text = "".join((ROOT / "docs" / page).read_text() for page in ("ci.md", "reports.md"))
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return "".join(block for language, block in blocks if not language).replace("\\\n", " ").splitlines()


@pytest.mark.parametrize(("name", "schema"), PIPELINES.items())
def test_it_is_valid_by_the_public_schema(name: str, schema: str) -> None:
    pytest.importorskip("check_jsonschema")
    file = ROOT / "examples" / "ci" / name
    call = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", PIPELINES)
def test_the_schema_would_find_a_fault(name: str, tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    file = tmp_path / name
    file.write_text(
        (ROOT / "examples" / "ci" / name)
        .read_text()
        .replace("runs-on: ubuntu-latest", "runson: x")
        .replace("stage: test", "stage: [1]")
    )
    call = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", PIPELINES[name], str(file)]
    assert subprocess.run(call, capture_output=True, text=True).returncode == 1


@pytest.mark.parametrize("name", PIPELINES)
def test_every_command_of_a_pipeline_is_one(name: str) -> None:
    found = list(commands(shell(name)))
    assert {words[0] for words in found} >= {"export", "validate"}
    for words in found:
        parse(words)


def test_every_command_of_the_pages_is_one() -> None:
    found = list(commands(of_docs()))
    assert {words[0] for words in found} == {"export", "validate", "report"}
    for words in found:
        parse(words)


def test_an_option_that_is_none_is_found() -> None:
    with pytest.raises(click.NoSuchOption):
        parse(["export", "model.pt2", "--no-such-option"])


@pytest.mark.parametrize("name", PIPELINES)
def test_the_reports_that_are_kept_are_those_that_are_written(name: str) -> None:
    text = (ROOT / "examples" / "ci" / name).read_text()
    written = set(re.findall(r"--(?:report|junit|json|junit-xml) (\S+)", text))
    kept = set(re.findall(r"^\s*(?:- |path: |junit: )?(\w+\.(?:html|xml|json))$", text, re.MULTILINE))
    assert kept == written
