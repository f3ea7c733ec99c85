"""Options that several commands share, and how results and progress are shown."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from ..errors import UsageError

__all__ = [
    "ModelChoice",
    "Progress",
    "chosen_operators",
    "declared",
    "json_option",
    "model_options",
    "packs_option",
    "print_json",
    "search_here",
]

_STDOUT = "deployops.stdout"  # where in a command's context the stream is that --json prints to

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which model, and with which inputs: what `model_options` collect."""

    inputs: tuple[str, ...]
    input_data: str | None
    ops: tuple[str, ...]
    libraries: tuple[str, ...]
    factory: str | None
    trust: bool

    @property
    def specs(self) -> list[str] | None:
        """The input specs; None where none is given."""
        return list(self.inputs) or None

    def samples(self) -> dict[str, Any] | None:
        """The arrays of --input-data, by input name."""
        if self.input_data is None:
            return None
        from ..export.inputs.signature import load_npz

        return load_npz(self.input_data)

    def load(self) -> None:
        """Run what the user named: libraries first, which packs may adopt from."""
        from ..symbolic.libraries import load_named

        self.search_here()
        load_named(self.ops, self.libraries)

    def search_here(self) -> None:
        """As `search_here`, for the code that this names."""
        search_here(self.ops, self.factory, self.trust)


_MODEL = (
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="SPEC",
        help="An input: 'x:float32[batch,3,h=32..512,w]'. Repeatable.",
    ),
    click.option(
        "--input-data", type=click.Path(), metavar="FILE.npz", help="Real samples for the inputs, by name."
    ),
    click.option(
        "--ops",
        multiple=True,
        metavar="MODULE|FILE",
        help="Python that declares operators. Repeatable; it is run.",
    ),
    click.option(
        "--load-library",
        "libraries",
        multiple=True,
        metavar="LIB.so",
        help="A C++ operator library. Repeatable; it is run.",
    ),
    click.option(
        "--model",
        "factory",
        metavar="PKG.MOD:CALLABLE",
        help="Builds the module that a checkpoint's weights belong to.",
    ),
    click.option("--trust", is_flag=True, help="Run the code in a pickled model. Only for files you trust."),
)


def model_options(command: Command) -> Command:
    """What says which model, and with which inputs: the command takes them as `choice`."""

    @functools.wraps(command)
    def collected(**given: Any) -> Any:
        choice = ModelChoice(**{name: given.pop(name) for name in ModelChoice.__dataclass_fields__})
        return command(choice=choice, **given)

    for option in reversed(_MODEL):
        collected = option(collected)
    return collected


def packs_option(
    text: str = "Python that declares operators. Repeatable; it is run. FILE::NAME is one operator of it.",
) -> Decorator:
    """--ops of the commands about operators."""
    return click.option("--ops", "packs", multiple=True, metavar="MODULE|FILE", help=text)


def json_option(text: str = "Print it as JSON.") -> Decorator:
    """--json: what a user's code prints meanwhile goes to standard error, so that only JSON is left."""

    def apart(context: click.Context, _: click.Parameter, given: bool) -> bool:
        if given:
            context.meta[_STDOUT] = sys.stdout
            context.with_resource(contextlib.redirect_stdout(sys.stderr))
        return given

    return click.option("--json", "as_json", is_flag=True, help=text, callback=apart)


def declared(packs: tuple[str, ...]) -> list[Any]:
    """Every operator: the shipped ones, those of installed packs, those of `packs`."""
    return _declared(packs)[0]


def _declared(packs: tuple[str, ...]) -> tuple[list[Any], list[Any]]:
    """All of them, and those that `packs` name."""
    from ..symbolic import registry

    registry.load_builtin()
    registry.load_entry_points()
    search_here(packs)
    named = registry.load(packs)
    return registry.all_operators(), named


def chosen_operators(names: tuple[str, ...], packs: tuple[str, ...]) -> list[Any]:
    """Those of NAMES; without it those of --ops, or all where there are none."""
    everything, named = _declared(packs)
    if not names:
        return sorted(named, key=lambda op: str(op.name)) if packs else everything
    known = {op.name.partition("::")[2]: op for op in everything if _only(op, everything)}
    known |= {key: op for op in everything for key in (op.name, op.onnx_name)}
    unknown = [n for n in names if n not in known]
    if unknown:
        raise UsageError(f"no operator is called {', '.join(unknown)}; `deployops ops list` shows them")
    return [known[n] for n in names]


def _only(op: Any, everything: list[Any]) -> bool:
    """No other has its short name."""
    short = op.name.partition("::")[2]
    return [o.name.partition("::")[2] for o in everything].count(short) == 1


def search_here(*named: object) -> None:
    """Modules of the current folder are found, as `python -m` has it, but last: nothing there shadows a library.

    Only where the user named code to run: libraries try modules that may be missing (tqdm, triton), and a folder may hold
    files of these names.
    """
    if any(named) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def print_json(data: Any) -> None:
    import json

    context = click.get_current_context()
    click.echo(json.dumps(data, indent=2), file=context.meta.get(_STDOUT))


class Progress:
    """The current step and its time on a terminal's last line; nothing where the output is no terminal."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()

    def __call__(self, step: str) -> None:
        if self._shown:
            click.echo(f"\r\033[K{step} …", nl=False, err=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)
