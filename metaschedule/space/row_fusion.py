"""FuseRows: chains of reductions and element-wise stages, like softmax and layer norm, row by row.

    for row in parallel(...):
        max of the row, with a vector of accumulators
        exp of the row, in vectors
        sum of the row, with a vector of accumulators
        quotients of the row, in vectors

What one stage leaves for the next is a row, which stays in the nearest cache.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ..errors import ScheduleError
from ..ir import Block, Region, Var, as_int
from ..ir.annotations import CLAIMED
from ..schedule import BlockRV, LoopRV, Schedule
from ..target import Target
from .block_predicates import (
    attempt,
    blocks_from_outputs,
    extent,
    find_only_store,
    has_plain_loops,
    has_reuse,
    is_claimed,
    is_reduction,
    is_spatial,
)
from .rfactor import is_contiguous_along_results, lanes_of_terms, should_vectorize_terms
from .stage import fuse, vectorize_stage

Move = Callable[[Schedule, BlockRV, LoopRV], None]


@dataclass(frozen=True)
class FuseRows:
    """Forks at the last block of a chain: as much of it as can be moved in one loop over the iterators that
    its blocks share, and as it was."""

    max_innermost_factor: int = 64

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        last: Block = sch.get(block)
        chain, rows = chain_of(sch, last)
        if len(chain) < 2 or chain[-1] is not last or not any(map(is_reduction, chain)):
            return [sch]
        return [*attempt(sch, lambda s: self.fuse_rows(s, chain, rows, target)), sch]

    def fuse_rows(self, sch: Schedule, chain: list[Block], rows: int, target: Target) -> None:
        row, moved = gather_moved_rows(sch, chain, rows)
        for block in moved:
            self.schedule_row(sch, block, rows, target)
        if math.prod([extent(it) or 1 for it in chain[-1].iters[:rows]]) > 1:
            sch.parallel(row)

    def schedule_row(self, sch: Schedule, block: BlockRV, rows: int, target: Target) -> None:
        node: Block = sch.get(block)
        done = [block]
        terms = sum(it.kind == "reduce" for it in node.iters)
        if is_spatial(node):
            vectorize_stage(sch, block, target, rows)
        elif should_vectorize_terms(node, target):
            done.append(lanes_of_terms(sch, block, terms, None, self.max_innermost_factor, target))
        else:
            sch.decompose_reduction(block, sch.get_loops(block, terms)[0])
        for each in done:
            sch.annotate(each, CLAIMED.key, "FuseRows")


def gather_moved_rows(sch: Schedule, chain: list[Block], rows: int) -> tuple[LoopRV, list[BlockRV]]:
    """As many blocks of a chain as can be in one loop over their rows; an error if that is one."""
    blocks = [sch.get_block(b.name) for b in chain]
    # A block that is an output cannot go to its consumers, but these can come to it.
    ways: list[tuple[Move, list[BlockRV]]]
    ways = [(Schedule.compute_at, blocks[::-1]), (Schedule.reverse_compute_at, blocks)]
    best = max(ways, key=lambda way: len(gather_rows(sch.fork(), *way, rows)[1]))
    row, moved = gather_rows(sch, *best, rows)
    if len(moved) < 2:
        raise ScheduleError("no block can be moved to the rows of another")
    return row, moved


def gather_rows(sch: Schedule, move: Move, blocks: list[BlockRV], rows: int) -> tuple[LoopRV, list[BlockRV]]:
    """Move blocks to the rows of the first, those that can be; gives the loop over rows and what is in it."""
    first, *others = blocks
    row = fuse(sch, sch.get_loops(first)[:rows])
    moved = [first]
    for block in others:
        with suppress(ScheduleError):
            move(sch, block, row)
            moved.append(block)
    return row, moved


def chain_of(sch: Schedule, block: Block) -> tuple[list[Block], int]:
    """The blocks that share rows with a block or with others of its chain, in the order of the program; and
    how many leading iterators all of them share."""
    probe = sch.fork()  # looking leaves no trace
    handles = [probe.get_block(name) for name in blocks_from_outputs(sch)[::-1]]
    blocks: list[Block] = [probe.get(b) for b in handles if is_computed_in_rows(probe, b)]
    found, rows, known = {block.name}, len(block.iters), 0
    while known < len(found):
        known = len(found)
        for writer, reader in itertools.combinations(blocks, 2):
            shared = shared_rows(writer, reader)
            if shared and not found.isdisjoint((writer.name, reader.name)):
                found |= {writer.name, reader.name}
                rows = min(rows, shared)
    return [b for b in blocks if b.name in found], rows


def is_computed_in_rows(sch: Schedule, block: BlockRV) -> bool:
    """Whether a block may be part of a chain: an element-wise stage, or a reduction along rows."""
    node: Block = sch.get(block)
    if is_claimed(node) or has_reuse(node) or not has_plain_loops(sch, block):
        return False
    if is_reduction(node):
        return not is_contiguous_along_results(node)
    return is_spatial(node) and find_only_store(node) is not None


def shared_rows(writer: Block, reader: Block) -> int:
    """How many leading iterators of two blocks are the leading dimensions of what passes between them."""
    written = {r.buffer for r in writer.writes}
    passed = [(writer, r) for r in writer.writes if r.buffer in {x.buffer for x in reader.reads}]
    passed += [(reader, r) for r in reader.reads if r.buffer in written]
    count = 0
    for a, b in zip(writer.iters, reader.iters) if passed else ():
        if a.kind != "spatial" or b.kind != "spatial" or extent(a) != extent(b):
            break
        if not all(is_row(block.iters[count].var, region, count) for block, region in passed):
            break
        count += 1
    return count


def is_row(var: Var, region: Region, dimension: int) -> bool:
    """Whether a region is one index of a dimension, that of an iterator."""
    if dimension >= len(region.ranges):
        return False
    start, size = region.ranges[dimension]
    return start is var and as_int(size) == 1
