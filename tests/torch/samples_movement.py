"""Calls of the operators that make tensors or move elements."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.torch.agreement import Sample, call, ints, t

aten, prims = torch.ops.aten, torch.ops.prims
f16, bf16, f64 = torch.float16, torch.bfloat16, torch.float64
i32, i64, u8, boolean = torch.int32, torch.int64, torch.uint8, torch.bool


def creation() -> Iterator[Sample]:
    for value in (2, 2.5, True, float("-inf")):
        yield call(aten.full.default, [2, 3], value)
        yield call(aten.full.default, [], value, dtype=bf16)
        yield call(aten.full_like.default, t(3, dtype=f16), value)
        yield call(aten.scalar_tensor.default, value)
    yield call(aten.full_like.default, ints(2, 3), 1.5, dtype=f64)
    yield call(aten.fill.Scalar, ints(2, 3), 4)
    yield call(aten.scalar_tensor.default, 3, dtype=i64)
    for name in ("zeros", "ones"):
        yield call(getattr(aten, name).default, [2, 3])
        yield call(getattr(aten, name).default, [0], dtype=boolean)
        yield call(getattr(aten, f"{name}_like").default, ints(2, 1))
        yield call(getattr(aten, f"{name}_like").default, ints(2, 1), dtype=f64)
        yield call(getattr(aten, f"new_{name}").default, ints(2, 1), [3])
        yield call(getattr(aten, f"new_{name}").default, ints(2, 1), [], dtype=f64)
    yield call(aten.empty.memory_format, [2, 0])  # anything is right, so compare none
    yield call(aten.empty_strided.default, [0, 3], [3, 1])
    yield call(aten.empty_like.default, t(0, 2, dtype=f64))
    yield call(aten.new_empty.default, t(1), [0], dtype=i32)
    yield call(aten.new_empty_strided.default, t(1), [0, 2], [2, 1])
    yield call(aten.new_full.default, t(1), [2], 5)
    yield call(aten.new_full.default, t(1), [2], 5, dtype=u8)
    yield from (call(aten.arange.default, 5), call(aten.arange.default, 4.5, dtype=f64))
    yield from (call(aten.arange.start, -2, 5), call(aten.arange.start, 0.5, 3))
    yield from (call(aten.arange.start_step, 7, 0, -3), call(aten.arange.start_step, 0, 1, 0.1))
    yield from (call(aten.arange.start_step, 1, 9, 2, dtype=torch.float32), call(aten.arange.default, 0))
    yield call(prims.iota.default, 5, start=1, step=3, dtype=i64, device="cpu", requires_grad=False)
    for steps in (0, 1, 2, 7):
        yield call(aten.linspace.default, -1, 2.5, steps)
    yield call(aten.linspace.default, 0, 1, 4, dtype=f64)
    yield from (call(aten.eye.default, 3), call(aten.eye.m, 2, 4, dtype=i64))
    for x in (t(2, 3), ints(3), t(4, dtype=boolean), t(2, dtype=bf16), t(0)):
        yield call(aten._to_copy.default, x)
        for dtype in (torch.float32, f64, f16, bf16, i64, i32, boolean):
            yield call(aten._to_copy.default, x, dtype=dtype)
            yield call(prims.convert_element_type.default, x, dtype)
    yield from (call(aten.copy.default, t(2, 3), ints(3)), call(aten.copy.default, ints(2), t(2)))


def views() -> Iterator[Sample]:
    for name in ("view", "reshape", "_unsafe_view", "view_copy"):
        overload = getattr(aten, name).default
        yield call(overload, t(2, 3, 4), [6, 4])
        yield call(overload, t(6, 4), [2, 3, 2, 2])
        yield call(overload, t(4, 6), [3, 8])
        yield call(overload, t(5, 1, 7), [1, 35, 1])
        yield call(overload, t(1), [])
        yield call(overload, t(), [1, 1])
        yield call(overload, t(0, 3), [3, 0, 2])
        yield call(overload, ints(2, 3), [-1])
        yield call(overload, t(2, 3, 4, dtype=boolean), [2, -1, 2])
    yield from (call(aten.flatten.using_ints, t(2, 3, 4), *dims) for dims in ((), (1,), (0, 1), (-2, -1)))
    yield call(aten.flatten.using_ints, t())
    yield from (call(aten.unflatten.int, t(2, 12), 1, [3, -1]), call(aten.unflatten.int, t(6, 1), 0, [2, 3]))
    yield from (call(aten.unsqueeze.default, t(2, 3), dim) for dim in (0, 1, 2, -1, -3))
    yield call(aten.unsqueeze.default, t(), 0)
    for x in (t(1, 2, 1, 3), t(1), t(), t(0, 1)):
        yield call(aten.squeeze.default, x)
        yield call(aten.squeeze.dim, x, 0)
        yield call(aten.squeeze.dim, x, -1)
    yield from (call(aten.squeeze.dims, t(1, 2, 1, 3), dims) for dims in ([0, 2], [1, -2], []))
    for name in ("alias", "clone", "contiguous", "detach", "lift_fresh_copy"):
        yield from (call(getattr(aten, name).default, x) for x in (t(2, 3), t(), ints(0, 2)))
    yield from (call(aten.dropout.default, t(3), 0.5, False), call(aten.dropout.default, t(3), 0.0, True))


def movement() -> Iterator[Sample]:
    yield from (call(aten.permute.default, t(2, 3, 5), dims) for dims in ([2, 0, 1], [0, 2, 1], [-1, 1, 0]))
    yield from (call(aten.permute.default, t(), []), call(aten.permute.default, t(0, 2), [1, 0]))
    for overload in (aten.transpose.int, aten.swapaxes.default):
        yield from (call(overload, ints(2, 3, 5), *dims) for dims in ((0, 1), (-1, 0), (1, 1)))
        yield call(overload, t(), 0, -1)
    yield from (call(aten.t.default, x) for x in (t(2, 3), t(3), t()))
    yield call(aten.expand.default, t(1, 3, 1), [2, 3, 4])
    yield call(aten.expand.default, t(1, 3), [5, 2, -1])
    yield from (call(aten.expand.default, t(), [2, 2]), call(aten.expand.default, t(1, 2), [0, 2]))
    for start, end, step in (
        (None, None, 1),
        (1, 4, 1),
        (-3, -1, 1),
        (0, 9, 2),
        (3, 2**63 - 1, 3),
        (4, 2, 1),
    ):
        yield call(aten.slice.Tensor, t(2, 7), 1, start, end, step)
        yield call(aten.slice.Tensor, ints(7), 0, start, end, step)
    yield from (call(aten.select.int, t(2, 3, 4), dim, at) for dim, at in ((0, 1), (1, -1), (-1, 0)))
    yield from (call(aten.narrow.default, t(2, 7), 1, 2, 3), call(aten.narrow.default, t(5), -1, -2, 2))
    yield call(aten.split_with_sizes.default, t(2, 7), [3, 0, 4], 1)
    yield call(aten.split_with_sizes.default, t(3, 2), [1, 2])
    yield from (call(aten.split.Tensor, t(7, 2), size) for size in (1, 3, 7, 9))
    yield from (call(aten.split.Tensor, t(2, 6), 2, -1), call(aten.split.Tensor, t(0, 6), 2))
    yield from (call(aten.chunk.default, t(2, 7), n, 1) for n in (1, 3, 5, 9))
    yield from (call(aten.unbind.int, t(3, 2)), call(aten.unbind.int, t(3, 2), -1))
    yield call(aten.cat.default, [t(2, 3), t(1, 3), t(4, 3)])
    yield call(aten.cat.default, [t(2, 3), t(2, 1), t(2, 0)], -1)
    yield call(aten.cat.default, [t(0), t(2, 3)], 1)
    yield call(aten.cat.default, [ints(2), t(3, dtype=f16), t(1, dtype=boolean)])
    yield from (call(aten.stack.default, [t(2, 3), t(2, 3)], dim) for dim in (0, 1, -1))
    yield call(aten.stack.default, [t(), t(), t()])
    yield from (call(aten.flip.default, t(2, 3, 4), dims) for dims in ([0], [1, -1], []))
    yield call(aten.roll.default, t(3, 5), [2, -1], [1, 0])
    yield call(aten.roll.default, t(3, 5), [7])
    yield call(aten.roll.default, t(0, 5), [1], [0])
    yield from (call(aten.repeat.default, t(2, 3), repeats) for repeats in ([1, 2], [2, 1, 3], [0, 1]))
    yield call(aten.repeat.default, t(), [3])
    yield from (call(aten.diagonal.default, t(3, 4), offset) for offset in (0, 1, -2, 5))
    yield call(aten.diagonal.default, t(2, 3, 4), 1, 0, -1)
    yield from (call(aten.unfold.default, t(2, 7), 1, 3, 2), call(aten.unfold.default, t(5, 2), 0, 2, 1))
    yield call(aten.unfold.default, t(), 0, 1, 1)
    yield call(aten.as_strided.default, t(4, 6), [3, 2, 2], [6, 1, 2], 3)
    yield call(aten.as_strided.default, t(5), [2, 3], [1, 0])
    yield call(aten.as_strided.default, t(5), [], [], 2)
    yield call(aten.as_strided_scatter.default, t(4, 6), t(3, 2), [3, 2], [6, 2], 3)
    yield call(aten.as_strided_scatter.default, t(5), t(2, 2), [2, 2], [1, 2])
    yield call(aten.as_strided_scatter.default, t(5), t(), [], [], 2)
    for overload in (aten.tril.default, aten.triu.default):
        yield from (call(overload, t(3, 4), diagonal) for diagonal in (0, 1, -1, 7))
        yield from (
            call(overload, t(2, 4, 3)),
            call(overload, t(3, 3, dtype=boolean)),
            call(overload, ints(2, 2)),
        )
    yield call(aten.slice_scatter.default, t(7, 2), t(3, 2), 0, 1, 6, 2)
    yield call(aten.slice_scatter.default, t(2, 7), t(2, 4), 1, 3)
    yield call(aten.slice_scatter.default, t(3), t(3))
    yield from (call(aten.select_scatter.default, t(3, 4), t(3), 1, at) for at in (0, -1))
    yield from (
        call(aten.pixel_shuffle.default, t(2, 8, 3, 2), 2),
        call(aten.pixel_shuffle.default, t(9, 1, 2), 3),
    )
    yield call(aten.pixel_unshuffle.default, t(2, 2, 6, 4), 2)


def padding() -> Iterator[Sample]:
    for pad in ([1, 2], [0, 1, 2, 0], [-1, 2], [1, -1, 0, -1], [0, 0]):
        yield call(aten.constant_pad_nd.default, t(2, 3, 4), pad)
        yield call(aten.constant_pad_nd.default, ints(3, 4), pad, 7)
    yield call(aten.constant_pad_nd.default, t(3), [1, 1], float("-inf"))
    yield call(aten.constant_pad_nd.default, t(3, dtype=boolean), [1, 1], True)
    for kind in ("reflection", "replication"):
        yield call(getattr(aten, f"{kind}_pad1d").default, t(2, 5), [3, 4])
        yield call(getattr(aten, f"{kind}_pad1d").default, t(1, 2, 5), [0, 1])
        yield call(getattr(aten, f"{kind}_pad2d").default, t(1, 2, 3, 4), [1, 3, 2, 0])
        yield call(getattr(aten, f"{kind}_pad2d").default, t(2, 3, 4, dtype=f64), [0, 0, 1, 1])
        yield call(getattr(aten, f"{kind}_pad3d").default, t(1, 1, 2, 3, 4), [1, 0, 2, 1, 1, 1])


def gathering() -> Iterator[Sample]:
    yield call(aten.embedding.default, t(7, 3), ints(2, 5, low=0, high=6))
    yield call(aten.embedding.default, t(7, 3, dtype=f16), ints(low=0, high=6, dtype=i32), 2)
    yield call(aten.embedding.default, t(7, 1), ints(0, low=0, high=6))
    yield call(aten.gather.default, t(4, 5), 1, ints(3, 2, low=0, high=4))
    yield call(aten.gather.default, t(4, 5), 0, ints(2, 5, low=0, high=3))
    yield call(aten.gather.default, t(), 0, torch.tensor(0))
    yield call(aten.index_select.default, t(4, 5), 1, ints(7, low=0, high=4))
    yield call(aten.index_select.default, t(), 0, torch.tensor([0]))
    yield call(aten.index_select.default, t(4, 5), 0, torch.tensor(3))
    yield call(aten.index_select.default, ints(4, 5), 0, ints(2, low=0, high=3, dtype=i32))
    for overload in (aten.index.Tensor, aten._unsafe_index.Tensor):
        yield call(overload, t(4, 5), [ints(3, low=-4, high=3)])
        yield call(overload, t(4, 5), [ints(3, 1, low=0, high=3), ints(2, low=-5, high=4)])
        yield call(overload, t(4, 5, 6), [None, ints(2, 2, low=0, high=4)])
        yield call(overload, t(4, 5, 6), [ints(3, low=0, high=3), None, ints(3, low=0, high=5)])
        yield call(overload, t(2, 4, 5, 6), [None, ints(3, low=0, high=3), ints(1, low=0, high=4)])
        yield call(overload, t(4, 5), [torch.tensor(2)])


def samples() -> Iterator[Sample]:
    yield from creation()
    yield from views()
    yield from movement()
    yield from padding()
    yield from gathering()
