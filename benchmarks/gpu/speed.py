"""How fast the kernels are: against a copy of as many bytes, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from ort_cases import CASES, OPS, Case, torch_sdpa

from deployops.errors import DeployOpsError
from deployops.symbolic import dtypes

from .bench import DTYPES, TARGET, Bench, timed
from .parity import large_fault


def speed(bench: Bench) -> None:
    """Each operator at 64M elements: against a copy of as many bytes, against torch."""
    bench.say(
        "", "### At 64M elements", "",
        f"Share: the time of the copy over that of the best tactic; {TARGET} is the target. attention: 8 heads, 4,096 keys, "
        "width 64; it is not bound by memory.", "",
        "| operator | dtype | MB | best tactic | ms | tactic 0, ms | GB/s | share of copy | eager, ms | torch.compile, ms "
        "| torch's own, ms |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    )  # fmt: skip
    for case in (c for c in CASES if c.op_name in bench.ops):
        for dtype in DTYPES:
            if bench.late():
                bench.unchecked.append(f"{case.name} in {dtypes.name_of(dtype)}: the time was up")
                continue
            try:
                bench.say(_row(bench, case, dtype))
            except (DeployOpsError, RuntimeError) as error:
                bench.failures.append(f"{case.name} in {dtypes.name_of(dtype)}: {str(error)[:200]}")
            if bench.launcher.asynchronous:
                torch.cuda.empty_cache()


def _row(bench: Bench, case: Case, dtype: torch.dtype) -> str:
    args, kwargs = bench.draw(case, dtype)
    launcher, op = bench.launcher, case.op
    names = range(launcher.tactics(op))
    calls: dict[str, Callable[[], object]] = {
        f"tactic {t}": launcher.prepared(op, args, kwargs, t) for t in names
    }
    outputs = launcher.prepared(op, args, kwargs, 0)()
    bench.failures += [fault for t in names if (fault := large_fault(bench, case, args, kwargs, t))]
    moved = sum(t.numel() * t.element_size() for t in [*args, *outputs] if isinstance(t, torch.Tensor))
    calls["copy"] = _copy_of(bench, moved)
    calls |= _torch_calls(bench, case, args, kwargs, dtype)
    times = timed(bench, calls)
    tactics = {t: times[f"tactic {t}"] for t in names if f"tactic {t}" in times}
    if not tactics:
        return f"| {case.name} | {dtypes.name_of(dtype)} | {moved / 1e6:.0f} | failed | | | | | | | |"
    best = min(tactics, key=lambda t: tactics[t])
    share = times["copy"] / tactics[best]
    # on the emulated device times say nothing; attention is not bound by memory
    if bench.launcher.asynchronous and case.op_name != "attention" and share < TARGET:
        bench.failures.append(
            f"{case.name} in {dtypes.name_of(dtype)}: {share:.2f} of a copy's speed; {TARGET} is the target"
        )
    others = [f"{times[n]:.3f}" if n in times else "–" for n in ("eager", "compiled", *case.also)]
    own = others[2] if len(others) > 2 else "–"
    return (
        f"| {case.name} | {dtypes.name_of(dtype)} | {moved / 1e6:.0f} | {best} | {tactics[best]:.3f} | "
        f"{tactics.get(0, float('nan')):.3f} | {moved / tactics[best] / 1e6:.0f} | {share:.2f} | {others[0]} | {others[1]} "
        f"| {own} |"
    )


def _copy_of(bench: Bench, moved: int) -> Callable[[], object]:
    """A copy that reads and writes `moved` bytes together."""
    source = torch.randint(0, 255, (max(moved // 2, 1),), dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _torch_calls(
    bench: Bench, case: Case, args: list[Any], kwargs: dict[str, Any], dtype: torch.dtype
) -> dict[str, Callable[[], object]]:
    eager = case.eager
    assert eager is not None

    def on_device(call: Callable[..., Any]) -> Callable[[], object]:
        def run() -> object:
            with torch.device(bench.device), torch.no_grad():
                return call(*args, **kwargs)

        return run

    found = {"eager": on_device(eager)} | {name: on_device(call) for name, call in case.also.items()}
    # a compilation takes seconds: for two dtypes, and while there is time
    if bench.compiled and dtype != torch.bfloat16 and not bench.late(reserve=90):
        torch._dynamo.reset()
        found["compiled"] = on_device(torch.compile(eager, backend="eager" if bench.tiny else "inductor"))
    return found


def attention(bench: Bench) -> None:
    """Against torch's scaled_dot_product_attention, over lengths and widths."""
    if "attention" not in bench.ops:
        return
    bench.say(
        "", "### attention against torch's SDPA", "",
        "| batch · heads · length · width | causal | dtype | best tactic | ms | SDPA, ms | SDPA / ours |",
        "|---|---|---|---:|---:|---:|---:|",
    )  # fmt: skip
    op, launcher = OPS["attention"], bench.launcher
    shapes = (
        [(1, 2, 16, 16)]
        if bench.tiny
        else [(1, 8, 1024, 64), (4, 16, 1024, 64), (4, 16, 2048, 128), (1, 32, 4096, 128)]
    )
    for shape in shapes:
        for causal in (False, True):
            for dtype in DTYPES:
                if bench.late():
                    bench.unchecked.append(f"attention {shape}: the time was up")
                    continue
                torch.manual_seed(0)
                q, k, v = (torch.randn(shape, device=bench.device).to(dtype) for _ in range(3))
                kwargs: dict[str, Any] = {"is_causal": True} if causal else {}
                calls: dict[str, Callable[[], object]] = {
                    str(t): launcher.prepared(op, [q, k, v], kwargs, t) for t in range(launcher.tactics(op))
                }
                calls["sdpa"] = lambda q=q, k=k, v=v, causal=causal: torch_sdpa(q, k, v, causal)
                times = timed(bench, calls)
                ours = {t: ms for t, ms in times.items() if t != "sdpa"}
                if not ours or "sdpa" not in times:
                    continue
                best = min(ours, key=lambda t: ours[t])
                bench.say(
                    f"| {' · '.join(map(str, shape))} | {'yes' if causal else 'no'} | {dtypes.name_of(dtype)} | {best} | "
                    f"{ours[best]:.3f} | {times['sdpa']:.3f} | {times['sdpa'] / ours[best]:.2f} |"
                )
