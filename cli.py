"""The command line: parse, call one function, print. No logic, and nothing heavy imported before it is needed."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from . import __version__
from .errors import DeployOpsError, UsageError

__all__ = ["main"]

F = TypeVar("F", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="deployops")
def cli() -> None:
    """Take PyTorch models with custom operators to production through ONNX.

    Exit codes: 0 passed, 1 failed, 2 wrong use or bad input, 3 something required could not be checked.
    """


def _model_options(command: F) -> F:
    """What says which model, and with which inputs."""
    for option in reversed(
        (
            click.option(
                "--input",
                "inputs",
                multiple=True,
                metavar="SPEC",
                help="An input: 'x:float32[batch,3,h=32..512,w]'. Repeatable.",
            ),
            click.option(
                "--input-data",
                type=click.Path(),
                metavar="FILE.npz",
                help="Real samples for the inputs, by name.",
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
            click.option(
                "--trust", is_flag=True, help="Run the code in a pickled model. Only for files you trust."
            ),
        )
    ):
        command = option(command)
    return command


@cli.command()
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), metavar="OUT.onnx", help="Default: MODEL with the ending .onnx."
)
@_model_options
@click.option("--opset", type=int, help="Version of ONNX's standard operators (18 to 25; default 20).")
@click.option(
    "--custom-ops",
    type=click.Choice(["function", "node", "standard"]),
    help="function: custom nodes with bodies, any runtime runs them (default where every operator has one); "
    "node: custom nodes alone; standard: expanded, no custom node left.",
)
@click.option(
    "--external-data/--no-external-data", default=None, help="Weights in a second file. Default: above 2 GB."
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def export(
    model: str,
    output: str | None,
    inputs: tuple[str, ...],
    input_data: str | None,
    ops: tuple[str, ...],
    libraries: tuple[str, ...],
    factory: str | None,
    trust: bool,
    opset: int | None,
    custom_ops: Any,
    external_data: bool | None,
    as_json: bool,
) -> None:
    """Export MODEL to a checked ONNX model.

    MODEL is any model file of PyTorch, told by its content: a torch.export archive, TorchScript, a state dict or
    checkpoint (with --model), or a pickled module (with --trust).
    """
    from .export import export_model

    _prepare(ops, libraries)
    with _Progress(quiet=as_json) as progress:
        result = export_model(
            model,
            list(inputs) or None,
            out=output or os.path.splitext(model)[0] + ".onnx",
            data=_samples(input_data),
            opset=opset,
            custom_ops=custom_ops,
            external_data=external_data,
            factory=factory,
            trust=trust,
            progress=progress,
        )
    _print_json(result.to_dict()) if as_json else click.echo(result.summary())


@cli.command()
@click.argument("model", type=click.Path())
@click.option(
    "--onnx", "onnx_file", required=True, type=click.Path(), metavar="FILE", help="The exported model."
)
@_model_options
@click.option(
    "--sizes", type=click.IntRange(1, 20), default=3, show_default=True, help="At how many sizes to compare."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random inputs.")
@click.option("--atol", type=float, help="Your own absolute tolerance, instead of the derived budget.")
@click.option("--rtol", type=float, help="Your own relative tolerance.")
@click.option("--threads", type=click.IntRange(1), help="Threads on both sides.")
@click.option(
    "--ort-library",
    "ort_libraries",
    multiple=True,
    type=click.Path(),
    metavar="LIB.so",
    help="A custom-operator library for ONNX Runtime. Repeatable; it is run, in a process of its own.",
)
@click.option(
    "--latency/--no-latency", default=True, show_default=True, help="Measure both sides, interleaved."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def validate(
    model: str,
    onnx_file: str,
    inputs: tuple[str, ...],
    input_data: str | None,
    ops: tuple[str, ...],
    libraries: tuple[str, ...],
    factory: str | None,
    trust: bool,
    sizes: int,
    seed: int,
    atol: float | None,
    rtol: float | None,
    threads: int | None,
    ort_libraries: tuple[str, ...],
    latency: bool,
    as_json: bool,
) -> None:
    """Compare MODEL with its exported ONNX file: parity at several sizes, and latency.

    Exit code 0 where every output agrees, 1 where one does not, 3 where nothing could be compared.
    """
    from .validation import validate as run

    _prepare(ops, libraries)
    with _Progress(quiet=as_json):
        report = run(
            model,
            onnx_file,
            list(inputs) or None,
            data=_samples(input_data),
            factory=factory,
            trust=trust,
            sizes=sizes,
            seed=seed,
            atol=atol,
            rtol=rtol,
            threads=threads,
            libraries=ort_libraries,
            latency=latency,
        )
    _print_json(report.to_dict()) if as_json else click.echo(report.text())
    sys.exit(report.exit_code)


@cli.command()
@click.argument("file", type=click.Path())
@click.option(
    "--runtime",
    metavar="onnxruntime==X.Y.Z",
    help="What to hold an ONNX model against. Default: the installed one.",
)
@click.option(
    "--ort-library",
    "libraries",
    multiple=True,
    type=click.Path(),
    metavar="LIB.so",
    help="A library that `deployops compile` built. Repeatable; its manifest is read, it is not loaded.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def inspect(file: str, runtime: str | None, libraries: tuple[str, ...], as_json: bool) -> None:
    """Say what FILE is, and what is in it. Runs nothing of it and needs no torch.

    Of an ONNX model: what would fail in ONNX Runtime on the CPU, and where custom nodes cost speed. Exit code 1 where
    something would fail.
    """
    from .export import inspect_model

    found = inspect_model(file, runtime=runtime, libraries=libraries)
    _print_json(found.to_dict()) if as_json else click.echo(found.summary())
    sys.exit(found.exit_code)


@cli.command("compile")
@click.option(
    "--target",
    type=click.Choice(["ort-cpu"]),
    default="ort-cpu",
    show_default=True,
    help="What to build for.",
)
@click.option(
    "--ops",
    "packs",
    multiple=True,
    metavar="MODULE|FILE",
    help="Python that declares operators. Repeatable; it is run. Without it: the shipped operators.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="DIR",
    help="Where the library goes. Default: lib; for the shipped operators the place where sessions look.",
)
@click.option("--cxx", metavar="COMPILER", help="The C++ compiler. Default: $CXX, g++, clang++.")
@click.option("--cxxflag", "flags", multiple=True, metavar="FLAG", help="One more flag for it. Repeatable.")
@click.option("--jobs", type=click.IntRange(1), help="Compilers at once. Default: one per core.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def compile_command(
    target: str,
    packs: tuple[str, ...],
    output: str | None,
    cxx: str | None,
    flags: tuple[str, ...],
    jobs: int | None,
    as_json: bool,
) -> None:
    """Compile the kernels of operators into a library for ONNX Runtime.

    Writes libdeployops_ort_cpu.so and a manifest beside it. The kernel of `acme::swish` is kernels/swish.h (or
    swish.h) beside the file that declares it. What did not change is not compiled again.
    """
    from .ort_ops.library import compile_library

    _search_here()
    with _Progress(quiet=as_json) as progress:
        library = compile_library(
            target,
            list(packs) or None,
            out=output,
            cxx=cxx,
            flags=flags,
            jobs=jobs,
            progress=lambda done, of, name: progress(f"{done} of {of}: {name}"),
        )
    _print_json(library.to_dict()) if as_json else click.echo(library.summary())


@cli.group()
def ops() -> None:
    """The declared operators."""


@ops.command("list")
@click.option(
    "--ops",
    "packs",
    multiple=True,
    metavar="MODULE|FILE",
    help="Python that declares operators. Repeatable; it is run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def ops_list(packs: tuple[str, ...], as_json: bool) -> None:
    """List the declared operators."""
    operators = _declared(packs)
    if as_json:
        from .symbolic.checking.lock import signature

        _print_json([signature(op) for op in operators])
        return
    rows = [(op.name, f"{op.onnx_name} v{op.version}", "(" + op.schema.partition("(")[2]) for op in operators]
    widths = [max(len(r[k]) for r in rows) for k in (0, 1)] if rows else [0, 0]
    for name, onnx_name, text in rows:
        click.echo(f"{name:{widths[0]}}  {onnx_name:{widths[1]}}  {text}")


@ops.command("check")
@click.argument("names", nargs=-1)
@click.option(
    "--ops",
    "packs",
    multiple=True,
    metavar="MODULE|FILE",
    help="Python that declares operators. Repeatable; it is run.",
)
@click.option("--library", type=click.Path(), metavar="LIB.so", help="Check the kernels in this library too.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def ops_check(names: tuple[str, ...], packs: tuple[str, ...], library: str | None, as_json: bool) -> None:
    """Check declarations: opcheck, gradients, fake kernel, body and lock, on every sample and dtype.

    NAMES limits it to some operators; without it, those of --ops, or the shipped ones where none are given.
    """
    from .symbolic.checking import operator_check

    chosen = _chosen(names, packs)
    results = [r for op in chosen for r in operator_check.check_operator(op)]
    if library is not None:
        from .ort_ops.kernel_check import check_kernels

        results += check_kernels(library, chosen)
    _print_json([dataclasses.asdict(r) for r in results]) if as_json else click.echo(
        operator_check.render(results)
    )
    sys.exit(operator_check.exit_code(results))


@ops.command("new")
@click.argument("name")
@click.option(
    "--signature",
    metavar="PYTHON",
    help="Of the function: '(x: Tensor, bias: Tensor | None = None, alpha: float = 1.0) -> Tensor'.",
)
@click.option(
    "--into", type=click.Path(), default=".", show_default=True, metavar="DIR", help="Where the files go."
)
@click.option(
    "--ops",
    "packs",
    multiple=True,
    metavar="MODULE|FILE",
    help="Python that declares NAME already: only its kernel and test are written. Repeatable; it is run.",
)
def ops_new(name: str, signature: str | None, into: str, packs: tuple[str, ...]) -> None:
    """Start the operator NAME (acme::hard_swish): a declaration, a kernel, and a test that runs.

    The three agree and compile as they are written: the operator copies its first tensor. Change them together.
    """
    from pathlib import Path

    from .native.new_operator import DEFAULT_SIGNATURE, new_kernel, new_operator

    if packs:
        if signature is not None:
            raise UsageError("--signature is for a new operator; --ops declares one already")
        files = [f for op in _chosen((name,), packs) for f in new_kernel(op)]
    else:
        files = new_operator(name, Path(into), signature or DEFAULT_SIGNATURE)
    for file in files:
        click.echo(str(file))


@ops.command("lock")
@click.option(
    "--ops",
    "packs",
    multiple=True,
    metavar="FILE",
    help="Python that declares operators; the lock stands beside it.",
)
def ops_lock(packs: tuple[str, ...]) -> None:
    """Record the signatures of new operators, which from then on never change."""
    from .symbolic.checking import lock

    files: dict[Any, list[Any]] = {}
    for op in _chosen((), packs):
        files.setdefault(lock.lock_file(op), []).append(op)
    for path, operators in files.items():
        if path is None:
            raise UsageError(
                f"{operators[0].name} was declared in no file: there is no place for a lock beside it"
            )
        lock.write(path, operators)
        click.echo(f"{path}: {len(operators)} operator{'' if len(operators) == 1 else 's'}")
    click.echo(
        "A locked signature stays: `deployops ops check` says whether the declarations hold.", err=True
    )


def _declared(packs: tuple[str, ...]) -> list[Any]:
    from .symbolic import registry

    registry.load_builtin()
    registry.load_entry_points()
    _prepare(packs, ())
    return registry.all_operators()


def _chosen(names: tuple[str, ...], packs: tuple[str, ...]) -> list[Any]:
    from .symbolic import registry

    registry.load_builtin()
    before = {op.name for op in registry.all_operators()}
    everything = _declared(packs)
    if not names:
        return [op for op in everything if not packs or op.name not in before]
    known = {key: op for op in everything for key in (op.name, op.onnx_name)}
    unknown = [n for n in names if n not in known]
    if unknown:
        raise UsageError(f"no operator is called {', '.join(unknown)}; `deployops ops list` shows them")
    return [known[n] for n in names]


def _prepare(packs: tuple[str, ...], libraries: tuple[str, ...]) -> None:
    """Run what the user named: libraries first, which packs may adopt from."""
    _search_here()
    if libraries:
        from .symbolic.libraries import load_library

        for library in libraries:
            load_library(library)
    if packs:
        from .symbolic.registry import load

        load(packs)


def _search_here() -> None:
    """Modules of the current folder are found, as `python -m` has it, but last: nothing there shadows a library."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _samples(path: str | None) -> dict[str, Any] | None:
    if path is None:
        return None
    from .export.inputs.signature import load_npz

    return load_npz(path)


def _print_json(data: Any) -> None:
    import json

    click.echo(json.dumps(data, indent=2))


class _Progress:
    """The current step and its time on a terminal's last line; nothing where the output is no terminal."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()

    def __call__(self, step: str) -> None:
        if self._shown:
            click.echo(f"\r\033[K{step} …", nl=False, err=True)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)


def main() -> None:
    """Entry point. Every failure is a message and an exit code, never a traceback of ours."""
    try:
        cli.main(standalone_mode=False)
    except DeployOpsError as e:
        click.echo(f"error: {e}", err=True)
        sys.exit(e.exit_code)
    except click.ClickException as e:
        e.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except Exception as e:
        if os.environ.get("DEPLOYOPS_DEBUG"):
            raise
        if (
            isinstance(e, OSError) and e.filename is not None
        ):  # a name too long, a folder that may not be read
            click.echo(f"error: {str(e.filename)[:200]}: {e.strerror}", err=True)
            sys.exit(2)
        click.echo(
            f"error: deployops met something it does not know: {type(e).__name__}: {e}\n"
            "  This is a fault of deployops. DEPLOYOPS_DEBUG=1 shows where; please report it with that text",
            err=True,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
