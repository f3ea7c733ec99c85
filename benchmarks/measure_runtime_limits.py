"""What each ONNX Runtime takes, measured: writes `ort_ops/runtime_limits.json`, which `deployops inspect` reads.

    python benchmarks/measure_runtime_limits.py 1.17.3 1.20.1 1.23.2 1.26.0 1.32.0
    python benchmarks/measure_runtime_limits.py --add 1.33.0     # keep what is there

Each version is installed from the package index into a virtual environment of its own (`--environments DIR`, kept for the
next time) and asked by opening small models on the CPU provider: the newest opset and IR version; for every opset and
standard operator the element types that no kernel takes, and those that run only between casts to float32; the fusions
that `deployops inspect` looks for. Shapes are unknown in these models, optional inputs absent, and an element type counts
as refused only where no likely choice of the other inputs' types opens. What a kernel refuses when it runs is not seen.
g++ is needed for the custom operator in the fusion models. About a minute per version.
"""

from __future__ import annotations

import argparse
import json
import pickle
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from fusion_models import cases
from node_models import Question, op_versions, questions, trials
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "ort_ops" / "runtime_limits.json"
LIBRARY_SOURCE = ROOT / "tests" / "ort_ops" / "twice.cc"
FORMAT = 1

Gaps = dict[str, str]  # place -> element types without a kernel; "cast": those that run in float32
Profile = list[tuple[int, Gaps]]  # from which opset on

# Runs in the other environment, which has no onnx: opens models in order, one line of JSON for each.
PROBE = """
import json, os, pickle, sys
import onnxruntime as ort
folder, first, library = sys.argv[1], int(sys.argv[2]), sys.argv[3]
models = pickle.load(open(os.path.join(folder, "models"), "rb"))
for k in range(first, len(models)):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    out = os.path.join(folder, f"{k}.onnx" if library else "out.onnx")
    options.optimized_model_filepath = out
    if library:
        options.register_custom_ops_library(library)
    else:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if os.path.exists(out):
        os.unlink(out)
    try:
        ort.InferenceSession(models[k], options, providers=["CPUExecutionProvider"])
        answer = ["ok", os.path.exists(out) and b"InsertedPrecisionFreeCast" in open(out, "rb").read()]
    except Exception as error:
        answer = [type(error).__name__, " ".join(str(error).split())]
    print(json.dumps(answer), flush=True)
"""


class Runtime:
    """An onnxruntime in an environment of its own."""

    def __init__(self, version: str, environments: Path) -> None:
        self.version = version
        folder = environments / f"ort-{version}"
        self._python = folder / "bin" / "python"
        if not self._python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            # what was built against numpy 1 does not load with 2
            wanted = [f"onnxruntime=={version}", "numpy<2"]
            subprocess.run([str(self._python), "-m", "pip", "-q", "install", *wanted], check=True)

    def open(self, models: Sequence[bytes], folder: Path, library: str = "") -> list[Any]:
        """["ok", casts inserted], or [exception type, message], for each model."""
        (folder / "models").write_bytes(pickle.dumps(list(models)))
        answers: list[Any] = []
        while len(answers) < len(models):
            command = [str(self._python), "-c", PROBE, str(folder), str(len(answers)), library]
            done = subprocess.run(command, capture_output=True, text=True)
            answers += [json.loads(line) for line in done.stdout.splitlines()]
            if len(answers) < len(models):
                if done.returncode >= 0:
                    raise SystemExit(f"onnxruntime {self.version}: {done.stderr}")
                answers.append(["crash", f"signal {-done.returncode}"])
        return answers


def measure(runtime: Runtime, folder: Path) -> tuple[dict[str, Any], dict[str, Profile]]:
    """What the runtime takes at all, and its profile of each operator."""
    ir = _limit(runtime, folder, lambda k: _relu(13, k), r"max supported IR version: (\d+)")
    opset = _limit(runtime, folder, lambda k: _relu(k, ir), r"till opset (\d+)")
    everything = [
        q
        for name, ranges in op_versions(opset).items()
        for first, last in ranges
        for at in range(first, last + 1)
        for q in questions(name, at)
    ]
    answers = _answers(runtime, everything, ir, folder)
    _report_odd(runtime, answers)
    opened = {q.dtype for q in everything if answers[q][0] == "ok"}
    refused = {q.dtype for q in everything} - opened  # the runtime does not know the type at all
    gaps: dict[str, dict[int, dict[str, list[str]]]] = {}
    for q in everything:
        at = gaps.setdefault(q.op, {}).setdefault(q.opset, {})
        if answers[q][0] != "ok" and q.dtype not in refused:
            at.setdefault(q.place, []).append(_name(q.dtype))
        elif answers[q] == ["ok", True] and q.place == "0":
            at.setdefault("cast", []).append(_name(q.dtype))
    limits = {
        "ir": ir,
        "opset": opset,
        "unknown_types": " ".join(sorted(map(_name, refused))),
        "fusions": _fusions(runtime, folder),
    }
    return limits, {name: _profile(by_opset) for name, by_opset in gaps.items()}


def _answers(
    runtime: Runtime, everything: Sequence[Question], ir: int, folder: Path
) -> dict[Question, list[Any]]:
    """The answer to each question: the first trial that opens, or else what the first one met."""
    models = {q: trials(q, ir) for q in everything}
    answers: dict[Question, list[Any]] = {}
    pending = list(everything)
    while pending:
        batch = [(q, m) for q in pending if (m := next(models[q], None)) is not None]
        for (q, _), answer in zip(batch, runtime.open([m for _, m in batch], folder), strict=True):
            if answer[0] == "ok" or q not in answers:
                answers[q] = answer
        pending = [q for q, _ in batch if answers[q][0] != "ok"]
    return answers


