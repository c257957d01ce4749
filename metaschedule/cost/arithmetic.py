"""What a store computes: its operations by kind and the elements it loads."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from .. import ir
from ..ir import INDEX as DTYPE_OF_INDICES
from ..ir.expr import COMPARISONS, LOGICAL

KINDS = ("add", "multiply", "extreme", "divide", "function", "compare", "select", "cast", "index", "tile")
ADD, MULTIPLY, EXTREME, DIVIDE, FUNCTION, COMPARE, SELECT, CAST, INDEX, TILE = range(len(KINDS))
BINARY = {"+": ADD, "-": ADD, "*": MULTIPLY, "min": EXTREME, "max": EXTREME}
BINARY |= dict.fromkeys(("/", "//", "%"), DIVIDE)
BINARY |= dict.fromkeys((*COMPARISONS, *LOGICAL), COMPARE)
# Vector instructions that a function comes to, roughly: most are polynomials.
FUNCTION_WEIGHT = {
    "abs": 1, "floor": 1, "ceil": 1, "round": 1, "trunc": 1, "isnan": 1, "isinf": 2, "sqrt": 10, "rsqrt": 14,
    "exp": 18, "exp2": 16, "sigmoid": 28, "tanh": 25, "erf": 30, "pow": 60,
}  # fmt: skip
OTHER_FUNCTION = 40


class Read(NamedTuple):
    """A load, how many elements from there on an instruction takes in one lane, and whether a condition is
    tested before it."""

    load: ir.Load
    group: int = 1
    guarded: bool = False


@lru_cache(maxsize=1024)  # loop transformations leave the stores of a block alone: candidates share them
def store_operations(s: ir.Store) -> tuple[tuple[float, ...], tuple[Read, ...]]:
    """The operations of a store, by KINDS, and what it reads."""
    reads: list[Read] = []
    counts = [0.0] * len(KINDS)
    count_operations(s.value, counts, reads)
    return tuple(counts), tuple(reads)


def choices(e: ir.Expr) -> list[ir.Expr]:
    """What `select(i == 0, a, select(i == 1, b, c))` chooses from by position: chosen when code is generated,
    if the loop is unrolled, as it should be."""
    found: list[ir.Expr] = []
    while (
        isinstance(e, ir.Select)
        and isinstance(e.cond, ir.Binary)
        and e.cond.op == "=="
        and is_position(e.cond)
    ):
        found.append(e.a)
        e = e.b
    return [*found, e] if found else []


def is_position(e: ir.Binary) -> bool:
    return e.a.dtype == DTYPE_OF_INDICES and isinstance(e.b, ir.Const) and not ir.has_load(e)


def count_operations(e: ir.Expr, counts: list[float], reads: list[Read]) -> None:
    """Add what evaluating `e` takes to `counts` (by KINDS) and `reads`."""
    if possible := choices(e):
        # On average one of them; each of their loads once, whatever the position.
        seen: dict[object, Read] = {}
        for one in possible:
            some: list[Read] = []
            own = [0.0] * len(KINDS)
            count_operations(one, own, some)
            seen.update({(read.load.buffer, *map(ir.expr_key, read.load.indices)): read for read in some})
            for kind, count in enumerate(own):
                counts[kind] += count / len(possible)
        reads += seen.values()
        return
    if isinstance(e, ir.Load):
        reads.append(Read(e))
        for index in e.indices:
            if type(index) is ir.Load or any(type(x) is ir.Load for x in ir.operands(index)):
                count_operations(index, counts, reads)  # indirect
        return
    if isinstance(e, ir.Call) and (known := ir.INSTRUCTIONS.get(e.name)) is not None:
        counts[MULTIPLY] += 1
        counts[ADD] += 1
        counts[TILE] += 1 / known.columns if known.tiles else 0  # rows of a tile
        for r in known.registers:  # a register is one load
            first = e.args[r.first]
            if isinstance(first, ir.Load):
                reads.append(Read(first, r.count))
            else:
                count_operations(first, counts, reads)
        return
    if isinstance(e, ir.Binary):
        counts[INDEX if e.dtype == "int64" else BINARY.get(e.op, ADD)] += 1
    elif isinstance(e, ir.Call):
        counts[FUNCTION] += FUNCTION_WEIGHT.get(e.name, OTHER_FUNCTION)
    elif isinstance(e, ir.Select):
        counts[SELECT] += 1
        count_operations(e.cond, counts, reads)
        chosen: list[Read] = []
        for x in (e.a, e.b):
            count_operations(x, counts, chosen)
        reads += [read._replace(guarded=True) for read in chosen]
        return
    elif isinstance(e, ir.Cast):
        counts[CAST] += 1
    elif isinstance(e, ir.Unary):
        counts[ADD] += 1
    for x in ir.operands(e):
        count_operations(x, counts, reads)
