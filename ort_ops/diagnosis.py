"""Why ONNX Runtime refused a model, found by reading the model and by small experiments.

The runtime's own text is not enough: a missing library and a wrong domain version read the same, and a dtype
without a kernel is reported under the name of an operator that the user never wrote (`Max` for a bfloat16
`Relu`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DeployOpsError, ModelFileError, NotCheckedError
from ..symbolic import registry
from ..symbolic.graph_inspection.file_integrity import side_file
from ..symbolic.graph_inspection.file_kind import no_onnx_model
from ..symbolic.nested_graphs import nested_nodes
from .experiments import kernel_gaps, versions_that_load

if TYPE_CHECKING:
    import onnx

__all__ = ["explain", "parsed", "runtime_message"]

# Domains whose operators come with the runtime.
BUILT_IN = {
    "",
    "ai.onnx",
    "ai.onnx.ml",
    "ai.onnx.training",
    "ai.onnx.preview",
    "ai.onnx.preview.training",
    "com.microsoft",
    "com.microsoft.experimental",
    "com.microsoft.nchwc",
    "com.ms.internal.nhwc",
    "org.pytorch.aten",
}


def explain(path: Path, error: Exception, libraries: Sequence[Path] = ()) -> DeployOpsError:
    """The error to raise for `error`, which opening the model at `path` raised."""
    try:
        model = parsed(path)
    except ModelFileError as fault:
        return fault
    name = path.name
    return (
        _too_new(name, model, error)
        or _default_domain(name, model)
        or _no_import(name, model)
        or _unimplemented(name, model, error, libraries)
        or _no_kernel(name, model, error)
        or _external_data(name, path, model)
        or _other(name, model, error)
    )


def parsed(path: Path) -> onnx.ModelProto:
    """The model without its external data. Raises ModelFileError, saying what the file is instead."""
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception:
        raise no_onnx_model(path) from None
    if not model.HasField("graph"):
        raise no_onnx_model(path)
    return model


def _too_new(name: str, model: onnx.ModelProto, error: Exception) -> DeployOpsError | None:
    import onnx

    text = str(error)
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    limit = re.search(r"till opset (\d+)", text)
    if limit or (opset > onnx.defs.onnx_opset_version() and "opset" in text.lower()):
        most = limit.group(1) if limit else str(onnx.defs.onnx_opset_version())
        return NotCheckedError(
            f"{name} uses opset {opset}; ONNX Runtime {_version()} goes up to {most}. "
            "Export with a lower --opset, or install a newer onnxruntime"
        )
    limit = re.search(r"max supported IR version: (\d+)", text)
    if limit:
        return NotCheckedError(
            f"{name} has IR version {model.ir_version}; ONNX Runtime {_version()} reads up to "
            f"{limit.group(1)}. "
            "Install a newer onnxruntime, or lower the file's ir_version"
        )
    return None


def _no_import(name: str, model: onnx.ModelProto) -> DeployOpsError | None:
    missing = {
        node.domain: node.op_type for node, imports in _nodes(model) if _key(node.domain) not in imports
    }
    if not missing:
        return None
    domain, op = next(iter(missing.items()))
    return ModelFileError(
        f"{name} is not a valid model: {_title(domain, op)} is used, but opset_import does not list "
        "the domain "
        f"{domain!r}. Add it: onnx.helper.make_opsetid({domain!r}, 1)"
    )


def _default_domain(name: str, model: onnx.ModelProto) -> DeployOpsError | None:
    import onnx

    local = _local(model)
    for node, imports in _nodes(model):
        if _key(node.domain) or ("", node.op_type) in local or "" not in imports:
            continue
        if onnx.defs.has(node.op_type, max_inclusive_version=imports[""]):
            continue
        if onnx.defs.has(node.op_type):
            since = min(
                s.since_version
                for s in onnx.defs.get_all_schemas_with_history()
                if s.name == node.op_type and s.domain == ""
            )
            return ModelFileError(
                f"{name} is not a valid model: {node.op_type} exists since opset {since}, but the "
                "model imports "
                f"opset {imports['']}. Export again with --opset {since} or higher"
            )
        return ModelFileError(
            f"{name} is not a valid model: {node.op_type} is no standard operator, yet it stands in "
            "the default "
            "domain. A custom operator needs a domain of its own, on the node and in opset_import"
        )
    return None


def _unimplemented(
    name: str, model: onnx.ModelProto, error: Exception, libraries: Sequence[Path]
) -> DeployOpsError | None:
    if "is not a registered function/op" not in str(error):
        return None
    local = _local(model)
    named = re.search(r"error: ([^\s:]*):([^\s(]+)\(", str(error))
    custom = {
        (node.domain, node.op_type): imports[node.domain]
        for node, imports in _nodes(model)
        if (node.domain, node.op_type) not in local and node.domain not in BUILT_IN and node.domain in imports
    }
    if named and named.group(1) in BUILT_IN:
        return NotCheckedError(
            f"{name}: this ONNX Runtime ({_version()}) has no {named.group(1)}::{named.group(2)}. "
            "Operators of that domain come and go with versions and builds of the runtime"
        )
    at_fault = (named.group(1), named.group(2)) if named else None
    (domain, op), version = next(
        (item for item in custom.items() if item[0] == at_fault), next(iter(custom.items()), (("", "?"), 0))
    )
    known = _known_versions(domain) or versions_that_load(model, domain, libraries)
    if known and version not in known:
        return ModelFileError(
            f"{name} imports version {version} of the domain {domain!r}, which has "
            f"{_versions(known)}: wrong domain version. Export again, or set opset_import to "
            f"({domain!r}, {known[0]})"
        )
    if libraries:
        return NotCheckedError(
            f"{name}: none of the given libraries ({', '.join(p.name for p in libraries)}) has "
            f"{domain}::{op} for domain version {version}. Give the library that has it"
            f"{_body_advice([(domain, op)])}"
        )
    listed = ", ".join(sorted(f"{d}::{o}" for d, o in custom))
    return NotCheckedError(
        f"{name} has custom operators that nothing implements: {listed} (domain version {version}). "
        f"Register the library that has them (libraries=[…], --ort-library; `deployops compile` builds one)"
        f"{_body_advice(custom)}"
    )


def _body_advice(custom: Iterable[tuple[str, str]]) -> str:
    """The other way: bodies of standard operators in the file, as far as the declarations known here have them."""
    declared = {key: registry.by_onnx_name(*key) for key in custom}
    bare = [f"{d}::{o}" for (d, o), op in declared.items() if op is not None and op.body_function is None]
    unknown = [f"{d}::{o}" for (d, o), op in declared.items() if op is None]
    if not bare and not unknown:
        return ", or export with --custom-ops function, which puts their bodies into the file"
    ways = []
    if bare:
        ways.append(f"declare a body with @op.body for {', '.join(bare)}")
    if unknown:
        ways.append(
            f"declare {', '.join(unknown)} with a body (deployops.operator, or deployops.adopt for an "
            "autograd.Function; then @op.body)"
        )
    return f", or {' and '.join(ways)}, and export again"


def _no_kernel(name: str, model: onnx.ModelProto, error: Exception) -> DeployOpsError | None:
    if type(error).__name__ != "NotImplemented":
        return None
    gaps = sorted(kernel_gaps(model))
    if not gaps:
        found = re.search(r"implementation for (\S+?)\(\d+\) node with name '(.*)'", str(error))
        gaps = [f"{found.group(1)} (node {found.group(2)!r})" if found else runtime_message(error)]
    return NotCheckedError(
        f"ONNX Runtime CPU has no kernel for {', '.join(gaps)}. {name} is a valid model: this is a "
        "gap of the runtime. "
        f"Cast around the operator, deploy in another dtype, or use another provider{_of_bfloat16(gaps)}"
    )


def _of_bfloat16(gaps: Iterable[str]) -> str:
    """What else can be done where it is that type, for which the CPU has hardly a kernel."""
    if not any("(bfloat16" in gap for gap in gaps):
        return ""
    return (
        ". ONNX Runtime's CPU has few kernels for bfloat16, its CUDA provider and TensorRT have them. Without a GPU, export the "
        "model in float32 (or float16) and validate that: its graph is the same but for the dtypes"
    )


def _external_data(name: str, path: Path, model: onnx.ModelProto) -> DeployOpsError | None:
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key != "location":
                continue
            try:
                file = side_file(path, entry.value)
            except ModelFileError as fault:  # ONNX Runtime takes no file of another folder
                return fault
            if not file.is_file():
                return ModelFileError(
                    f"{name}: its weights are in {entry.value!r} next to it, and that file is missing. "
                    "Move or copy the two together"
                )
    return None


def _other(name: str, model: onnx.ModelProto, error: Exception) -> DeployOpsError:
    valid = type(error).__name__ not in ("InvalidGraph", "InvalidArgument", "InvalidProtobuf")
    text = runtime_message(error)
    if valid:
        return ModelFileError(f"ONNX Runtime does not open {name}: {text}")
    return ModelFileError(f"{name} is not a valid model: {text}")


def _nodes(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, dict[str, int]]]:
    """Every node, those of subgraphs and functions included, with the opset imports that hold there."""
    imports = {_key(o.domain): o.version for o in model.opset_import}
    yield from ((node, imports) for node in nested_nodes(model.graph.node))
    for function in model.functions:
        own = {_key(o.domain): o.version for o in function.opset_import}
        yield from ((node, own) for node in nested_nodes(function.node))


def _local(model: onnx.ModelProto) -> set[tuple[str, str]]:
    return {(f.domain, f.name) for f in model.functions}


def _known_versions(domain: str) -> list[int]:
    """Versions of a domain that Python declared to onnx (`onnx.defs.register_schema`)."""
    import onnx

    return sorted({s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain})


def _versions(known: list[int]) -> str:
    return f"version{'s' if len(known) > 1 else ''} {', '.join(map(str, known))}"


def _title(domain: str, op: str) -> str:
    return f"{domain}::{op}" if _key(domain) else op


def _key(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


def runtime_message(error: Exception) -> str:
    """What the runtime said, without its prefix, its source lines and signatures, and the model's path."""
    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", text)
    text = re.sub(r"Load model from .*? failed: ?", "", text)
    text = re.sub(r"/onnxruntime_src/\S+:\d+ [^()]*\([^()]*(?:\([^()]*\)[^()]*)*\)(?: const)? ", "", text)
    return text[:400]
