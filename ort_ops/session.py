"""Open an ONNX model in ONNX Runtime, with the libraries it needs, or say why it cannot be opened."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..errors import ModelFileError, NotCheckedError, UsageError
from ..native.cache_store import default_root, expect_private
from ..native.loaded_libraries import current_library
from ..symbolic.graph_inspection.file_integrity import EditedFileError, verify_exported
from .arguments import expect, expect_path, expect_sequence, listed_texts
from .coverage import check_coverage, has_shipped_operators
from .diagnosis import explain, parsed
from .library import shipped_library
from .library_manifest import manifest_path, read_manifest

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["session"]

StrPath = str | os.PathLike[str]
_CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"
# Of each options object the libraries that were registered to it: a second time, ONNX Runtime refuses to open any model.
_REGISTERED: WeakKeyDictionary[Any, dict[Path, None]] = WeakKeyDictionary()


def session(
    model_path: StrPath,
    *,
    threads: int | None = None,
    optimize: bool = True,
    libraries: Sequence[StrPath] | None = None,
    providers: Sequence[str] | None = None,
    profile: str | None = None,
    options: onnxruntime.SessionOptions | None = None,
    verify: bool = True,
) -> onnxruntime.InferenceSession:
    """Open a session, on the CPU provider where no other is asked for.

    Opened by path, so that external data is found next to the file. Worker threads do not spin between runs:
    spinning pools starve whatever runs next to them.

    A model of `deployops export` is held against its digest first, side files included: all of it is read once more, about
    a second for each GB. A model of another tool, or one that another tool wrote again without the digest, has none.

    Args:
        model_path: the .onnx file.
        threads: threads inside an operator; None leaves the runtime's choice, all cores.
        optimize: False runs the graph as written, without the optimiser, which can hide faults of the file.
        libraries: custom-operator libraries; each is registered once, however often it is named. None: that of
            the shipped operators where the model has some and `deployops compile` has built it (with the CUDA
            provider that of the target ort-cuda, else that for the CPU, with a warning); (): none, the bodies in the
            file are run.
        providers: names of execution providers, the preferred one first: `["CUDAExecutionProvider"]`.
        profile: where the runtime's profile is to begin, a path without its ending.
        options: a SessionOptions of the caller's, in which nothing is changed but that the libraries are registered, each
            once however often it is used. What is set there is not set again by threads, optimize or profile.
        verify: False opens a model whose digest does not hold, or saves the time to check it.

    Raises:
        UsageError: a path that does not exist; a library that does not load, or whose kernels are for a provider that
            is not asked for; an unknown provider.
        ModelFileError: not an ONNX file, not a valid model, or not what was exported (`verify`).
        NotCheckedError: a sound model that this runtime cannot run (not installed, no kernel, too old), whose
            custom operators nothing here implements, or for which a provider asked for is not at work.
    """
    expect_path("model_path", model_path)
    expect("threads", threads, int, "a number")
    expect("optimize", optimize, bool, "True or False")
    expect("verify", verify, bool, "True or False")
    libraries = listed_texts(libraries)
    expect_sequence("libraries", libraries, (str, os.PathLike), "a list of paths")
    expect_sequence("providers", providers, str, f"a list of names, such as [{_CUDA!r}]")
    if providers is not None and not providers:
        raise UsageError(f"providers is an empty list: name one ([{_CUDA!r}]), or leave it out for the CPU")
    path = Path(model_path)
    if not path.is_file():
        raise UsageError(f"{path}: no such file" if not path.exists() else f"{path}: not a file")
    ort = _runtime()
    if options is None:
        options = _own_options(ort, threads, optimize, profile)
    else:
        _expect_no_conflict(ort, options, threads, optimize, profile)
    if verify:
        _expect_as_exported(path)
    wanted = _providers(ort, providers)
    registered = _chosen(path, libraries, wanted)
    loaded = _register(options, registered)
    try:
        opened = ort.InferenceSession(str(path), options, providers=wanted)
    except Exception as error:  # the runtime's exception types share no base of its own
        _expect_started(ort, wanted)  # else the model would be blamed for what the machine lacks
        if "already set in registry" in str(error):
            raise UsageError(
                f"two of the libraries {', '.join(map(str, _REGISTERED.get(options, registered)))} have operators of one domain, "
                "and ONNX Runtime takes a domain from one library. Give one of them, or compile them into one. In options of "
                "your own, leave it to `session` to register libraries"
            ) from error
        raise explain(path, error, loaded) from error
    _expect_at_work(opened, wanted)
    return opened


def _own_options(ort: Any, threads: int | None, optimize: bool, profile: str | None) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what matters arrives as an exception
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    if threads is not None:
        if threads < 1:
            raise UsageError(f"threads must be at least 1, got {threads}")
        options.intra_op_num_threads = threads
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    return options


def _expect_no_conflict(
    ort: Any, options: Any, threads: int | None, optimize: bool, profile: str | None
) -> None:
    """The caller's options say it all: of what stands in both places nobody could tell which holds."""
    if not isinstance(options, ort.SessionOptions):
        raise UsageError(f"options is {type(options).__name__}; expected onnxruntime.SessionOptions")
    both = [
        (threads is not None, "threads", "intra_op_num_threads"),
        (not optimize, "optimize", "graph_optimization_level"),
        (profile is not None, "profile", "enable_profiling and profile_file_prefix"),
    ]
    for given, argument, attribute in both:
        if given:
            raise UsageError(
                f"{argument} and options are both given: set options.{attribute} instead of {argument}"
            )
    if getattr(options, "has_providers", lambda: False)():
        raise UsageError(
            "options has providers of its own: name them in providers=[…], which looks whether they start"
        )


