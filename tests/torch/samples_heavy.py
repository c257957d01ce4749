"""Calls of matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from tests.torch.agreement import Sample, call, ints, t

aten = torch.ops.aten
f16, bf16, f64 = torch.float16, torch.bfloat16, torch.float64


def products() -> Iterator[Sample]:
    yield call(aten.mm.default, t(3, 5), t(5, 7))
    yield call(aten.mm.default, t(2, 0), t(0, 3))
    yield call(aten.mm.default, t(1, 1), t(1, 1))
    yield call(aten.mm.default, ints(3, 2), ints(2, 1))
    yield call(aten.bmm.default, t(2, 3, 5), t(2, 5, 7))
    yield call(aten.bmm.default, t(1, 1, 4), t(1, 4, 1))
    yield from (call(aten.mv.default, t(3, 5), t(5)), call(aten.dot.default, t(5), t(5)))
    for dtype in (f64, f16, bf16):
        yield call(aten.mm.default, t(3, 4, dtype=dtype), t(4, 2, dtype=dtype))
        yield call(aten.bmm.default, t(1, 3, 4, dtype=dtype), t(1, 4, 2, dtype=dtype))
        yield call(aten.addmm.default, t(2, dtype=dtype), t(3, 4, dtype=dtype), t(4, 2, dtype=dtype))
        yield call(aten.linear.default, t(3, 4, dtype=dtype), t(2, 4, dtype=dtype), t(2, dtype=dtype))
    yield call(aten.matmul.default, t(2, 1, 3, 4), t(5, 4, 2))
    for left, right in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((4,), (2, 4, 3))):
        yield call(aten.matmul.default, t(*left), t(*right))
    for term in (t(3, 7), t(7), t(3, 1), t()):
        yield call(aten.addmm.default, term, t(3, 5), t(5, 7))
        yield call(aten.addmm.default, term, t(3, 5), t(5, 7), beta=0.5, alpha=-2)
    yield call(aten.addmm.default, torch.full((7,), float("nan")), t(3, 5), t(5, 7), beta=0)
    yield call(aten.addmm.default, ints(2), ints(3, 2), ints(2, 2), beta=2, alpha=3)
    for beta, alpha in ((0.6, 1), (1, 0.5), (1.9, -2.7), (0.6, 0.2)):  # of integers torch drops the fraction
        factors = {"beta": beta, "alpha": alpha}
        yield call(aten.addmm.default, ints(3, 2), ints(3, 4), ints(4, 2), **factors)
        yield call(aten.baddbmm.default, ints(2, 3, 2), ints(2, 3, 4), ints(2, 4, 2), **factors)
        yield call(aten.addmv.default, ints(3), ints(3, 4), ints(4), **factors)
    yield call(aten.baddbmm.default, t(2, 3, 7), t(2, 3, 5), t(2, 5, 7))
    yield call(aten.baddbmm.default, t(1, 1, 7), t(2, 3, 5), t(2, 5, 7), beta=0, alpha=0.125)
    yield call(aten.addmv.default, t(3), t(3, 5), t(5), beta=2)
    yield call(aten.linear.default, t(2, 3, 5), t(7, 5), t(7))
    for x, y in ((t(4, 3), t(4, 2)), (t(2, 3, dtype=f64), t(2, 2, dtype=f64))):  # as `bilinear` has it
        weight = t(5, 3, 2, dtype=x.dtype)
        yield call(aten._trilinear.default, x, weight, y, [1, 3], [0], [1, 2], [2, 3])
    yield call(aten._trilinear.default, t(3), t(3), t(3), [], [], [], [0], 0)
    yield from (call(aten.linear.default, t(5), t(7, 5)), call(aten.linear.default, t(0, 5), t(7, 5)))


# Spatial extents; ci, co, groups; kernel; stride, padding, dilation, output padding (or None: not transposed)
CONVOLUTIONS: list[tuple[Any, ...]] = [
    ((7, 5), (3, 4, 1), (3, 3), [1, 1], [1, 1], [1, 1], None),
    ((7, 5), (3, 4, 1), (3, 2), [2, 1], [0, 1], [1, 2], None),
    ((6, 6), (4, 6, 2), (3, 3), [1, 1], [1, 0], [1, 1], None),
    ((5, 4), (3, 3, 3), (3, 3), [2, 2], [1, 1], [1, 1], None),
    ((5, 4), (2, 6, 2), (1, 3), [1, 1], [0, 1], [1, 1], None),
    ((4, 5), (5, 2, 1), (1, 1), [1, 1], [0, 0], [1, 1], None),
    ((9,), (2, 3, 1), (3,), [2], [1], [2], None),
    ((9,), (4, 4, 4), (5,), [1], [2], [1], None),
    ((3, 4, 5), (2, 2, 1), (2, 3, 1), [1, 1, 2], [1, 1, 0], [1, 1, 1], None),
    ((4, 3), (3, 2, 1), (4, 4), [2, 2], [1, 1], [1, 1], [0, 0]),
    ((4, 3), (4, 6, 2), (3, 2), [2, 3], [1, 0], [1, 2], [1, 0]),
    ((3, 3), (2, 2, 2), (3, 3), [1, 1], [2, 2], [1, 1], [0, 0]),
    ((5,), (2, 3, 1), (3,), [2], [1], [1], [1]),
    ((2, 3, 2), (2, 1, 1), (2, 2, 2), [2, 1, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]),
]


def convolutions() -> Iterator[Sample]:
    for space, (ci, co, groups), kernel, stride, padding, dilation, more in CONVOLUTIONS:
        transposed = more is not None
        shape = (ci, co // groups) if transposed else (co, ci // groups)
        for bias in (None, t(co)):
            args = (t(2, ci, *space), t(*shape, *kernel), bias)
            more = more or [0] * len(space)
            rest = (stride, padding, dilation, transposed, more, groups)
            yield call(aten.convolution.default, *args, *rest)
            yield channels_last(*args, *rest)
    for dtype in (f64, f16, bf16):
        x, w, b = (t(*shape, dtype=dtype) for shape in ((1, 2, 4, 3), (3, 2, 3, 3), (3,)))
        yield call(aten.convolution.default, x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def orders(ndim: int, transposed: bool) -> tuple[list[int], ...]:
    """To channels last and back, of activations and of weights."""
    last, back = [0, *range(2, ndim), 1], [0, ndim - 1, *range(1, ndim - 1)]
    to_last = [*range(2, ndim), 0, 1] if transposed else [*range(2, ndim), 1, 0]
    return last, back, to_last, [to_last.index(d) for d in range(ndim)]


def channels_last(x: torch.Tensor, w: torch.Tensor, *rest: Any) -> Sample:
    """The same convolution of ours, checked by torch's on permuted operands."""
    bias, stride, padding, dilation, transposed, more, groups = rest
    last, back, to_last, to_torch = orders(x.ndim, transposed)

    def reference(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, *_: Any) -> torch.Tensor:
        return aten.convolution.default(x.permute(back), w.permute(to_torch), bias, *rest[1:]).permute(last)

    operands = x.permute(last).contiguous(), w.permute(to_last).contiguous(), bias
    if transposed:
        target = f"conv_transpose{x.ndim - 2}d_channels_last"
        return Sample(target, (*operands, stride, padding, more, groups, dilation), reference=reference)
    target = f"conv{x.ndim - 2}d_channels_last"
    return Sample(target, (*operands, stride, padding, dilation, groups), reference=reference)


