"""`deployops inspect MODEL.onnx`: what would fail in ONNX Runtime, told before it does, of any file and in seconds."""

from __future__ import annotations

import hashlib
import json
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops import inspect_model
from deployops.errors import DeployOpsError, UsageError
from deployops.ort_ops.inspection.check import Checked, check_model
from deployops.ort_ops.inspection.runtime_limits import limits_for
from deployops.symbolic.graph_inspection import shape_faults

from .twice_library import compiled, refusal

NEWEST = limits_for("onnxruntime==1.32.0")


def value(name: str, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, [2, 3])


def model(
    nodes: Sequence[onnx.NodeProto],
    opset: int = 18,
    domains: Sequence[tuple[str, int]] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", [value("x", dtype)], [value("y", dtype)])
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(*d) for d in domains)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets, functions=list(functions))


def swish(domain: str = "acme", op: str = "Swish2", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, ["x"], ["y"], name="act", domain=domain, **attributes)


@pytest.fixture
def save(tmp_path: Path) -> Callable[[onnx.ModelProto], Path]:
    def run(proto: onnx.ModelProto) -> Path:
        path = tmp_path / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        return path

    return run


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """acme::Swish2 of version 1, for float32 and float16, by its manifest; the library itself is no native code."""
    signature = [{"inputs": {"x": d}, "outputs": {"y": d}} for d in ("float32", "float16")]
    content = {
        "format": 1,
        "library": "libacme.so",
        "sha256": hashlib.sha256(b"never loaded").hexdigest(),
        "target": "ort-cpu",
        "platform": f"{sys.platform}-{platform.machine()}",
        "compiler": {},
        "flags": [],
        "levels": [],
        "operators": [
            {
                "domain": "acme",
                "op_type": "Swish2",
                "version": 1,
                "name": "acme::swish2",
                "inputs": [{"name": "x", "form": "single", "type": "T"}],
                "outputs": [{"name": "y", "form": "single", "type": "T"}],
                "signatures": signature,
                "attributes": [{"name": "beta", "type": "FLOAT", "required": False, "default": 1.0}],
            }
        ],
    }
    (tmp_path / "libacme.json").write_text(json.dumps(content))
    (tmp_path / "libacme.so").write_bytes(b"never loaded")
    return tmp_path / "libacme.so"


def failing(checked: Checked) -> list[tuple[str, str]]:
    return [(f.kind, f.what) for f in checked.findings if f.severity == "would fail"]


# Case 10: six causes, six diagnoses.

CASE_10 = {
    "custom_op_in_default_domain": model([swish("")]),
    "domain_ok_no_kernel": model([swish()], domains=[("acme", 1)]),
    "opset_import_missing": model([swish()]),
    "wrong_domain_version": model([swish()], domains=[("acme", 7)]),
    "opset_too_new": model([helper.make_node("Relu", ["x"], ["y"])], opset=99),
}


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (
            "custom_op_in_default_domain",
            "default-domain",
            ["Swish2 is no standard operator", "default domain"],
        ),
        ("opset_import_missing", "domain-not-imported", ["opset_import does not list the domain 'acme'"]),
        ("wrong_domain_version", "domain-version", ["imports version 7", "'acme'", "up to 1"]),
        ("opset_too_new", "opset-too-new", ["opset 99", "goes up to 28"]),
        ("domain_ok_no_kernel", None, []),
    ],
)
def test_case_10_with_the_library(
    command: Any, save: Any, library: Path, name: str, kind: str | None, words: list[str]
) -> None:
    path = save(CASE_10[name])
    found = inspect_model(path, runtime="onnxruntime==1.32.0", libraries=[library])
    assert found.checked is not None
    assert [k for k, _ in failing(found.checked)] == ([kind] if kind else [])
    done = command("inspect", path, "--runtime", "onnxruntime==1.32.0", "--ort-library", library)
    assert done.code == (1 if kind else 0), done.err
    for word in words:
        assert word in done.out


