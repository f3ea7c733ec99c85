"""`compile_library`: what is in a library, what it refuses, and what its users read when something goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from deployops import compile_library, operator
from deployops.errors import DeclarationError, UsageError
from deployops.native.diagnostics import CompileError
from deployops.ort_ops import Library, check_kernels, session
from deployops.symbolic import registry
from deployops.symbolic.operator import Operator

from .conftest import PACK


def opened(library: Library, nodes: list[Any], **types: int) -> onnxruntime.InferenceSession:
    """A session on nodes of the pack, inputs by name and element type, output `y`; two threads."""
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in types.items()]
    outputs = [helper.make_empty_tensor_value_info("y")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("pack", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=8
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    options.register_custom_ops_library(str(library.path))
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def node(op_type: str, *inputs: str, **attributes: Any) -> Any:
    return helper.make_node(op_type, list(inputs), ["y"], name="the_node", domain="pack", **attributes)


# --- what is written ---------------------------------------------------------------------------------------------


def test_the_manifest_says_what_is_in_the_library(pack_library: Library, pack: dict[str, Operator]) -> None:
    manifest = json.loads(pack_library.manifest.read_text())
    assert manifest["sha256"] == sha256(pack_library.path.read_bytes()).hexdigest()
    assert manifest["target"] == "ort-cpu"
    assert manifest["compiler"]["version"]
    assert {"-std=c++17", "-O3"} <= set(manifest["flags"])
    of = {o["name"]: o for o in manifest["operators"]}
    assert set(of) == {op.name for op in pack.values()}
    gather = of["pack::gather_rows"]
    assert (gather["domain"], gather["op_type"], gather["version"]) == ("pack", "GatherRows", 1)
    assert {(s["inputs"]["x"], s["inputs"]["index"]) for s in gather["signatures"]} == {
        (x, i) for x in ("float32", "float64", "float16", "bfloat16") for i in ("int64", "int32")
    }
    assert {s["outputs"]["found"] for s in gather["signatures"]} == {"bool"}
    assert str(PACK.parent) not in pack_library.manifest.read_text()


def test_only_the_entry_points_are_visible(pack_library: Library) -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(pack_library.path)], capture_output=True, text=True, check=True
    )
    names = {line.split()[2] for line in listed.stdout.splitlines()}
    assert "RegisterCustomOps" in names
    assert all(n == "RegisterCustomOps" or n.startswith("deployops_") for n in names), names


def test_no_path_of_this_machine_is_inside(pack_library: Library) -> None:
    content = pack_library.path.read_bytes()
    assert str(PACK.parent).encode() not in content
    assert str(Path.home()).encode() not in content or str(Path.home()) == "/"


def test_every_kernel_computes_what_its_reference_does(
    pack_library: Library, pack: dict[str, Operator]
) -> None:
    results = check_kernels(pack_library.path, list(pack.values()))
    assert len(results) == len(pack)
    assert all(r.status == "passed" for r in results), [r for r in results if r.status != "passed"]


# --- in ONNX Runtime ---------------------------------------------------------------------------------------------


def test_an_attribute_of_the_wrong_type_is_refused_when_the_model_is_opened(pack_library: Library) -> None:
    with pytest.raises(Exception, match="the attribute `low` is of type INT; expected FLOAT"):
        opened(pack_library, [node("Limit", "x", low=1)], x=TensorProto.FLOAT)


def test_a_missing_attribute_has_its_default(pack_library: Library) -> None:
    x = np.array([-5, 0, 5], np.float32)
    [y] = opened(pack_library, [node("Limit", "x")], x=TensorProto.FLOAT).run(None, {"x": x})
    np.testing.assert_array_equal(y, [-1, 0, 5])


def test_a_missing_attribute_without_a_default_is_refused(pack_library: Library) -> None:
    with pytest.raises(Exception, match="the attribute `ys_count` \\(INT\\) is missing"):
        opened(pack_library, [node("JoinRows", "x", xs_count=1)], x=TensorProto.FLOAT)


def test_a_float_attribute_is_the_number_that_was_meant(pack_library: Library) -> None:
    # 0.1 as float32 is 0.100000001490116
    x = np.array([0.5], np.float64)
    [y] = opened(pack_library, [node("Limit", "x", high=0.1)], x=TensorProto.DOUBLE).run(None, {"x": x})
    assert y[0] == 0.1


def test_what_a_kernel_throws_on_a_worker_is_an_error_in_python(pack_library: Library) -> None:
    opened_session = opened(pack_library, [node("Picky", "x", message="väl")], x=TensorProto.FLOAT)
    x = np.ones(100_000, np.float32)
    x[[5_000, 77_777]] = -1
    with pytest.raises(
        Exception, match=r"pack::Picky \(float32, node 'the_node'\): väl: number (5000|77777)"
    ):
        opened_session.run(None, {"x": x})
    np.testing.assert_array_equal(opened_session.run(None, {"x": np.abs(x)})[0], np.abs(x))


def test_so_is_what_is_no_exception_of_the_standard_library(pack_library: Library) -> None:
    opened_session = opened(pack_library, [node("Picky", "x", fail_on=99_999)], x=TensorProto.FLOAT)
    with pytest.raises(Exception, match=r"threw something that is no std::exception"):
        opened_session.run(None, {"x": np.ones(100_000, np.float32)})


def test_wrong_inputs_are_told_with_what_was_expected(pack_library: Library) -> None:
    opened_session = opened(
        pack_library, [node("GatherRows", "x", "i")], x=TensorProto.FLOAT, i=TensorProto.INT64
    )
    with pytest.raises(Exception, match=r"index\[0\] is 7; x has 2 rows"):
        opened_session.run(None, {"x": np.ones((2, 3), np.float32), "i": np.array([7])})


def test_ranks_that_the_shape_rule_does_not_know_are_refused(pack_library: Library) -> None:
    opened_session = opened(pack_library, [node("StridedPairs", "x")], x=TensorProto.FLOAT)
    with pytest.raises(Exception, match="known are x 2"):
        opened_session.run(None, {"x": np.ones(4, np.float32)})


def test_an_output_that_the_model_leaves_out(pack_library: Library) -> None:
    opened_session = opened(
        pack_library, [node("GatherRows", "x", "i")], x=TensorProto.FLOAT, i=TensorProto.INT32
    )
    [rows] = opened_session.run(
        None, {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "i": np.array([1, -1], np.int32)}
    )
    np.testing.assert_array_equal(rows, [[3, 4, 5], [0, 0, 0]])


def test_registered_twice(pack_library: Library) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(pack_library.path))
    options.register_custom_ops_library(str(pack_library.path))
    with pytest.raises(Exception, match="already set"):
        onnxruntime.InferenceSession(
            helper.make_model(helper.make_graph([], "g", [], [])).SerializeToString(), options
        )


def test_many_sessions_at_once(pack_library: Library) -> None:
    from concurrent.futures import ThreadPoolExecutor

    x = np.linspace(-3, 3, 20_000, dtype=np.float32)

    def work(k: int) -> bool:
        low = -1.0 - k / 10
        [y] = opened(pack_library, [node("Limit", "x", low=low)], x=TensorProto.FLOAT).run(None, {"x": x})
        return bool(np.allclose(y, np.maximum(x, np.float32(low))))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def test_the_level_can_be_chosen(pack_library: Library) -> None:
    """DEPLOYOPS_CPU_LEVEL names the kernels' instruction set; an unknown one is refused."""
    code = (
        "import onnxruntime as ort, sys\n"
        "o = ort.SessionOptions(); o.log_severity_level = 4\n"
        "o.register_custom_ops_library(sys.argv[1])\n"
    )
    for name, words in (("portable", ""), ("nonsense", "there are no kernels of level `nonsense`")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(pack_library.path)],
            env=os.environ | {"DEPLOYOPS_CPU_LEVEL": name},
            capture_output=True,
            text=True,
        )
        assert (done.returncode == 0) == (not words)
        assert words in done.stderr


