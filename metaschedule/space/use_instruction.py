"""UseInstruction: sums of products by the target's instructions for narrow numbers, in a tile of registers.

What an instruction is good for is read off its description: a block whose term is that of a lane, with
some load for each operand, and a reduction iterator that both operands move with. Groups of the reduction
become the steps of a lane, operands are packed so that a group lies side by side, and the rest is
`RegisterTiling`'s.

    C[i, j] += int32(A[i, k]) * int32(B[k, j]),  vpdpbusd (16 lanes of 4):
    lanes j, steps k % 4;  B packed as [j // 32, k // 4, j % 32, k % 4];  A is read as it is, 4 bytes at once

What does not fit at once is made to: a reduction of 109 is padded with zeros to 112; int8 where the
instruction wants uint8 is moved by 128, and 128 times the sum of the other operand taken off; int8 where
it wants int16 is widened as it is packed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .. import ir
from ..errors import ScheduleError
from ..ir.annotations import CLAIMED
from ..schedule import BlockRV, Schedule
from ..schedule.instruction_semantics import Operands, match_operands, split_loops
from ..schedule.intrinsics import INTRINSICS, Intrinsic
from ..target import Target
from .block_predicates import (
    attempt,
    consumers,
    extent,
    find_only_store,
    find_vector_iterator,
    has_plain_loops,
    is_output,
    is_reduction,
    is_spatial,
    mentions,
    stride,
)
from .register_tiling import Grouping, group_size, tile
from .stage import schedule_stage

ROWS_OF_A_TILE = 2  # a tile takes as long as so many rows more than it has


@dataclass(frozen=True)
class UseInstruction:
    """`packs`: where the operand along the lanes is copied; "whole" (once, for constants at build time) or
    "panel" (where a tile of columns begins). `only` names the instructions to choose from; all, if none."""

    packs: tuple[str, ...] = ("whole", "panel")
    only: tuple[str, ...] = ()

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: ir.Block = sch.get(block)
        along = find_vector_iterator(node)
        if along is None or not is_reduction(node) or not has_plain_loops(sch, block):
            return [sch]
        fits = [fit for fit in find_fits(node, target) if not self.only or fit.known.name in self.only]
        found: dict[bool, list[Schedule]] = {}  # by the best that fits on tiles, and the best on vectors
        for fit in sorted(fits, key=lambda fit: fit.rank):
            if fit.known.tiles not in found:
                made = [
                    new for pack in self.packs for new in attempt(sch, fit.use, block, along, pack, target)
                ]
                found |= {fit.known.tiles: made} if made else {}
        return [*[new for made in found.values() for new in made], sch]


@dataclass(frozen=True)
class Fit:
    """An instruction that computes the term of a block, with the load for each of its operands."""

    intrinsic: Intrinsic
    operands: Operands

    @property
    def known(self) -> ir.HardwareInstruction:
        assert self.intrinsic.instruction is not None
        return self.intrinsic.instruction

    @property
    def size(self) -> int:
        """Steps of a lane."""
        return max(r.count for r in self.known.registers)

    @property
    def lanes(self) -> list[ir.For]:
        """The loops of the description that are lanes: the columns last, before them the rows, if any."""
        return split_loops(self.intrinsic.loops, self.intrinsic.stores[0])[0]

    def operand_along(self, loop: ir.For) -> tuple[ir.Buffer, ir.Load]:
        """The operand of the description that moves with a loop, and what is loaded for it."""
        for e in ir.subexpressions(self.intrinsic.stores[0].value):
            if isinstance(e, ir.Load) and e.buffer in self.operands and mentions(e, loop.var):
                return e.buffer, self.operands[e.buffer]
        raise ScheduleError(f"no operand of {self.known.name} moves with {loop.var.name}")

    def row(self, node: ir.Block, along: ir.Var) -> ir.Var | None:
        """The iterator that the rows of a matrix instruction are of: its operand moves with that, and not
        with the columns. None if the instruction has no rows."""
        if len(self.lanes) == 1:
            return None
        if len(self.lanes) > 2 or group_size(node, along) > 1:
            raise ScheduleError(f"the columns of {self.known.name} are no lanes of block {node.name!r}")
        left, right = (self.operand_along(loop)[1] for loop in self.lanes)
        found = [
            it.var
            for it in node.iters
            if it.kind == "spatial" and mentions(left, it.var) and not mentions(right, it.var)
        ]  # fmt: skip
        if not found or mentions(left, along) or not mentions(right, along):
            raise ScheduleError(f"no iterator of block {node.name!r} is the rows of {self.known.name}")
        return found[-1]

    def run(self) -> int:
        """How many steps of a lane lie side by side in the register of the columns, in whichever order they
        are added up: the pair of a lane of `vdpbf16ps` is elements 1 and 0."""
        name = self.operand_along(self.lanes[-1])[0].name
        first = sorted(next(r for r in self.known.registers if r.name == name).at[0])
        return next((n for n, element in enumerate(first) if element != first[0] + n), len(first))

    @property
    def conversions(self) -> list[tuple[ir.Load, str, int]]:
        """The loads to be converted, to what, and by how much they are moved."""
        return [
            (load, b.dtype, offset_between(load.dtype, b.dtype))
            for b, load in self.operands.items()
            if load.dtype != b.dtype
        ]

    @property
    def rank(self) -> tuple[int, int, int]:
        """Most work at once, fewest conversions; what is moved is not constant, so that its cofactor may
        be."""
        moved = [load for load, _, offset in self.conversions if offset]
        return -self.known.products, len(self.conversions), sum(load.buffer.constant for load in moved)

    def step(self, node: ir.Block) -> ir.Var:
        """A reduction iterator that is an index of every operand by itself, in one of them side by side if
        there is such."""
        loads = self.operands.values()
        found = [
            it.var
            for it in node.iters
            if it.kind == "reduce" and all(any(i is it.var for i in load.indices) for load in loads)
        ]
        if not found:
            raise ScheduleError(f"no reduction iterator is an index of every operand of {self.known.name}")
        return max(found, key=lambda v: sum(stride(load, v) == 1 for load in loads))

    def use(self, sch: Schedule, block: BlockRV, along: ir.Var, pack: str, target: Target) -> None:
        node: ir.Block = sch.get(block)
        step, row = self.step(node), self.row(node, along)
        rows, columns = [loop.fixed_extent or 1 for loop in self.lanes] if row is not None else (1, 1)
        if self.known.tiles:
            rows = choose_rows(next(extent(it) or 1 for it in node.iters if it.var is row), rows)
        multiples: dict[ir.Var | None, int] = {step: self.size, row: rows, along: columns}
        padding = [multiples.get(it.var, 1) for it in node.iters]
        wasted = [it for it in node.iters if 2 * (extent(it) or 1) <= multiples.get(it.var, 1)]
        if row is not None and wasted:
            raise ScheduleError(f"most of {self.known.name} would be padding")
        odd = [it.kind for it, m in zip(node.iters, padding, strict=True) if (extent(it) or 1) % m]
        copies = sch.pad_einsum(block, padding) if odd else []
        if "spatial" in odd and not is_output(sch, back := copies.pop()):
            sch.compute_inline(back)
        fit = Fit(self.intrinsic, self.again(sch, block)) if odd else self
        fit.convert(sch, block, target)
        for copy in copies:
            if all(is_spatial(user) for user in consumers(sch, copy)):  # it is converted: both at once
                sch.compute_inline(copy)
            else:
                stage(sch, copy, target)
        registers = target.matrix_registers if self.known.tiles else target.vector_registers
        width = columns if row is not None else self.known.lanes
        grouping = Grouping(
            self.intrinsic.name, step, self.size, width, self.run(), registers, row, rows, self.known.tiles
        )
        tile(sch, block, along, pack, True, target, grouping=grouping)

    def again(self, sch: Schedule, block: BlockRV) -> Operands:
        """The operands, in the same order, after the block has got others to read."""
        store = find_only_store(sch.get(block))
        assert store is not None
        for fit in match_intrinsic(self.intrinsic, store.value):
            if all(load.indices is self.operands[b].indices for b, load in fit.items()):
                return fit
        raise ScheduleError(f"padded operands do not fit {self.known.name}")

    def convert(self, sch: Schedule, block: BlockRV, target: Target) -> None:
        for load, dtype, offset in self.conversions:
            node: ir.Block = sch.get(block)
            at = next(n for n, region in enumerate(node.reads) if region.buffer is load.buffer)
            copy, *others = sch.convert_operand(block, at, dtype, offset)
            stage(sch, copy, target)
            if others:
                total, shifted = others
                add_up(sch, total, target)
                if not is_output(sch, shifted):
                    sch.compute_inline(shifted)


def find_fits(node: ir.Block, target: Target) -> Iterator[Fit]:
    store = find_only_store(node)
    for name, known in ir.INSTRUCTIONS.items():
        if store is not None and all(map(target.has, known.features)):
            for operands in match_intrinsic(INTRINSICS[name], store.value):
                yield Fit(INTRINSICS[name], operands)


def match_intrinsic(intrinsic: Intrinsic, value: object) -> Iterator[Operands]:
    (described,) = intrinsic.stores
    for found in match_operands(described.value, value, {}, is_convertible):  # pyright: ignore
        yield {b: load for b, load in found.items() if b is not described.buffer}


def choose_rows(extent: int, most: int) -> int:
    """Rows of a tile, such that few of all tiles are padding: a tile takes time by its rows, and some more.

    >>> choose_rows(128, 16), choose_rows(56, 16), choose_rows(17, 16), choose_rows(109, 16)
    (16, 14, 9, 16)
    """
    if extent < 2:
        raise ScheduleError("a single row is a vector")
    return min(range(most, 0, -1), key=lambda rows: -(-extent // rows) * (rows + ROWS_OF_A_TILE))


def offset_between(have: str, want: str) -> int:
    """What has to be added to integers of one dtype so that another holds them; 0 if nothing."""
    (low, high), (least, most) = ir.integer_limits(have), ir.integer_limits(want)
    return 0 if least <= low and high <= most else least - low


def is_convertible(have: str, want: str) -> bool:
    if have == want:
        return True
    if not ir.is_integer(have) or not ir.is_integer(want) or have == "int64":
        return False
    (low, high), (least, most) = ir.integer_limits(have), ir.integer_limits(want)
    return high - low <= most - least


def stage(sch: Schedule, block: BlockRV, target: Target) -> None:
    schedule_stage(sch, block, target)
    sch.annotate(block, CLAIMED.key, "UseInstruction, an operand")


def add_up(sch: Schedule, block: BlockRV, target: Target) -> None:
    """A sum along reductions, of columns side by side where there are any: vectors of columns."""
    node: ir.Block = sch.get(block)
    loops = sch.get_loops(block)
    spatial = [loop for it, loop in zip(node.iters, loops, strict=True) if it.kind == "spatial"]
    reducing = [loop for it, loop in zip(node.iters, loops, strict=True) if it.kind == "reduce"]
    if spatial:
        lanes = target.lanes(node.writes[0].buffer.dtype)
        outer, columns = sch.split(spatial[-1], [None, lanes])
        sch.reorder(*spatial[:-1], outer, *reducing, columns)
        sch.vectorize(columns)
        start = sch.decompose_reduction(block, reducing[0])
        sch.annotate(start, CLAIMED.key, "UseInstruction, an offset")
    sch.annotate(block, CLAIMED.key, "UseInstruction, an offset")
