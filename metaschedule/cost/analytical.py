"""`Analytical`: seconds of a program from its loops and the target's description, without measuring.

For every store, the time of the innermost tile (what is unrolled and vectorised inside the innermost loop
proper) is the largest of what its arithmetic, its chain of dependent updates, its loads and stores, and its
number of instructions take, rounded off, because these get in each other's way when they are close.
Accumulators and operands that the loops around do not move stay in registers, as far as there are registers.
To that comes what the loops cost, and the traffic between caches: at every cache, the outermost level whose
data fits is loaded once for every iteration of the loops outside. Constants are those of recent x86 cores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import Program
from ..schedule import Schedule
from ..target import Target
from .arithmetic import ADD, CAST, COMPARE, DIVIDE, EXTREME, FUNCTION, MULTIPLY, SELECT
from .table import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Table

CYCLE = 1 / 3.2e9  # seconds
LATENCY = 4.0  # cycles from one fused multiply-add to the next that needs its result
PORTS = 2.0  # vector operations, and loads, per cycle
ISSUE = 5.0  # instructions per cycle
SPILL = 8.0  # cycles per register too many and execution of the tile
GATHERED = 1.0  # instructions to put an element into its lane
TRANSPOSED = 3.0  # instructions per vector of a square of elements that is transposed
LOOP = 2.0  # cycles per iteration
ENTRY = 4.0  # cycles per start of a loop
TEST = 1.0
FORK = 1.5e-6  # seconds per start of a parallel loop
ROUNDING = 4.0  # exponent of the norm that joins limits of one tile
OPERATION = {EXTREME: 3.0, DIVIDE: 8.0, FUNCTION: 1.0, COMPARE: 1.0, SELECT: 1.0, CAST: 1.0}  # instructions
LARGEST_CODE = 2000.0  # instructions of a loop body that are fetched at full speed
SLOW_ISSUE = 1.5
# Cycles to bring a line from the second cache, the third and memory: the next of a row, and the first.
LINE = (1.3, 1.6, 8.0)
JUMP = (1.5, 8.0, 50.0)
WAYS = 8


class Analytical:
    """Predicts seconds; there is nothing to learn."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def predict(self, programs: Sequence[Program | Schedule]) -> np.ndarray:
        """Seconds of each program.

        >>> from metaschedule import Schedule, workloads
        >>> from metaschedule.target import resolve
        >>> plain = Schedule(workloads.create("GMM"))
        >>> fast = plain.fork()
        >>> _ = fast.parallel(fast.get_loops(fast.get_block("matmul"))[1])
        >>> one, two = Analytical(resolve("x86-64-v3,cores=2")).predict([plain, fast])
        >>> bool(1.9 < one / two < 2.1)
        True
        """
        table = Table(programs)
        times = estimate(table, self.target)["seconds"]
        return np.bincount(table.owner, weights=times, minlength=table.count)

    def update(self, programs: Sequence[Program | Schedule], latencies: Sequence[float | None]) -> None:
        """Measurements change nothing."""