def test_case_10_without_a_library(command: Any, save: Any) -> None:
    texts = set()
    for name, proto in CASE_10.items():
        done = command("inspect", save(proto))
        assert done.code == 1, name
        texts.add("\n".join(line for line in done.out.splitlines() if line.startswith("  FAILS")))
        assert refusal(proto) is not None
    assert len(texts) == len(CASE_10)
    done = command("inspect", save(CASE_10["domain_ok_no_kernel"]))
    assert "acme::Swish2 (domain version 1) needs a kernel, and no library is given" in done.out


def test_case_10_wrong_library_path(command: Any, save: Any, tmp_path: Path) -> None:
    done = command(
        "inspect", save(CASE_10["domain_ok_no_kernel"]), "--ort-library", tmp_path / "libnothere.so"
    )
    assert done.code == 2
    assert "libnothere.so: no such file" in done.err


@pytest.mark.parametrize(
    ("node", "dtype", "kind"),
    [
        (swish(), TensorProto.FLOAT16, None),
        (swish(), TensorProto.DOUBLE, "dtype"),
        (swish(beta=2.0), TensorProto.FLOAT, None),
        (swish(beta=2), TensorProto.FLOAT, "attribute-type"),
        (swish(gamma=2.0), TensorProto.FLOAT, "attribute-unknown"),
        (swish(op="Swish3"), TensorProto.FLOAT, "operator-missing"),
    ],
)
def test_nodes_against_the_library(node: Any, dtype: int, kind: str | None, save: Any, library: Path) -> None:
    found = inspect_model(save(model([node], domains=[("acme", 1)], dtype=dtype)), libraries=[library])
    assert found.checked is not None
    assert [k for k, _ in failing(found.checked)] == ([kind] if kind else [])
    assert found.exit_code == bool(kind)


def body(op: str = "Swish2", inner: str = "Relu", domain: str = "acme") -> onnx.FunctionProto:
    return helper.make_function(
        domain,
        op,
        ["a"],
        ["b"],
        [helper.make_node(inner, ["a"], ["b"], name="inner")],
        [helper.make_opsetid("", 18)],
    )


def test_a_body_runs_anywhere_and_a_kernel_beats_it(save: Any, library: Path) -> None:
    proto = model([swish()], domains=[("acme", 1)], functions=[body()], dtype=TensorProto.DOUBLE)
    path = save(proto)
    assert inspect_model(path).exit_code == 0
    assert refusal(proto) is None
    beaten = inspect_model(path, libraries=[library])
    assert beaten.exit_code == 1
    assert beaten.checked is not None
    assert "beats the function body" in failing(beaten.checked)[0][1]


def test_nodes_inside_of_a_body_are_held_against_the_runtime(save: Any) -> None:
    proto = model([swish()], domains=[("acme", 1)], functions=[body(inner="Erf")], dtype=TensorProto.DOUBLE)
    assert refusal(proto) is not None
    ((kind, _),) = failing(check_model(proto, NEWEST))
    assert kind == "no-kernel"
    (finding,) = (f for f in check_model(proto, NEWEST).findings if f.kind == "no-kernel")
    assert finding.where == "'inner' in function acme::Swish2"


def test_each_custom_operator_is_listed_with_where_it_stands(save: Any, library: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("Swish2", ["x"], ["r"], domain="acme")], "t", [], [value("r")]
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["r2"])], "e", [], [value("r2")])
    nodes = [
        helper.make_node("Swish2", ["x"], ["a"], domain="acme"),
        helper.make_node("SwishBeta", ["a", "a"], ["b"], domain="deployops"),
        helper.make_node("If", ["c"], ["d"], then_branch=inner, else_branch=other),
        helper.make_node("F", ["d"], ["y"], domain="f"),
    ]
    function = helper.make_function(
        "f",
        "F",
        ["a"],
        ["b"],
        [helper.make_node("Swish2", ["a"], ["b"], domain="acme")],
        [helper.make_opsetid("acme", 1)],
    )
    proto = model(nodes, domains=[("acme", 1), ("deployops", 1), ("f", 1)], functions=[function])
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    found = inspect_model(save(proto), libraries=[library]).checked
    assert found is not None
    listed = {o.op_type: o for o in found.operators}
    assert (listed["Swish2"].nodes, listed["Swish2"].in_subgraphs, listed["Swish2"].in_functions) == (3, 1, 1)
    assert (listed["Swish2"].libraries, listed["Swish2"].shipped) == (("libacme.so",), False)
    assert (listed["SwishBeta"].shipped, listed["SwishBeta"].libraries) == (True, ())
    assert (listed["F"].body, listed["F"].version) == (True, 1)


