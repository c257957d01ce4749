"""The innermost tile of a store: what is unrolled and vectorised inside the innermost loop proper.

Its time is the largest of what arithmetic, the chain of dependent updates, loads and stores, and the number
of instructions take, rounded off, because limits that are close get in each other's way. Accumulators and
operands that the loops around do not move stay in registers, as far as there are registers.

    for k: for i1 in unrolled(6): for j1 in vectorized(16): C[i1, j1] += A[i1, k] * B[k, j1], vectors of 8
    per k: 12 products, 2 a cycle: 6 cycles; 6 + 2 loads, 2 a cycle: 4; each of the 12 sums waits 4 cycles for
    itself; 22 instructions, 5 a cycle: 4.5; together 6.9. With 2 rows the sums decide: 2 cycles of products
    wait for the 4 of a sum
"""

from __future__ import annotations

import numpy as np

from ..codegen.lower.model import VECTORS_AT_ONCE
from ..target import Target
from .arithmetic import ADD, CAST, COMPARE, DIVIDE, EXTREME, FUNCTION, MULTIPLY, SELECT, TILE
from .table import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Table

# Cycles until an operation that needs the result of another may start.
ADD_LATENCY = 3.0
FUSED_LATENCY = 4.0
EXTREME_LATENCY = 5.0  # NaN is looked for
TILE_LATENCY = 18.0  # rows of a product follow those of the one before
FORWARD = 9.0  # cycles from a store to a load that needs its result
PORTS = 2.0  # vector operations, and loads, per cycle
ISSUE = 5.0  # instructions per cycle
WINDOW = 256.0  # instructions that the core looks ahead
SPILL = 8.0  # cycles per register too many, each time the accumulators are gone through
MOST_SPILL = 1.1  # cycles per accumulator, when all of them are in memory
GATHERED = 1.0  # instructions to put an element into its lane
TRANSPOSED = 3.0  # instructions per vector of a square that is transposed in registers
HORIZONTAL = 8.0  # instructions to combine the lanes of a vector
MASKED = 12.0  # cycles per masked store
BLENDED = 0.5  # where it can be a plain one
LANE_TEST = 4.0  # instructions per vector
TEST = 0.5  # cycles per test and branch inside a tile
DIVISION = 6.0  # instructions per digit of a fused loop
PLAIN = 1.5  # times the cycles of vectors that LLVM makes of a plain loop: operands are loaded more often
LOOP = 2.0  # instructions per iteration
LARGEST_CODE = 2000.0  # instructions of a loop body that are fetched at full speed
SLOW_ISSUE = 1.5
ROUNDING = 4.0  # exponent of the norm that joins the limits
INSTRUCTIONS = {EXTREME: 3.0, DIVIDE: 8.0, FUNCTION: 1.0, COMPARE: 1.0, SELECT: 1.0, CAST: 1.0}


