"""`deployops.testing` as users meet it: test files of their own, run by a pytest of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = "pytester"

PACK = """
import torch
from deployops import operator

@operator("acme::doubled", dtypes=("float32", "float16"))
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@doubled.fake
def _(x):
    return torch.empty_like(x)

@doubled.body
def _(op, x):
    return op.Add(x, x)

@doubled.samples
def _(draw):
    yield draw(3, 5)

@doubled.backward
def _(grad, x):
    return grad * 2

@operator("acme::tripled", dtypes=("float32",))
def tripled(x: torch.Tensor) -> torch.Tensor:
    return x * 3

@tripled.fake
def _(x):
    return torch.empty_like(x)

@tripled.body
def _(op, x):
    return op.Add(x, op.Add(x, x))

@tripled.samples
def _(draw):
    yield draw(4)
"""

EXPORT = """
import torch
from deployops import export_model
from deployops.testing import assert_parity

NET = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).eval()
X = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rs", "-v", *arguments, timeout=400)


def test_importing_needs_no_torch_and_no_pytest() -> None:
    code = "import sys, deployops.testing; print(sorted({'torch', 'onnx', 'numpy', 'pytest', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_models_pass_or_show_their_worst_elements(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        EXPORT
        + """
def test_sound(tmp_path):
    export_model(NET, (X,), out=tmp_path / "net.onnx")
    report = assert_parity(NET, tmp_path / "net.onnx", (X,))
    assert report.latency is None

def test_noise_is_no_pass(tmp_path):
    class Noise(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)
    export_model(torch.nn.Identity(), (X,), out=tmp_path / "net.onnx")
    assert_parity(Noise(), tmp_path / "net.onnx", (X,))

def test_changed(tmp_path):
    export_model(NET, (X,), out=tmp_path / "net.onnx")
    with torch.no_grad():
        NET[2].bias[1] += 0.25
    assert_parity(NET, tmp_path / "net.onnx", (X,))
"""
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*test_sound PASSED*",
            "*test_noise_is_no_pass FAILED*",
            "*test_changed FAILED*",
            "E*AssertionError: FAILED: Sequential against net.onnx (* failed*",
            "E*failed, * at * on onnxruntime: * of 8 elements out of budget*",
            "E*worst at * got * expected * difference",
            "E*[[]?, 1[]]*-0.25*",
            "E*budget: *",
            "E*→ *--bisect*",
        ]
    )
    # the frames of deployops are hidden: what is shown is the test's own line
    assert "validation/files.py" not in result.stdout.str()


@pytest.mark.slow
def test_packs_in_three_lines(pytester: pytest.Pytester) -> None:
    wrong = PACK.replace("acme::", "faulty::").replace(
        "op.Add(x, op.Add(x, x))", "op.Add(x, op.Mul(x, op.Add(x, x)))"
    )
    wrong = wrong.replace("return grad * 2", "return grad * 2.5")
    pytester.makepyfile(my_ops=PACK, faulty_ops=wrong)
    pytester.makepyfile(
        test_pack="""
        from deployops.testing import operator_suite

        test_operators = operator_suite("my_ops.py", backends=["onnxruntime", "onnxruntime, optimiser off"])
        test_faulty = operator_suite("faulty_ops.py")
        here = dict(dtypes=["float32"], gradients=False)
        test_here = operator_suite("my_ops.py", backends=["tensorrt"], **here)
        test_must = operator_suite("my_ops.py", backends=[], required=["tensorrt"], **here)
        """
    )
    result = run(pytester)
    shown = result.stdout.str()
    for name in ("acme::doubled-float32", "acme::doubled-float16", "acme::tripled-float32"):
        for backend in ("onnxruntime", "onnxruntime, optimiser off"):
            assert f"test_operators[{name}-{backend}] PASSED" in shown
    # the fault is found in its own test, and nowhere else
    assert "test_faulty[faulty::doubled-float32-onnxruntime] PASSED" in shown
    assert "test_faulty[faulty::tripled-float32-onnxruntime] FAILED" in shown
    assert "test_operators[acme::doubled-gradient] PASSED" in shown
    assert "test_faulty[faulty::doubled-gradient] FAILED" in shown
    result.stdout.fnmatch_lines(["E*FAILED: the gradient of faulty::doubled*"])
    result.stdout.fnmatch_lines(
        [
            "E*FAILED: faulty::tripled in float32*",
            "E*failed, faulty::tripled * at float32, sample 0 * on onnxruntime: *",
            "E*worst at * got * expected * difference",
        ]
    )
    if "test_here[acme::doubled-float32-tensorrt] PASSED" in shown:
        pytest.skip("TensorRT runs here: that a missing backend is told was not checked")
    # a backend that is missing: skipped with the reason, a failure where it is required
    assert "test_here[acme::doubled-float32-tensorrt] SKIPPED" in shown
    assert "test_must[acme::doubled-float32-tensorrt] FAILED" in shown
    result.stdout.fnmatch_lines(["E*not checked, tensorrt (required): *"])
    result.stdout.fnmatch_lines(["SKIPPED*not checked: *ensor*"])


def test_wrong_use_is_told_when_tests_are_collected(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(empty="")
    wrong = {
        'operator_suite("no_such_pack.py")': "no_such_pack.py",
        'operator_suite("empty.py")': "declares no operators",
        "operator_suite([])": "no operators are given",
        'operator_suite("empty.py", backends="onnxruntime")': "backends is a list of names",
        'operator_suite("empty.py", backends=["onnx"])': "there is no backend 'onnx'",
    }
    for k, call in enumerate(wrong):
        pytester.makepyfile(
            **{f"test_{k}": f"from deployops.testing import operator_suite\ntest_ops = {call}"}
        )
    result = run(pytester)
    result.assert_outcomes(errors=len(wrong))
    for message in wrong.values():
        result.stdout.fnmatch_lines([f"E*UsageError: *{message}*"])
