"""SkipZeros: a reduction over padded data that neither stores the padding nor multiplies it.

The padding goes into the reduction, and a term is left out where it would multiply a padding zero. Code
generation then makes a version of each tile for the inside, without tests, and one for the border. Where
the zeros come every s-th element (a transposed convolution), the results are computed in phases: those of
one phase meet the same zeros, so whole reduction loops are skipped and no tile has tests inside.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import ir
from ..affine.constraint import remainders
from ..affine.form import uses
from ..affine.stride import coefficient
from ..ir.annotations import SKIP_ZEROS
from ..schedule import BlockRV, Schedule
from ..target import Target
from .block_predicates import attempt, consumers, find_epilogue, find_only_store, has_reuse, is_spatial, loads


@dataclass(frozen=True)
class SkipZeros:
    """Fork: the zeros of a padded operand left out of a reduction, or (the schedule as it is) stored."""

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: ir.Block = sch.get(block)
        if not has_reuse(node):
            return [sch]
        read = {load.buffer: load for load in loads(node)}
        made: list[Schedule] = []
        for other in [n for n in sch.state.nodes.values() if isinstance(n, ir.Block) and is_padding(n)]:
            load = read.get(other.writes[0].buffer)
            if load is not None and len(consumers(sch, sch.get_block(other.name))) == 1:
                phases = zero_strides(node, other, load)
                made += attempt(sch, skip, block, other, phases) or attempt(sch, skip, block, other, {})
        return [*made, sch]


def is_padding(block: ir.Block) -> bool:
    """Whether a stage copies where a condition holds, and stores zeros elsewhere."""
    store = find_only_store(block)
    value = store.value if store and is_spatial(block) else None
    return isinstance(value, ir.Select) and isinstance(value.b, ir.Const) and value.b.value == 0


def skip(sch: Schedule, block: BlockRV, padding: ir.Block, phases: dict[ir.Var, int]) -> None:
    node: ir.Block = sch.get(block)
    sch.compute_inline(sch.get_block(padding.name))
    sch.annotate(block, SKIP_ZEROS.key, 1)
    if not phases:
        return
    after = find_epilogue(sch, block)
    result = sch.get_block(after) if after else sch.cache_write(block, 0, "local")
    sch.transform_block_layout(block, in_phases([it.var for it in node.iters], phases))
    stored = [it.var for it in node.iters if it.kind == "spatial"]
    sch.transform_block_layout(result, in_phases(stored, phases))
    sch.transform_layout(block, 0, "write", in_phases(stored, phases))


def zero_strides(node: ir.Block, padding: ir.Block, load: ir.Load) -> dict[ir.Var, int]:
    """How far apart the data are along a spatial iterator: where the padding asks for `index % s == 0`."""
    store = find_only_store(padding)
    assert store is not None
    assert isinstance(store.value, ir.Select)
    found: dict[ir.Var, int] = {}
    for remainder, size, rest in remainders(store.value.cond):
        for index, at in zip(store.indices, load.indices):
            if rest == 0 and isinstance(index, ir.Var) and uses(remainder, index):
                for it in node.iters:
                    if it.kind == "spatial" and coefficient(at, it.var) == 1:
                        found[it.var] = size
    return found


def in_phases(iters: list[ir.Var], phases: dict[ir.Var, int]) -> tuple[str, ...]:
    """The index map that puts the phases of iterators before everything else."""
    first = [f"i{n} % {phases[v]}" for n, v in enumerate(iters) if v in phases]
    return (*first, *[f"i{n} // {phases[v]}" if v in phases else f"i{n}" for n, v in enumerate(iters)])
