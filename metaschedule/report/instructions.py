"""What hardware instructions add: on operators of narrow numbers, one by one; on a model, all together.

The module `UseInstruction` is taken out of the default space ("without"), or held to one instruction; the
rest of the space, the search and the budget are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .. import te
from ..ir import Expr, Program, blocks
from ..space import Space, UseInstruction
from ..space.untuned import default_space
from ..space.use_instruction import Fit, find_fits
from ..target import Target
from .spaces import SpacesRow
from .table import in_us

WITHOUT = "without"
DTYPES = {"int8": "int32", "uint8": "int32", "bfloat16": "float32"}  # of operands: of their sums


@dataclass(frozen=True)
class NarrowOperator:
    """A product or a convolution of narrow numbers, its weights constant."""

    label: str
    program: Program


def product(m: int, n: int, k: int, dtype: str) -> NarrowOperator:
    """Rows by columns: the data (m, k), the weights (k, n). Of uint8 data the weights are int8.

    >>> product(4, 8, 16, "int8").program
    <Program int8_4x8x16(A: int8[4, 16], B: int8[16, 8]) -> C: int32[4, 8]>
    """
    total, weights = DTYPES[dtype], dtype.removeprefix("u")
    a = te.placeholder((m, k), dtype, name="A")
    b = te.placeholder((k, n), weights, name="B", constant=True)
    r = te.reduce_axis(k, name="k")
    c = te.compute(
        (m, n), lambda i, j: te.sum(a[i, r].astype(total) * b[r, j].astype(total), axis=r), name="C"
    )
    return NarrowOperator(f"{dtype} {m}x{n}x{k}", te.program([a, b], [c], name=f"{dtype}_{m}x{n}x{k}"))


def convolution(size: int, ci: int, co: int, kernel: int, dtype: str) -> NarrowOperator:
    """Channels last, stride 1, results as large as the image."""
    total, weights, padding = DTYPES[dtype], dtype.removeprefix("u"), kernel // 2
    x = te.placeholder((size, size, ci), dtype, name="X")
    w = te.placeholder((kernel, kernel, ci, co), weights, name="W", constant=True)
    wide = size + 2 * padding

    def pad(i: Expr, j: Expr, c: Expr) -> Expr:
        inside = te.all_of(*[part for n in (i, j) for part in (n >= padding, n < size + padding)])
        return te.select(inside, x[i - padding, j - padding, c], 0)

    padded = te.compute((wide, wide, ci), pad, name="padded") if padding else x
    rows, columns, channel = (te.reduce_axis(n, name=s) for n, s in ((kernel, "p"), (kernel, "q"), (ci, "c")))
    y = te.compute(
        (size, size, co),
        lambda i, j, o: te.sum(
            padded[i + rows, j + columns, channel].astype(total) * w[rows, columns, channel, o].astype(total),
            axis=[rows, columns, channel],
        ),
        name="Y",
    )
    name = f"{dtype}_conv{kernel}_{size}x{size}x{ci}x{co}"
    label = f"{dtype} {kernel}x{kernel} on {size}x{size}x{ci} to {co}"
    return NarrowOperator(label, te.program([x, w], [y], name=name))


def operators() -> list[NarrowOperator]:
    """Those of BERT-Large and ResNet-50, and a product of 512."""
    made: list[NarrowOperator] = []
    for dtype in DTYPES:
        made += [product(512, 512, 512, dtype), product(128, 4096, 1024, dtype)]
        made += [convolution(56, 64, 64, 3, dtype)]
    return made


def fits_of(program: Program, target: Target) -> list[Fit]:
    """The instructions of a target that compute some block of a program."""
    return [fit for block in blocks(program) for fit in find_fits(block, target)]


def spaces_of(program: Program, target: Target) -> dict[str, Space]:
    """The default space without instructions, and with each that fits: the widest form of it."""
    space = default_space(target)
    widest: dict[str, tuple[int, str]] = {}
    for fit in fits_of(program, target):
        family = fit.known.name.rpartition(".")[0]
        widest[family] = max(widest.get(family, (0, "")), (fit.known.lanes, fit.known.name))
    named = {WITHOUT: space - "UseInstruction"}
    for family, (_, name) in widest.items():
        named[family.partition(".")[2]] = space.replace("UseInstruction", UseInstruction(only=(name,)))
    return named


def gains(row: SpacesRow) -> dict[str, float]:
    """How many times as fast each instruction makes an operator."""
    return {name: row.gain(WITHOUT, name) for name in row.spaces if name != WITHOUT}


def operator_cells(rows: Sequence[SpacesRow]) -> Iterator[list[str]]:
    """Heading first. Microseconds, and how many times as fast as without instructions."""
    names = list(dict.fromkeys(name for row in rows for name in row.spaces if name != WITHOUT))
    yield ["", "without, us", *(f"{name}, us" for name in names)]
    for row in rows:
        times = {name: in_us(row.latency(name).median) for name in row.spaces}
        shown = {name: f"{times[name]} ({gain:.2f}x)" for name, gain in gains(row).items()}
        yield [row.label, times[WITHOUT], *(shown.get(name, "-") for name in names)]