# Standard nodes that are not as the standard has them: ONNX Runtime refuses each of them too.


@pytest.mark.parametrize(
    ("nodes", "opset", "kind"),
    [
        ([helper.make_node("Gelu", ["x"], ["y"])], 18, "operator-too-new"),
        ([helper.make_node("Scatter", ["x", "x", "x"], ["y"])], 13, "operator-removed"),
        ([helper.make_node("Relu", ["x"], ["y"], slope=1.0)], 18, "attribute-unknown"),
        ([helper.make_node("ReduceSum", ["x"], ["y"], axes=[0])], 13, "attribute-unknown"),
        ([helper.make_node("Softmax", ["x"], ["y"], axis=1.5)], 18, "attribute-type"),
        ([helper.make_node("Cast", ["x"], ["y"])], 18, "attribute-missing"),
        ([helper.make_node("Relu", ["x", "x"], ["y"])], 18, "inputs"),
        ([helper.make_node("Add", ["x"], ["y"])], 18, "inputs"),
        ([helper.make_node("Add", ["x", ""], ["y"])], 18, "inputs"),
        ([helper.make_node("Relu", ["x"], ["y", "z"])], 18, "outputs"),
        ([helper.make_node("Not", ["x"], ["y"])], 18, "type-not-allowed"),
        (
            [helper.make_node("Cast", ["x"], ["h"], to=10), helper.make_node("Add", ["x", "h"], ["y"])],
            18,
            "types-differ",
        ),
        ([helper.make_node("Softmax", ["x"], ["y"])], 1 << 40, "opset-too-new"),
        ([helper.make_node("Relu", ["x"], ["y"])], 0, "default-domain"),
    ],
)
def test_nodes_that_are_not_as_the_standard_has_them(nodes: Any, opset: int, kind: str) -> None:
    proto = model(nodes, opset)
    found = [k for k, _ in failing(check_model(proto, NEWEST))]
    if kind == "default-domain":  # no opset has number 0
        assert found == ["operator-too-new"]
    else:
        assert found == [kind]
    assert refusal(proto) is not None


def test_functions_that_a_runtime_refuses() -> None:
    twice = model([swish()], domains=[("acme", 1)], functions=[body(), body()])
    assert [k for k, _ in failing(check_model(twice, NEWEST))] == ["function-twice"]
    assert refusal(twice) is not None
    itself = body(inner="Swish2")
    itself.node[0].domain = "acme"
    itself.opset_import.append(helper.make_opsetid("acme", 1))
    recursive = model([swish()], domains=[("acme", 1)], functions=[itself])
    assert [k for k, _ in failing(check_model(recursive, NEWEST))] == ["function-recursive"]
    unused = body("Unused")
    unused.node[0].domain = "nowhere"
    stray = model([helper.make_node("Relu", ["x"], ["y"])], functions=[unused])
    assert [k for k, _ in failing(check_model(stray, NEWEST))] == ["domain-not-imported"]
    assert refusal(stray) is not None


def test_several_versions_of_one_domain() -> None:
    proto = model([helper.make_node("Gelu", ["x"], ["y"])], 18, domains=[("", 20)])
    found = check_model(proto, NEWEST)
    assert [(f.severity, f.kind) for f in found.findings] == [("note", "several-versions")]
    assert "18, 20: ONNX Runtime takes the last" in found.findings[0].what
    assert refusal(proto) is None
    other = body()
    other.opset_import[0].version = 13
    found = check_model(model([swish()], domains=[("acme", 1)], functions=[other]), NEWEST)
    assert [f.kind for f in found.findings] == ["several-versions"]


# The command.


