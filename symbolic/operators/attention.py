"""attention: scaled dot product attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import sym_or

from ..accumulation import wide
from ..dtypes import FLOATS
from ..operator import operator

if TYPE_CHECKING:
    from .. import functions
    from ..samples import Draw


def _check(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None) -> None:
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.dim() != 4:
            raise ValueError(
                f"attention: {name} has {t.dim()} dimensions; expected 4, (batch, heads, length, width)"
            )

    def shapes() -> str:
        return f"q is {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"

    torch._check_value(k.shape[0] == q.shape[0], lambda: f"attention: {shapes()}: the batch sizes differ")
    torch._check_value(v.shape[0] == q.shape[0], lambda: f"attention: {shapes()}: the batch sizes differ")
    torch._check_value(k.shape[3] == q.shape[3], lambda: f"attention: {shapes()}: q and k differ in width")
    torch._check_value(q.shape[3] >= 1, lambda: f"attention: {shapes()}: q has width 0")
    torch._check_value(v.shape[2] == k.shape[2], lambda: f"attention: {shapes()}: k and v differ in length")
    torch._check_value(v.shape[1] == k.shape[1], lambda: f"attention: {shapes()}: k and v differ in heads")
    torch._check_value(k.shape[1] >= 1, lambda: f"attention: {shapes()}: there are no heads")
    torch._check_value(
        q.shape[1] % k.shape[1] == 0,
        lambda: f"attention: {shapes()}: the heads of q are no multiple of those of k and v",
    )
    full = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    for name, added in (("bias", bias), ("mask", mask)):
        if added is None:
            continue
        if added.dim() > 4:
            raise ValueError(f"attention: {name} has {added.dim()} dimensions; expected at most 4")
        reason = (
            f"attention: {name} is {tuple(added.shape)} and does not broadcast to "
            f"(batch, heads of q, length of q, length of k) = {full}"
        )
        for size, whole in zip(added.shape, full[4 - added.dim() :], strict=True):
            torch._check_value(sym_or(size == 1, size == whole), lambda reason=reason: reason)


def _weights(
    q: Tensor, k: Tensor, bias: Tensor | None, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """How much each query (B, H, S) takes of each key (T): (B, H, S, T). q and k have the same heads."""
    may_be_empty = bias is not None or mask is not None
    scores = q @ k.transpose(-2, -1) * scale
    if bias is not None:
        scores = scores + bias
    if is_causal:
        past = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        mask = past if mask is None else mask & past
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    if not may_be_empty:
        return torch.softmax(scores, -1)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    # Filled before as well as after: the softmax of nothing is NaN, and would be NaN · 0 in a gradient.
    return torch.softmax(scores.masked_fill(empty, 0), -1).masked_fill(empty, 0)


@operator(
    "deployops::attention",
    onnx="deployops::ScaledDotProductAttention",
    dtypes={"q, k, v, bias": FLOATS, "mask": ("bool",)},
)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(scale·q·kᵀ + bias)·v, head by head (Vaswani et al. 2017, arXiv:1706.03762).

    q: (B, H, S, D). k: (B, K, T, D). v: (B, K, T, E). y: (B, H, S, E). H is a multiple of K, and head h of q
    uses head h // (H/K) of k and v (grouped heads; torch's ``enable_gqa=True``).

    bias: added to the scores. mask: bool, True where a query may look at a key. Each broadcasts to (B, H, S, T).
    is_causal: query i looks at keys 0 … i only, also where S ≠ T (aligned top left, as torch's
    scaled_dot_product_attention). All three may be given; a key is looked at if all allow it. scale: 1/√D where
    it is None.

    Halves are computed in float32, softmax and both products, and rounded once. With a bias or a mask, a query
    whose scores are all −inf (it may look at nothing) gives zeros, as in torch. No keys at all (T = 0) gives
    zeros. A masked score is ignored whatever it holds, but 0 times a NaN or inf in v is NaN.

    Raises ValueError where the shapes do not fit.
    """
    _check(q, k, v, bias, mask)
    groups = q.shape[1] // k.shape[1]
    keys, values = (wide(t).repeat_interleave(groups, 1) for t in (k, v))
    if scale is None:
        scale = 1 / math.sqrt(q.shape[3])
    weights = _weights(wide(q), keys, None if bias is None else wide(bias), mask, is_causal, scale)
    y: Tensor = weights @ values
    return y.to(q.dtype).contiguous()