@pytest.mark.parametrize("value", [1, 1.0, "a", [1]])
def test_a_list_of_another_type_is_refused(value: Any, pack_library: Library) -> None:
    # ONNX Runtime itself reads it as an empty list (and a list of texts cannot be told from one: a session can)
    with pytest.raises(Exception, match=r"the attribute `weights` (is of type|\(FLOATS\) is missing)"):
        opened(pack_library, [node("WeightedSum", "x", weights=value)], x=TensorProto.FLOAT)


def shipped_session(library: str, op_type: str) -> onnxruntime.InferenceSession:
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], ["y"], domain="deployops")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("deployops", 1)]
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(library)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


@pytest.mark.parametrize("op_type", ["CubeRoot", "StableSigmoid", "RectifiedLinear", "StableSoftmax"])
@pytest.mark.parametrize("count", [1003, 5_000_000])
def test_an_output_bound_over_its_input_or_at_any_address(
    op_type: str, count: int, shipped_library: str
) -> None:
    opened_session = shipped_session(shipped_library, op_type)
    x = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    [want] = opened_session.run(None, {"x": x})
    memory = np.zeros(4 * count + 8, np.uint8)
    for offset in (0, 1, 2, 4):
        binding = opened_session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "cpu", 0, np.float32, [count], memory.ctypes.data + offset)
        opened_session.run_with_iobinding(binding)
        np.testing.assert_array_equal(
            np.frombuffer(memory[offset : offset + 4 * count].tobytes(), np.float32), want
        )
    both = x.copy()
    binding = opened_session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, [count], both.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, [count], both.ctypes.data)
    opened_session.run_with_iobinding(binding)
    np.testing.assert_array_equal(both, want)


