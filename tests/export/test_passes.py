"""The passes change what is computed how often, and nothing that is computed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from deployops.export.graph.passes import SOURCE_KEY, optimize, strip_metadata


def parsed(text: str) -> ir.Model:
    """A model in ONNX's text form, without the header."""
    header = '<ir_version: 10, opset_import: ["" : 20, "acme" : 1]>'
    return ir.from_proto(onnx.parser.parse_model(header + text))


def operators(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def run(model: ir.Model, *values: Any) -> list[Any]:
    content = ir.to_proto(model).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([i.name for i in session.get_inputs()], values, strict=True)))


def assert_same_after(model: ir.Model, *values: Any) -> Counter[str]:
    """Optimise, compare with before in ONNX Runtime without its own optimiser; returns what is left."""
    expected = run(model, *values)
    names = [(v.name, v.dtype) for v in [*model.graph.inputs, *model.graph.outputs]]
    optimize(model)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert [(v.name, v.dtype) for v in [*model.graph.inputs, *model.graph.outputs]] == names
    for before, after in zip(expected, run(model, *values), strict=True):
        np.testing.assert_array_equal(before, after)
    return operators(model)


X = np.arange(-12, 12, dtype=np.float32).reshape(2, 3, 4)


def test_equal_nodes_are_computed_once() -> None:
    model = parsed("""g (float[2,3,4] x) => (float[2,3,4] y) {
        a = Relu(x)  b = Relu(x)  c = Exp(a)  d = Exp(b)  y = Add(c, d)
    }""")
    assert assert_same_after(model, X) == {"Relu": 1, "Exp": 1, "Add": 1}


def test_constants_are_folded_and_become_initializers() -> None:
    model = parsed("""g (float[2,3,4] x) => (float[2,3,4] y) {
        a = Constant<value_float = 2.0>()  b = Constant<value_float = 3.0>()  c = Mul(a, b)  y = Mul(x, c)
    }""")
    assert assert_same_after(model, X) == {"Mul": 1}
    assert len(model.graph.initializers) == 1


@pytest.mark.parametrize(
    "draw",
    ["RandomNormalLike(x)", "RandomUniformLike(x)", "Bernoulli(p)", "RandomNormal<shape = [2,3,4]>()"],
)
def test_random_operators_are_not_merged(draw: str) -> None:
    model = parsed(f"""g (float[2,3,4] x) => (float[2,3,4] y) {{
        p = Sigmoid(x)  a = {draw}  b = {draw}  y = Sub(a, b)
    }}""")
    optimize(model)
    assert operators(model)[draw.split("(")[0].split("<")[0]] == 2


def test_random_draws_on_constants_are_not_folded() -> None:
    model = parsed("""g (float[3] x) => (float[3] y) {
        p = Constant<value_floats = [0.5, 0.5, 0.5]>()  a = Bernoulli(p)  y = Add(x, a)
    }""")
    optimize(model)
    assert operators(model) == {"Bernoulli": 1, "Add": 1}


def test_dropout_in_training_mode_is_not_merged() -> None:
    model = parsed("""g (float[2,3,4] x) => (float[2,3,4] y) {
        r = Constant<value_float = 0.5>()  t = Constant<value = bool {1}>()
        a = Dropout(x, r, t)  b = Dropout(x, r, t)  y = Sub(a, b)
    }""")
    optimize(model)
    assert operators(model)["Dropout"] == 2


def test_custom_operators_are_merged_unless_stateful() -> None:
    text = """g (float[2,3,4] x) => (float[2,3,4] y) {
        a = acme.Noise(x)  b = acme.Noise(x)  c = acme.Scale(x)  d = acme.Scale(x)  y = Sum(a, b, c, d)
    }"""
    model = parsed(text)
    optimize(model, stateful=frozenset({("acme", "Noise")}))
    assert operators(model) == {"Noise": 2, "Scale": 1, "Sum": 1}