def _expect_as_exported(path: Path) -> None:
    try:
        verify_exported(path)
    except EditedFileError as error:
        raise EditedFileError(f"{error} Where the change is meant: session(…, verify=False)") from None


def _chosen(path: Path, libraries: Sequence[StrPath] | None, wanted: Sequence[str]) -> tuple[Path, ...]:
    """The libraries to register, checked against the model where they say what is in them."""
    paths = _library_paths(libraries or ())
    _expect_provider(paths, wanted)
    try:
        model = parsed(path)
    except ModelFileError:
        return paths  # the runtime refuses it, and `explain` says what it is
    if libraries is None and has_shipped_operators(model):
        paths = _shipped(path.name, wanted)
    check_coverage(path.name, model, paths)
    return paths


def _shipped(name: str, wanted: Sequence[str]) -> tuple[Path, ...]:
    """The library of the shipped operators that has been built; ONNX Runtime takes one for them."""
    cpu, cuda = _built("ort-cpu"), _built("ort-cuda") if _CUDA in wanted else None
    if _CUDA in wanted:
        if cuda is not None:
            return (cuda,)
        if cpu is not None:
            warnings.warn(
                f"{name}: the operators of deployops run on the CPU, with copies to and from the GPU around them: their "
                "library for CUDA is not built. `deployops compile --target ort-cuda` builds it",
                stacklevel=4,
            )
    return () if cpu is None else (cpu,)


def _built(target: str) -> Path | None:
    """The shipped library in the cache, where it is there. What is in it is run: raises UsageError where others could write."""
    path = shipped_library(target)
    if not path.is_file():
        return None
    expect_private(default_root().resolve(), path.parent)
    if not manifest_path(path).is_file():
        raise UsageError(
            f"{path} has no manifest beside it, so that it may be anything. `deployops compile --target {target}` writes both "
            "again"
        )
    return path


def _expect_provider(paths: Sequence[Path], wanted: Sequence[str]) -> None:
    """Kernels for CUDA are of no use without its provider, and the runtime would only say that there are none."""
    if _CUDA in wanted:
        return
    for path in paths:
        if manifest_path(path).is_file() and read_manifest(path).target == "ort-cuda":
            raise UsageError(
                f"{path} has kernels for {_CUDA}, and the session is to run on {', '.join(wanted)}. Ask for it "
                f"(providers=[{_CUDA!r}]), or give a library of the target ort-cpu"
            )


