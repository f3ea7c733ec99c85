"""Inputs of another dtype than the weights, and inputs that the model changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from deployops.errors import ExportError

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("stored", "built", "given", "advice"),
    [
        ("float16", "float32", "float16", ["file's weights are float16", "builds float32", ".half()"]),
        ("float32", "float16", "float32", ["file's weights are float32", "builds float16", ".float()"]),
        ("float16", "float16", "float32", ["model's weights are float16", "`input` float32", "Give float16"]),
    ],
)
def test_inputs_of_another_dtype_than_the_weights(
    deploy: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stored: str,
    built: str,
    given: str,
    advice: list[str],
) -> None:
    (tmp_path / f"net_{stored}_{built}.py").write_text(
        f"import torch\ndef Net(): return torch.nn.Linear(4, 4).to(torch.{built})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.save(nn.Linear(4, 4).to(getattr(torch, stored)).state_dict(), tmp_path / "w.pt")
    with pytest.raises(ExportError) as error:
        deploy(tmp_path / "w.pt", [f"input:{given}[n,4]"], factory=f"net_{stored}_{built}:Net")
    assert [text for text in advice if text not in str(error.value)] == []


def test_other_failures_are_not_put_down_to_the_dtype(deploy: Any) -> None:
    with pytest.raises(ExportError) as error:
        deploy(nn.Linear(4, 4), ["input:float16[n,5]"])
    assert "float32" not in str(error.value).splitlines()[-1]


class Cache(nn.Module):
    def __init__(self, returned: int) -> None:
        super().__init__()
        self.returned = returned

    def forward(self, x: Tensor, k_cache: Tensor, v_cache: Tensor) -> tuple[Tensor, ...]:
        k_cache[:, :1] = x
        v_cache[:, :1] = 2 * x
        return (k_cache.sum(1) + v_cache.sum(1), k_cache, v_cache)[: self.returned]


@pytest.mark.parametrize(
    ("returned", "named"), [(3, []), (2, ["`v_cache`"]), (1, ["`k_cache`", "`v_cache`"])]
)
def test_a_written_input_is_warned_of_unless_it_is_returned(
    deploy: Any, returned: int, named: list[str]
) -> None:
    specs = ["x:float32[n,1,4]", "k_cache:float32[n,8,4]", "v_cache:float32[n,8,4]"]
    notes = [str(n) for n in deploy(Cache(returned).eval(), specs).result.notes]
    written = [n for n in notes if "writes into its input" in n]
    assert bool(written) == bool(named)
    assert all(name in written[0] for name in named)
    assert "`k_cache`" not in "".join(written) or "`k_cache`" in named
