"""Operators that a user may copy, those of the pages, the examples and the tests' packs: all of them pass `ops check`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployops.symbolic import Operator, registry
from deployops.symbolic.checking.operator_check import check_operator, render

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
DECLARES = re.compile(r"operator\(|adopt\(|^@\w+\.(fake|backward|body|bound|usual|samples)\b", re.MULTILINE)

NAMESPACE = re.compile(r'"(\w+)::(?=\w)')

FILES = {
    str(file.relative_to(ROOT)): file.read_text()
    for file in (*sorted((ROOT / "tests").rglob("*pack.py")), *sorted((ROOT / "examples").glob("*.py")))
}
PAGES = {
    f"docs/{page.name}": "\n\n".join(
        text
        for language, text in BLOCK.findall(page.read_text())
        if language in ("python", "py") and DECLARES.search(text)
    )
    for page in sorted((ROOT / "docs").glob("*.md"))
}
DECLARING = {name: text for name, text in (FILES | PAGES).items() if "operator(" in text}


@pytest.fixture
def declared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Operator]]:
    """The operators of a file or a page; forgotten afterwards, as several declare the same.

    Other tests of this process may have some of them: in a namespace of their own, they are none of these.
    """
    file = tmp_path / "copied_ops.py"
    file.write_text(NAMESPACE.sub(r'"copied_\1::', DECLARING[request.param]))
    made = registry.load([str(file)])
    yield made
    for op in made:
        registry.remove(op)


def test_the_places_are_found() -> None:
    assert {"docs/operators.md", "docs/tutorial.md", "docs/kernels.md", "examples/snake.py"} < set(DECLARING)
    assert {"tests/pack/pack.py", "tests/trt_plugins/pack/pack.py"} < set(DECLARING)


@pytest.mark.parametrize("declared", DECLARING, indirect=True)
def test_what_a_user_may_copy_passes_every_check_that_applies(declared: list[Operator]) -> None:
    assert declared
    results = [result for op in declared for result in check_operator(op)]
    assert not [r for r in results if r.status == "failed"], render(results)
    assert {r.operator for r in results if r.check == "declaration" and r.status == "passed"} == {
        op.name for op in declared
    }
