"""What TensorRT's ONNX parsers take: writes `trt_plugins/tensorrt_operators.json`, which `deployops inspect` reads.

    python benchmarks/collect_tensorrt_operators.py --source 10.0=REPO@REF --source 10.1=REPO@REF ... --rtx 1.7.1.116

REPO is a clone of onnx-tensorrt, the parser's source, and REF a release in it (`10.1-GA`). From each are read: the
operators that the parser imports, the element types that it knows, and the opsets that its documentation names. Releases
between two such are filled in from the changelog of the newer: an operator that only the newer has came with the release
that names it. The parser of TensorRT-RTX is not published: `--rtx` installs that version from the package index into
`--environments` and asks the parser itself, for every operator, element type and opset of the installed onnx. No GPU is needed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "trt_plugins" / "tensorrt_operators.json"
FORMAT = 1
_NO_OPERATORS = {"FallbackPluginImporter", "LocalFunctionImporter"}  # what the parser takes for all others
# Runs with TensorRT-RTX alone: a line of JSON about the names and models that come in. Of opsets that it is not made for, the
# parser warns.
PROBE = """
import base64, json, sys
import tensorrt_rtx as trt
asked = json.load(sys.stdin)
said = []
class Logger(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
    def log(self, severity, message):
        said.append(message)
logger = Logger()
builder = trt.Builder(logger)
def parses(model):
    said.clear()
    network = builder.create_network()
    parsed = trt.OnnxParser(network, logger).parse(base64.b64decode(model))
    return parsed and not any("older opsets are not" in message for message in said)
network = builder.create_network()
parser = trt.OnnxParser(network, logger)
print(json.dumps({
    "version": trt.__version__,
    "operators": [name for name in asked["operators"] if parser.supports_operator(name)],
    "types": [name for name, model in asked["types"].items() if parses(model)],
    "opsets": [int(number) for number, model in asked["opsets"].items() if parses(model)],
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", action="append", default=[], metavar="X.Y=REPO@REF")
    parser.add_argument("--rtx", action="append", default=[], metavar="X.Y.Z.N")
    parser.add_argument("--environments", type=Path, default=ROOT / ".build" / "runtimes")
    chosen = parser.parse_args()
    content = json.loads(TARGET.read_text()) if TARGET.exists() else {"tensorrt": {}, "tensorrt-rtx": {}}
    read = {}
    for source in chosen.source:
        version, _, place = source.partition("=")
        read[version] = place.rpartition("@")[::2]
    if read:
        content["tensorrt"] = from_sources(read)
    for version in chosen.rtx:
        content["tensorrt-rtx"][".".join(version.split(".")[:2])] = measured(version, chosen.environments)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    content = {"format": FORMAT, "collected": today, **{k: content[k] for k in ("tensorrt", "tensorrt-rtx")}}
    TARGET.write_text(json.dumps(content, indent=1) + "\n")


def from_sources(read: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Each release that was read, and those between."""
    versions = sorted(read, key=_number)
    found: dict[str, Any] = {}
    for version in versions:
        repo, ref = read[version]
        importers = _show(repo, ref, "onnxOpImporters.cpp")
        names = set(re.findall(r"^DEFINE_BUILTIN_OP_IMPORTER\((\w+)\)", importers, re.MULTILINE))
        names -= _NO_OPERATORS
        document = _show(repo, ref, "docs/operators.md")
        [(low, high)] = re.findall(r"opset (\d+) to opset (\d+)", document)
        kinds = re.findall(
            r"case ::ONNX_NAMESPACE::TensorProto::(\w+): \*trt_dtype", _show(repo, ref, "importerUtils.cpp")
        )
        entry = {
            "source": f"read in onnx-tensorrt, release {version}",
            "opsets": [int(low), int(high)],
            "types": " ".join(sorted({_type_name(getattr(TensorProto, k)) for k in kinds})),
            "operators": " ".join(sorted(names)),
        }
        if found:
            before, older = list(found.items())[-1]
            changelog = _show(repo, ref, "docs/Changelog.md")
            found |= _between(before, version, older, entry, changelog)
        found[version] = entry
    return found


def _between(
    before: str, after: str, older: dict[str, Any], newer: dict[str, Any], changelog: str
) -> dict[str, Any]:
    """Releases between two: with what the changelog says they brought, and the element types that both ends have."""
    added = {name for name in newer["operators"].split() if name not in older["operators"].split()}
    operators = set(older["operators"].split())
    filled = {}
    for minor in range(int(before.split(".")[1]) + 1, int(after.split(".")[1])):
        version = f"{before.split('.')[0]}.{minor}"
        chapter = re.search(
            rf"^# TensorRT {re.escape(version)} (.*?)^# ", changelog, re.MULTILINE | re.DOTALL
        )
        if chapter is None:
            continue
        operators |= {name for name in re.findall(r"`(\w+)`", chapter[1]) if name in added}
        filled[version] = {
            "source": f"the changelog of onnx-tensorrt, between its releases {before} and {after}",
            "opsets": older["opsets"],
            "types": " ".join(sorted(set(older["types"].split()) & set(newer["types"].split()))),
            "operators": " ".join(sorted(operators)),
        }
    return filled


def measured(version: str, environments: Path) -> dict[str, Any]:
    """What the parser of a TensorRT-RTX says."""
    folder = environments / f"tensorrt-rtx-{version}"
    if not folder.is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder)]
        subprocess.run([*command, f"tensorrt-rtx=={version}"], check=True)
    names = {s.name for s in onnx.defs.get_all_schemas_with_history() if not s.domain}
    listed = json.loads(TARGET.read_text()) if TARGET.exists() else {"tensorrt": {}}
    for entry in listed["tensorrt"].values():  # what is in no standard: TRT_Scale, ImageScaler
        names |= set(entry["operators"].split())
    types = {_type_name(n): _bytes(_identity(n, 20)) for n in TensorProto.DataType.values() if n}
    newest = onnx.defs.onnx_opset_version()
    opsets = {str(n): _bytes(_identity(TensorProto.FLOAT, n)) for n in range(1, newest + 1)}
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        input=json.dumps({"operators": sorted(names), "types": types, "opsets": opsets}),
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    return {
        "source": f"measured: the parser of tensorrt-rtx {version}, asked with onnx {onnx.__version__}",
        "opsets": [min(answer["opsets"]), max(answer["opsets"])],
        "types": " ".join(sorted(answer["types"])),
        "operators": " ".join(sorted(answer["operators"])),
    }


def _identity(element: int, opset: int) -> onnx.ModelProto:
    """One node that takes every type, with an input of that type."""
    x, y = (helper.make_tensor_value_info(name, element, [2]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _bytes(model: onnx.ModelProto) -> str:
    import base64

    return base64.b64encode(model.SerializeToString()).decode()


def _type_name(number: int) -> str:
    from deployops.symbolic.graph_inspection.standard_types import dtype_name

    return str(dtype_name(number))


def _show(repo: str, ref: str, path: str) -> str:
    command = ["git", "-C", repo, "show", f"{ref}:{path}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    main()
