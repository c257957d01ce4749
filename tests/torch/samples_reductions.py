"""Calls of reductions, statistics and normalisations."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.torch.agreement import Sample, call, ints, special, t

aten = torch.ops.aten
f16, bf16, f64 = torch.float16, torch.bfloat16, torch.float64
i32, i64, u8, boolean = torch.int32, torch.int64, torch.uint8, torch.bool


def sums() -> Iterator[Sample]:
    for name, overload in (("sum", aten.sum.dim_IntList), ("mean", aten.mean.dim)):
        whole = getattr(aten, name).default
        for dims in ([1], [0, -1], [], None, [-2]):
            yield call(overload, t(3, 5, 2), dims)
            yield call(overload, t(3, 5, 2), dims, True)
        yield call(overload, t(3, dtype=f64), [0], dtype=torch.float32)
        yield from (
            call(overload, t(), [0]),
            call(overload, t(0, 3), [0]),
            call(overload, ints(4), [0], dtype=f64),
        )
        yield from (call(whole, x) for x in (t(3, 5), t(), t(0), t(4, dtype=f16), t(5, dtype=bf16)))
    yield from (call(aten.sum.default, x) for x in (ints(4, dtype=i32), t(9, dtype=boolean)))
    yield call(aten.sum.dim_IntList, t(3, 9, dtype=boolean), [1])
    yield call(aten.sum.dim_IntList, ints(3, low=0, dtype=u8), [0], dtype=i32)
    yield from (call(aten.prod.default, x) for x in (t(2, 3), ints(3, low=1), t(0), t(5, dtype=boolean)))
    yield from (call(aten.prod.dim_int, t(2, 3, dtype=f64), 1), call(aten.prod.dim_int, ints(2, 3), 0, True))
    for overload in (aten.cumsum.default, aten.cumprod.default):
        yield from (call(overload, t(3, 5), dim) for dim in (0, 1, -1))
        yield from (call(overload, ints(4, dtype=i32), 0), call(overload, t(4, dtype=boolean), 0))
        yield from (call(overload, t(0, 2), 0), call(overload, ints(3), 0, dtype=f64), call(overload, t(), 0))


def extremes() -> Iterator[Sample]:
    for name in ("max", "min"):
        along, whole, pair = (
            getattr(aten, f"a{name}").default,
            getattr(aten, name).default,
            getattr(aten, name).dim,
        )
        for dims in ([1], [0, -1], []):
            yield call(along, t(3, 5, 2), dims)
            yield call(along, ints(3, 5, 2), dims, True)
        yield from (call(along, t(), [0]), call(along, special(), [0]), call(along, t(4, dtype=boolean), [0]))
        yield from (call(whole, x) for x in (t(3, 5), ints(4, dtype=i32), t(), special(f64)))
        yield from (call(pair, t(3, 5), dim, keep) for dim, keep in ((0, False), (-1, True)))
        yield from (call(pair, ints(2, 9), 1), call(pair, special(), 0), call(pair, t(), 0))
        arg = getattr(aten, f"arg{name}").default
        yield from (call(arg, t(3, 5), *rest) for rest in ((), (1,), (0, True), (None, True), (-1,)))
        yield from (call(arg, x) for x in (ints(2, 9), special(), t()))


def conditions() -> Iterator[Sample]:
    for packet in (aten.any, aten.all):
        for x in (t(3, 2, dtype=boolean), ints(3, 2, low=0, high=1), t(0, 2), torch.zeros(2, 3)):
            yield call(packet.default, x)
            yield call(packet.dim, x, 0)
            yield call(packet.dim, x, -1, True)
            yield call(packet.dims, x, [0, 1])
            yield call(packet.dims, x, None, True)


def ranks() -> Iterator[Sample]:
    with_nan = t(3, 7)
    with_nan[0, 2] = with_nan[2, 0] = float("nan")
    for k, largest in ((1, True), (3, True), (3, False), (7, False)):
        yield call(aten.topk.default, t(3, 7), k, -1, largest)
        yield call(aten.topk.default, with_nan, k, 1, largest)
        yield call(aten.topk.default, t(7, 2, dtype=bf16), k, 0, largest)
        yield call(aten.kthvalue.default, t(3, 7), k, 1, largest)
        yield call(aten.kthvalue.default, t(7, 2, dtype=f64), k, 0)
    yield from (call(aten.topk.default, t(), 1), call(aten.kthvalue.default, t(), 1))
    for packet in (aten.median, aten.nanmedian):
        for x in (t(3, 7), with_nan, t(7, 6, dtype=f16), t(3, 1, 4, dtype=f64)):
            yield from (call(packet.dim, x, dim, keep) for dim, keep in ((0, False), (-1, True), (1, False)))
            yield call(packet.default, x)
        yield from (call(packet.default, ints(3, 4)), call(packet.default, t()), call(packet.dim, t(), 0))


def statistics() -> Iterator[Sample]:
    for overload in (aten.var.correction, aten.std.correction, aten.var_mean.correction):
        for dims in ([1], [0, 2], None):
            yield call(overload, t(3, 5, 2), dims)
            yield call(overload, t(3, 5, 2, dtype=f64), dims, correction=0, keepdim=True)
        yield from (call(overload, t(1, 3), [0]), call(overload, t(9, dtype=bf16), [0], correction=2))
    for overload in (aten.var.dim, aten.std.dim):
        yield from (call(overload, t(3, 5), [1]), call(overload, t(3, 5), [0, 1], False, True))
    yield from (call(aten.var.default, t(3, 5)), call(aten.var.default, t(7), False))
    yield from (
        call(aten.logsumexp.default, t(3, 5), dims, keep) for dims, keep in (([1], False), ([0, 1], True))
    )
    yield call(aten.logsumexp.default, torch.tensor([[float("-inf")] * 2, [1.0, float("inf")]]), [1])
    yield from (call(aten.logsumexp.default, ints(3, 5), [0]), call(aten.logsumexp.default, t(), [0], True))
    for order in (2, 1, 0, 3, float("inf"), float("-inf")):
        yield call(aten.linalg_vector_norm.default, t(3, 5), order, [1], True)
        yield call(aten.linalg_vector_norm.default, t(3, 5, dtype=f64), order)
    yield call(aten.linalg_vector_norm.default, t(3, 5, dtype=bf16), 2, [0], dtype=torch.float32)


def softmax() -> Iterator[Sample]:
    for overload in (aten._softmax.default, aten._log_softmax.default):
        yield from (call(overload, t(3, 5, 2), dim, False) for dim in (0, 1, -1))
        yield from (call(overload, t(2, 7, dtype=dtype), 1, False) for dtype in (f64, f16, bf16))
        yield from (
            call(overload, t(1), 0, False),
            call(overload, t(), 0, False),
            call(overload, t(0, 3), 0, False),
        )
        yield call(overload, torch.tensor([1000.0, 999.0, -1000.0]), 0, False)
    for overload in (aten.softmax.int, aten.log_softmax.int):
        yield from (call(overload, t(3, 5), 1), call(overload, t(3, 5, dtype=f16), 0, torch.float32))
        yield call(overload, ints(3), 0, torch.float32)
    masked = torch.tensor([[float("-inf")] * 3, [1.0, float("-inf"), 2.0]])
    yield from (
        call(aten._safe_softmax.default, masked, -1),
        call(aten._safe_softmax.default, t(3, 5), 0, f64),
    )


def normalisation() -> Iterator[Sample]:
    for dtype in (torch.float32, f64):
        w, b = t(5, dtype=dtype), t(5, dtype=dtype)
        yield call(aten.native_layer_norm.default, t(3, 5, dtype=dtype), [5], w, b, 1e-5)
    yield call(aten.native_layer_norm.default, t(2, 3, 5), [3, 5], t(3, 5), None, 1e-3)
    yield call(aten.native_layer_norm.default, t(2, 1), [1], None, None, 1e-5)
    yield Sample(
        aten.native_layer_norm.default, (t(2, 7, dtype=bf16), [7], t(7, dtype=bf16), None, 1e-5), reads=[0]
    )
    yield Sample(aten._fused_rms_norm.default, (t(3, 5), [5], t(5), 1e-6), reads=[0])
    yield Sample(aten._fused_rms_norm.default, (t(2, 3, 5), [3, 5], None, None), reads=[0])
    yield call(aten.native_group_norm.default, t(2, 6, 5), t(6), t(6), 2, 6, 5, 3, 1e-5)
    yield call(aten.native_group_norm.default, t(1, 4, 3, 2), None, None, 1, 4, 6, 4, 1e-3)
    yield call(aten.native_group_norm.default, t(2, 4, 3, 2), t(4), None, 2, 4, 6, 1, 1e-3)
    inference = aten._native_batch_norm_legit_no_training.default
    mean, variance = t(3), t(3, low=0.1)
    for x in (t(2, 3, 4, 5), t(2, 3), t(1, 3, 7)):
        yield call(inference, x, t(3), t(3), mean, variance, 0.1, 1e-5)
    yield call(inference, t(2, 3, 4), None, None, mean, variance, 0.1, 1e-3)
    f64s = (t(3, dtype=f64), t(3, dtype=f64), mean.double(), variance.double())
    yield call(inference, t(2, 3, 4, dtype=f64), *f64s, 0.1, 1e-3)
    yield call(aten.native_batch_norm.default, t(2, 3, 4), t(3), t(3), mean, variance, False, 0.1, 1e-5)
    batch = aten._native_batch_norm_legit.no_stats
    yield call(batch, t(2, 3, 4, 5), t(3), t(3), True, 0.1, 1e-5)
    yield call(batch, t(4, 3), None, None, True, 0.1, 1e-5)


def ordering() -> Iterator[Sample]:
    ties = torch.tensor([[2.0, 1.0, 2.0, float("nan"), 1.0], [float("inf"), 0.0, -0.0, float("nan"), 5.0]])
    for x in (ties, t(3, 5), ints(3, 7), t(2, 4, dtype=boolean), ties.to(bf16)):
        for dim in (0, -1):
            for descending in (False, True):
                yield call(aten.sort.default, x, dim, descending)
            yield from (call(aten.cummax.default, x, dim), call(aten.cummin.default, x, dim))
    yield from (call(aten.sort.default, t()), call(aten.sort.stable, ties, stable=True, dim=1))
    yield from (call(aten.cummax.default, t(), 0), call(aten.logcumsumexp.default, t(), 0))
    edges = torch.tensor([[-float("inf"), -float("inf"), 1.0, float("inf"), 2.0], [0.0, 5.0, 1.0, 2.0, 3.0]])
    yield from (call(aten.logcumsumexp.default, x, 1) for x in (edges, t(2, 9), t(2, 5, dtype=f64)))
    yield call(aten.logcumsumexp.default, t(3, 5, dtype=f16), 0)
    bounds, values = torch.tensor([-1.0, 0.0, 0.5, 2.0]), torch.cat([t(5), torch.tensor([0.5, float("nan")])])
    for right in (False, True):
        yield call(aten.bucketize.Tensor, values, bounds, right=right)
        yield call(aten.searchsorted.Tensor, bounds, values.reshape(7, 1), right=right, out_int32=True)
    rows = t(3, 4).sort(1).values
    yield call(aten.searchsorted.Tensor, rows, t(3, 2), side="right")
    mixed = t(3, 4)
    yield call(aten.searchsorted.Tensor, mixed, t(3, 2), sorter=mixed.argsort(1))
    yield call(aten.searchsorted.Tensor, ints(5).sort().values, t(4))


def samples() -> Iterator[Sample]:
    yield from sums()
    yield from extremes()
    yield from conditions()
    yield from statistics()
    yield from softmax()
    yield from normalisation()
    yield from ordering()
    yield from ranks()