def _library_paths(libraries: Sequence[StrPath]) -> tuple[Path, ...]:
    """Their real paths, each once. Raises UsageError for what is no library's."""
    paths = tuple(dict.fromkeys(Path(library).resolve() for library in libraries))
    for path in paths:
        if path.is_dir():
            raise UsageError(f"custom-operator library {path}: that is a folder; give the .so in it")
        if path.suffix == ".json":
            raise UsageError(f"{path} is a manifest; give the library beside it")
        if not path.is_file():
            raise UsageError(
                f"custom-operator library {path}: no such file. Give the path of the built .so, "
                ".dylib or .dll"
            )
    return paths


def _providers(ort: Any, names: Sequence[str] | None) -> list[str]:
    wanted = list(dict.fromkeys(names or [_CPU]))
    there = ort.get_available_providers()
    missing = [name for name in wanted if name not in there]
    if missing:
        unknown = [name for name in missing if name not in ort.get_all_providers()]
        if unknown:
            raise UsageError(
                f"ONNX Runtime knows no provider {', '.join(unknown)}; it has {', '.join(there)}"
            )
        raise NotCheckedError(
            f"this build of ONNX Runtime has no {', '.join(missing)}; it has {', '.join(there)}. "
            'For NVIDIA GPUs: pip install "deployops[gpu]", in an environment without the package onnxruntime'
        )
    return wanted if _CPU in wanted else [*wanted, _CPU]


def _expect_at_work(session: Any, wanted: Sequence[str]) -> None:
    """A provider that cannot start is left out by the runtime without an error."""
    at_work = session.get_providers()
    lost = [name for name in wanted if name not in at_work]
    if lost:
        raise NotCheckedError(
            f"ONNX Runtime did not start {', '.join(lost)} and would have run on {', '.join(at_work)} instead: "
            "the driver, or a library that the provider needs, is missing on this machine"
        )


def _expect_started(ort: Any, wanted: Sequence[str]) -> None:
    """Raise NotCheckedError where a provider does not even start for a model that any provider runs."""
    if list(wanted) == [_CPU]:
        return
    from onnx import TensorProto, helper

    options = ort.SessionOptions()
    options.log_severity_level = 4
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "one", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    try:
        opened = ort.InferenceSession(model.SerializeToString(), options, providers=list(wanted))
    except Exception:  # it says nothing more than the first one
        return
    _expect_at_work(opened, wanted)


def _register(options: Any, libraries: Sequence[Path]) -> list[Path]:
    """The paths that were loaded: of copies, where what a library's path gave this process before is not in it any more."""
    loaded = []
    known = _REGISTERED.setdefault(options, {})
    for path in libraries:
        loaded.append(current_library(path))
        if loaded[-1] in known:
            continue
        try:
            options.register_custom_ops_library(str(loaded[-1]))
            known[loaded[-1]] = None
        except Exception as error:  # the runtime's exception types share no base of its own
            raise UsageError(_library_fault(path, error)) from error
    return loaded


def _library_fault(path: Path, error: Exception) -> str:
    text = str(error).split("with error:")[-1].strip().splitlines()[0]
    if "RegisterCustomOps" in text:
        return (
            f"{path} loads but is no ONNX Runtime library: it exports no RegisterCustomOps. "
            "A PyTorch operator library (TORCH_LIBRARY) is another thing and is not needed here"
        )
    return f"custom-operator library {path} does not load: {text}"


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise NotCheckedError(
            'ONNX Runtime is not installed. Install it: pip install "deployops[cpu]"'
        ) from error
    if not hasattr(onnxruntime, "InferenceSession"):
        # onnxruntime and onnxruntime-gpu share a folder: uninstalling one leaves an empty package
        # of the other
        raise NotCheckedError(
            "ONNX Runtime is installed but broken. "
            'Reinstall it: pip install --force-reinstall "deployops[cpu]"'
        )
    return onnxruntime