def estimate(table: Table, target: Target) -> dict[str, np.ndarray]:
    """Per store: seconds, and the figures they come from."""
    t = table
    extent, stride = t.extent, t.stride
    position = np.arange(extent.shape[1])
    serial = ((t.kind == SERIAL) | (t.kind == PARALLEL)) & (extent > 1)
    innermost = np.where(serial, position, -1).max(axis=1)  # -1: no loop at all
    in_tile = position > innermost[:, None]
    at_innermost = np.take_along_axis(stride, np.maximum(innermost, 0)[:, None, None], 2)[..., 0]
    present = t.item > 0

    # --- vectors ---
    lanes_of = np.maximum(1, target.vector_bytes // np.maximum(t.item.max(axis=1), 1))
    vector = (t.kind == VECTORIZED) & (extent > 1)
    vectorised = vector.any(axis=1)
    lane_stride = np.where(vector[:, None], stride, 0).sum(axis=2)
    # LLVM vectorises a plain loop over contiguous elements.
    plain = ~vectorised & ~(in_tile & (extent > 1)).any(axis=1) & (at_innermost[:, 0] == 1)
    plain &= ((at_innermost <= 1) | ~present).all(axis=1) & (innermost >= 0) & (t.tests == 0)
    vector[plain, innermost[plain]] = True
    lane_stride = np.where(plain[:, None], at_innermost, lane_stride)
    vectorised |= plain
    width = np.where(vector, extent, 1).prod(axis=1)
    vectors = np.floor(width / lanes_of) + pieces(width % lanes_of)  # instructions for the vectorised loop
    vectors = np.where(plain, width / lanes_of, vectors)
    in_tile |= vector
    uniform = lane_stride == 0
    contiguous = vectorised[:, None] & (lane_stride == 1)
    horizontal = vectorised & uniform[:, 0]

    # --- the tile: vector instructions, and different values of every access ---
    unrolled = np.where((t.kind == UNROLLED) & in_tile, extent, 1.0)
    copies = unrolled.prod(axis=1)
    moved = np.where(stride > 0, unrolled[:, None], 1).prod(axis=2)
    per_lane = np.where(contiguous, vectors[:, None], np.where(uniform, 1.0, width[:, None]))
    values = np.where(present, moved * per_lane, 0.0)
    tile = copies * vectors
    # Elements that are not contiguous are collected one by one, or transposed in registers.
    gathered = present & ~uniform & ~contiguous & vectorised[:, None]
    transposed = gathered & ((stride == 1) & (unrolled >= lanes_of[:, None])[:, None]).any(axis=2)
    values = np.where(transposed, values / lanes_of[:, None], values)
    gathers = np.where(gathered, np.where(transposed, TRANSPOSED, GATHERED), 0.0) * values
    outer = np.where(in_tile, 1.0, extent)
    trips = outer.prod(axis=1) * t.executed

    # --- what stays in registers across the innermost loops proper ---
    still = stride == 0
    kept = np.flip(
        np.logical_and.accumulate(np.flip(still | (in_tile | (extent == 1))[:, None], 2), axis=2), 2
    )
    kept_trips = np.where(kept, outer[:, None], 1.0).prod(axis=2)  # executions of the tile between reloads
    held = present & (kept_trips > 1)
    accumulators = np.where(held[:, 0] & t.updates, values[:, 0], 0.0)
    # Instructions come in the order of the loops: a value is in use while a loop runs that does not move it.
    again = (unrolled > 1)[:, None] & still
    inside = position > np.where(again.any(axis=2), again.argmax(axis=2), len(position))[..., None]
    live = np.where(inside & ~still, unrolled[:, None], 1).prod(axis=2) * per_lane
    live = np.where(again.any(axis=2) & present & ~held, live, 0.0)
    working = 1 + live[:, 1:].sum(axis=1)
    operands = np.where(held, values, 0.0)[:, 1:].sum(axis=1)
    room = target.vector_registers - accumulators - working
    hoisted = operands <= np.maximum(room, 0)  # else loaded every time
    once = np.where(held, 1.0 / kept_trips, 1.0)
    once[:, 1:] = np.where(hoisted[:, None], once[:, 1:], 1.0)
    excess = np.maximum(-room, 0.0) * (accumulators > 0)
    spills = np.minimum(SPILL * excess, 1.1 * accumulators)

    # --- cycles per execution of the tile ---
    ops = t.operations
    fused = np.maximum(ops[:, ADD], ops[:, MULTIPLY])
    other = sum(ops[:, kind] * weight for kind, weight in OPERATION.items())
    arithmetic = tile * (fused + other) + gathers.sum(axis=1)
    arithmetic += np.where(horizontal & t.updates, copies * vectors * 4, 0.0)
    chain = np.where(t.updates & held[:, 0], tile / np.maximum(values[:, 0], 1), 0.0) * LATENCY
    chain = np.where(horizontal & t.updates, copies * vectors * (LATENCY + 8), chain)
    loads = (values * once)[:, 1:].sum(axis=1) + np.where(t.updates, values[:, 0] * once[:, 0], 0.0)
    stores = values[:, 0] * once[:, 0]
    memory_port = np.maximum(loads / PORTS, stores) + gathers.sum(axis=1) / 2
    instructions = arithmetic + loads + stores + LOOP
    outside = np.where((t.kind == UNROLLED) & ~in_tile, extent, 1.0).prod(axis=1)
    rate = np.where(instructions * outside > LARGEST_CODE, SLOW_ISSUE, ISSUE)
    limits = np.stack([arithmetic / PORTS, chain, memory_port, instructions / rate])
    busy = (limits**ROUNDING).sum(axis=0) ** (1 / ROUNDING) + spills + TEST * t.tests
    busy *= 1 + t.tail

    # --- loops: each counted for the first store inside it ---
    looping = np.where(serial & ~vector, extent, 1.0)
    entered = np.cumprod(np.where(in_tile, 1.0, extent), axis=1) / np.maximum(outer, 1)
    mine = serial & ~vector & (position >= t.shared[:, None])
    mine_outer = mine & (position < innermost[:, None])
    overhead = np.where(mine, entered * ENTRY, 0.0).sum(axis=1)
    overhead += np.where(mine_outer, entered * looping * LOOP, 0.0).sum(axis=1)
    compute = trips * busy + overhead

    # --- traffic ---
    traffic = np.zeros_like(compute)
    rows = t.elements / t.run * present[..., None]
    lines = rows * np.maximum(1, t.run * t.item[..., None] / target.line)
    whole = np.bincount(t.owner, weights=lines[..., 0].sum(axis=1), minlength=t.count)[t.owner]
    outside_of = np.concatenate([np.ones((len(extent), 1)), np.cumprod(extent, axis=1)], axis=1)
    figures: dict[str, np.ndarray] = {}
    sizes = (target.l1, target.l2, target.l3 // target.cores)
    for cache, size in enumerate(sizes):
        room = size / target.line
        fits = (lines * crowding(t, size, target.line)).sum(axis=1) <= room
        # The loop that no longer fits still finds what its previous iteration used.
        level = np.maximum(np.where(fits.any(axis=1), fits.argmax(axis=1), extent.shape[1]) - 1, 0)
        times = np.take_along_axis(outside_of, level[:, None], 1)[:, 0] * t.executed * (whole > room)
        missing = np.take_along_axis(lines, level[:, None, None], 2)[..., 0].sum(axis=1) * times
        jumps = np.take_along_axis(rows, level[:, None, None], 2)[..., 0].sum(axis=1) * times
        figures[f"missing{cache}"], figures[f"jumps{cache}"] = missing, jumps
        traffic += missing * LINE[cache] + jumps * JUMP[cache]
    cycles = np.sqrt(compute**2 + traffic**2)

    # --- threads ---
    parallel = (t.kind == PARALLEL) & (extent > 1)
    chunks = np.where(parallel, extent, 1.0).prod(axis=1)
    speed = chunks / np.ceil(chunks / target.cores)
    first = np.where(parallel.any(axis=1), parallel.argmax(axis=1), -1)
    starts = np.take_along_axis(outside_of, np.maximum(first, 0)[:, None], 1)[:, 0]
    forks = np.where((first >= 0) & (first >= t.shared), starts, 0.0)
    seconds = cycles * CYCLE / speed + forks * FORK
    figures |= {
        "seconds": seconds, "arithmetic": limits[0], "chain": limits[1],
        "memory_port": limits[2], "issue": limits[3],
        "spills": spills, "trips": trips, "overhead": overhead, "compute": compute, "traffic": traffic,
        "accumulators": accumulators, "working": working, "tile": tile, "speed": speed, "forks": forks,
        "vectors": vectors,
    }  # fmt: skip
    return figures


def pieces(lanes: np.ndarray) -> np.ndarray:
    """How many powers of two a number of lanes is made of: instructions for the rest of a vector."""
    return np.array([int(n).bit_count() for n in lanes], dtype=float)


def crowding(t: Table, size: float, line: int) -> np.ndarray:
    """By how much the rows of a box overfill the sets of a cache that their distance lets them use."""
    way = size // WAYS
    pitch = np.where(np.isfinite(t.pitch), t.pitch, 1) * np.maximum(t.item, 1)
    places = way / np.gcd(pitch.astype(np.int64), int(way))
    lines_of_run = np.maximum(1, t.run * t.item[..., None] / line)
    usable = np.minimum(places[..., None] * lines_of_run, way / line) * WAYS * line
    return np.maximum(1.0, size / np.maximum(usable, 1))
