"""Every planted fault of `faults.py` is explained by what it is, or not at all: nothing is blamed by chance."""

from __future__ import annotations

import pytest
import torch
from onnx import TensorProto, helper

from deployops.ort_ops.arrays import to_array
from deployops.validation import Sample
from deployops.validation.diagnosis import explain
from deployops.validation.original import Original

from .candidates import Net
from .faults import FAULTS, Fault

# What a fault is, where it has one of the forms that a diagnosis knows. Epsilons and divisors scale the output.
EXPLAINED = {
    "softmax: wrong axis": "last operator",
    "a factor typed 1.4 for sqrt 2": "scale",
    "a stale constant": "scale",
    "layer norm: unbiased variance": "scale",
    "batch norm: epsilon moved": "scale",
    "standard deviation: n for n - 1": "scale",
    "a divisor frozen at another size": "scale",
    "a window off by one": "shift",
    "max pooling pads with zero": "last operator",  # of what is positive somewhere in each window: a ReLU
    "resize: nearest rounds up": "shift",
    "channels last read as first": "layout",
    "cumulative sum: exclusive": "shift",
    "a gather off by one": "shift",
    "top-k ascending": "layout",
    "int32 for int64": "integer overflow",
}
DETERMINISTIC = [f for f in FAULTS if "dropout" not in f.name and "noise" not in f.name]


@pytest.mark.parametrize(
    "fault", [pytest.param(f, id=f.name) for f in DETERMINISTIC if "float32" in f.dtypes]
)
@torch.no_grad()
def test_a_fault_is_named_for_what_it_is_or_not_at_all(fault: Fault) -> None:
    graph = helper.make_graph([], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    original = Original(Net(fault.good, **fault.constants).eval())
    sample = Sample("example", fault.inputs)
    torch.manual_seed(7)
    got = [to_array(Net(fault.bad, **fault.constants).eval()(*fault.inputs))]
    found = explain(original, sample, got, original.expected(sample), graph)
    kinds = [f.kind for f in found]
    assert kinds == ([EXPLAINED[fault.name]] if fault.name in EXPLAINED else []), [f.text for f in found]
