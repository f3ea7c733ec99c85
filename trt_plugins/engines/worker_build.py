"""One build, in the worker's process: the calls to TensorRT, in order, for both flavors."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .gpu import gpu
from .timing_cache import add_to_timing_cache, use_timing_cache

__all__ = ["Events", "Refused", "build", "loaded_plugins"]

Events = Callable[..., None]  # takes an event of `worker` by its keys

_SEVERITIES = {"INTERNAL_ERROR": "error", "ERROR": "error", "WARNING": "warning"}


class Refused(Exception):
    """The end of a build, with its outcome."""

    def __init__(self, outcome: str, **details: Any) -> None:
        super().__init__(outcome)
        self.details = {"outcome": outcome, **details}


def build(trt: Any, request: Mapping[str, Any], events: Events) -> dict[str, Any]:
    """Build the engine and write it. Raises Refused with every other outcome."""
    return _Build(trt, request, events).run()


def loaded_plugins(trt: Any, request: Mapping[str, Any], events: Events) -> dict[str, Any]:
    """Load the libraries and say what each brought into the registry. Raises Refused as `build`."""
    return {"outcome": "plugins", "plugins": _Build(trt, request, events).plugins()}


def _logger(trt: Any, events: Events, logged: list[str]) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            kind = _SEVERITIES.get(str(severity).rpartition(".")[2])
            if kind is not None:
                logged.append(str(message))
                events(said=[kind, str(message)])

    return Logger()


def _monitor(trt: Any, events: Events) -> Any:
    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self._of: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self._of[phase_name] = num_steps
            events(phase=phase_name, done=0, of=num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            events(phase=phase_name, done=step + 1, of=self._of.get(phase_name, 0))
            return True  # go on

        def phase_finish(self, phase_name: str) -> None:
            self._of.pop(phase_name, None)

    return Monitor()


class _Build:
    """One build. What TensorRT hands out is kept until the end: it needs more of it than Python knows of."""

    def __init__(self, trt: Any, request: Mapping[str, Any], events: Events) -> None:
        self._trt, self._request, self._events = trt, request, events
        self._logged: list[str] = []
        self._monitor: Any = None
        self._profiles: list[Any] = []
        self._gpu = gpu()

    def plugins(self) -> dict[str, list[dict[str, Any]]]:
        """By library: the creators that TensorRT's registry has by it."""
        self._logger = _logger(self._trt, self._events, self._logged)
        return self._load_plugins()

    def run(self) -> dict[str, Any]:
        trt, request = self._trt, self._request
        self._expect_gpu()
        self._logger = _logger(trt, self._events, self._logged)
        self._load_plugins()
        self._events(step="starting the builder")
        self._builder = self._made(trt.Builder, self._logger)
        self._network = self._builder.create_network(_network_flags(trt))
        self._config = self._builder.create_builder_config()
        self._choose_archs()
        self._parse()
        self._configure()
        self._add_profiles()
        timing = request["timing_cache"]
        if timing is not None:
            why = use_timing_cache(self._config, Path(timing["path"]), lambda: self._logged)
            if why:
                text = (
                    f"the timing cache {timing['path']} is not taken: {why}. Give another file, or remove it"
                )
                raise Refused("usage", text=text)
        self._events(step=f"building {request['engine_name']}", builder=True)
        plan = self._builder.build_serialized_network(self._network, self._config)
        if plan is None:
            raise Refused("refused", reason="build")
        self._events(step=f"writing {request['engine_name']}")
        try:
            Path(request["engine"]).write_bytes(memoryview(plan))
        except OSError as error:  # a disk that is full
            text = (
                f"the engine cannot be written into the cache: {error.strerror or error}. Free space there, or set "
                "DEPLOYOPS_CACHE to a folder with more"
            )
            raise Refused("usage", text=text) from None
        passing = []
        if timing is not None:
            passing.append(add_to_timing_cache(self._config, Path(timing["path"]), Path(timing["lock"])))
        return {
            "outcome": "built",
            "version": trt.__version__,
            "gpu": self._gpu,
            "plugin_layers": self._plugin_layers(),
            "passing": [text for text in passing if text],  # of this run, and not of the engine
        }

    def _made(self, kind: Any, *arguments: Any) -> Any:
        """A new object of TensorRT's; why it cannot be made is in its log alone."""
        try:
            return kind(*arguments)
        except Exception as error:
            raise Refused("refused", reason="start", text=f"{type(error).__name__}: {error}") from None

    # --- plugins -------------------------------------------------------------------------------------------------

    def _load_plugins(self) -> dict[str, list[dict[str, Any]]]:
        trt = self._trt
        brought: dict[str, list[dict[str, Any]]] = {}
        if self._request["in_place"]:
            os.environ["DEPLOYOPS_IN_PLACE"] = "1"  # our plugins read it when they are made
        registry = trt.get_plugin_registry()
        if hasattr(trt, "init_libnvinfer_plugins"):  # those that come with TensorRT
            trt.init_libnvinfer_plugins(self._logger, "")
        for path in self._request["plugins"]:
            self._events(step=f"loading the plugins of {Path(path).name}")
            before = _creators(registry)
            try:
                library = ctypes.CDLL(path)  # says why not, which the registry does not
            except OSError as error:
                raise Refused("usage", text=f"{path} does not load: {error}") from None
            try:
                handle = registry.load_library(path)
            except Exception as error:
                raise Refused("usage", text=f"{path}: the plugin registry refuses it: {error}") from None
            # libraries of the old kind register themselves when they are loaded
            if handle is not None or _creators(registry) != before:
                brought[path] = [_described(c) for c in registry.all_creators if _key(c) not in before]
                continue
            # TensorRT leaves out all of a library for one plugin that is there already
            if hasattr(library, "getCreators"):
                text = (
                    f"TensorRT takes no plugin of {path}, as where one of the same name, version and namespace is there already: "
                    "of a library given before it, or TensorRT's own. Give one of the two libraries"
                )
                raise Refused("usage", text=text)
            text = f"{path} is no library of plugins: it has no `getCreators`, and registers none when it is loaded"
            raise Refused("usage", text=text)
        return brought

    def _plugin_layers(self) -> int:
        kinds = {
            getattr(self._trt.LayerType, name, None) for name in ("PLUGIN", "PLUGIN_V2", "PLUGIN_V3")
        } - {None}
        layers = (self._network.get_layer(k) for k in range(self._network.num_layers))
        return sum(layer.type in kinds for layer in layers)

    # --- the network ---------------------------------------------------------------------------------------------

    def _parse(self) -> None:
        trt, request = self._trt, self._request
        self._events(step=f"parsing {request['model_name']}")
        self._parser = trt.OnnxParser(self._network, self._logger)
        # from the file, whose folder it looks for side files in
        parsed = self._parser.parse_from_file(request["model"])
        errors = [_parser_error(self._parser.get_error(k)) for k in range(self._parser.num_errors)]
        if not parsed:
            raise Refused(
                "refused", reason="parse", errors=errors, creators=_creators(trt.get_plugin_registry())
            )
        taken = [op for op in request["custom_types"] if self._parser.supports_operator(op)]
        if taken:
            raise Refused("refused", reason="taken", types=taken)
        ignored = list(_ignored(request["attributes"], trt.get_plugin_registry()))
        if ignored:
            raise Refused("refused", reason="ignored", attributes=ignored)
        network = self._network
        tensors = [network.get_input(k) for k in range(network.num_inputs)]
        tensors += [network.get_output(k) for k in range(network.num_outputs)]
        other = [
            [tensor.name, wanted, found]
            for tensor in tensors
            if (wanted := request["dtypes"].get(tensor.name)) != (found := _dtype(tensor.dtype))
            and wanted is not None
        ]
        if other:
            raise Refused("refused", reason="dtypes", tensors=other)

    def _expect_gpu(self) -> None:
        """TensorRT builds for the GPU at hand, and for no other."""
        if self._request["flavor"] != "tensorrt":
            return
        here, wanted = self._gpu, self._request["archs"]
        who = f"{self._request['name']} builds for the GPU of the machine that it runs on"
        instead = "build where there is one, or with the flavor tensorrt-rtx, which needs none"
        if here is None:
            raise Refused("not checked", text=f"{who}, and there is none here: {instead}")
        if wanted and wanted != [here["arch"]]:
            text = f"{who}, here {here['arch']} ({here['name']}), and not for {', '.join(wanted)}: {instead}"
            raise Refused("not checked", text=text)

    def _choose_archs(self) -> None:
        """Before the model is parsed: a wrong one is said at once."""
        trt, config = self._trt, self._config
        wanted = self._request["archs"] if self._request["flavor"] == "tensorrt-rtx" else []
        name = self._request["name"]
        if not wanted:  # TensorRT: the GPU at hand
            return
        kind = trt.ComputeCapability
        known = {
            str(member).lower(): value
            for member, value in kind.__members__.items()
            if member.startswith("SM")
        }
        unknown = [arch for arch in wanted if arch not in known]
        if unknown:
            raise Refused(
                "usage",
                text=f"{name} does not build for {', '.join(unknown)}; it builds for {', '.join(known)}",
            )
        config.num_compute_capabilities = len(wanted)
        for index, arch in enumerate(wanted):
            if not config.set_compute_capability(known[arch], index):
                raise Refused("usage", text=f"{name} does not take {arch} together with {', '.join(wanted)}")

    def _configure(self) -> None:
        trt, request, config = self._trt, self._request, self._config
        if request["workspace"] is not None:
            config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, request["workspace"])
        if request["exact_float32"] and hasattr(trt.BuilderFlag, "TF32"):
            config.clear_flag(trt.BuilderFlag.TF32)
        if request["in_place"]:
            feature = getattr(getattr(trt, "PreviewFeature", None), "ALIASED_PLUGIN_IO_10_03", None)
            if feature is None:
                text = f"{request['name']} has no outputs in place of inputs (10.3 or newer has): build without them"
                raise Refused("usage", text=text)
            config.set_preview_feature(feature, True)
        if request["embed"]:
            config.plugins_to_serialize = list(request["plugins"])
        self._monitor = _monitor(trt, self._events)
        config.progress_monitor = self._monitor

    def _add_profiles(self) -> None:
        inputs = [self._network.get_input(k) for k in range(self._network.num_inputs)]
        values = {tensor.name for tensor in inputs if tensor.is_shape_tensor}
        if not values and all(size >= 0 for tensor in inputs for size in tensor.shape):
            return
        for number, given in enumerate(self._request["profiles"] or [{}], 1):
            missing = sorted(values - given.keys())
            if missing:
                raise Refused("usage", reason="values", inputs=missing)
            profile = self._builder.create_optimization_profile()
            try:
                for name, shapes in given.items():
                    self._set_range(profile, name, shapes, name in values)
                index = self._config.add_optimization_profile(profile)
            except Exception as error:  # RuntimeError, ValueError, as the version has it
                raise Refused("usage", reason="profile", number=number, text=str(error)) from None
            if index < 0:
                raise Refused("usage", reason="profile", number=number, text="")
            self._profiles.append(profile)

    def _set_range(self, profile: Any, name: str, shapes: Sequence[Sequence[int]], shape_input: bool) -> None:
        if shape_input:
            profile.set_shape_input(name, *shapes)
        elif name in self._request["value_inputs"]:
            text = f"`{name}` needs no range of values: the model makes no shape of it"
            self._events(said=["warning", text])
        else:
            profile.set_shape(name, *shapes)


_DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "FP8": "float8_e4m3fn",
    **{name: name.lower() for name in ("INT8", "INT32", "INT64", "UINT8", "BOOL")},
}


def _dtype(dtype: Any) -> str:
    name = str(dtype).rpartition(".")[2]
    return _DTYPES.get(name, name)


def _network_flags(trt: Any) -> int:
    """Strongly typed: the types are the model's. From TensorRT 11 on there is no other kind."""
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


def _creators(registry: Any) -> list[list[str]]:
    return sorted(map(_key, registry.all_creators))


def _key(creator: Any) -> list[str]:
    return [creator.plugin_namespace, creator.name, creator.plugin_version]


def _described(creator: Any) -> dict[str, Any]:
    namespace, name, version = _key(creator)
    return {"namespace": namespace, "name": name, "version": version, "fields": _field_names(creator)}


def _ignored(
    attributes: Mapping[str, Sequence[str]], registry: Any
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Types of nodes with attributes that no plugin of their name has a field for, and the fields that there are.

    The parser hands on what the creator names, and leaves the rest out without a word.
    """
    for kind in sorted(attributes):
        fields = [_field_names(c) for c in registry.all_creators if c.name == kind]
        known = {name for names in fields for name in names or ()}
        left_out = [name for name in attributes[kind] if name not in known]
        if fields and left_out and None not in fields:
            yield kind, left_out, sorted(known)


def _field_names(creator: Any) -> list[str] | None:
    """None: it does not say them."""
    try:
        return [field.name for field in creator.field_names]
    except (AttributeError, TypeError):  # of an older kind, or null
        return None


def _parser_error(error: Any) -> dict[str, Any]:
    return {
        "code": str(error.code()).rpartition(".")[2],
        "text": error.desc(),
        "file": error.file(),
        "function": error.func(),
        "node": error.node(),
        "name": error.node_name(),
        "operator": error.node_operator(),
        "stack": list(error.local_function_stack()) if error.local_function_stack_size() else [],
    }