def test_dims_keep_their_names_through_custom_nodes(shipped_library: str) -> None:
    names = ("x", TensorProto.FLOAT, ["batch", 16]), ("b", TensorProto.FLOAT, ["k", 16])
    nodes = [
        helper.make_node("StableSigmoid", ["x"], ["t"], domain="deployops"),
        helper.make_node("AddRelu", ["t", "b"], ["y"], domain="deployops"),
        helper.make_node("StableSigmoid", ["t"], ["z"], domain="deployops"),
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, 16]) for n in ("y", "z")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*n) for n in names], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("deployops", 1)]
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(shipped_library)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    y, z = onnxruntime.InferenceSession(model.SerializeToString(), options).get_outputs()
    assert z.shape == ["batch", 16]
    assert y.shape[1] == 16
    assert y.shape[0] != -1  # which would be a size, not a name


def test_a_shape_written_by_the_kernel_may_overlap_nothing_either(
    pack_library: Library, pack: dict[str, Operator]
) -> None:
    from deployops.native.cpu_library import CpuLibrary

    x = torch.arange(6.0).reshape(2, 3)
    before = x.clone()
    [y, written] = CpuLibrary(pack_library.path).run(pack["shift_"], (x, x, 2))
    assert torch.equal(x, before * 3)
    assert torch.equal(written, before * 3)
    assert torch.equal(y, (before * 3).sum(-1))


# --- what is refused ---------------------------------------------------------------------------------------------


def written(folder: Path, declaration: str, kernel: str | None, name: str) -> str:
    """A pack of one operator in a folder."""
    head = (
        "import torch\nfrom torch import Tensor\nfrom deployops import operator\n\n"
        f"@operator('built{abs(hash(str(folder))) % 10**6}::{name}', dtypes=('float32',))\n"
    )
    (folder / f"{name}_ops.py").write_text(head + declaration)
    if kernel is not None:
        (folder / f"{name}.h").write_text(
            '#pragma once\n#include "deployops/parallel.h"\n#include "deployops/tensor.h"\n' + kernel
        )
    return str(folder / f"{name}_ops.py")


SAME = """def {0}(x: Tensor) -> Tensor:
    return x.clone()

@{0}.fake
def _(x):
    return torch.empty_like(x)

@{0}.samples
def _(draw):
    yield draw(3),
"""
COPY = """namespace deployops {{
inline void {0}(const Parallel&, In<float> x, Out<float> y) {{
  for (int64_t i = 0; i < x.numel(); ++i) y[i] = {1};
}}
}}
"""


def test_no_kernel(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("lonely"), None, "lonely")
    with pytest.raises(
        UsageError, match=r"has no kernel: there is no .*kernels/lonely\.h or .*lonely\.h"
    ) as e:
        compile_library(ops=[place], out=tmp_path / "lib")
    assert "inline void lonely(const Parallel& par, In<float> x, Out<float> y)" in str(e.value)


def test_an_error_in_the_kernel_is_shown_at_its_line(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("broken"), COPY.format("broken", "x[i] + nothing"), "broken")
    with pytest.raises(CompileError) as e:
        compile_library(ops=[place], out=tmp_path / "lib")
    text = str(e.value)
    assert "broken.h:6" in text
    assert "nothing" in text
    assert not (tmp_path / "lib" / "libdeployops_ort_cpu.so").exists()


def test_a_kernel_with_another_signature_is_told_which_one_to_have(tmp_path: Path) -> None:
    kernel = COPY.format("shifted", "x[i]").replace("Out<float> y", "Out<float> y, int extra")
    place = written(tmp_path, SAME.format("shifted"), kernel, "shifted")
    with pytest.raises(CompileError) as e:
        compile_library(ops=[place], out=tmp_path / "lib")
    assert "void shifted(const Parallel& par, In<float> x, Out<float> y)" in str(e.value)


