"""What a declaration refuses is told with the form that is right, and nothing is replaced silently."""

from __future__ import annotations

import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from deployops.errors import DeclarationError
from deployops.symbolic import Operator, operator
from deployops.symbolic.onnx_names import free_type, read_onnx_name

_numbers = count()


def scaled() -> Operator:
    def reference(x: Tensor, by: float = 2.0) -> Tensor:
        return x * by

    return operator(f"t_told::scaled{next(_numbers)}", dtypes=("float32",))(reference)


# Of each kind two functions, in two lines.
TWICE: dict[str, tuple[Any, Any]] = {
    "fake": (
        lambda x, by=2.0: torch.empty_like(x),
        lambda x, by=2.0: x.new_empty(x.shape),
    ),
    "body": (
        lambda op, x, by: op.Mul(x, by),
        lambda op, x, by: op.Mul(by, x),
    ),
    "backward": (
        lambda grad, x, by=2.0: grad * by,
        lambda grad, x, by=2.0: by * grad,
    ),
    "samples": (
        lambda draw: [draw(3)],
        lambda draw: [draw(4)],
    ),
}


@pytest.mark.parametrize("what", TWICE)
def test_a_second_function_of_a_kind_is_refused_and_the_same_again_is_not(what: str) -> None:
    first, second = TWICE[what]
    op = scaled()
    declare = getattr(op, what)
    declare(first)
    declare(first)  # a notebook's cell, run again
    with pytest.raises(
        DeclarationError, match=rf"@op\.{what} is declared twice, in lines \d+ and \d+ of .*leave one"
    ):
        declare(second)


@pytest.mark.parametrize("what", TWICE)
def test_a_cell_that_was_edited_replaces_it(what: str) -> None:
    """A notebook compiles each cell as a file of its own."""
    first, second = TWICE[what]
    op = scaled()
    getattr(op, what)(first)
    cell = second.__code__.replace(co_filename="<cell 7>")
    edited = type(second)(cell, second.__globals__, None, second.__defaults__)
    assert getattr(op, what)(edited) is edited


@pytest.mark.parametrize("what", TWICE)
def test_what_is_no_function_is_refused(what: str) -> None:
    with pytest.raises(DeclarationError, match=rf"@op\.{what} is of a function; got int"):
        getattr(scaled(), what)(3)


@pytest.mark.parametrize(
    ("key", "form"),
    [
        (("x", "weight"), r'dtypes=\{"x, weight": \(\'float32\', \'float16\'\)\}'),
        (frozenset({"x"}), r'dtypes=\{"x": '),
        (3, r'dtypes=\{"x, weight": '),
    ],
)
def test_names_that_share_a_dtype_are_one_text(key: Any, form: str) -> None:
    def reference(x: Tensor, weight: Tensor) -> Tensor:
        return x * weight

    with pytest.raises(DeclarationError, match=f"names that share a dtype are in one text.*{form}"):
        operator(f"t_told::both{next(_numbers)}", dtypes={key: ("float32", "float16")})(reference)
    op = operator(f"t_told::both{next(_numbers)}", dtypes={"x, weight": ("float32", "float16")})(reference)
    assert op.types.of_input == {"x": "T", "weight": "T"}


def test_the_operator_that_the_readme_shows_passes_its_checks(tmp_path: Path) -> None:
    """As copied into a file: `deployops ops check` is the next thing that a reader types."""
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    block = next(b for b in readme.split("```python\n")[1:] if "def snake" in b).partition("```")[0]
    declaration = block.partition("class Net")[0]
    (tmp_path / "my_ops.py").write_text(declaration)
    check = [sys.executable, "-m", "deployops.cli", "ops", "check", "--ops", "my_ops.py", "acme::snake"]
    done = subprocess.run(check, cwd=tmp_path, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["clip", "relu", "gemm", "softmax", "snake", "layer_normalization"])
def test_the_type_that_is_proposed_for_an_operator_is_taken(name: str) -> None:
    """What `deployops export` prints to be pasted is not refused by the next export."""
    assert read_onnx_name(f"acme::{name}", f"acme::{free_type(name)}")[0] == "acme"