def test_the_json_is_complete(command: Any, save: Any, library: Path) -> None:
    path = save(model([swish(gamma=1)], domains=[("acme", 1)]))
    done = command("inspect", path, "--json", "--ort-library", library, "--runtime", "onnxruntime==1.32.0")
    assert done.code == 1
    data = json.loads(done.out)["onnxruntime"]
    assert list(data) == ["verdict", "runtime", "libraries", "operators", "findings", "not_checked"]
    assert data["verdict"] == "would fail"
    assert data["runtime"] == {
        "name": "onnxruntime",
        "version": "1.32.0",
        "source": "given",
        "measured": "1.32.0",
        "provider": "CPUExecutionProvider",
        "note": "",
    }
    assert data["libraries"] == [
        {
            "name": "libacme.so",
            "sha256": hashlib.sha256(b"never loaded").hexdigest(),
            "operators": 1,
            "target": "ort-cpu",
        }
    ]
    assert data["operators"] == [
        {
            "domain": "acme",
            "op_type": "Swish2",
            "version": 1,
            "nodes": 1,
            "in_subgraphs": 0,
            "in_functions": 0,
            "shipped": False,
            "body": False,
            "libraries": [],
            "served": 0,
            "by_provider": {},
            "provider": "CPU",
        }
    ]
    first = data["findings"][0]
    assert list(first) == ["severity", "kind", "where", "what", "advice"]
    assert (first["severity"], first["kind"], first["where"]) == ("would fail", "attribute-unknown", "'act'")
    assert json.loads(command("inspect", path, "--json", "--ort-library", library).out) is not None


def test_a_sound_model_has_a_short_report(command: Any, save: Any) -> None:
    done = command(
        "inspect", save(model([helper.make_node("Relu", ["x"], ["y"])])), "--runtime", "onnxruntime==1.32.0"
    )
    assert done.code == 0
    assert "runtime ONNX Runtime 1.32.0, CPU: nothing found" in done.out
    assert "not checked" not in done.out


def test_the_worst_comes_first_and_long_lists_are_cut(command: Any, save: Any) -> None:
    nodes = [
        helper.make_node("Sqrt", ["x"], ["v"]),
        helper.make_node("Cast", ["v"], ["b0"], to=TensorProto.BFLOAT16),
    ]
    nodes += [helper.make_node(f"Op{k}", [f"b{k}"], [f"b{k + 1}"], domain="acme") for k in range(30)]
    proto = model(
        [*nodes, helper.make_node("Relu", ["b0"], ["r"])], domains=[("acme", 1)], dtype=TensorProto.FLOAT16
    )
    done = command("inspect", save(proto), "--runtime", "onnxruntime==1.32.0")
    lines = done.out.splitlines()
    labels = [line.split()[0] for line in lines if line.startswith(("  FAILS", "  hurts", "  note"))]
    assert labels == sorted(labels, key=["FAILS", "hurts", "note"].index)
    assert sum("needs a kernel" in line for line in lines) == 10
    assert any("and 20 more of no-library (--json has all)" in line for line in lines)
    assert len(lines) < 60


def test_equal_findings_are_one_line(command: Any, save: Any) -> None:
    nodes = [helper.make_node("Swish2", ["x"], [f"v{k}"], name=f"n{k}", domain="acme") for k in range(50)]
    proto = model([*nodes, helper.make_node("Relu", ["x"], ["y"])], domains=[("acme", 1)])
    out = command("inspect", save(proto)).out
    assert out.count("needs a kernel") == 1
    assert "'n0' and 49 more: acme::Swish2" in out
    data = json.loads(command("inspect", save(proto), "--json").out)["onnxruntime"]
    assert sum(f["kind"] == "no-library" for f in data["findings"]) == 50


def test_a_runtime_or_library_for_another_kind_of_file(command: Any, tmp_path: Path, library: Path) -> None:
    import torch

    torch.save({"w": torch.ones(2)}, tmp_path / "net.pt")
    for options in (["--runtime", "onnxruntime==1.32.0"], ["--ort-library", library]):
        done = command("inspect", tmp_path / "net.pt", *options)
        assert done.code == 2
        assert "for ONNX models" in done.err
    with pytest.raises(UsageError):
        inspect_model(tmp_path / "net.pt", runtime="onnxruntime==1.32.0")


@pytest.mark.parametrize("arguments", [{"runtime": 3}, {"libraries": 3}, {"libraries": [3]}])
def test_arguments_of_another_kind(save: Any, arguments: Any) -> None:
    with pytest.raises(UsageError):
        inspect_model(save(model([swish()])), **arguments)