def test_a_parameter_that_loses_digits_is_another_signature(tmp_path: Path) -> None:
    text = (
        SAME.format("narrow")
        .replace("x: Tensor)", "x: Tensor, alpha: float = 0.5)")
        .replace("_(x)", "_(x, alpha=0.5)")
    )
    for given in ("int64_t", "float"):
        kernel = COPY.format("narrow", "float(alpha)").replace("In<float> x", f"In<float> x, {given} alpha")
        place = written(tmp_path, text, kernel, "narrow")
        with pytest.raises(CompileError, match="double alpha"):
            compile_library(ops=[place], out=tmp_path / "lib")


def test_what_a_kernel_includes_is_built_again_when_it_changes(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("doubled"), COPY.format("doubled", "x[i] * FACTOR"), "doubled")
    shared = tmp_path / "elsewhere"
    shared.mkdir()
    kernel = tmp_path / "doubled.h"
    kernel.write_text(
        kernel.read_text().replace("#pragma once", '#pragma once\n#include "elsewhere/factor.h"')
    )
    results = []
    for factor in ("2", "3"):
        (shared / "factor.h").write_text(f"#define FACTOR {factor}\n")
        library = compile_library(ops=[place], out=tmp_path / "lib")
        from deployops.native.cpu_library import CpuLibrary

        copy = shutil.copy(library.path, tmp_path / f"lib{factor}.so")  # a loaded library is not loaded again
        [op] = registry.load([place])
        results.append(CpuLibrary(copy).run(op, [torch.ones(3)])[0].tolist())
    assert results == [[2.0] * 3, [3.0] * 3]


def test_nothing_changed_is_quick_and_needs_no_torch(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("steady"), COPY.format("steady", "x[i]"), "steady")
    code = (
        "import sys\nfrom deployops import compile_library\n"
        f"library = compile_library(ops=[{place!r}], out={str(tmp_path / 'lib')!r})\n"
        "print(library.compiled, 'torch' in sys.modules)"
    )
    seen = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert int(seen[0][0]) > 0
    assert seen[1] == ["0", "False"]


def test_a_kernel_that_comes_to_stand_before_another_one_is_noticed(tmp_path: Path) -> None:
    from deployops.native.cpu_library import CpuLibrary

    place = written(tmp_path, SAME.format("ahead"), COPY.format("ahead", "2"), "ahead")
    compile_library(ops=[place], out=tmp_path / "lib")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "ahead.h").write_text((tmp_path / "ahead.h").read_text().replace("= 2", "= 102"))
    code = f"from deployops import compile_library\ncompile_library(ops=[{place!r}], out={str(tmp_path / 'lib')!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    [op] = registry.load([place])
    copy = shutil.copy(tmp_path / "lib" / "libdeployops_ort_cpu.so", tmp_path / "copy.so")
    assert CpuLibrary(copy).run(op, [torch.ones(2)])[0].tolist() == [102.0, 102.0]


def test_a_check_of_a_library_from_before_the_kernel_changed(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("aged"), COPY.format("aged", "x[i]"), "aged")
    library = compile_library(ops=[place], out=tmp_path / "lib")
    [op] = registry.load([place])
    assert check_kernels(library.path, [op])[0].status == "passed"
    with (tmp_path / "aged.h").open("a") as kernel:
        kernel.write("// changed\n")
    [result] = check_kernels(library.path, [op])
    assert result.status == "failed"
    assert "has changed since the library was built" in result.detail


def test_names_that_meet_in_a_library(tmp_path: Path) -> None:
    """`m::n__o` beside `m__n::o`, and an operator called like something in the generated code."""
    declared = [("odd::b__c", "b__c"), ("odd__b::c", "c"), ("odd::call", "call"), ("odd::next", "next")]
    text = "import torch\nfrom torch import Tensor\nfrom deployops import operator\n"
    for name, short in declared:
        text += f"\n@operator({name!r}, dtypes=('float32',), onnx={name.partition('::')[0] + '::Odd_' + short!r})\n"
        text += SAME.format(short)
        (tmp_path / f"{short}.h").write_text(
            '#pragma once\n#include "deployops/parallel.h"\n#include "deployops/tensor.h"\n'
            + COPY.format(short, "x[i]")
        )
    (tmp_path / "odd_ops.py").write_text(text)
    library = compile_library(ops=[str(tmp_path / "odd_ops.py")], out=tmp_path / "lib")
    results = check_kernels(library.path, registry.load([str(tmp_path / "odd_ops.py")]))
    assert [r.status for r in results] == ["passed"] * 4


