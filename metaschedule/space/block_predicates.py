"""What modules ask about a block before they transform it.

>>> from metaschedule import Schedule, workloads
>>> sch = Schedule(workloads.create("GMM"))
>>> matmul = sch.get(sch.get_block("matmul"))
>>> find_vector_iterator(matmul).name, [it.var.name for it in reused_iterators(matmul)]
('v_j', ['v_i', 'v_j'])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container

from .. import ir
from ..affine.definitions import leaf_loops_by_kind
from ..affine.form import uses
from ..affine.stride import stride
from ..errors import ScheduleError
from ..ir.annotations import CLAIMED
from ..schedule import BlockRV, Schedule
from ..schedule.state import ROOT, Key

EXPENSIVE = frozenset(["exp", "log", "erf", "tanh", "sqrt", "sin", "cos", "pow", "sigmoid"])


def blocks_from_outputs(sch: Schedule) -> list[str]:
    """The innermost blocks of a schedule, the last first."""
    children = sch.state.children
    found: list[str] = []
    waiting: list[Key] = [ROOT]
    while waiting:
        key = waiting.pop()
        waiting += children[key]
        if isinstance(key, str) and key is not ROOT and not children[key]:
            found.append(key)
    return found


def is_claimed(block: ir.Block) -> bool:
    return CLAIMED.is_on(block)


def is_spatial(block: ir.Block) -> bool:
    """Whether every instance has a result of its own."""
    return bool(block.iters) and not block.init and all(it.kind == "spatial" for it in block.iters)


def is_pointwise(block: ir.Block) -> bool:
    """Whether every instance has a result of its own, or the block computes one scalar, without loops."""
    return is_spatial(block) or computes_scalar(block)


def computes_scalar(block: ir.Block) -> bool:
    """Whether a block without iterators stores to buffers without dimensions: it has nothing to be tiled, and
    where it stands between a reduction and its epilogue they cannot be fused."""
    return not block.iters and not block.init and all(not r.buffer.shape for r in block.writes)


def is_reduction(block: ir.Block) -> bool:
    return bool(block.init) and any(it.kind == "reduce" for it in block.iters)


def loads(block: ir.Block) -> list[ir.Load]:
    """What a block reads, without its own results."""
    own = {r.buffer for r in block.writes}
    return [e for e in ir.expressions(block.body) if isinstance(e, ir.Load) and e.buffer not in own]


def find_only_store(block: ir.Block) -> ir.Store | None:
    """The store that is all a block does."""
    single = len(block.body) == 1 and isinstance(block.body[0], ir.Store)
    return block.body[0] if single and isinstance(block.body[0], ir.Store) else None


def mentions(load: ir.Load, var: ir.Var) -> bool:
    return any(uses(index, var) for index in load.indices)


def extent(it: ir.Iter) -> int | None:
    return ir.as_int(it.extent)


def volume(block: ir.Block, kind: str) -> int | None:
    """How many values the iterators of a kind take together."""
    sizes = [extent(it) for it in block.iters if it.kind == kind]
    return None if None in sizes else math.prod([n for n in sizes if n is not None])


def find_vector_iterator(block: ir.Block) -> ir.Var | None:
    """The spatial iterator along which results are contiguous."""
    store = find_only_store(block)
    if store is None:
        return None
    sizes = {it.var: n for it in block.iters if (n := extent(it)) is not None}
    for it in reversed(block.iters):
        if it.kind == "spatial" and sizes.get(it.var, 1) != 1 and stride(store, it.var, sizes) == 1:
            return it.var
    return None


def reused_iterators(block: ir.Block) -> list[ir.Iter]:
    """The spatial iterators that some operand does not depend on: along them its elements are read again."""
    operands = loads(block)
    return [
        it
        for it in block.iters
        if it.kind == "spatial" and extent(it) not in (None, 1)
        and any(not mentions(load, it.var) for load in operands)
    ]  # fmt: skip


def has_reuse(block: ir.Block) -> bool:
    """Whether tiling a reduction pays: it reads elements again along a spatial iterator."""
    return is_reduction(block) and find_only_store(block) is not None and bool(reused_iterators(block))


def is_expensive(block: ir.Block) -> bool:
    return any(isinstance(e, ir.Call) and e.name in EXPENSIVE for e in ir.expressions(block.body))


def has_conditions(block: ir.Block) -> bool:
    return any(isinstance(e, ir.Select) for e in ir.expressions(block.body))


def consumers(sch: Schedule, block: BlockRV) -> list[ir.Block]:
    """The blocks that read what a block writes."""
    written = {r.buffer for r in sch.get(block).writes}
    readers = [sch.state.nodes[name] for name in blocks_from_outputs(sch)]
    return [b for b in readers[::-1] if any(r.buffer in written for r in b.reads)]


def writers(sch: Schedule, buffers: Container[ir.Buffer]) -> list[ir.Block]:
    """The blocks that write some buffers, in no order that means anything."""
    blocks = [b for b in sch.state.nodes.values() if isinstance(b, ir.Block)]
    return [b for b in blocks if any(r.buffer in buffers for r in b.writes)]


def producers(sch: Schedule, node: ir.Block) -> list[ir.Block]:
    """The other blocks that write what a block reads."""
    return [b for b in writers(sch, {r.buffer for r in node.reads}) if b is not node]


def is_only_writer(sch: Schedule, block: BlockRV) -> bool:
    """Whether what a block writes is its own: no output, and no other block writes it."""
    written = {r.buffer for r in sch.get(block).writes}
    return not is_output(sch, block) and len(writers(sch, written)) == 1


def is_output(sch: Schedule, block: BlockRV) -> bool:
    return any(r.buffer in sch.state.original.outputs for r in sch.get(block).writes)


def find_epilogue(sch: Schedule, block: BlockRV) -> str | None:
    """The one block that follows element by element, to run on each tile while it is in registers."""
    users = consumers(sch, block)
    if is_output(sch, block) or len(users) != 1:
        return None
    user, (written,) = users[0], sch.get(block).writes
    if not is_spatial(user) or find_only_store(user) is None or CLAIMED.is_on(user):
        return None
    reads = [load for load in loads(user) if load.buffer is written.buffer]
    plain = all(isinstance(index, (ir.Var, ir.Const)) for load in reads for index in load.indices)
    return user.name if plain else None


def has_plain_loops(sch: Schedule, block: BlockRV) -> bool:
    """Whether the loops around a block are its iterators, untouched, around nothing else."""
    node: ir.Block = sch.get(block)
    loops = sch.state.loops_around(node.name)
    return len(loops) == len(node.iters) and all(
        b is loop and sch.state.fixed_extent(loop) for b, loop in zip(node.bindings, loops)
    )


def reduction_loops(sch: Schedule, name: str) -> set[ir.Var]:
    """The loops that the reduction iterators of a block depend on."""
    return leaf_loops_by_kind(sch.state, sch.state.nodes[name])[1]


def attempt(sch: Schedule, step: Callable[..., None], *arguments: object) -> list[Schedule]:
    """The schedule after `step(schedule, *arguments)`, or nothing if the step is refused."""
    new = sch.fork()
    try:
        step(new, *arguments)
    except ScheduleError:
        return []
    return [new]