def test_functions_that_draw_are_not_merged() -> None:
    text = """g (float[2,3,4] x) => (float[2,3,4] y) {
        a = acme.outer(x)  b = acme.outer(x)  y = Sub(a, b)
    }
    <domain: "acme", opset_import: ["" : 20, "acme" : 1]> outer (x) => (y) { y = acme.inner(x) }
    <domain: "acme", opset_import: ["" : 20]> inner (x) => (y) { y = RandomNormalLike(x) }"""
    model = parsed(text)
    optimize(model)
    assert operators(model) == {"outer": 2, "Sub": 1}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("LeakyRelu<alpha = 0.1>(x)", "LeakyRelu<alpha = 0.2>(x)"),
        ("LeakyRelu<alpha = 0.0>(x)", "LeakyRelu<alpha = -0.0>(x)"),  # equal, and another sign of zero
        ("acme.Op<a = 1>(x)", "acme.Op<a = 1.0>(x)"),  # equal in Python, another type
        ("acme.Op<a = [1, 2]>(x)", "acme.Op<a = [1.0, 2.0]>(x)"),
        ("acme.Op<a = 1>(x)", "acme.Op<b = 1>(x)"),
        ("acme.Op(x)", "Relu(x)"),
        ("acme.Op(x, x)", "acme.Op(x)"),
    ],
)
def test_what_differs_is_not_merged(first: str, second: str) -> None:
    model = parsed(f"g (float[2,3,4] x) => (float[2,3,4] y) {{ a = {first}  b = {second}  y = Sub(a, b) }}")
    optimize(model)
    assert len(list(model.graph)) == 3


def test_nan_attributes_are_equal_to_themselves() -> None:
    nodes = [helper.make_node("Op", ["x"], [name], domain="acme", a=float("nan")) for name in "ab"]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [*nodes, helper.make_node("Sub", ["a", "b"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, [2])],
        [value("y", TensorProto.FLOAT, [2])],
    )
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    model = ir.from_proto(helper.make_model(graph, opset_imports=imports))
    optimize(model)
    assert operators(model) == {"Op": 1, "Sub": 1}


def test_omitted_outputs_are_not_used_for_present_ones() -> None:
    model = parsed("""g (float[2] x) => (float[2] y) {
        "", i = acme.Op(x)  v, "" = acme.Op(x)  y = Sub(v, i)
    }""")
    optimize(model)
    assert operators(model) == {"Op": 2, "Sub": 1}


def test_outputs_stay_apart_and_keep_their_names() -> None:
    model = parsed("g (float[2,3,4] x) => (float[2,3,4] a, float[2,3,4] b) { a = Relu(x)  b = Relu(x) }")
    assert_same_after(model, X)
    copied = parsed("g (float[2,3,4] x) => (float[2,3,4] a, float[2,3,4] b) { a = Relu(x)  b = Identity(a) }")
    assert_same_after(copied, X)
    given = parsed("g (float[2,3,4] x) => (float[2,3,4] a) { a = Identity(x) }")
    assert_same_after(given, X)


def test_branches_see_merged_values() -> None:
    model = parsed("""g (bool c, float[2,3,4] x) => (float[2,3,4] y) {
        a = Relu(x)  b = Relu(x)  d = Neg(a)
        z = If(c) <then_branch = t () => (float[2,3,4] p) { p = Exp(b) },
                   else_branch = e () => (float[2,3,4] q) { q = Add(a, b) }>
        y = Add(z, d)
    }""")
    for condition in (True, False):
        assert_same_after(parsed_copy := ir.from_proto(ir.to_proto(model)), np.array(condition), X)
        assert operators(parsed_copy)["Relu"] == 1


def weighted(first: Any, second: Any) -> ir.Model:
    model = parsed("g (float[2,3,4] x) => (float[2,3,4] y) { a = Mul(x, v)  b = Mul(x, w)  y = Sub(a, b) }")
    for name, array in (("v", first), ("w", second)):
        tensor = ir.from_proto(numpy_helper.from_array(array, name))
        value = next(i for node in model.graph for i in node.inputs if i is not None and i.name == name)
        value.const_value, value.type, value.shape = (
            tensor,
            ir.TensorType(tensor.dtype),
            ir.Shape(array.shape),
        )
        model.graph.register_initializer(value)
    return model


def test_equal_weights_are_stored_once() -> None:
    weight = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    model = weighted(weight, weight.copy())
    assert_same_after(model, X)
    assert list(model.graph.initializers) == ["v"]


@pytest.mark.parametrize("at", [0, 300, 999])
def test_almost_equal_weights_are_kept(at: int) -> None:
    weight = np.zeros(1000, np.float32)
    other = weight.copy()
    other[at] = -0.0  # equal, and not the same bytes
    model = weighted(weight, other)
    optimize(model)
    assert list(model.graph.initializers) == ["v", "w"]


def test_equal_bytes_of_another_type_are_kept() -> None:
    model = weighted(np.zeros((3, 4), np.float32), np.zeros((3, 4), np.int32))
    optimize(model)
    assert len(model.graph.initializers) == 2


