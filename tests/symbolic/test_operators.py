"""Every shipped operator against formulas written here in extended precision, in every dtype.

The reference and the body in ONNX Runtime are both held to those; each formula also says on which scale its
rounding errors live. On x86 `np.longdouble` has 64 bits of mantissa, elsewhere it may be float64.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, shape_inference
from torch._subclasses.fake_tensor import FakeTensorMode

from deployops.symbolic import dtypes, registry, schema
from deployops.symbolic.samples import Sample

registry.load_builtin()

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float64", "float16", "bfloat16")


def find(name: str) -> Any:
    return next(o for o in registry.all_operators() if o.name == f"deployops::{name}")


# --- the formulas: arguments as long doubles -> (expected, scale) of every output -----------------------------


def attribute(value: float, dtype: str) -> Any:
    """A float attribute as the operator sees it: a float32, but in float64 as it was given."""
    return np.longdouble(value if dtype == "float64" else np.float32(value))


def logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def relu(dtype: str, x: Array) -> list[tuple[Array, Array]]:
    y = np.maximum(x, 0)
    return [(y, y)]


def sigmoid(dtype: str, x: Array) -> list[tuple[Array, Array]]:
    y = logistic(x)
    return [(y, y)]


def softmax(dtype: str, x: Array, dim: int = -1) -> list[tuple[Array, Array]]:
    d = x - np.max(x, dim, keepdims=True, initial=-np.inf) if x.size else x
    e = np.exp(d)
    y = e / e.sum(dim, keepdims=True)
    return [(y, y * (1 + np.abs(d)))]


def cube_root(dtype: str, x: Array) -> list[tuple[Array, Array]]:
    y = np.cbrt(x)
    return [(y, y)]


def along(v: Array, x: Array, axis: int) -> Array:
    shape = [1] * x.ndim
    shape[axis] = v.size
    return v.reshape(shape)


def swish(dtype: str, x: Array, beta: Array, axis: int = 1) -> list[tuple[Array, Array]]:
    b = beta.reshape(()) if beta.size == 1 else along(beta, x, axis if x.ndim > 1 else 0)
    # x times 0, not x divided by inf: −inf gives NaN.
    y = x * logistic(b * x)
    # The logistic function may underflow before x is multiplied in.
    lost = torch.finfo(getattr(torch, dtype if dtype == "float64" else "float32")).smallest_normal
    return [(y, np.abs(y) * (1 + np.abs(b * x)) + np.abs(x) * lost)]


def add_relu(dtype: str, x: Array, y: Array) -> list[tuple[Array, Array]]:
    z = np.maximum(x + y, 0)
    return [(z, z)]


def phi(z: Array) -> Array:
    return np.vectorize(lambda v: math.erfc(-v / math.sqrt(2)) / 2, otypes=[np.longdouble])(z)


ACTIVATIONS: Mapping[str, Callable[[Array, float], Array]] = {
    "none": lambda z, slope: z,
    "relu": lambda z, slope: np.maximum(z, 0),
    "leaky_relu": lambda z, slope: np.where(z > 0, z, z * slope),
    "sigmoid": lambda z, slope: logistic(z),
    "tanh": lambda z, slope: np.tanh(z),
    "silu": lambda z, slope: z * logistic(z),
    "gelu": lambda z, slope: z * phi(z),
    "gelu_tanh": lambda z, slope: z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))),
}


def scale_bias_act(
    dtype: str, x: Array, scale: Array, bias: Array | None = None, activation: str = "relu", axis: int = 1,
    slope: float = 0.01,
) -> list[tuple[Array, Array]]:  # fmt: skip
    z = x * along(scale, x, axis)
    size = np.abs(z)
    if bias is not None:
        z, size = z + along(bias, x, axis), size + np.abs(along(bias, x, axis))
    y = ACTIVATIONS[activation](z, attribute(slope, dtype))
    size = (
        np.minimum(size, 1) + np.abs(y) if activation in ("sigmoid", "tanh") else size * max(1.0, abs(slope))
    )
    # ONNX Runtime's float32 tanh multiplies subnormals by numbers below 1 before it divides them.
    return [(y, size + 64 * torch.finfo(getattr(torch, dtype)).smallest_normal)]


def layer_norm(
    dtype: str, x: Array, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> list[tuple[Array, Array]]:
    d = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((d * d).mean(-1, keepdims=True) + attribute(eps, dtype))
    w, b = np.ones(1) if weight is None else weight, np.zeros(1) if bias is None else bias
    size = np.abs(d).max(-1, keepdims=True, initial=0) * r * np.abs(w) + np.abs(b)
    return [(d * r * w + b, size)]


def rms_norm(
    dtype: str, x: Array, weight: Array | None = None, eps: float = 1e-6
) -> list[tuple[Array, Array]]:
    y = (
        x
        / np.sqrt((x * x).mean(-1, keepdims=True) + attribute(eps, dtype))
        * (1 if weight is None else weight)
    )
    return [(y, y)]


def rounded(x: Array, dtype: str) -> Array:
    return (
        torch.from_numpy(x.astype(np.float64))
        .to(getattr(torch, dtype))
        .double()
        .numpy()
        .astype(np.longdouble)
    )


def add_rms_norm(
    dtype: str, x: Array, residual: Array, weight: Array, eps: float = 1e-6
) -> list[tuple[Array, Array]]:
    total = x + residual
    return [*rms_norm(dtype, rounded(total, dtype), weight, eps), (total, total)]


def mean_pool(dtype: str, x: Array) -> list[tuple[Array, Array]]:
    axes = (2, 3) if x.ndim == 4 else (1,)
    return [(x.mean(axes), np.abs(x).mean(axes))]


def attention(
    dtype: str, q: Array, k: Array, v: Array, bias: Array | None = None, mask: Array | None = None,
    is_causal: bool = False, scale: float | None = None,
) -> list[tuple[Array, Array]]:  # fmt: skip
    """One query at a time, with the keys it may look at."""
    batch, heads, length, width = q.shape
    y = np.zeros((batch, heads, length, v.shape[3]), np.longdouble)
    size = np.zeros_like(y)
    full = (batch, heads, length, k.shape[2])
    biases = None if bias is None else np.broadcast_to(bias, full)
    allowed = np.broadcast_to(True if mask is None else mask, full)
    factor = 1 / np.sqrt(np.longdouble(width)) if scale is None else attribute(scale, dtype)
    for b, h, s in np.ndindex(batch, heads, length):
        group = h // (heads // k.shape[1])
        seen = [t for t in range(k.shape[2]) if allowed[b, h, s, t] and (t <= s or not is_causal)]
        scores = np.array([(q[b, h, s] * k[b, group, t]).sum() * factor for t in seen], np.longdouble)
        bound = np.array([np.abs(q[b, h, s] * k[b, group, t]).sum() * factor for t in seen], np.longdouble)
        if biases is not None:
            scores, bound = scores + biases[b, h, s, seen], bound + np.abs(biases[b, h, s, seen])
        if not seen or (np.all(scores == -np.inf)):
            continue
        e = np.exp(scores - scores.max())
        y[b, h, s] = (e / e.sum()) @ v[b, group, seen]
        bound = bound[np.isfinite(bound)]
        size[b, h, s] = np.abs(v[b, group, seen]).max(initial=0) * (1 + bound.max(initial=0))
    return [(y, size)]


@dataclass(frozen=True)
class Formula:
    """The function, and the budgets in ULPs of its scale: of the reference and of the body in ONNX Runtime.

    Halves get a budget of one ULP for every operator: computed in float32, rounded once.
    """

    function: Callable[..., list[tuple[Array, Array]]]
    reference: float
    body: float


FORMULAS = {
    "relu": Formula(relu, 0, 0),
    "sigmoid": Formula(sigmoid, 3, 3),
    "softmax": Formula(softmax, 3, 3),
    "cube_root": Formula(cube_root, 1.5, 2),
    "swish": Formula(swish, 3, 3),
    "add_relu": Formula(add_relu, 0.51, 0.51),
    "scale_bias_act": Formula(scale_bias_act, 4, 4),
    "layer_norm": Formula(layer_norm, 4, 4),
    "rms_norm": Formula(rms_norm, 4, 4),
    "add_rms_norm": Formula(add_rms_norm, 4, 4),
    "mean_pool": Formula(mean_pool, 4, 4),
    "attention": Formula(attention, 3, 3),
}
EVERY = pytest.mark.parametrize("name", FORMULAS)
IN_EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES)


def expected(name: str, sample: Sample, dtype: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    def convert(v: Any) -> Any:
        if not isinstance(v, torch.Tensor):
            return v
        return v.numpy() if v.dtype == torch.bool else v.double().numpy().astype(np.longdouble)

    args = [convert(a) for a in sample.args]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mean of nothing
        found = FORMULAS[name].function(dtype, *args, **{n: convert(v) for n, v in sample.kwargs.items()})

    def to_torch(a: Array) -> torch.Tensor:
        with np.errstate(over="ignore"):
            return torch.from_numpy(np.asarray(a, np.float64))

    return [(to_torch(y), to_torch(np.nan_to_num(np.abs(size), nan=0, posinf=0))) for y, size in found]


def test_every_shipped_operator_has_a_formula_here() -> None:
    shipped = {o.name for o in registry.all_operators() if o.name.startswith("deployops::")}
    assert shipped == {f"deployops::{n}" for n in FORMULAS}


# --- values ---------------------------------------------------------------------------------------------------


@EVERY
@IN_EVERY_DTYPE
def test_the_reference_is_the_formula(name: str, dtype: str, call: Any, assert_within: Any) -> None:
    budget = FORMULAS[name].reference if dtype in ("float32", "float64") else min(1, FORMULAS[name].reference)
    for k, sample in enumerate(find(name).make_samples(dtype)):
        for got, (value, size) in zip(call(find(name), sample), expected(name, sample, dtype), strict=True):
            assert got.dtype == getattr(torch, dtype)
            assert_within(got, value, size, budget, f"sample {k}")


@EVERY
@IN_EVERY_DTYPE
@pytest.mark.parametrize("optimised", [False, True], ids=["plain", "optimised"])
def test_the_body_is_the_formula_in_onnx_runtime(
    name: str, dtype: str, optimised: bool, run_body: Any, assert_within: Any
) -> None:
    budget = FORMULAS[name].body if dtype in ("float32", "float64") else min(1, FORMULAS[name].body)
    for k, sample in enumerate(find(name).make_samples(dtype)):
        results = run_body(find(name), sample, optimised=optimised)
        for got, (value, size) in zip(results, expected(name, sample, dtype), strict=True):
            assert_within(got, value, size, budget, f"sample {k}")


@EVERY
@pytest.mark.parametrize("opset", [20, 23])
def test_the_body_builds_for_later_opsets(name: str, opset: int, run_body: Any, assert_within: Any) -> None:
    for sample in find(name).make_samples("float32")[:3]:
        results = run_body(find(name), sample, opset=opset)
        for got, (value, size) in zip(results, expected(name, sample, "float32"), strict=True):
            assert_within(got, value, size, FORMULAS[name].body)


@EVERY
@IN_EVERY_DTYPE
def test_the_fake_kernel_says_what_the_reference_returns(name: str, dtype: str, call: Any) -> None:
    op = find(name)
    mode = FakeTensorMode()

    def enter(v: Any) -> Any:
        return mode.from_tensor(v) if isinstance(v, torch.Tensor) else v

    for sample in op.make_samples(dtype):
        with mode:
            fake = Sample(tuple(map(enter, sample.args)), {n: enter(v) for n, v in sample.kwargs.items()})
            promised = call(op, fake)
        for real, claimed in zip(call(op, sample), promised, strict=True):
            assert (real.shape, real.dtype) == (claimed.shape, claimed.dtype)
            assert real.stride() == claimed.stride() or real.numel() <= 1 or 0 in real.shape


# --- gradients ------------------------------------------------------------------------------------------------


def differentiable(sample: Sample) -> tuple[list[torch.Tensor], Callable[..., tuple[Any, ...]]]:
    """The floating point tensors of a sample, and the arguments with others put in their place."""
    values = [*sample.args, *sample.kwargs.values()]
    places = [k for k, v in enumerate(values) if isinstance(v, torch.Tensor) and v.is_floating_point()]
    leaves = [values[k].detach().clone().requires_grad_() for k in places]

    def arguments(*tensors: torch.Tensor) -> tuple[Any, ...]:
        filled = list(values)
        for k, t in zip(places, tensors, strict=True):
            filled[k] = t
        count = len(sample.args)
        return tuple(filled[:count]), dict(zip(sample.kwargs, filled[count:], strict=True))

    return leaves, arguments


@EVERY
def test_first_and_second_derivatives_are_the_numerical_ones(name: str) -> None:
    op, checked = find(name), 0
    for sample in op.make_samples("float64"):
        leaves, arguments = differentiable(sample)
        numbers = sum(t.numel() for t in leaves)
        if not sample.smooth or not numbers:
            continue

        def run(*tensors: torch.Tensor) -> Any:
            args, kwargs = arguments(*tensors)  # noqa: B023
            return op(*args, **kwargs)

        torch.autograd.gradcheck(run, leaves, fast_mode=numbers > 100)
        if numbers <= 600:
            torch.autograd.gradgradcheck(run, leaves, fast_mode=numbers > 30)
        checked += 1
    assert checked >= 5


@EVERY
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gradients_in_narrow_dtypes_are_the_float64_ones_rounded(
    name: str, dtype: str, in_float64: Any, assert_within: Any
) -> None:
    op = find(name)
    for k, sample in enumerate(op.make_samples(dtype)):
        if not sample.smooth:
            continue
        leaves, arguments = differentiable(sample)
        exact, exact_arguments = differentiable(in_float64(sample))
        if not sum(t.numel() for t in leaves):
            continue
        args, kwargs = arguments(*leaves)
        outputs = op(*args, **kwargs)
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
        wide_args, wide_kwargs = exact_arguments(*exact)
        wide_outputs = op(*wide_args, **wide_kwargs)
        wide_outputs = [wide_outputs] if isinstance(wide_outputs, torch.Tensor) else wide_outputs
        grads = [torch.randn_like(o) for o in outputs]
        got = torch.autograd.grad(outputs, leaves, grads)
        right = torch.autograd.grad(wide_outputs, exact, [g.double() for g in grads])
        for leaf, g, r in zip(leaves, got, right, strict=True):
            assert (g.dtype, g.shape) == (leaf.dtype, leaf.shape)
            # Of the largest number in sight: some gradients are small differences of such. add_rms_norm rounds
            # the sum that it differentiates at.
            top = max([float(t.abs().max()) for t in (r, *grads) if t.numel()], default=0.0)
            assert_within(g, r, torch.full_like(r, top), 16 if dtype == "float32" else 4, f"sample {k}")


@EVERY
def test_torch_finds_no_fault(name: str) -> None:
    op = find(name)
    seen = set()
    for sample in op.make_samples("float32"):
        # One sample per signature: opcheck compiles each.
        signature = str([getattr(a, "ndim", a) for a in (*sample.args, *sample.kwargs.items())])
        finite = all(bool(t.isfinite().all()) for t in sample.tensors() if t.is_floating_point())
        if signature in seen or len(seen) == 4 or not finite:
            continue
        seen.add(signature)
        leaves, arguments = differentiable(sample)
        args, kwargs = arguments(*leaves)
        torch.library.opcheck(op.overload, args, kwargs)


# --- shapes ---------------------------------------------------------------------------------------------------

# operator: inputs ('' where an optional one is absent), attributes, outputs
SHAPES: list[tuple[str, list[list[Any] | None], dict[str, Any], list[list[Any]]]] = [
    ("relu", [["n", 3, "h"]], {}, [["n", 3, "h"]]),
    ("sigmoid", [["n", "m"]], {}, [["n", "m"]]),
    ("softmax", [["n", "m"]], {"dim": 0}, [["n", "m"]]),
    ("cube_root", [["n"]], {}, [["n"]]),
    ("swish", [["n", 8, "h", "w"], [8]], {"axis": 1}, [["n", 8, "h", "w"]]),
    ("swish", [["n", "s", 8], [1]], {"axis": -1}, [["n", "s", 8]]),
    ("add_relu", [["n", 8], ["n", 8]], {}, [["n", 8]]),
    ("add_relu", [["n", 8], [8]], {}, [["n", 8]]),
    ("add_relu", [["n", 1], [1, "m"]], {}, [["n", "m"]]),
    (
        "scale_bias_act",
        [["n", 8, "h"], [8], None],
        {"activation": "silu", "axis": 1, "slope": 0.0},
        [["n", 8, "h"]],
    ),
    ("layer_norm", [["b", "s", 16], [16], [16]], {"eps": 1e-5}, [["b", "s", 16]]),
    ("layer_norm", [["b", "s", "c"], None, ["c"]], {"eps": 1e-5}, [["b", "s", "c"]]),
    ("rms_norm", [["b", "s", 16], [16]], {"eps": 1e-5}, [["b", "s", 16]]),
    ("add_rms_norm", [["b", "s", 16], ["b", "s", 16], [16]], {"eps": 1e-5}, [["b", "s", 16], ["b", "s", 16]]),
    ("mean_pool", [["n", 8, "h", "w"]], {}, [["n", 8]]),
    ("mean_pool", [["n", "l"]], {}, [["n"]]),
    (
        "attention",
        [["b", 8, "s", 16], ["b", 2, "t", 16], ["b", 2, "t", 32]],
        {"is_causal": 1},
        [["b", 8, "s", 32]],
    ),
    (
        "attention",
        [["b", 8, "s", 16], ["b", 8, "t", 16], ["b", 8, "t", 16], None, ["b", 1, "s", "t"]],
        {"is_causal": 0, "scale": 0.5},
        [["b", 8, "s", 16]],
    ),
]


def infer(
    name: str, inputs: list[list[Any] | None], attributes: Mapping[str, Any], dtype: str = "float16"
) -> Any:
    op = find(name)
    schema.register(op)
    names = ["" if s is None else f"x{k}" for k, s in enumerate(inputs)]
    outputs = [o.name for o in op.interface.outputs]
    node = helper.make_node(op.op_type, names, outputs, domain=op.domain, **attributes)
    number = dtypes.onnx_number(dtype)
    kinds = ["bool" if op.interface.inputs[k].name == "mask" else dtype for k in range(len(inputs))]
    values = [
        helper.make_tensor_value_info(n, dtypes.onnx_number(kind), s)
        for n, s, kind in zip(names, inputs, kinds, strict=True)
        if s is not None
    ]
    identity = [helper.make_node("Identity", [o], [f"{o}_end"]) for o in outputs]
    ends = [helper.make_tensor_value_info(f"{o}_end", number, None) for o in outputs]
    graph = helper.make_graph([node, *identity], "g", values, ends)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(op.domain, op.version)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    found = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    return {v.name: v.type.tensor_type for v in found.graph.value_info}


@pytest.mark.parametrize(("name", "inputs", "attributes", "outputs"), SHAPES, ids=[s[0] for s in SHAPES])
def test_onnx_carries_symbolic_dims_through(
    name: str, inputs: Any, attributes: dict[str, Any], outputs: list[list[Any]]
) -> None:
    found = infer(name, inputs, attributes)
    for output, dims in zip(find(name).interface.outputs, outputs, strict=True):
        tensor = found[output.name]
        assert tensor.elem_type == onnx.TensorProto.FLOAT16
        assert [d.dim_param or d.dim_value for d in tensor.shape.dim] == dims


REFUSED: list[tuple[str, list[list[int]], dict[str, Any], str]] = [
    ("softmax", [[2, 3]], {"dim": 2}, "dim = 2, but x has 2 dimensions"),
    ("swish", [[2, 3], [2]], {}, "beta holds 2 numbers; x has 3 channels"),
    ("swish", [[2, 3], [3, 1]], {}, "one number .* or one for each channel"),
    ("swish", [[2, 3], [3]], {"axis": 2}, "axis = 2, but x has 2 dimensions"),
    ("add_relu", [[2, 3], [2]], {}, "(?i)broadcast"),
    (
        "scale_bias_act",
        [[2, 3], [3]],
        {"activation": "gelu_new"},
        "'gelu_new' is not known; known are none, relu",
    ),
    ("scale_bias_act", [[2, 3], [2]], {}, "scale holds 2 numbers; x has 3 channels"),
    ("scale_bias_act", [[2, 3], [3], [1]], {}, "bias holds 1 numbers; x has 3 channels"),
    ("layer_norm", [[2, 3], [2]], {}, "weight holds 2 numbers; the last dimension of x has 3"),
    ("layer_norm", [[2, 3], [3], [1]], {}, "bias holds 1 numbers"),
    ("layer_norm", [[]], {}, "no dimension"),
    ("rms_norm", [[2, 3], [1]], {}, "weight holds 1 numbers"),
    ("add_rms_norm", [[2, 3], [1, 3], [3]], {}, "expected one shape"),
    ("mean_pool", [[2, 3, 4]], {}, "mean_pool: x has 3 dimensions; expected 4, .* or 2"),
    ("mean_pool", [[2]], {}, "x has 1 dimensions"),
    ("mean_pool", [[1, 2, 3, 4, 5]], {}, "x has 5 dimensions"),
    ("attention", [[2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]], {}, "q has 3 dimensions; expected 4"),
    ("attention", [[1, 3, 5, 4], [1, 2, 5, 4], [1, 2, 5, 4]], {}, "no multiple"),
    ("attention", [[1, 2, 5, 4], [1, 2, 5, 3], [1, 2, 5, 4]], {}, "differ in width"),
    ("attention", [[1, 2, 5, 4], [1, 2, 5, 4], [1, 2, 6, 4]], {}, "differ in length"),
    ("attention", [[2, 2, 5, 4], [1, 2, 5, 4], [1, 2, 5, 4]], {}, "batch sizes differ"),
    ("attention", [[1, 2, 5, 4], [1, 2, 6, 4], [1, 2, 6, 4], [5, 5]], {}, "bias is .* does not broadcast"),
]


@pytest.mark.parametrize(("name", "shapes", "attributes", "message"), REFUSED)
@pytest.mark.parametrize("fake", [False, True], ids=["reference", "fake"])
def test_wrong_arguments_are_refused_with_the_reason(
    name: str, shapes: list[list[int]], attributes: dict[str, Any], message: str, fake: bool
) -> None:
    if fake:
        with FakeTensorMode():
            tensors = [torch.zeros(s) for s in shapes]
            with pytest.raises((ValueError, RuntimeError), match=message):
                find(name)(*tensors, **attributes)
    else:
        with pytest.raises((ValueError, RuntimeError), match=message):
            find(name)(*[torch.zeros(s) for s in shapes], **attributes)


EXPORTED: list[tuple[str, list[torch.Tensor], list[dict[int, str]], dict[str, Any]]] = [
    ("relu", [torch.ones(4, 6)], [{0: "n", 1: "m"}], {}),
    ("sigmoid", [torch.ones(4, 6)], [{0: "n", 1: "m"}], {}),
    ("softmax", [torch.ones(4, 6)], [{0: "n", 1: "m"}], {"dim": -1}),
    ("cube_root", [torch.ones(4, 6)], [{0: "n", 1: "m"}], {}),
    ("swish", [torch.ones(4, 6, 7), torch.ones(6)], [{0: "n", 2: "m"}, {}], {}),
    ("add_relu", [torch.ones(4, 6), torch.ones(4, 6)], [{0: "n", 1: "m"}] * 2, {}),
    ("scale_bias_act", [torch.ones(4, 6, 7), torch.ones(6), torch.ones(6)], [{0: "n", 2: "m"}, {}, {}], {}),
    ("layer_norm", [torch.ones(4, 6, 7), torch.ones(7), torch.ones(7)], [{0: "n", 1: "m"}, {}, {}], {}),
    ("rms_norm", [torch.ones(4, 6, 7), torch.ones(7)], [{0: "n", 1: "m"}, {}], {}),
    ("add_rms_norm", [torch.ones(4, 6, 7)] * 2 + [torch.ones(7)], [{0: "n", 1: "m"}] * 2 + [{}], {}),
    ("mean_pool", [torch.ones(4, 6, 7, 8)], [{0: "n", 2: "h", 3: "w"}], {}),
    (
        "attention",
        [torch.ones(4, 2, 6, 7), *[torch.ones(4, 1, 5, 7)] * 2, torch.ones(4, 1, 6, 5)],
        [{0: "n", 2: "s"}, *[{0: "n", 2: "t"}] * 2, {0: "n", 2: "s", 3: "t"}],
        {"is_causal": True},
    ),
]


@pytest.mark.parametrize(("name", "inputs", "dims", "attributes"), EXPORTED, ids=[e[0] for e in EXPORTED])
def test_torch_export_keeps_dynamic_dims(
    name: str, inputs: list[torch.Tensor], dims: list[dict[int, Any]], attributes: dict[str, Any]
) -> None:
    class Model(torch.nn.Module):
        def forward(self, inputs: list[torch.Tensor]) -> Any:
            return find(name)(*inputs, **attributes)

    assert {e[0] for e in EXPORTED} == set(FORMULAS)
    # A dim that the fake kernel fixes is an error here: the names ask for it to stay free.
    shared = {v: torch.export.Dim(v, min=2, max=64) for d in dims for v in d.values()}
    dynamic = [{k: shared[v] for k, v in d.items()} for d in dims]
    program = torch.export.export(Model(), (inputs,), dynamic_shapes=(dynamic,))
    calls = [n for n in program.graph.nodes if n.target is find(name).overload]
    assert len(calls) == 1
    assert all(str(r) in ("VR[2, 64]", "VR[0, 64]") for r in program.range_constraints.values())


def test_onnx_refuses_what_the_fake_kernel_refuses() -> None:
    with pytest.raises(shape_inference.InferenceError, match="x has 3 dimensions; expected 4"):
        infer("mean_pool", [["n", "c", "l"]], {})
    with pytest.raises(shape_inference.InferenceError, match="known are none, relu, leaky_relu"):
        infer("scale_bias_act", [["n", 8], [8]], {"activation": "swiglu", "axis": 1, "slope": 0.0})
