"""From an ONNX model to a serialised engine with its sidecar: the steps, in order."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...errors import DeployOpsError, NotCheckedError, UsageError
from ...native.file_contents import FILES, State, file_state
from ...native.kernel_manifest import manifest_path
from ...native.output_files import replace_file
from ...symbolic.plugin_attributes import PLUGIN_ATTRIBUTES
from ..inspection.standard_nodes import means_another
from ..library_manifest import PluginManifest, of_registry, read_plugins
from .cache import EngineCache, cache_key
from .child import WorkerEnd, ask_worker
from .engine import Engine
from .flavor import TensorRT, find_tensorrt
from .host import platform_name
from .inspected import Inspected, inspected, listed
from .messages import explain_crash, explain_end, explain_late, warnings_in
from .prepared import prepare_model
from .profiles import Profiles, holds_values, resolve_profiles
from .record import EngineRecord, Flavor, PluginFile
from .request import BuildRequest, expect_other_files, read_request
from .sidecar import engine_file, write_sidecar
from .source_model import STANDARD_DOMAINS, SourceModel, graphs_of, read_source_model
from .time_limit import TimeLimit

if TYPE_CHECKING:
    import onnx

__all__ = ["BuildError", "Engine", "build_engine"]

Progress = Callable[[str], None]
Preflight = Callable[[SourceModel], object]

_NOTHING = Inspected()


class BuildError(DeployOpsError):
    """A model that TensorRT does not build an engine of."""

    exit_code = 1


def build_engine(
    model: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    flavor: Flavor | None = None,
    profiles: Sequence[str | Mapping[str, Any]] = (),
    plugins: Sequence[str | os.PathLike[str]] = (),
    embed_plugins: bool = False,
    precision: Literal["fp32", "fp16", "bf16"] | None = None,
    keep_float32: Sequence[str] = (),
    archs: Sequence[str | int] = (),
    timing_cache: str | os.PathLike[str] | None = None,
    workspace: int | str | None = None,
    in_place: bool = False,
    allow_modified: bool = False,
    cache: bool = True,
    timeout: float | None = None,
    preflight: Preflight | None = None,
    progress: Progress | None = None,
) -> Engine:
    """Build a serialised engine of an ONNX model, with a sidecar that says what it is.

    ::

        build_engine("model.onnx", out="model.engine", flavor="tensorrt-rtx", archs=["sm86", "sm89"],
                     profiles=["x=1x3x224x224,8x3x224x224,32x3x224x224"], plugins=["lib/libdeployops_trt.so"])

    TensorRT works in a child process, where plugin libraries are run; a crash there is an error here. Networks are strongly
    typed: the types are those of the model.

    Args:
        model: the file. Side files with weights are found beside it.
        out: the engine to write; its sidecar is written beside it, `<out>.json`.
        flavor: which TensorRT builds; None: the installed one, TensorRT where both are.
        profiles: texts as in `--profile` (`profile_text`), or dicts of shapes by input; none: one that is derived from
            the ranges that the model was exported with.
        plugins: libraries of plugins, which are loaded.
        embed_plugins: the engine carries them, so that they need not be loaded where it is run.
        precision: "fp16", "bf16": the model is cast before the build; what stays float32 is in the record. "fp32": no
            TensorFloat-32 either, and a model with narrower types is refused. None: the types of the model.
        keep_float32: nodes and operators that "fp16" and "bf16" leave in float32: "/head/MatMul", "Softmax", "acme::Norm".
        archs: TensorRT-RTX: compute capabilities, "sm89"; none: Ampere and newer. TensorRT builds for the GPU at hand.
        timing_cache: TensorRT: a file that what is timed is read from and added to; made where it is not there.
        workspace: the most device memory that a layer may use for itself: "2GiB", or bytes; None: TensorRT's own limit.
        in_place: operators that write into an argument do so in the memory of the input, which the engine then changes.
            Without it, they are given a copy.
        allow_modified: take a model that another tool has written again after its export; the sidecar's warnings say so.
        cache: take an engine that was built before of the same, and keep this one.
        timeout: seconds, after which the build is ended and nothing of it left. None: TensorRT's builder may take hours, as
            it does for large models; what comes before it (loading TensorRT and the plugins, parsing) 10 minutes.
        preflight: called with the model that was read, before anything is built; what it raises ends the build.
        progress: called with what is being done.

    Raises:
        ModelFileError: the model is damaged, edited after export, or separated from its side files.
        UsageError: a wrong argument; profiles that do not fit the model; a library that does not load.
        BuildError: TensorRT refuses the model, its process crashes, or the time is over.
        NotCheckedError: no TensorRT is installed, or a GPU is needed.
    """
    time_limit = TimeLimit.of(timeout)
    request = read_request(
        out,
        profiles=profiles,
        plugins=plugins,
        embed_plugins=embed_plugins,
        precision=precision,
        keep_float32=keep_float32,
        archs=archs,
        timing_cache=timing_cache,
        workspace=workspace,
        in_place=in_place,
    )
    told = progress or (lambda _: None)
    told(f"reading {Path(model).name}")
    # before any of them is read
    states = _states((Path(model), *request.plugins, *map(manifest_path, request.plugins)))
    source = read_source_model(model, allow_modified=allow_modified)
    states |= _states(source.side_files)
    expect_other_files(request, source)
    resolved = resolve_profiles(source, request.profiles)
    tensorrt = find_tensorrt(flavor)
    if tensorrt.flavor == "tensorrt-rtx" and request.timing_cache is not None:
        raise UsageError(
            f"{tensorrt.name} times nothing while it builds, and its timing caches are empty: leave the timing cache out, "
            "or build with the flavor tensorrt"
        )
    if preflight is not None:
        preflight(source)
    building = _Building(source, tensorrt, request, resolved, EngineCache(), told, time_limit, states)
    return building.engine(reuse=cache)


# --- the build ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Building:
    """One build: a model, the TensorRT for it, and what is wanted of it.

    `states`: of the files that the engine is built from, as `_states` found them before they were read.
    """

    source: SourceModel
    tensorrt: TensorRT
    request: BuildRequest
    resolved: Profiles
    cache: EngineCache
    told: Progress
    time_limit: TimeLimit
    states: Mapping[Path, State | None]

    def engine(self, *, reuse: bool) -> Engine:
        """The engine on disk, from the cache or built now."""
        key = self._key() if reuse else None
        found = self.cache.find(key) if key else None
        if found is not None:
            path, record = found
            return self._written(path, record, cached=True)
        with self.cache.build_folder() as folder:
            built, record, passing = self._build(folder)
            try:
                return self._written(
                    built, replace(record, warnings=(*record.warnings, *passing)), cached=False
                )
            finally:  # also where `out` cannot be written: it may have taken hours
                if key:
                    self.cache.keep(key, built, record)

    def _written(self, built: Path, record: EngineRecord, *, cached: bool) -> Engine:
        out = self.request.out
        record = replace(record, engine=out.name, model=self.source.path.name)
        with self.cache.locked(out):  # another pipeline's engine goes with its own sidecar
            replace_file(out, lambda temporary: shutil.copyfile(built, temporary))
            write_sidecar(out, record)
        return Engine(out, record, cached)

    def _key(self) -> str | None:
        """None: what TensorRT or which GPU it depends on cannot be told, so that nothing is reused."""
        tensorrt, request = self.tensorrt, self.request
        gpu = None
        if tensorrt.flavor == "tensorrt":  # it builds for the GPU at hand
            gpu = self._ask({"do": "identify"}).details.get("gpu")
            if gpu is None:
                return None
        if not tensorrt.version:
            return None
        return cache_key(
            model=self.source.sha256,
            plugins=[_identity(path) for path in request.plugins],
            embed=request.embed,
            tensorrt=[tensorrt.flavor, tensorrt.version, platform_name()],
            archs=request.archs,
            gpu=gpu,
            profiles=self.resolved.profiles,
            given=bool(request.profiles),
            precision=[request.precision, *request.keep_float32],
            workspace=request.workspace,
            in_place=request.in_place,
        )

    def _build(self, folder: Path) -> tuple[Path, EngineRecord, tuple[str, ...]]:
        """The engine, its record, and warnings that are about this run and not about the engine."""
        request, tensorrt = self.request, self.tensorrt
        start = time.perf_counter()
        if request.precision != "as exported":
            self.told(f"preparing {self.source.path.name} for {request.precision}")
        manifests = self._manifests()
        prepared = prepare_model(
            self.source, request.precision, folder, keep=request.keep_float32, plugins=manifests
        )
        known = inspected(prepared.proto, tensorrt, manifests, request.archs)
        if known.silent:
            raise BuildError(
                f"{tensorrt.name} would build of {self.source.path.name} what runs otherwise, or not at all, without a word:"
                f"{listed(known.silent)}"
            )
        plan = folder / "engine"
        timing_cache = request.timing_cache
        end = self._ask(
            {
                "do": "build",
                "model": str(prepared.path),
                "model_name": self.source.path.name,
                "engine": str(plan),
                "engine_name": request.out.name,
                "plugins": [str(path) for path in request.plugins],
                "embed": request.embed,
                "archs": request.archs,
                "profiles": self.resolved.profiles,
                "value_inputs": [i.name for i in self.source.inputs if holds_values(i)],
                "dtypes": {t.name: t.dtype for t in (*self.source.inputs, *self.source.outputs)},
                "custom_types": _custom_types(self.source.proto),
                "attributes": _attributes(prepared.proto),
                "workspace": request.workspace,
                "in_place": request.in_place,
                "exact_float32": request.precision == "fp32",
                "timing_cache": None
                if timing_cache is None
                else {"path": str(timing_cache), "lock": str(self.cache.lock_file(timing_cache))},
            },
            known,
        )
        if end.outcome != "built":
            text = explain_end(end, self.source, tensorrt, request.plugins, request.workspace)
            raise BuildError(text + known.besides(text))
        after = _states(self.states)
        changed = [path.name for path, state in self.states.items() if after[path] != state]
        if changed:  # else the record, and the cache, would promise what the engine was not built from
            raise BuildError(f"{', '.join(changed)} changed while the engine was built: build it again")
        notes = (*([self.source.provenance] if self.source.provenance else []), *self.resolved.notes)
        plugins = tuple(
            PluginFile(path.name, FILES.digest(str(path)), request.embed) for path in request.plugins
        )
        if plugins and not end.details["plugin_layers"]:
            notes += (f"no node needs a plugin: {', '.join(p.name for p in plugins)} can be left out",)
            plugins = plugins if request.embed else ()
        gpu = end.details["gpu"] if tensorrt.flavor == "tensorrt" else None
        archs = request.archs if gpu is None else (gpu["arch"],)
        file = engine_file(plan)
        record = EngineRecord(
            engine=request.out.name,
            sha256=file.sha256,
            bytes=file.bytes,
            flavor=tensorrt.flavor,
            tensorrt=end.details["version"],
            platform=platform_name(),
            archs=archs,
            gpu=None if gpu is None else gpu["name"],
            hardware_compatible="" if archs else "ampere+",
            version_compatible=False,
            model=self.source.path.name,
            model_sha256=self.source.sha256,
            plugins=plugins,
            precision=request.precision,
            kept_float32=prepared.kept,
            profiles=self.resolved.profiles,
            inputs=self.source.inputs,
            outputs=self.source.outputs,
            workspace=request.workspace,
            build_seconds=round(time.perf_counter() - start, 3),
            warnings=(*notes, *prepared.warnings, *known.warnings, *warnings_in(end.said, self.source)),
            in_place=request.in_place,
        )
        return plan, record, tuple(end.details["passing"])

    def _manifests(self) -> list[PluginManifest]:
        """What is known of the libraries: of one without a manifest, what TensorRT's registry says once it is loaded."""
        manifests = [read_plugins(path) for path in self.request.plugins]
        if all(m.plugins is not None for m in manifests):
            return manifests
        plugins = [str(path) for path in self.request.plugins]
        end = self._ask({"do": "plugins", "plugins": plugins, "in_place": self.request.in_place})
        found = end.details["plugins"]
        return [of_registry(m, found.get(str(m.path), ())) if m.plugins is None else m for m in manifests]

    def _ask(self, question: Mapping[str, Any], known: Inspected = _NOTHING) -> WorkerEnd:
        """Raises for every end that is not the model's fault. `known`: what to say besides."""
        end = ask_worker(self.tensorrt, question, self.told, limit=self.time_limit.left)
        if end.outcome == "late":
            raise BuildError(explain_late(end, self.tensorrt, self.time_limit.seconds))
        if end.outcome == "not checked":
            raise NotCheckedError(end.details["text"])
        if end.outcome == "unknown":
            raise BuildError(
                f"{self.tensorrt.name} is not as deployops knows it; while {end.step}: {end.details['text']}. Please report it "
                "with that text, and build with another version"
            )
        if end.outcome == "crashed":
            text = explain_crash(end, self.tensorrt)
            raise BuildError(text + known.besides(text))
        if end.outcome == "usage":
            text = explain_end(end, self.source, self.tensorrt, self.request.plugins)
            raise UsageError(text + known.besides(text))
        return end