@attention.fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    _check(q, k, v, bias, mask)
    return q.new_empty(q.shape[0], q.shape[1], q.shape[2], v.shape[3])


@attention.backward
def _(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
    groups = q.shape[1] // k.shape[1]
    if scale is None:
        scale = 1 / math.sqrt(q.shape[3])
    g, queries = wide(grad), wide(q)
    keys, values = (wide(t).repeat_interleave(groups, 1) for t in (k, v))
    weights = _weights(queries, keys, None if bias is None else wide(bias), mask, is_causal, scale)
    d_weights = g @ values.transpose(-2, -1)
    d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True))

    def of_group(gradient: Tensor) -> Tensor:  # (B, H, T, …) summed over the heads that share a key
        by_group: Tensor = gradient.unflatten(1, (k.shape[1], groups))
        return by_group.sum(2)

    d_q = d_scores @ keys * scale
    d_k = of_group(d_scores.transpose(-2, -1) @ queries * scale)
    d_v = of_group(weights.transpose(-2, -1) @ g)
    return d_q, d_k, d_v, None if bias is None else d_scores.sum_to_size(bias.shape), None


@attention.body
def _(
    op: functions.BodyBuilder,
    q: functions.Tensor,
    k: functions.Tensor,
    v: functions.Tensor,
    bias: functions.Tensor | None,
    mask: functions.Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> Any:
    dtype = "float64" if q.dtype == "float64" else "float32"

    def size(t: functions.Tensor, axis: int) -> Any:
        return op.Shape(t, start=axis, end=axis + 1)

    def shaped(t: functions.Tensor, *sizes: Any) -> Any:
        # Sizes of 0 are meant as such, not as "copy".
        return op.Reshape(t, op.Concat(*sizes, axis=0), allowzero=1)

    batch, heads, length, width = (size(q, a) for a in range(4))
    shared, keys = size(k, 1), size(k, 2)
    # The heads that share a key become one long head: (B, K, H/K · S, D). Nothing is repeated in memory.
    rows = op.Mul(op.Div(heads, shared), length)
    grouped = shaped(op.widen(q), batch, shared, rows, width)
    scores = op.MatMul(grouped, op.Transpose(op.widen(k), perm=[0, 1, 3, 2]))
    scores = op.Div(scores, op.Sqrt(op.cast(width, dtype))) if scale is None else op.Mul(scores, scale)
    scores = shaped(scores, batch, heads, length, keys)

    if bias is not None:
        scores = op.Add(scores, op.widen(bias))
    allowed = mask
    if is_causal:
        zero, one = op.tensor(0, "int64"), op.tensor(1, "int64")
        query = op.Range(zero, op.Squeeze(length), one)
        key = op.Range(zero, op.Squeeze(keys), one)
        past = op.GreaterOrEqual(op.Unsqueeze(query, op.tensor([1], "int64")), key)
        allowed = past if mask is None else op.And(mask, past)
    nothing = op.tensor(-math.inf, dtype)
    if allowed is not None:
        scores = op.Where(allowed, scores, nothing)
    weights = op.Softmax(scores, axis=-1)
    if bias is not None or mask is not None:
        # Counted, not by a maximum: runtimes lose NaN in one (ONNX Runtime does).
        seen = op.cast(op.Not(op.Equal(scores, nothing)), "float32")
        count = op.ReduceSum(seen, op.tensor([-1], "int64"))
        weights = op.Where(op.Equal(count, 0), op.tensor(0, dtype), weights)
    y = op.MatMul(shaped(weights, batch, shared, rows, keys), op.widen(v))
    return op.cast(shaped(y, batch, heads, length, size(v, 3)), q.dtype)


@attention.samples
def _(draw: Draw) -> Iterator[Any]:
    def allowed(*rows: list[int]) -> Tensor:
        return torch.tensor(rows, dtype=torch.bool)

    inf, nan = float("inf"), float("nan")
    yield draw(2, 2, 3, 4), draw(2, 2, 5, 4), draw(2, 2, 5, 3)
    yield draw.call(draw(1, 2, 3, 4), draw(1, 2, 3, 4), draw(1, 2, 3, 4), is_causal=True)
    yield draw.call(draw(1, 1, 5, 4), draw(1, 1, 3, 4), draw(1, 1, 3, 4), is_causal=True)
    yield draw.call(draw(1, 1, 2, 4), draw(1, 1, 5, 4), draw(1, 1, 5, 4), is_causal=True)
    # Grouped heads, six on two and four on one.
    yield draw(1, 6, 3, 4), draw(1, 2, 2, 4), draw(1, 2, 2, 4)
    yield draw.call(draw(1, 4, 2, 3), draw(1, 1, 3, 3), draw(1, 1, 3, 3), is_causal=True, scale=0.3)
    # Biases and masks, broadcast in different ways; the last query may look at nothing.
    yield draw(2, 2, 3, 4), draw(2, 2, 2, 4), draw(2, 2, 2, 4), draw(2, 2, 3, 2)
    yield draw(2, 2, 3, 4), draw(2, 1, 2, 4), draw(2, 1, 2, 4), draw(3, 2)
    yield draw(2, 2, 3, 4), draw(2, 2, 2, 4), draw(2, 2, 2, 4), None, draw(2, 1, 1, 2, dtype="bool")
    dead = allowed([1, 0], [1, 1], [0, 0])
    yield draw(1, 2, 3, 4), draw(1, 2, 2, 4), draw(1, 2, 2, 4), None, dead
    yield draw(1, 2, 3, 4), draw(1, 2, 2, 4), draw(1, 2, 2, 4), draw(1, 2, 1, 2), dead, True
    yield draw(1, 1, 2, 4), draw(1, 1, 2, 4), draw(1, 1, 2, 4), draw.values(-inf, -inf, 0, -inf).reshape(2, 2)
    yield draw(1, 1, 2, 4), draw(1, 1, 2, 4), draw(1, 1, 2, 4), draw.values(nan, -inf, inf, 0).reshape(2, 2)
    # Sizes 0 and 1, odd ones, strides.
    yield draw(0, 2, 3, 4), draw(0, 2, 5, 4), draw(0, 2, 5, 4)
    yield draw(1, 2, 0, 4), draw(1, 2, 5, 4), draw(1, 2, 5, 4)
    yield draw(1, 2, 3, 4), draw(1, 2, 0, 4), draw(1, 2, 0, 4)
    yield draw(1, 1, 1, 1), draw(1, 1, 1, 1), draw(1, 1, 1, 1)
    yield draw(1, 2, 17, 33), draw(1, 1, 19, 33), draw(1, 1, 19, 5)
    yield draw.strided(1, 2, 3, 4), draw.strided(1, 2, 3, 4), draw.strided(1, 2, 3, 4)
    # Beyond the tiles of kernels: more than 32 queries and keys, some tiles in the future, width above 64, values above 128.
    yield draw.call(
        draw(1, 1, 37, 70), draw(1, 1, 41, 70), draw(1, 1, 41, 3), is_causal=True, scale=0.1, smooth=False
    )
    yield draw.call(draw(1, 1, 2, 4), draw(1, 1, 66, 4), draw(1, 1, 66, 133), smooth=False)
    # Scores of ±3000 and more: without the maximum subtracted, exp would overflow; in float16, q·k too.
    yield draw.call(draw(1, 1, 3, 4) * 300, draw(1, 1, 5, 4) * 300, draw(1, 1, 5, 4), smooth=False)
