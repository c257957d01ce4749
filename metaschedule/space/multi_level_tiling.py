"""MultiLevelTiling: the paper's tiling of a reduction with reuse, by a structure of levels.

"SSRSRS" makes four tiles of every spatial loop and two of every reduction loop, in that order. The result may
be collected in a buffer of its own that is written back at the end of a spatial level, operands may be copied
at the start of a reduction level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ir import Block, Load
from ..ir.annotations import SKIP_ZEROS, TILED
from ..schedule import BlockRV, LoopRV, Schedule
from ..target import Target
from .block_predicates import attempt, find_epilogue, has_plain_loops, has_reuse, loads

REUSE = ("no", "may", "must")


@dataclass(frozen=True)
class MultiLevelTiling:
    """Tile by `structure`, with up to `max_innermost_factor` iterations in the last tile.

    `write` says whether results are collected apart ("no", "may", "must") at each of the spatial levels
    `write_levels` (1: within the first S); `read` whether operands are copied at each of the reduction levels
    `read_levels`. "may" forks: without, and with.
    """

    structure: str = "SSRSRS"
    max_innermost_factor: int = 64
    write: str = "may"
    write_levels: tuple[int, ...] = (1, 2)
    read: str = "no"
    read_levels: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not self.structure or set(self.structure) - set("SR") or self.structure[0] != "S":
            raise ValueError(f"a structure is S and R, first S, like 'SSRSRS'; got {self.structure!r}")
        if self.write not in REUSE or self.read not in REUSE:
            raise ValueError(f"write and read are one of {REUSE}, got {self.write!r} and {self.read!r}")

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: Block = sch.get(block)
        if not has_reuse(node) or not has_plain_loops(sch, block):
            return [sch]
        if TILED.is_on(node) or SKIP_ZEROS.is_on(node):  # tests in the middle of its tiles
            return [sch]
        return self.forks(sch, block) or [sch]

    def forks(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """The block tiled, with and without copies of what it writes and reads."""
        writes: list[int | None] = [None] if self.write != "must" else []
        writes += self.write_levels if self.write != "no" else ()
        reads: list[int | None] = [None] if self.read != "must" else []
        reads += self.read_levels if self.read != "no" else ()
        made: list[Schedule] = []
        for write in writes:
            for read in reads:
                made += attempt(sch, self.tile, block, write, read)
        return made

    def tile(self, sch: Schedule, block: BlockRV, write: int | None, read: int | None) -> None:
        node: Block = sch.get(block)
        copies = [sch.cache_read(block, n, "global") for n in operands(node)] if read is not None else []
        result = None
        if write is not None:
            after = find_epilogue(sch, block)
            result = sch.get_block(after) if after else sch.cache_write(block, 0, "global")
        loops, innermost = self.cut(sch, block)
        levels = self.tiles(sch, node, loops)
        sch.reorder(*[loop for level in levels for loop in level], *innermost)
        spatial = [n for n, kind in enumerate(self.structure) if kind == "S"]
        reducing = [n for n, kind in enumerate(self.structure) if kind == "R"]
        if result is not None and write is not None:
            sch.reverse_compute_at(result, levels[spatial[write - 1]][-1])
        for copy in copies:
            assert read is not None
            sch.compute_at(copy, levels[reducing[read - 1]][-1])
        self.finish(sch, block, levels, innermost)

    def cut(self, sch: Schedule, block: BlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
        """The loops to tile, one per iterator, and loops inside of all tiles."""
        return sch.get_loops(block), []

    def tiles(self, sch: Schedule, node: Block, loops: list[LoopRV]) -> list[list[LoopRV]]:
        """The loops of every level."""
        levels: list[list[LoopRV]] = [[] for _ in self.structure]
        for it, loop in zip(node.iters, loops):
            kind = "S" if it.kind == "spatial" else "R"
            places = [n for n, k in enumerate(self.structure) if k == kind]
            factors = sch.sample_perfect_tile(loop, len(places), self.max_innermost_factor)
            for place, part in zip(places, sch.split(loop, factors)):
                levels[place].append(part)
        return levels

    def finish(
        self, sch: Schedule, block: BlockRV, levels: list[list[LoopRV]], innermost: list[LoopRV]
    ) -> None:
        """Say that the block is tiled; `ParallelVectorizeUnroll` does the rest."""
        sch.annotate(block, TILED.key, self.structure)


def operands(block: Block) -> list[int]:
    """The reads that a copy can serve: each buffer read in one place, at spatial and reduction iterators."""
    read: dict[Any, list[Load]] = {}
    for load in loads(block):
        read.setdefault(load.buffer, []).append(load)
    return [n for n, region in enumerate(block.reads) if len(read.get(region.buffer, ())) == 1]