def _report_odd(runtime: Runtime, answers: Mapping[Question, list[Any]]) -> None:
    """Refusals that speak of something else than a missing kernel or type: to be looked at by whoever measures."""
    odd: dict[str, Question] = {}
    for q, (kind, message) in answers.items():
        expected = kind in ("ok", "NotImplemented") or "MLDataType" in str(message)
        if not expected and q.opset >= 7:  # what the runtime makes of older opsets nobody relies on
            odd.setdefault(f"{q.op} {message[-160:]}", q)
    for text, q in odd.items():
        print(f"onnxruntime {runtime.version}: counted as refused: {q}: {text}", file=sys.stderr)


def _fusions(runtime: Runtime, folder: Path) -> list[str]:
    """The cases that fuse without the custom node and do not with it."""
    library = folder / "libtwice.so"
    if not library.exists():
        command = ["g++", "-std=c++17", "-fPIC", "-shared", "-o", str(library), str(LIBRARY_SOURCE)]
        subprocess.run(command, check=True)
    found = []
    for name, case in cases().items():
        pair = [m.SerializeToString() for m in (case.plain, case.cut)]
        if [a[0] for a in runtime.open(pair, folder, str(library))] != ["ok", "ok"]:
            print(f"onnxruntime {runtime.version}: {name} does not open", file=sys.stderr)
            continue
        plain, cut = ([n.op_type for n in onnx.load(folder / f"{k}.onnx").graph.node] for k in (0, 1))
        if case.is_lost(plain, cut):
            found.append(name)
    return found


def _limit(runtime: Runtime, folder: Path, model: Any, pattern: str) -> int:
    """The number in the message with which the runtime refuses 99."""
    answer = runtime.open([model(99)], folder)[0]
    found = re.search(pattern, answer[1])
    if found is None:
        raise SystemExit(f"onnxruntime {runtime.version}: no limit in {answer}")
    return int(found[1])


def _relu(opset: int, ir: int) -> bytes:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    imports = [helper.make_opsetid("", opset)]
    model: bytes = helper.make_model(graph, ir_version=ir, opset_imports=imports).SerializeToString()
    return model


def _name(dtype: str) -> str:
    """As torch writes it: the names that the rest of deployops uses."""
    from deployops.symbolic import dtypes

    number = TensorProto.DataType.Value(dtype.upper())
    try:
        return dtypes.name_of(int(number))
    except KeyError:
        return dtype


def _profile(by_opset: Mapping[int, Mapping[str, Sequence[str]]]) -> Profile:
    """Opsets in a row with the same gaps are one entry, under the first."""
    profile: Profile = []
    for opset in sorted(by_opset):
        gaps = {place: " ".join(sorted(types)) for place, types in sorted(by_opset[opset].items())}
        if not profile or profile[-1][1] != gaps:
            profile.append((opset, gaps))
    return profile


def merged(
    measured: Mapping[str, tuple[dict[str, Any], dict[str, Profile]]],
) -> dict[str, Any]:
    """The file: each operator's profiles, under the first runtime that has each.

    A profile goes on through later runtimes that only know more opsets, and is written as the last of them has it.
    """
    operators: dict[str, dict[str, Profile]] = {}
    for name in sorted({n for _, profiles in measured.values() for n in profiles}):
        entries: list[tuple[str, Profile]] = []
        before = 0
        for version, (limits, profiles) in measured.items():
            if name not in profiles:
                continue
            profile = profiles[name]
            if entries and _until(profile, before) == entries[-1][1]:
                entries[-1] = (entries[-1][0], profile)
            else:
                entries.append((version, profile))
            before = limits["opset"]
        operators[name] = dict(entries)
    return {
        "format": FORMAT,
        "provider": "CPUExecutionProvider",
        "platform": f"{sys.platform}-{platform.machine()}",
        "runtimes": {version: limits for version, (limits, _) in measured.items()},
        "operators": operators,
    }


def _until(profile: Profile, opset: int) -> Profile:
    return [entry for entry in profile if entry[0] <= opset]


def unmerged(content: Mapping[str, Any]) -> dict[str, tuple[dict[str, Any], dict[str, Profile]]]:
    """The measurements that a file was made of."""
    versions = list(content["runtimes"])
    found = {}
    for k, version in enumerate(versions):
        limits = content["runtimes"][version]
        profiles = {}
        for name, entries in content["operators"].items():
            first = [v for v in versions[: k + 1] if v in entries]
            if first:
                known = [(opset, gaps) for opset, gaps in entries[first[-1]]]
                profiles[name] = _until(known, limits["opset"])
        found[version] = (limits, profiles)
    return found


def write(path: Path, content: Mapping[str, Any]) -> None:
    """One line for each runtime and operator: compact, and a change is a readable difference."""
    lines = [f'  "{k}": {json.dumps(content[k])},' for k in ("format", "provider", "platform")]
    for key in ("runtimes", "operators"):
        rows = [
            f"    {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in content[key].items()
        ]
        lines.append(f'  "{key}": {{\n' + ",\n".join(rows) + "\n  }" + ("," if key == "runtimes" else ""))
    path.write_text("{\n" + "\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="+", metavar="X.Y.Z")
    parser.add_argument("--add", action="store_true", help="keep the versions that the file has")
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("-o", "--output", type=Path, default=LIMITS)
    arguments = parser.parse_args()
    measured = unmerged(json.loads(LIMITS.read_text())) if arguments.add else {}
    with tempfile.TemporaryDirectory() as folder:
        for version in arguments.versions:
            measured[version] = measure(Runtime(version, arguments.environments), Path(folder))
            print(version, measured[version][0])
    write(arguments.output, merged({v: measured[v] for v in sorted(measured, key=_order)}))


def _order(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


if __name__ == "__main__":
    main()
