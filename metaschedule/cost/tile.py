"""The innermost tile of a store: what is unrolled and vectorised inside the innermost loop proper.

Its time is the largest of what arithmetic, the chain of dependent updates, loads and stores, and the number
of instructions take, rounded off, because limits that are close get in each other's way. Accumulators and
operands that the loops around do not move stay in registers, as far as there are registers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..target import Target
from .arithmetic import ADD, CAST, COMPARE, DIVIDE, EXTREME, FUNCTION, MULTIPLY, SELECT
from .table import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Table

# Cycles until an operation that needs the result of another may start.
ADD_LATENCY = 3.0
FUSED_LATENCY = 4.0
EXTREME_LATENCY = 5.0  # NaN is looked for
FORWARD = 9.0  # cycles from a store to a load that needs its result
PORTS = 2.0  # vector operations, and loads, per cycle
ISSUE = 5.0  # instructions per cycle
WINDOW = 256.0  # instructions that the core looks ahead
SPILL = 8.0  # cycles per register too many, each time the accumulators are gone through
MOST_SPILL = 1.1  # cycles per accumulator, when all of them are in memory
GATHERED = 1.0  # instructions to put an element into its lane
TRANSPOSED = 3.0  # instructions per vector of a square that is transposed in registers
HORIZONTAL = 8.0  # instructions to combine the lanes of a vector
VECTORS_AT_ONCE = 4  # that a vectorised reduction combines first
MASKED = 12.0  # cycles per masked store
LANE_TEST = 4.0  # instructions per vector
TEST = 0.5  # cycles per test and branch inside a tile
DIVISION = 6.0  # instructions per digit of a fused loop
LOOP = 2.0  # instructions per iteration
LARGEST_CODE = 2000.0  # instructions of a loop body that are fetched at full speed
SLOW_ISSUE = 1.5
ROUNDING = 4.0  # exponent of the norm that joins the limits
INSTRUCTIONS = {EXTREME: 3.0, DIVIDE: 8.0, FUNCTION: 1.0, COMPARE: 1.0, SELECT: 1.0, CAST: 1.0}


@dataclass(slots=True, eq=False)
class Tiles:
    """One number per store. Times are cycles per execution of the tile, of which there are `trips`."""

    cycles: np.ndarray
    trips: np.ndarray
    arithmetic: np.ndarray
    chain: np.ndarray
    memory: np.ndarray
    issue: np.ndarray
    spills: np.ndarray
    vectors: np.ndarray
    size: np.ndarray
    accumulators: np.ndarray
    working: np.ndarray
    gathers: np.ndarray
    loops: np.ndarray  # per store and loop: whether it is a loop when the program runs


def tiles_of(t: Table, target: Target) -> Tiles:
    extent, stride = t.extent, t.stride
    position = np.arange(extent.shape[1])
    present = t.item > 0
    loops = ((t.kind == SERIAL) | (t.kind == PARALLEL)) & (extent > 1)
    innermost = np.where(loops, position, -1).max(axis=1)
    in_tile = position > innermost[:, None]
    step = np.take_along_axis(stride, np.maximum(innermost, 0)[:, None, None], 2)[..., 0]

    # Vectors. LLVM vectorises a plain loop over contiguous elements.
    lanes = np.maximum(1, target.vector_bytes // np.maximum(t.item.max(axis=1), 1))
    vector = (t.kind == VECTORIZED) & (extent > 1)
    at = np.maximum(innermost, 0)[:, None]
    plain = ~vector.any(axis=1) & (step[:, 0] == 1) & (np.take_along_axis(extent, at, 1)[:, 0] >= lanes)
    divided = np.take_along_axis(t.fused, at, 1)[:, 0]  # its digits are worked out for every iteration
    plain &= ((step <= 1) | ~present).all(axis=1) & (innermost >= 0) & (t.tests == 0) & ~divided
    vector[plain, innermost[plain]] = True
    loops &= ~vector
    in_tile |= vector
    vectorised = vector.any(axis=1)
    lane_stride = np.where(vector[:, None], stride, 0).sum(axis=2)
    width = np.where(vector, extent, 1).prod(axis=1)
    vectors = np.where(plain, width / lanes, np.floor(width / lanes) + pieces(width % lanes))
    uniform = lane_stride == 0
    contiguous = vectorised[:, None] & (lane_stride == 1)

    # The values of an access in a tile: vectors, or elements where these are not contiguous.
    unrolled = np.where((t.kind == UNROLLED) & in_tile, extent, 1.0)
    copies = unrolled.prod(axis=1)
    per_lane = np.where(contiguous, vectors[:, None], np.where(uniform, 1.0, width[:, None]))
    values = np.where(present, np.where(stride > 0, unrolled[:, None], 1).prod(axis=2) * per_lane, 0.0)
    gathered = present & ~uniform & ~contiguous & vectorised[:, None]
    transposed = gathered & ((stride == 1) & (unrolled >= lanes[:, None])[:, None]).any(axis=2)
    values = np.where(transposed, values / lanes[:, None], values)
    gathers = (np.where(gathered, np.where(transposed, TRANSPOSED, GATHERED), 0.0) * values).sum(axis=1)
    size = copies * vectors

    # What the innermost loops proper do not move is loaded before them and stored after them.
    outer = np.where(in_tile, 1.0, extent)
    still = stride == 0
    kept = innermost_run(still | (outer == 1)[:, None])
    repeats = np.where(kept, outer[:, None], 1.0).prod(axis=2)
    held = present & (repeats > 1)
    accumulators = np.where(held[:, 0] & t.updates, values[:, 0], 0.0)
    # Instructions come in the order of the loops: a value is in use while a loop runs that does not move it.
    again = (unrolled > 1)[:, None] & still
    inside = position > np.where(again.any(axis=2), again.argmax(axis=2), len(position))[..., None]
    live = np.where(inside & ~still, unrolled[:, None], 1).prod(axis=2) * per_lane
    live = np.where(again.any(axis=2) & present & ~held, live, 0.0)
    working = 1 + live[:, 1:].sum(axis=1)
    room = target.vector_registers - accumulators - working
    operands = np.where(held, values, 0.0)[:, 1:].sum(axis=1)
    once = np.where(held, 1 / repeats, 1.0)
    once[:, 1:] = np.where((operands <= room)[:, None], once[:, 1:], 1.0)
    rounds = size / np.maximum(values[:, 0], 1)  # over the accumulators, in one tile
    spills = np.minimum(np.maximum(-room, 0.0) * SPILL, MOST_SPILL * accumulators) * rounds

    # Instructions and limits.
    ops = t.operations
    other = sum(ops[:, kind] * count for kind, count in INSTRUCTIONS.items())
    arithmetic = (
        size * (np.maximum(ops[:, ADD], ops[:, MULTIPLY]) + other + LANE_TEST * t.lane_tests) + gathers
    )
    horizontal = vectorised & uniform[:, 0] & t.updates
    combined = np.where(horizontal, copies * np.ceil(vectors / VECTORS_AT_ONCE), 0.0)
    arithmetic += combined * HORIZONTAL
    updates = np.where(horizontal, combined / np.maximum(values[:, 0], 1), rounds)
    loads = (values * once)[:, 1:].sum(axis=1) + np.where(t.updates, values[:, 0] * once[:, 0], 0.0)
    stores = values[:, 0] * once[:, 0]
    instructions = arithmetic + loads + stores + LOOP
    instructions += np.where(divided, DIVISION * t.fused.sum(axis=1), 0.0)
    # Chains of other accumulators run meanwhile, as far as the core sees them.
    turns = innermost_run(kept[:, 0] | ~still[:, 0] | (outer == 1)) & ~kept[:, 0]
    others = np.where(turns, outer, 1.0).prod(axis=1)
    others = np.minimum(others, np.maximum(1, WINDOW / (repeats[:, 0] * instructions)))
    latency = np.where(ops[:, MULTIPLY] > 0, FUSED_LATENCY, ADD_LATENCY)
    chain = updates * np.where(ops[:, EXTREME] > 0, EXTREME_LATENCY, latency)
    chain += np.where(held[:, 0], 0.0, FORWARD)
    chain = np.where(t.updates, chain / others, 0.0)
    memory = np.maximum(loads / PORTS, stores) + gathers / PORTS
    code = instructions * np.where((t.kind == UNROLLED) & ~in_tile, extent, 1.0).prod(axis=1)
    issue = instructions / np.where(code > LARGEST_CODE, SLOW_ISSUE, ISSUE)
    limits = np.stack([arithmetic / PORTS, chain, memory, issue])
    cycles = (limits**ROUNDING).sum(axis=0) ** (1 / ROUNDING) + spills + TEST * t.tests
    cycles += np.where((t.rest == 0) | (t.rest % lanes > 0), t.masked * size * MASKED, 0.0)
    trips = outer.prod(axis=1) * t.executed
    return Tiles(
        cycles=cycles, trips=trips, arithmetic=limits[0], chain=chain, memory=memory, issue=issue,
        spills=spills, vectors=vectors, size=size, accumulators=accumulators, working=working,
        gathers=gathers, loops=loops,
    )  # fmt: skip


def innermost_run(condition: np.ndarray) -> np.ndarray:
    """Where a condition holds for a loop and for all loops inside it."""
    return np.flip(np.logical_and.accumulate(np.flip(condition, -1), axis=-1), -1)


def pieces(lanes: np.ndarray) -> np.ndarray:
    """How many powers of two a number of lanes is made of: instructions for the rest of a vector."""
    return np.array([int(n).bit_count() for n in lanes], dtype=float)