def integer_products() -> Iterator[Sample]:
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.long() @ y.long()).int()

    for left, right in (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")):
        x, y = byte(19, 13, dtype=left), byte(13, 8, dtype=right)
        yield Sample(aten._int_mm.default, (x, y), reference=product)
        yield Sample("integer_matmul", (x, y), reference=product)
        yield Sample("integer_matmul", (x.expand(2, 19, 13), y.expand(2, 13, 8)), reference=product)


def byte(*shape: int, dtype: str) -> torch.Tensor:
    low = -128 if dtype == "int8" else 0
    return ints(*shape, low=low, high=low + 255, dtype=getattr(torch, dtype))


def integer_convolution(x: torch.Tensor, w: torch.Tensor, zero: Any, *window: Any) -> torch.Tensor:
    """Of x - zero, which is 0 where a window goes over the border, and what that leaves out."""
    stride, padding, dilation, transposed, more, groups = window
    rest = (None, stride, padding, dilation, transposed, more, groups)
    found = aten.convolution.default(x.double() - zero, w.double(), *rest)
    by_group = w.double().unflatten(0, (groups, -1)) if transposed else w.double()
    sums = by_group.flatten(3 if transposed else 2).sum(-1).sum(1).reshape(-1, *[1] * (w.ndim - 2))
    return (found + sums * zero).round().int()


def integer_convolutions() -> Iterator[Sample]:
    for space, (ci, co, groups), kernel, stride, padding, dilation, more in CONVOLUTIONS:
        transposed = more is not None
        shape = (ci, co // groups) if transposed else (co, ci // groups)
        x, w = byte(2, ci, *space, dtype="uint8"), byte(*shape, *kernel, dtype="int8")
        rest = (stride, padding, dilation, transposed, more or [0] * len(space), groups)
        last, back, to_last, to_torch = orders(x.ndim, transposed)

        def permuted(x: torch.Tensor, w: torch.Tensor, *rest: Any, orders: Any) -> torch.Tensor:
            last, back, to_torch = orders
            return integer_convolution(x.permute(back), w.permute(to_torch), *rest).permute(last)

        for zero in (0, 117, torch.tensor([117], dtype=torch.int32)):
            yield Sample("integer_convolution", (x, w, zero, *rest), reference=integer_convolution)
            operands = x.permute(last).contiguous(), w.permute(to_last).contiguous()
            yield Sample(
                "integer_convolution_channels_last",
                (*operands, zero, *rest),
                reference=partial(permuted, orders=(last, back, to_torch)),
            )


def samples() -> Iterator[Sample]:
    yield from products()
    yield from convolutions()
    yield from integer_products()
    yield from integer_convolutions()
