"""Calls that write elements to places that other tensors tell."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.torch.agreement import Sample, call, ints, t

aten = torch.ops.aten
f16, bf16, f64 = torch.float16, torch.bfloat16, torch.float64
i32, i64, u8, boolean = torch.int32, torch.int64, torch.uint8, torch.bool


def puts() -> Iterator[Sample]:
    for overload in (aten.index_put.default, aten._unsafe_index_put.default):
        for accumulate in (False, True):
            distinct = torch.tensor([3, -5, 1])
            yield call(overload, t(5, 4), [distinct], t(3, 4), accumulate)
            yield call(overload, t(5, 4), [distinct], t(4), accumulate)
            yield call(overload, t(5, 4), [None, torch.tensor([[0, -1], [2, 1]])], t(5, 2, 2), accumulate)
            yield call(overload, t(5, 4), [distinct, torch.tensor([0, 1, -1])], t(3), accumulate)
            yield call(overload, t(5, 4), [distinct[:, None], torch.tensor([0, 2])], t(3, 2), accumulate)
            apart = [torch.tensor([1, 0]), None, torch.tensor([2, 1])]
            yield call(overload, t(2, 3, 4), apart, t(2, 3), accumulate)
            yield call(overload, t(5, dtype=f64), [torch.tensor(2)], t(dtype=f64), accumulate)
            yield call(overload, ints(5), [torch.tensor([1, 1, 4, 1])], ints(4), accumulate)
            mask = t(5, dtype=boolean)
            yield call(overload, t(5, 4), [mask], t(), accumulate)
            yield call(overload, t(2, 5), [t(2, 5, dtype=boolean)], t(1), accumulate)
            yield call(overload, t(5, dtype=bf16), [distinct], t(3, dtype=bf16), accumulate)
    yield call(aten.index_put.default, t(5, dtype=boolean), [torch.tensor([0, 3])], t(2, dtype=boolean))
    for rows in (torch.tensor([2, 0, 4]), torch.tensor([2, 2, 2])):
        for dim, x, source in ((0, t(5, 2), t(3, 2)), (-1, t(2, 5), t(2, 3)), (1, t(2, 5, 3), t(2, 3, 3))):
            yield call(aten.index_copy.default, x, dim, rows, source)
            yield call(aten.index_add.default, x, dim, rows, source, alpha=-1.5)
        yield call(aten.index_copy.default, ints(5), 0, rows, ints(3))
        yield call(aten.index_add.default, ints(5), 0, rows, ints(3), alpha=3)
        yield call(aten.index_add.default, t(5, dtype=bf16), 0, rows, t(3, dtype=bf16))
    one = torch.tensor(0)
    for x, source in ((t(), t()), (t(4), t(1))):
        yield call(aten.index_copy.default, x, 0, one, source)
        yield call(aten.index_add.default, x, 0, one, source)
    yield call(aten.index_copy.default, t(5, dtype=boolean), 0, one[None], t(1, dtype=boolean))


def scatters() -> Iterator[Sample]:
    index = torch.tensor([[2, 0, 1], [1, 2, 0]])
    for dim, x in ((0, t(3, 4)), (1, t(2, 3)), (-1, t(4, 5))):
        yield call(aten.scatter.src, x, dim, index, t(2, 3))
        yield call(aten.scatter.value, x, dim, index, 2.5)
        yield call(aten.scatter_add.default, x, dim, index, t(2, 3))
    many = torch.tensor([[2, 0, 2, 2], [1, 1, 1, 1]])
    yield call(aten.scatter.src, ints(2, 3), 1, many, ints(2, 4))
    yield call(aten.scatter_add.default, ints(2, 3), 1, many, ints(2, 4))
    yield call(aten.scatter_add.default, t(), 0, torch.tensor(0), t())
    yield call(aten.scatter.src, t(), 0, torch.tensor(0), t())
    yield call(aten.scatter.value, t(3, dtype=boolean), 0, torch.tensor([1]), True)
    for reduce in ("add", "multiply"):
        yield call(aten.scatter.reduce, t(2, 3), 1, many, t(2, 4), reduce=reduce)
        yield call(aten.scatter.value_reduce, t(2, 3), 1, many, 3.0, reduce=reduce)
        yield call(aten.scatter.value_reduce, ints(2, 3), 1, many, 3, reduce=reduce)
    source = t(2, 4)
    source[0, 2] = float("nan")
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include in (False, True):
            yield call(aten.scatter_reduce.two, t(2, 5), 1, many, source, reduce, include_self=include)
            whole = call(aten.scatter_reduce.two, ints(2, 3), 1, many, ints(2, 4), reduce)
            whole.kwargs["include_self"] = include
            yield whole
            yield call(aten.scatter_reduce.two, t(dtype=f64), 0, torch.tensor([0]), t(1, dtype=f64), reduce)
            if reduce == "sum":
                continue
            rows = torch.tensor([0, 2, 0, 0])
            for x, own, dim in ((t(3, 2), t(4, 2), 0), (t(2, 3, 2), t(2, 4, 2), -2), (t(3), t(4), 0)):
                yield call(aten.index_reduce.default, x, dim, rows, own, reduce, include_self=include)
            integers = call(aten.index_reduce.default, ints(3), 0, rows, ints(4), reduce)
            integers.kwargs["include_self"] = include
            yield integers


def segments() -> Iterator[Sample]:
    indices, offsets = torch.tensor([3, 0, 2, 2, 4, 1]), torch.tensor([0, 2, 2, 5])
    for overload in (aten._embedding_bag_forward_only.default, aten._embedding_bag.default):
        for mode in (0, 1, 2):
            for at, *rest in (
                (offsets,),
                (torch.tensor([0, 2, 2, 6]), None, True),
                (offsets, None, False, 2),
            ):
                yield Sample(overload, (t(5, 3), indices, at, False, mode, False, *rest), reads=[0])
        shares = (t(5, 3), indices.int(), offsets.int(), False, 0, False, t(6))
        yield Sample(overload, shares, reads=[0])
        yield Sample(overload, (t(5, 3, dtype=f64), indices, torch.tensor([0])), reads=[0])
    lengths, at = torch.tensor([2, 0, 3]), torch.tensor([0, 2, 2, 5])
    for reduce in ("sum", "mean", "prod", "max", "min"):
        for initial in (None, 0.5):
            for x in (t(5), t(5, 3), t(5, 2, 2, dtype=f64)):
                yield call(
                    aten.segment_reduce.default, x, reduce, lengths=lengths, unsafe=True, initial=initial
                )
                yield call(aten.segment_reduce.default, x, reduce, offsets=at, unsafe=True, initial=initial)
        rows = torch.tensor([[1, 3], [4, 0]])
        yield call(aten.segment_reduce.default, t(2, 4, 3), reduce, lengths=rows, axis=1, unsafe=True)
        yield call(aten.segment_reduce.default, t(5), reduce, lengths=lengths)


def samples() -> Iterator[Sample]:
    yield from segments()
    yield from puts()
    yield from scatters()
