"""Winograd's minimal filtering F(m x m, 3 x 3): convolutions of kernel 3 x 3 and stride 1, tile by tile.

A tile of m x m results needs (m + 2)**2 multiplications per channel instead of 9 m**2: tiles of the input
and the weight are transformed, multiplied position by position (a matrix product over the channels for each
position) and the products transformed back. A transform works on the rows of a tile, then on its columns;
each half is a stage whose elements are chosen by their position, which unrolling decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ... import te
from ...ir import Expr
from ...schedule.primitive.winograd import chosen
from ..lowering import Kind, NotLowered, lowers
from .convolution import LAST, with_bias
from .padding import padded

READING = 8  # multiplications that take as long as reading a weight; measured
CANCELLATION = 16  # times the rounding errors of a direct convolution, at most
Row = Sequence[Any]  # numbers, expressions or tensors: whatever can be added and multiplied


@dataclass(frozen=True)
class Transform:
    """What becomes of a row of the input, of the weight and of the products, for `m` results in a row."""

    m: int
    input: Callable[[Row], Row]
    weight: Callable[[Row], Row]
    output: Callable[[Row], Row]


def input_2(d: Row) -> Row:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def weight_2(g: Row) -> Row:
    even, odd = (g[0] + g[2]) * 0.5, g[1] * 0.5
    return [g[0], even + odd, even - odd, g[2]]


def output_2(m: Row) -> Row:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def input_4(d: Row) -> Row:
    even_1, odd_1 = d[4] - d[2] * 4.0, d[3] - d[1] * 4.0
    even_2, odd_2 = d[4] - d[2], (d[3] - d[1]) * 2.0
    ends = [d[0] * 4.0 - d[2] * 5.0 + d[4], d[1] * 4.0 - d[3] * 5.0 + d[5]]
    return [ends[0], even_1 + odd_1, even_1 - odd_1, even_2 + odd_2, even_2 - odd_2, ends[1]]


def weight_4(g: Row) -> Row:
    even_1, odd_1 = (g[0] + g[2]) * (-1 / 6), g[1] * (-1 / 6)
    even_2, odd_2 = g[0] * (1 / 24) + g[2] * (1 / 6), g[1] * (1 / 12)
    return [g[0] * 0.25, even_1 + odd_1, even_1 - odd_1, even_2 + odd_2, even_2 - odd_2, g[2]]


def output_4(m: Row) -> Row:
    sum_1, difference_1 = m[1] + m[2], m[1] - m[2]
    sum_2, difference_2 = m[3] + m[4], m[3] - m[4]
    return [
        m[0] + sum_1 + sum_2,
        difference_1 + difference_2 * 2.0,
        sum_1 + sum_2 * 4.0,
        difference_1 + difference_2 * 8.0 + m[5],
    ]


F2, F4 = Transform(2, input_2, weight_2, output_2), Transform(4, input_4, weight_4, output_4)


def transform_for(batch: int, height: int, width: int) -> Transform:
    """The one with less to do for a transformed weight: it is multiplied once for each tile, and read."""

    def work(f: Transform) -> int:
        tiles = batch * -(-height // f.m) * -(-width // f.m)
        return (f.m + 2) ** 2 * (tiles + READING)

    return min((F2, F4), key=work)


@lowers("winograd", kind=Kind.HEAVY)
def winograd(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
) -> te.Tensor:  # fmt: skip
    """What `conv2d_channels_last` is: X(n, h, w, ci) with W(3, 3, ci, co), giving (n, h', w', co)."""
    ones = all(n == 1 for n in (*stride, *dilation, groups))
    if not ones or weight.shape[:2] != (3, 3) or x.dtype != "float32":
        raise NotLowered("only kernels of 3 x 3, stride 1, float32")
    extents = [n + 2 * p - 2 for n, p in zip(x.shape[1:3], padding, strict=True)]
    result = filtered(x, weight, padding, extents, transform_for(x.shape[0], *extents))
    return with_bias(result, bias, x.dtype, LAST)


def filtered(
    x: te.Tensor, weight: te.Tensor, padding: Sequence[int], extents: Sequence[int], transform: Transform
) -> te.Tensor:
    m, size = transform.m, transform.m + 2
    batch, *space, inputs = x.shape
    rows, columns = [-(-n // m) for n in extents]
    tiles, outputs = batch * rows * columns, weight.shape[-1]
    sides = [(p, t * m + 2 - n - p) for n, p, t in zip(space, padding, (rows, columns), strict=True)]
    source = padded(x, [(0, 0), *sides, (0, 0)])

    def windowed(i: Expr, j: Expr, t: Expr, c: Expr) -> Expr:
        return source[t // (rows * columns), t // columns % rows * m + i, t % columns * m + j, c]

    window = te.compute((size, size, tiles, inputs), windowed, name="window")
    data = half(half(window, transform.input, "input_rows"), transform.input, "data")
    weights = half(half(weight, transform.weight, "weight_rows"), transform.weight, "weights")
    rc = te.reduce_axis(inputs, name="rc")

    def product(u: Expr, v: Expr, t: Expr, k: Expr) -> Expr:
        return te.sum(data[u, v, t, rc] * weights[u, v, rc, k], axis=rc)

    products = te.compute((size, size, tiles, outputs), product, name="products")
    output_rows = half(products, transform.output, "output_rows")

    def result(n: Expr, h: Expr, w: Expr, k: Expr) -> Expr:
        t = (n * rows + h // m) * columns + w // m
        return chosen(w % m, transform.output([output_rows[v, h % m, t, k] for v in range(size)]))

    return te.compute((batch, *extents, outputs), result, name="conv")


def half(x: te.Tensor, rule: Callable[[Row], Row], name: str) -> te.Tensor:
    """The first dimension transformed, and exchanged with the second: twice is a whole transform."""
    length, other, *rest = x.shape
    made = len(rule([0.0] * length))

    def element(j: Expr, u: Expr, t: Expr, c: Expr) -> Expr:
        return chosen(u, rule([x[i, j, t, c] for i in range(length)]))

    return te.compute((other, made, *rest), element, name=name)


def deviation(weight: torch.Tensor, result: Sequence[int]) -> float:
    """How far results of this shape are from those of a direct convolution, as a share of the largest one:
    found by a tile of random data."""
    transform = transform_for(*result[:3])
    size = transform.m + 2

    def whole(x: torch.Tensor, rule: Callable[[Row], Row]) -> torch.Tensor:
        for _ in range(2):
            x = torch.stack([*rule(x.unbind())]).transpose(0, 1)
        return x

    tile = torch.randn(size, size, weight.shape[2], generator=torch.Generator().manual_seed(0))
    terms = whole(tile, transform.input).unsqueeze(2) @ whole(weight, transform.weight)
    found = whole(terms.squeeze(2), transform.output)
    exact = torch.conv2d(tile.permute(2, 0, 1).double()[None], weight.permute(3, 2, 0, 1).double())
    error = (found.permute(2, 0, 1) - exact[0]).abs().max()
    return float(error / exact.abs().max().clamp(min=torch.finfo(torch.float32).tiny))