def test_a_dimension_that_a_tensor_lacks_is_an_error_not_a_crash(tmp_path: Path) -> None:
    kernel = COPY.format("last", "float(x.size(-1))")
    place = written(tmp_path, SAME.format("last"), kernel, "last")
    library = compile_library(ops=[place], out=tmp_path / "lib")
    from deployops.native.cpu_library import CpuLibrary, KernelError

    [op] = registry.load([place])
    with pytest.raises(KernelError, match=r"a tensor of shape \(\) has no dimension -1"):
        CpuLibrary(library.path).run(op, [torch.tensor(1.0)])


def test_two_builds_at_once(tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("twin"), COPY.format("twin", "x[i]"), "twin")
    code = f"from deployops import compile_library\ncompile_library(ops=[{place!r}], out={str(tmp_path / 'lib')!r})"
    environment = os.environ | {"DEPLOYOPS_CACHE": str(tmp_path / "cache")}
    running = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)]
    assert [p.wait() for p in running] == [0, 0]
    [op] = registry.load([place])
    assert check_kernels(tmp_path / "lib" / "libdeployops_ort_cpu.so", [op])[0].status == "passed"


def test_a_changed_declaration_is_noticed_by_an_old_library(
    pack_library: Library, pack: dict[str, Operator]
) -> None:
    limit = pack["limit"]
    registry.remove(limit)
    try:

        @operator("pack::limit", onnx="pack::OtherLimit", dtypes=("float32",))
        def limit2(x: torch.Tensor, low: int = 1) -> torch.Tensor:
            return x.clone()

        @limit2.fake
        def _(x: torch.Tensor, low: int = 1) -> torch.Tensor:
            return torch.empty_like(x)

        with pytest.raises(UsageError, match="built from another declaration of pack::limit"):
            check_kernels(pack_library.path, [limit2])
    finally:
        registry.add(limit)


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("x: Tensor, names: list[str]", "a list of texts"),
        ("x: Tensor", "is a list; kernels have a fixed number of outputs"),
    ],
)
def test_what_a_library_cannot_carry(signature: str, words: str, tmp_path: Path) -> None:
    returns = "list[Tensor]" if "list;" in words else "Tensor"
    body = "[x.clone()]" if returns.startswith("list") else "x.clone()"
    fake = "[torch.empty_like(x)]" if returns.startswith("list") else "torch.empty_like(x)"
    text = (
        f"def odd({signature}) -> {returns}:\n    return {body}\n\n@odd.fake\ndef _({signature}):\n    return {fake}\n"
        "\n@odd.samples\ndef _(draw):\n    yield (draw(3), ['a'])[: len(odd.interface.arguments)]\n"
    )
    place = written(tmp_path, text, COPY.format("odd", "x[i]"), "odd")
    with pytest.raises(DeclarationError, match=words):
        compile_library(ops=[place], out=tmp_path / "lib")


def test_without_a_fake_kernel(tmp_path: Path) -> None:
    text = "def bare(x: Tensor) -> Tensor:\n    return x.clone()\n"
    place = written(tmp_path, text, COPY.format("bare", "x[i]"), "bare")
    with pytest.raises(DeclarationError, match="has no fake kernel"):
        compile_library(ops=[place], out=tmp_path / "lib")


def test_out_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "lib").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        compile_library(ops=[str(PACK)], out=tmp_path / "lib")


def test_the_command(command: Callable[..., Any], tmp_path: Path) -> None:
    place = written(tmp_path, SAME.format("spoken"), COPY.format("spoken", "x[i]"), "spoken")
    done = command("compile", "--ops", place, "-o", tmp_path / "lib", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert Path(said["library"]).is_file()
    assert len(said["operators"]) == 1


# --- sessions ----------------------------------------------------------------------------------------------------


def test_a_session_checks_before_the_runtime_does(pack_library: Library, tmp_path: Path) -> None:
    from deployops.errors import ModelFileError, NotCheckedError

    def save(nodes: list[Any], kind: int = TensorProto.FLOAT, version: int = 1) -> Path:
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("pack", version)]
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", kind, [3])],
            [helper.make_tensor_value_info("y", kind, [3])],
        )
        path = tmp_path / "model.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
        return path

    libraries = [pack_library.path]
    good = session(save([node("Limit", "x")]), libraries=libraries)
    np.testing.assert_array_equal(good.run(None, {"x": np.array([-9, 0, 9], np.float32)})[0], [-1, 0, 9])
    with pytest.raises(NotCheckedError, match=r"no kernel for \(x: float64\)"):
        session(save([node("Picky", "x")], TensorProto.DOUBLE), libraries=libraries)
    with pytest.raises(NotCheckedError, match="has the attribute 'hight', which its kernel does not know"):
        session(save([node("Limit", "x", hight=1.0)]), libraries=libraries)
    with pytest.raises(ModelFileError, match="wrong domain version"):
        session(save([node("Limit", "x")], version=7), libraries=libraries)
    with pytest.raises(ModelFileError, match="'low' of pack::Limit is INT; its kernel reads FLOAT"):
        session(save([node("Limit", "x", low=1)]), libraries=libraries)