def test_neither_torch_nor_the_runtime_nor_the_library_is_loaded(save: Any, library: Path) -> None:
    path = save(model([swish()], domains=[("acme", 1)]))
    code = (
        "import sys\nfrom deployops import inspect_model\n"
        f"found = inspect_model({str(path)!r}, libraries=[{str(library)!r}])\n"
        "found.summary(), found.to_dict()\n"
        "print(sorted({'torch', 'onnxruntime', 'onnxscript', 'sympy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_inspect_and_onnx_runtime_agree_on_a_real_library(tmp_path: Path, save: Any) -> None:
    real = compiled(tmp_path)
    content = json.loads('{"format": 1, "target": "ort-cpu", "compiler": {}, "flags": [], "levels": []}')
    content |= {"library": real.name, "sha256": hashlib.sha256(real.read_bytes()).hexdigest()}
    content["platform"] = f"{sys.platform}-{platform.machine()}"
    argument = [{"name": "x", "form": "single", "type": None}]
    signature = [{"inputs": {"x": "float32"}, "outputs": {"x": "float32"}}]
    content["operators"] = [
        {"domain": "acme", "op_type": "Twice", "version": 3, "name": "acme::twice", "inputs": argument, "outputs": argument,
         "signatures": signature, "attributes": []}
    ]  # fmt: skip
    real.with_suffix(".json").write_text(json.dumps(content))
    for version, dtype in ((3, TensorProto.FLOAT), (2, TensorProto.FLOAT), (3, TensorProto.INT32)):
        proto = model([swish(op="Twice")], domains=[("acme", version)], dtype=dtype)
        found = inspect_model(save(proto), libraries=[real])
        assert (found.exit_code == 0) == (refusal(proto, real) is None)


@pytest.mark.parametrize(
    ("version", "loads"), [("1.16.3", False), ("1.9.0", False), ("1.17.0", True), ("1.32.0", True)]
)
def test_runtimes_too_old_for_a_library(
    command: Any, save: Any, library: Path, version: str, loads: bool
) -> None:
    path = save(model([swish()], domains=[("acme", 1)]))
    done = command("inspect", path, "--runtime", f"onnxruntime=={version}", "--ort-library", library)
    assert done.code == (not loads)
    assert ("libacme.so needs ONNX Runtime 1.17 or newer" in done.out) == (not loads)


# Hostile files, and large ones.


def test_names_of_a_file_move_no_cursor(command: Any, save: Any) -> None:
    hostile = "\x1b[31mEVIL\x1b[0m\x07\n\u202e" + "x" * 100_000
    node = helper.make_node(hostile, ["x"], ["y"], name=hostile, domain=hostile)
    node.attribute.append(helper.make_attribute(hostile, 1))
    path = save(model([node, helper.make_node("Relu", ["x"], [hostile])], domains=[(hostile, 1)]))
    done = command("inspect", path)
    assert done.code == 1
    assert all(line.isprintable() for line in done.out.splitlines())
    assert not any(line.startswith("EVIL") for line in done.out.splitlines())
    assert all(len(line) < 3000 for line in done.out.splitlines() if line.startswith(("  FAILS", "  custom")))
    assert command("inspect", path, "--json").out.replace("\n", "").isprintable()


def test_long_names_are_cut_for_people_and_whole_in_the_json(command: Any, save: Any) -> None:
    name = "n" * 10_000
    proto = model([helper.make_node(name, ["x"], [name], name=name, domain=name)], domains=[(name, 1)])
    proto.graph.input[0].name = proto.graph.node[0].input[0] = name + "x"
    proto.graph.output[0].name = name
    path = save(proto)
    done = command("inspect", path)
    assert done.code == 1
    assert "n" * 150 in done.out
    assert "n" * 201 not in done.out.replace(str(path), "")
    assert name in command("inspect", path, "--json").out


def test_names_that_are_no_text(command: Any, save: Any) -> None:
    """Protobuf hands on what is no UTF-8 as bytes."""
    proto = model(
        [swish("zzzz", "QQQQ", JJJJ=1)], domains=[("zzzz", 1)], functions=[body("KKKKK", domain="zzzz")]
    )
    path = save(proto)
    content = path.read_bytes()
    for name in (b"zzzz", b"QQQQ", b"JJJJ", b"KKKKK", b"act"):
        content = content.replace(name, b"\xff" * len(name))
    path.write_bytes(content)
    assert command("inspect", path).code == 1
    assert json.loads(command("inspect", path, "--json").out)


def test_a_damaged_file_ends_in_a_report_or_in_one_line(
    command: Any, save: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    infer = shape_faults.infer
    runs = iter(range(10_000))

    def infer_some(proto: onnx.ModelProto) -> shape_faults.Inferred:
        """The process costs half a second: each fiftieth file gets one, the others only what is made for it."""
        if next(runs) % 50 == 0:
            found = infer(proto)
            assert not any("process that infers" in text for text in found.not_checked)
            return found
        shape_faults._without_weights(proto)
        return shape_faults.NOT_INFERRED

    monkeypatch.setattr(shape_faults, "infer", infer_some)
    proto = model([swish(beta=2.0)], domains=[("acme", 1)], functions=[body()])
    path = save(proto)
    whole = path.read_bytes()
    chance = random.Random(0)
    reported, messages = 0, []
    for _ in range(1500):
        content = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 5))):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content)
        try:
            found = inspect_model(path, libraries=[library])
        except DeployOpsError as error:
            messages.append(str(error))
        else:
            reported += 1
            assert all(line.isprintable() for line in found.summary().split("\n"))
    assert reported > 100
    assert messages
    assert not any("\n" in message for message in messages)


