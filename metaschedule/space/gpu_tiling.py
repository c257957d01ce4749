"""GpuTiling: reductions that read elements again, in tiles for the blocks and threads of a GPU.

    S S S R R S R S     blockIdx, vthread, threadIdx; chunks of terms; what a thread computes

The loops over chunks of terms are put outside of those over threads: for each chunk, all threads of a block
fetch the operands together into shared memory, and then every thread goes on with its results in registers.
At the end the results, or the element-wise stage that follows, are written by the thread that has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import ir
from ..errors import ScheduleError
from ..ir.annotations import CLAIMED, DOUBLE_BUFFER, SKIP_ZEROS, TILED, UNROLL
from ..schedule import BlockRV, ExprRV, LoopRV, Schedule
from ..target import Gpu, Target
from .block_predicates import (
    attempt,
    consumers,
    find_epilogue,
    find_only_store,
    has_plain_loops,
    has_reuse,
    is_expensive,
    is_only_writer,
    is_spatial,
    loads,
)
from .multi_level_tiling import operands
from .stage import fuse
from .thread_tile import ThreadTile

Vars = tuple[ir.Var, ...]
MOST_VIRTUAL = 8  # virtual threads of a thread: more are more registers
MOST_RESULTS = 8  # results of a thread, besides the innermost and the virtual threads
MOST_TERMS = 8  # of a level of a chunk


@dataclass(frozen=True)
class GpuTiling:
    """Tile by `structure`: its first three S are blocks, virtual threads and threads.

    Drawn are the factors of every level, which need not divide, the vector width of each fetch, by how much
    rows of shared memory are padded, how many chunks are fetched ahead, and how far loops are
    unrolled. Forks: stages that an operand comes from (padding) are computed while it is fetched, or are
    kernels of their own.
    """

    structure: str = "SSSRRSRS"
    max_innermost_factor: int = 16
    unroll_steps: tuple[int, ...] = (0, 16, 64, 512)

    def __post_init__(self) -> None:
        if set(self.structure) - set("SR") or not self.structure.startswith("SSSR"):
            raise ValueError(f"a structure for GPUs is S and R, first SSSR, got {self.structure!r}")

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: ir.Block = sch.get(block)
        if target.gpu is None or not has_reuse(node) or not has_plain_loops(sch, block):
            return [sch]
        if TILED.is_on(node) or SKIP_ZEROS.is_on(node):
            return [sch]
        made = attempt(sch, self.tile, block, target.gpu, True)
        if any(find_prologues(sch, block)):
            made += attempt(sch, self.tile, block, target.gpu, False)
        return made or [sch]

    def tile(self, sch: Schedule, block: BlockRV, gpu: Gpu, inlined: bool) -> None:
        result, axes = self.result_of(sch, block)
        node: ir.Block = sch.get(block)
        levels, factors = self.split(sch, block, gpu)
        blocks, virtual, threads, terms, *inner = levels
        sch.reorder(*blocks, *terms, *virtual, *threads, *[loop for level in inner for loop in level])
        grid = fuse(sch, blocks)
        sch.bind(grid, "blockIdx.x")
        self.follow(sch, result, grid, [factors[var] for var in axes if var in factors])
        sch.bind(fuse(sch, virtual), "vthread.x")
        lanes = fuse(sch, threads)
        sch.bind(lanes, "threadIdx.x")
        for n in operands(node):
            fetch = sch.cache_read(block, n, "shared")
            for name in find_prologue(sch, fetch) if inlined else ():
                sch.compute_inline(sch.get_block(name))
            sch.compute_at(fetch, terms[-1])
            self.fetch(sch, fetch, lanes, gpu)
        # Each chunk ahead takes as much shared memory again; more than one, where nobody waits for copies.
        ahead, often = ([0, 1, 2, 3], [0.4, 0.3, 0.2, 0.1]) if gpu.asynchronous else ([0, 1], [0.5, 0.5])
        sch.annotate(terms[-1], DOUBLE_BUFFER.key, sch.sample_categorical(ahead, often))
        steps = self.unroll_steps
        sch.annotate(block, UNROLL.key, sch.sample_categorical(steps, [1 / len(steps)] * len(steps)))
        sch.decompose_reduction(block, terms[0])
        sch.annotate(block, TILED.key, self.structure)
        for done in (block, result):
            sch.annotate(done, CLAIMED.key, "GpuTiling")

    def split(
        self, sch: Schedule, block: BlockRV, gpu: Gpu
    ) -> tuple[list[list[LoopRV]], dict[ir.Var, tuple[ExprRV, ExprRV]]]:
        """The loops of every level; and for each spatial iterator that a block has several values of, its
        virtual threads and its threads."""
        node: ir.Block = sch.get(block)
        pairs = list(zip(node.iters, sch.get_loops(block), strict=True))
        levels: list[list[LoopRV]] = [[] for _ in self.structure]
        batch = batch_iterators(node)
        levels[0] += [loop for it, loop in pairs if it.var in batch]
        factors: dict[ir.Var, tuple[ExprRV, ExprRV]] = {}
        for kind in ("spatial", "reduce"):
            mine = [(it.var, loop) for it, loop in pairs if it.kind == kind and it.var not in batch]
            loops = tuple([loop for _, loop in mine])
            places = [n for n, letter in enumerate(self.structure) if letter == kind[0].upper()]
            taken: tuple[ExprRV, ...] = ()
            drawn: dict[int, tuple[ExprRV, ...]] = {}
            for place in sorted(places[1:], key=lambda n: (n != 2, -n)) if loops else ():
                limit = gpu.max_threads if place == 2 else self.limits[place]
                unit = gpu.warp if place == 2 else 1
                drawn[place] = sch.sample(ThreadTile(loops, limit, unit, taken))
                taken += drawn[place]
            for n, (var, loop) in enumerate(mine):
                for place, part in zip(places, sch.split(loop, [None, *[drawn[p][n] for p in places[1:]]])):
                    levels[place].append(part)
                if kind == "spatial":
                    factors[var] = drawn[1][n], drawn[2][n]
        return levels, factors

    @property
    def limits(self) -> list[int]:
        """How many iterations the tiles of a level have at most, those of blocks and threads apart."""
        found = [MOST_TERMS if letter == "R" else MOST_RESULTS for letter in self.structure]
        found[1] = MOST_VIRTUAL
        found[self.structure.rindex("R")] = MOST_TERMS // 2  # a chunk is in shared memory, perhaps twice
        found[self.structure.rindex("S")] = self.max_innermost_factor
        return found

    def result_of(self, sch: Schedule, block: BlockRV) -> tuple[BlockRV, Vars]:
        """The block that writes the results from registers, and for each of its loops the iterator of the
        tiled block that it follows."""
        node: ir.Block = sch.get(block)
        store = find_only_store(node)
        assert store is not None
        after = find_epilogue(sch, block)
        if after is not None:
            followed = iterators_followed(sch.state.nodes[after], store)
            if followed is not None and is_permutation(followed, node):
                sch.set_scope(block, 0, "local")
                return sch.get_block(after), followed
        plain = tuple([index for index in store.indices if isinstance(index, ir.Var)])
        result = sch.cache_write(block, 0, "local")
        if len(plain) != len(store.indices) or not is_permutation(plain, node):
            raise ScheduleError(f"block {node.name!r} does not store at its iterators")
        return result, plain

    def follow(
        self, sch: Schedule, result: BlockRV, grid: LoopRV, factors: list[tuple[ExprRV, ExprRV]]
    ) -> None:
        """Let each thread write what it has computed."""
        sch.reverse_compute_at(result, grid)
        split: list[list[LoopRV]] = [
            sch.split(loop, [own[0], own[1], None])
            for loop, own in zip(sch.get_loops(result, len(factors)), factors, strict=True)
        ]
        virtual, threads, inner = (list(level) for level in zip(*split, strict=True))
        sch.reorder(*virtual, *threads, *inner)
        sch.bind(fuse(sch, virtual), "vthread.x")
        sch.bind(fuse(sch, threads), "threadIdx.x")

    def fetch(self, sch: Schedule, fetch: BlockRV, lanes: LoopRV, gpu: Gpu) -> None:
        """Divide a copy into shared memory over the threads."""
        node: ir.Block = sch.get(fetch)
        buffer = node.writes[0].buffer
        item = ir.numpy_dtype(buffer.dtype).itemsize
        widths = [n for n in (1, 2, 4, 8, 16) if n * item <= gpu.vector_bytes]
        if len(buffer.shape) > 1:
            # Rows of whole vectors; longer by an element, or by a vector, they begin in other banks.
            unit = max(2, 2 * gpu.vector_bytes // item)
            pad = sch.sample_categorical([0, 1, unit // 2], [0.5, 0.25, 0.25])
            sch.storage_align(fetch, 0, axis_of_rows(buffer, unit), unit, pad)
        whole = fuse(sch, sch.get_loops(fetch, len(node.iters)))
        width = sch.sample_categorical(widths, [1 / len(widths)] * len(widths))
        _, own, vector = sch.split(whole, [None, sch.get_extent(lanes), width])
        sch.bind(own, "threadIdx.x")
        sch.vectorize(vector)
        sch.annotate(fetch, CLAIMED.key, "GpuTiling")


def batch_iterators(block: ir.Block) -> set[ir.Var]:
    """The iterators over independent problems: all operands and the result move with them, in no dimension
    that neighbours are in. Nothing is read again along them, so that a block takes one problem. One iterator
    at least is not among them."""
    store = find_only_store(block)
    assert store is not None
    accesses = [list(x.indices) for x in (store, *loads(block)) if x.indices]
    moved = [{v for index in indices for v in ir.free_vars(index)} for indices in accesses]
    last = {v for indices in accesses for v in ir.free_vars(indices[-1])}
    spatial = [it.var for it in block.iters if it.kind == "spatial"]
    found = {v for v in spatial if v not in last and all(v in own for own in moved)}
    return found if len(found) < len(spatial) else set()


def axis_of_rows(buffer: ir.Buffer, unit: int) -> int:
    """The axis whose rows are padded: the last whose rows have so many elements. Three channels would become
    eight."""
    longer = [n for n in range(len(buffer.shape) - 1) if math.prod(buffer.shape[n + 1 :]) >= unit]
    return longer[-1] if longer else 0


def is_permutation(found: Vars, block: ir.Block) -> bool:
    """Whether some variables are the spatial iterators of a block, in any order."""
    wanted = {it.var for it in block.iters if it.kind == "spatial"}
    return len(found) == len(wanted) and set(found) == wanted


def iterators_followed(stage: ir.Block, store: ir.Store) -> Vars | None:
    """For each iterator of an element-wise stage the one at which `store` stores what it reads."""
    own: dict[ir.Var, ir.Var] = {}
    for load in loads(stage):
        if load.buffer is not store.buffer:
            continue
        for here, there in zip(load.indices, store.indices, strict=True):
            if not isinstance(here, ir.Var) or not isinstance(there, ir.Var):
                return None
            if own.setdefault(here, there) is not there:
                return None
    found = [own[it.var] for it in stage.iters if it.var in own]
    return tuple(found) if len(found) == len(stage.iters) else None


def find_prologues(sch: Schedule, block: BlockRV) -> list[str]:
    """The stages that could be computed while operands of a block are fetched."""
    node: ir.Block = sch.get(block)
    read = {node.reads[n].buffer for n in operands(node)}
    return [
        b.name
        for b in sch.state.nodes.values()
        if isinstance(b, ir.Block) and any(w.buffer in read for w in b.writes) and is_prologue(sch, b.name)
    ]


def find_prologue(sch: Schedule, fetch: BlockRV) -> list[str]:
    """The stage whose result a copy fetches, if the copy can compute it instead."""
    (read,) = sch.get(fetch).reads
    return [
        b.name
        for b in sch.state.nodes.values()
        if isinstance(b, ir.Block)
        and any(w.buffer is read.buffer for w in b.writes)
        and is_prologue(sch, b.name)
    ]


def is_prologue(sch: Schedule, name: str) -> bool:
    """Whether a stage is computed at little cost wherever it is read."""
    stage = sch.get_block(name)
    node: ir.Block = sch.get(stage)
    only = len(consumers(sch, stage)) == 1 and is_only_writer(sch, stage)
    return only and is_spatial(node) and find_only_store(node) is not None and not is_expensive(node)