def test_libraries_that_a_session_cannot_take(pack_library: Library, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [node("Limit", "x")],
        "g",
        [helper.make_tensor_value_info("x", 1, [3])],
        [helper.make_tensor_value_info("y", 1, [3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("pack", 1)]
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / pack_library.path.name
    shutil.copy(pack_library.path, copy)
    with pytest.warns(UserWarning, match="has no manifest beside it"):
        session(path, libraries=[copy])
    shutil.copy(pack_library.manifest, copy.with_suffix(".json"))
    with pytest.raises(UsageError, match="both have operators of the domain 'pack'"):
        session(path, libraries=[pack_library.path, copy])
    with pytest.raises(UsageError, match="that is a folder"):
        session(path, libraries=[copy.parent])
    with pytest.raises(UsageError, match="is a manifest"):
        session(path, libraries=[pack_library.manifest])


def test_validate_runs_a_file_of_nodes_with_a_library(command: Callable[..., Any], tmp_path: Path) -> None:
    kernel = COPY.format("tripled", "3 * x[i]")
    text = SAME.format("tripled").replace("x.clone()", "3 * x")
    place = written(tmp_path, text, kernel, "tripled")
    library = compile_library(ops=[place], out=tmp_path / "lib")
    [op] = registry.load([place])

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return op(x) + 1

    torch.export.save(torch.export.export(Net(), (torch.ones(2, 3),)), tmp_path / "net.pt2")
    onnx_file = tmp_path / "net.onnx"
    assert command("export", tmp_path / "net.pt2", "--custom-ops", "node", "-o", onnx_file).code in (0, 3)
    arguments = ("validate", tmp_path / "net.pt2", "--onnx", onnx_file, "--no-latency")
    done = command(*arguments, "--ort-library", library.path)
    assert done.code == 0, done.out + done.err


def test_a_shipped_operator_without_a_library_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deployops.errors import NotCheckedError

    monkeypatch.setenv("DEPLOYOPS_CACHE", str(tmp_path / "empty"))
    graph = helper.make_graph(
        [helper.make_node("CubeRoot", ["x"], ["y"], domain="deployops")],
        "g",
        [helper.make_tensor_value_info("x", 1, [3])],
        [helper.make_tensor_value_info("y", 1, [3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("deployops", 1)]
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    with pytest.raises(NotCheckedError, match="`deployops compile --target ort-cpu` builds a library"):
        session(path)


def test_the_shipped_library_is_found(shipped_library: str, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("CubeRoot", ["x"], ["y"], domain="deployops")],
        "g",
        [helper.make_tensor_value_info("x", 1, [3])],
        [helper.make_tensor_value_info("y", 1, [3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("deployops", 1)]
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    start = time.perf_counter()
    [y] = session(path).run(None, {"x": np.array([-27, -0.0, 8], np.float32)})
    assert time.perf_counter() - start < 60  # nothing is compiled by a session
    np.testing.assert_array_equal(y, [-3, 0, 2])
    assert np.signbit(y).tolist() == [True, True, False]


def test_providers(tmp_path: Path) -> None:
    from deployops.errors import NotCheckedError

    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [3])],
        [helper.make_tensor_value_info("y", 1, [3])],
    )
    path = tmp_path / "model.onnx"
    opsets = [helper.make_opsetid("", 17)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    with pytest.raises(UsageError, match="knows no provider NoSuchExecutionProvider"):
        session(path, providers=["NoSuchExecutionProvider"])
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(NotCheckedError, match="has no CUDAExecutionProvider"):
            session(path, providers=["CUDAExecutionProvider"])
    assert session(path, providers=["CPUExecutionProvider"]).get_providers() == ["CPUExecutionProvider"]