class TestRewrites:
    """Each against ONNX Runtime, with a case right beside it that must stay."""

    def model(self, body: str, shape: str = "2,3,4") -> ir.Model:
        return parsed(f"g (float[{shape}] x) => (float y) {{ {body}  y = ReduceSum<keepdims = 0>(r) }}")

    @pytest.mark.parametrize(
        ("starts", "ends", "steps", "left"),
        [
            ("0", str(2**63 - 1), "1", 0),
            ("0", str(2**31 - 1), "1", 0),
            ("0", "3", "1", 1),  # the whole axis, but only of this model
            ("1", str(2**63 - 1), "1", 1),
            ("-1", str(2**63 - 1), "1", 1),
            ("0", str(2**63 - 1), "2", 1),
        ],
    )
    def test_slice(self, starts: str, ends: str, steps: str, left: int) -> None:
        model = self.model(f"""s = Constant<value_ints = [{starts}]>()  e = Constant<value_ints = [{ends}]>()
            a = Constant<value_ints = [1]>()  t = Constant<value_ints = [{steps}]>()
            c = Slice(x, s, e, a, t)  r = Exp(c)""")
        assert assert_same_after(model, X)["Slice"] == left

    @pytest.mark.parametrize(("perm", "left"), [("1, 2, 0", 0), ("2, 0, 1", 2)])
    def test_transpose(self, perm: str, left: int) -> None:
        model = self.model(f"""a = Transpose<perm = [2, 0, 1]>(x)  b = Transpose<perm = [{perm}]>(a)
            w = Constant<value_floats = [1.0, 10.0]>()  c = Transpose(b)  r = Exp(c)""")
        assert assert_same_after(model, X)["Transpose"] == left + 1

    @pytest.mark.parametrize(("axes", "left"), [("-1", 0), ("0", 1)])
    def test_unsqueeze_and_squeeze(self, axes: str, left: int) -> None:
        model = self.model(
            f"""a = Constant<value_ints = [-1]>()  b = Constant<value_ints = [{axes}]>()
            u = Unsqueeze(x, a)  s = Squeeze(u, b)  r = Exp(s)""",
            shape="1,3,4",
        )
        assert assert_same_after(model, X[:1])["Squeeze"] == left

    def test_one_unknown_size_is_inferred(self) -> None:
        model = self.model(
            """n = Shape<start = 0, end = 1>(x)  k = Constant<value_ints = [12]>()
            s = Concat<axis = 0>(n, k)  f = Reshape(x, s)  r = Exp(f)""",
            shape="n,3,4",
        )
        assert assert_same_after(model, X) == {"Reshape": 1, "Exp": 1, "ReduceSum": 1}
        run(model, X[:0])  # no rows: still one answer

    @pytest.mark.parametrize("constant", ["0", "-1"])
    def test_sizes_with_a_meaning_of_their_own_stay(self, constant: str) -> None:
        model = self.model(
            f"""n = Shape<start = 0, end = 1>(x)  k = Constant<value_ints = [{constant}]>()
            q = Constant<value_ints = [4]>()  s = Concat<axis = 0>(n, k, q)  f = Reshape(x, s)  r = Exp(f)""",
            shape="n,3,4",
        )
        assert assert_same_after(model, X)["Concat"] == 1


def test_metadata_keep_the_module_and_no_path() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    node = model.graph[0]
    node.metadata_props["pkg.torch.onnx.name_scopes"] = "['', 'encoder', 'encoder.norm1', 'relu']"
    node.metadata_props["pkg.torch.onnx.stack_trace"] = 'File "/home/me/net.py", line 3, in forward'
    node.outputs[0].metadata_props["pkg.torch.note"] = "/home/me"
    model.graph.metadata_props["pkg.torch.export.ExportedProgram.graph_signature"] = "/home/me"
    strip_metadata(model)
    assert dict(node.metadata_props) == {SOURCE_KEY: "encoder.norm1"}
    assert b"/home" not in ir.to_proto(model).SerializeToString()
    strip_metadata(model)
    assert dict(node.metadata_props) == {SOURCE_KEY: "encoder.norm1"}


_EXPORT = """
import hashlib, torch, sys, onnx_ir as ir
from deployops.export.graph import passes, translation
torch.set_num_threads(1); torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
model = torch.nn.Sequential(torch.nn.Embedding(9, 16), layer, torch.nn.Linear(16, 3))
program = torch.export.export(model, (torch.zeros(2, 5, dtype=torch.int64),))
translated = translation.translate(program, opset=None)
passes.optimize(translated); passes.strip_metadata(translated)
print(hashlib.sha256(ir.to_proto(translated).SerializeToString(deterministic=True)).hexdigest())
"""


def test_the_same_bytes_in_every_process() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _EXPORT],
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (process.communicate()[0].strip() for process in running)
    assert len(first) == 64
    assert first == second