def chain(nodes: Callable[[int, str, str], onnx.NodeProto], count: int = 100_000) -> onnx.ModelProto:
    names = ["x", *(f"v{k}" for k in range(count - 1)), "y"]
    made = model([nodes(k, names[k], names[k + 1]) for k in range(count)], 20, [("acme", 1)])
    made.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [16, 16, 1, 1], [0.0] * 256))
    return made


def custom(k: int, x: str, y: str) -> onnx.NodeProto:
    return helper.make_node("Foo", [x], [y], name=f"n{k}", domain="acme", index=k)


LARGE: dict[str, Callable[[int, str, str], onnx.NodeProto]] = {
    "standard": lambda k, x, y: helper.make_node("Relu", [x], [y], name=f"n{k}"),
    "custom": custom,
    "convolutions in between": lambda k, x, y: (
        custom(k, x, y) if k % 2 else helper.make_node("Conv", [x, "w"], [y])
    ),
    "all read one value": lambda k, x, y: custom(k, "x", y),
    "all are constant": lambda k, x, y: custom(k, "w", y) if k % 2 else helper.make_node("Neg", [x], [y]),
    "all kinds of one": lambda k, x, y: helper.make_node(f"Foo{k}", [x], [y], domain="acme"),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_hundred_thousand_nodes_take_seconds(kind: str, save: Any) -> None:
    path = save(chain(LARGE[kind]))
    started = time.process_time()  # the machines that run the suite share their cores
    found = inspect_model(path)
    found.summary()
    took = time.process_time() - started
    assert took < 100, took  # not the speed, but that it does not grow with the square
    if kind == "standard":
        assert took < 60, took


def test_nodes_with_a_hundred_thousand_inputs_take_seconds(save: Any) -> None:
    count = 30_000
    nodes = [custom(k, "x", f"v{k}") for k in range(count)]
    everything = [f"v{k}" for k in range(count)]
    nodes.append(helper.make_node("Concat", everything, ["c"], axis=0))
    nodes.append(helper.make_node("Conv", everything, ["d"]))
    nodes += [helper.make_node("Bar", ["c", *everything], [f"w{k}"], domain="acme") for k in range(3)]
    constant = [helper.make_node("Foo", ["w"], [f"k{k}"], domain="acme") for k in range(2_000)]
    nodes += [*constant, helper.make_node("Sum", [f"k{k}" for k in range(2_000)], ["s"])]
    proto = model(nodes, 20, [("acme", 1)])
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [1], [0.0]))
    started = time.process_time()
    inspect_model(save(proto)).summary()
    assert time.process_time() - started < 100