class TileCosts:
    """The tiles of a table's stores: arrays over the stores, some also over accesses (the written one first)
    and loops. Times are `cycles` per execution of a tile, of which there are `trips`."""

    def __init__(self, t: Table, target: Target) -> None:
        self.rows = t.operations[:, TILE]  # of a lane of an instruction on tiles, of all its lanes below
        self.on_tiles = self.rows > 0
        self.find_vectors(t, target)
        self.count_values(t)
        self.keep_in_registers(t, target)
        self.count_instructions(t)
        self.take_time(t)

    def find_vectors(self, t: Table, target: Target) -> None:
        """The loops of the tile, and the hardware vectors of its vectorised one. LLVM vectorises a plain loop
        over contiguous elements."""
        position = np.arange(t.extent.shape[1])
        loops = ((t.kind == SERIAL) | (t.kind == PARALLEL)) & (t.extent > 1)
        innermost = np.where(loops, position, -1).max(axis=1)
        at = np.maximum(innermost, 0)[:, None]
        step = np.take_along_axis(t.stride, at[..., None], 2)[..., 0]
        self.lanes = np.maximum(1, target.vector_bytes // np.maximum(t.item.max(axis=1), 1))
        vector = (t.kind == VECTORIZED) & (t.extent > 1)
        self.divided = np.take_along_axis(t.fused, at, 1)[:, 0]  # digits worked out for every iteration
        plain = ~vector.any(axis=1) & (innermost >= 0) & (t.tests == 0) & ~self.divided & (step[:, 0] == 1)
        plain &= (step <= 1).all(axis=1) & (np.take_along_axis(t.extent, at, 1)[:, 0] >= self.lanes)
        vector[plain, innermost[plain]] = True
        self.plain = plain
        self.loops = loops & ~vector
        self.inside = (position > innermost[:, None]) | vector
        self.outer = np.where(self.inside, 1.0, t.extent)
        self.vectorised = vector.any(axis=1)
        self.lane_stride = np.where(vector[:, None], t.stride, 0).sum(axis=2)
        self.width = np.where(vector, t.extent, 1).prod(axis=1)
        self.lanes = np.where(self.on_tiles, self.width, self.lanes)
        self.rows = self.rows * self.width
        whole, rest = np.divmod(self.width, self.lanes)
        self.vectors = np.where(plain, self.width / self.lanes, whole + pieces(rest))

    def count_values(self, t: Table) -> None:
        """The different values of an access in a tile: vectors, or elements that are not contiguous."""
        self.present = t.item > 0
        self.uniform = (self.lane_stride == 0) & ~self.on_tiles[:, None]
        contiguous = self.vectorised[:, None] & ((self.lane_stride == 1) | self.on_tiles[:, None])
        self.unrolled = np.where((t.kind == UNROLLED) & self.inside, t.extent, 1.0)
        self.copies = self.unrolled.prod(axis=1)
        self.size = self.copies * self.vectors
        self.per_copy = np.where(self.uniform, 1.0, self.width[:, None])
        self.per_copy = np.where(contiguous, self.vectors[:, None], self.per_copy)
        values = np.where(t.stride > 0, self.unrolled[:, None], 1).prod(axis=2)
        self.seen_again = values / np.minimum(values, windows(t, self.unrolled))
        values = values * self.per_copy
        gathered = self.present & ~self.uniform & ~contiguous & self.vectorised[:, None]
        square = (t.stride == 1) & (self.unrolled >= self.lanes[:, None])[:, None]
        transposed = gathered & square.any(axis=2)
        values = np.where(transposed, values / self.lanes[:, None], values)
        self.values = np.where(self.present, values, 0.0)
        instructions = np.where(gathered, np.where(transposed, TRANSPOSED, GATHERED), 0.0)
        self.gathers = (instructions * self.values).sum(axis=1)

    def keep_in_registers(self, t: Table, target: Target) -> None:
        """What the innermost loops proper do not move is loaded before and stored after them, if it fits.
        Instructions come in the order of the loops: an operand is in use while a loop runs that does not
        move it."""
        self.still = t.stride == 0
        self.kept = innermost_run(self.still | (self.outer == 1)[:, None])
        self.repeats = np.where(self.kept, self.outer[:, None], 1.0).prod(axis=2)
        self.held = self.present & (self.repeats > 1)
        self.accumulators = np.where(self.held[:, 0] & t.updates, self.values[:, 0], 0.0)
        again = (self.unrolled > 1)[:, None] & self.still
        first = np.where(again.any(axis=2), again.argmax(axis=2), t.extent.shape[1])
        within = np.arange(t.extent.shape[1]) > first[..., None]
        live = np.where(within & ~self.still, self.unrolled[:, None], 1).prod(axis=2) * self.per_copy
        live = np.where(again.any(axis=2) & self.present & ~self.held, live, 0.0)
        self.working = 1 + live[:, 1:].sum(axis=1)
        registers = np.where(self.on_tiles, target.matrix_registers, target.vector_registers)
        room = registers - self.accumulators - self.working
        shared = np.where(self.seen_again > 1, self.values / self.seen_again, 0.0)
        fits = (shared.sum(axis=1) <= room)[:, None] & (shared > 0)
        self.values = np.where(fits, shared, self.values)
        room -= np.where(fits, shared, 0.0).sum(axis=1)
        operands = np.where(self.held, self.values, 0.0)[:, 1:].sum(axis=1)
        fits = np.ones_like(self.held)
        fits[:, 1:] = (operands <= room)[:, None]
        self.accessed = np.where(self.held & fits, self.values / self.repeats, self.values)
        self.rounds = self.size / np.maximum(self.values[:, 0], 1)  # over the accumulators, in one tile
        spilled = np.minimum(np.maximum(-room, 0.0) * SPILL, MOST_SPILL * self.accumulators)
        self.spills = spilled * self.rounds

    def count_instructions(self, t: Table) -> None:
        ops = t.operations
        each = np.maximum(ops[:, ADD], ops[:, MULTIPLY]) + LANE_TEST * t.lane_tests
        each += sum(ops[:, kind] * count for kind, count in INSTRUCTIONS.items())
        # A tile is multiplied a row per cycle, loaded a vector per row; both by one instruction.
        each = np.where(self.on_tiles, self.rows * PORTS, each)
        accessed = self.accessed * np.where(self.on_tiles, self.rows, 1.0)[:, None]
        horizontal = self.vectorised & self.uniform[:, 0] & t.updates
        self.combined = np.where(horizontal, self.copies * np.ceil(self.vectors / VECTORS_AT_ONCE), 0.0)
        self.operations = self.size * each + self.gathers + self.combined * HORIZONTAL
        self.stores = accessed[:, 0]
        self.loads = accessed[:, 1:].sum(axis=1) + np.where(t.updates, self.stores, 0.0)
        divisions = np.where(self.divided, DIVISION * t.fused.sum(axis=1), 0.0)
        self.instructions = self.operations + self.loads + self.stores + LOOP + divisions
        per_tile = self.size + self.accessed.sum(axis=1) + LOOP + divisions
        self.instructions = np.where(self.on_tiles, per_tile, self.instructions)

    def take_time(self, t: Table) -> None:
        self.arithmetic = self.operations / PORTS
        self.chain = np.where(t.updates, self.latency_of_updates(t) / self.other_chains(t), 0.0)
        self.memory = np.maximum(self.loads / PORTS, self.stores) + self.gathers / PORTS
        copied = np.where((t.kind == UNROLLED) & ~self.inside, t.extent, 1.0).prod(axis=1)
        large = self.instructions * copied > LARGEST_CODE
        self.issue = self.instructions / np.where(large, SLOW_ISSUE, ISSUE)
        limits = np.stack([self.arithmetic, self.chain, self.memory, self.issue])
        self.cycles = (limits**ROUNDING).sum(axis=0) ** (1 / ROUNDING) + self.spills + TEST * t.tests
        masks = (t.rest == 0) | (t.rest % self.lanes > 0)
        masked = np.where(t.local[:, 0], BLENDED, MASKED)
        self.cycles += np.where(masks, t.masked * self.size * masked, 0.0)
        self.cycles *= np.where(self.plain, PLAIN, 1.0)
        self.trips = self.outer.prod(axis=1) * t.executed

    def latency_of_updates(self, t: Table) -> np.ndarray:
        """Cycles of the updates of one accumulator in a tile, which wait for each other."""
        latency = np.where(t.operations[:, MULTIPLY] > 0, FUSED_LATENCY, ADD_LATENCY)
        latency = np.where(t.operations[:, EXTREME] > 0, EXTREME_LATENCY, latency)
        latency = np.where(self.on_tiles, TILE_LATENCY, latency)
        combined = self.combined / np.maximum(self.values[:, 0], 1)
        updates = np.where(self.combined > 0, combined, self.rounds)
        return updates * latency + np.where(self.held[:, 0], 0.0, FORWARD)

    def other_chains(self, t: Table) -> np.ndarray:
        """How many chains, of other accumulators or of another life of these, the core sees and runs
        meanwhile."""
        anew = np.arange(t.extent.shape[1]) < t.private[:, :1]
        still = self.still[:, 0] & ~anew
        kept = innermost_run(still | (self.outer == 1))
        length = np.where(kept, self.outer, 1.0).prod(axis=1)
        turns = innermost_run(kept | ~still | (self.outer == 1)) & ~kept
        others = np.where(turns, self.outer, 1.0).prod(axis=1)
        return np.minimum(others, np.maximum(1, WINDOW / (length * self.instructions)))


def windows(t: Table, unrolled: np.ndarray) -> np.ndarray:
    """How many different elements an access meets in unrolled loops, if some move it over the same ones, as
    neighbours in a convolution do."""
    repeated = unrolled[:, None, None, :]
    moves = (t.coefficient > 0) & (repeated > 1)
    points = np.where(moves, repeated, 1.0).prod(axis=3)
    step = np.where(moves, t.coefficient, np.inf).min(axis=3)
    reach = 1 + np.where(moves, t.coefficient * (repeated - 1), 0.0).sum(axis=3) / step
    return np.minimum(points, reach).prod(axis=2)


def innermost_run(condition: np.ndarray) -> np.ndarray:
    """Where a condition holds for a loop and for all loops inside it."""
    return np.flip(np.logical_and.accumulate(np.flip(condition, -1), axis=-1), -1)


def pieces(lanes: np.ndarray) -> np.ndarray:
    """How many powers of two a number of lanes is made of: instructions for the rest of a vector."""
    return np.array([int(n).bit_count() for n in lanes], dtype=float)