def _states(paths: Iterable[Path]) -> dict[Path, State | None]:
    """What shows that a file was replaced, written, removed, or made where there was none."""
    return {path: file_state(path) for path in paths}


def _identity(plugin: Path) -> list[str | None]:
    """A library, and the manifest beside it, which says what types its plugins take when the model is cast."""
    manifest = manifest_path(plugin)
    return [
        plugin.name,
        FILES.digest(str(plugin)),
        FILES.digest(str(manifest)) if manifest.is_file() else None,
    ]


def _custom_types(proto: onnx.ModelProto) -> list[str]:
    """Types of the nodes that are somebody's own, and mean something else than ONNX's of that type."""
    nodes = (node for graph in graphs_of(proto) for node in graph.node)
    return sorted({node.op_type for node in nodes if means_another(node.domain, node.op_type)})


def _attributes(proto: onnx.ModelProto) -> dict[str, list[str]]:
    """Of the nodes that only a plugin can run: by type, the attributes that are meant for it."""
    import onnx

    bodies = {function.name for function in proto.functions}
    found: dict[str, set[str]] = {}
    for node in (node for graph in graphs_of(proto) for node in graph.node):
        if node.op_type not in bodies and not (
            node.domain in STANDARD_DOMAINS and onnx.defs.has(node.op_type)
        ):
            found.setdefault(node.op_type, set()).update(a.name for a in node.attribute)
    return {kind: sorted(names - PLUGIN_ATTRIBUTES) for kind, names in found.items()}
