"""InlineConstants and AutoInline: stages that need no buffer of their own disappear."""

from __future__ import annotations

from dataclasses import dataclass

from .. import ir
from ..affine.stride import stride
from ..errors import ScheduleError
from ..schedule import BlockRV, Schedule
from ..target import Target
from .block_predicates import (
    consumers,
    find_only_store,
    find_vector_iterator,
    has_conditions,
    is_expensive,
    is_only_writer,
    is_pointwise,
    is_reduction,
    is_spatial,
    loads,
    volume,
)

MOST_PLACES = 2  # of one element-wise stage in a consumer
MOST_NODES = 512  # of the expressions of a consumer, after a stage was put in
MOST_REPEATED_NODES = 128  # of a stage that several consumers compute again, after each other: they double
MOST_DEPTH = 64  # of an expression


@dataclass(frozen=True)
class InlineConstants:
    """Put values that read nothing (fills, tables of indices) where they are used."""

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: ir.Block = sch.get(block)
        if is_spatial(node) and is_only_writer(sch, block) and find_only_store(node) and not loads(node):
            sch.compute_inline(block)
        return [sch]


@dataclass(frozen=True)
class AutoInline:
    """Put an element-wise stage into its consumers, or else into its producer.

    Not into consumers: a stage that would be computed more often than now if that is expensive; conditions
    (padding) that would come to stand inside a reduction; a transposition, which is worth a copy that is
    made well. Into its producer: only a stage that nothing but this one producer feeds.
    """

    into_consumer: bool = True
    into_producer: bool = False

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: ir.Block = sch.get(block)
        if not is_pointwise(node) or find_only_store(node) is None:
            return [sch]
        if self.into_consumer and is_only_writer(sch, block) and not self.refusal(sch, block):
            sch.compute_inline(block)
        elif self.into_producer and node.iters and len(node.reads) == 1:
            try:
                sch.reverse_compute_inline(block)
            except ScheduleError:
                pass  # its producer is a parameter, or has other consumers
        return [sch]

    def refusal(self, sch: Schedule, block: BlockRV) -> str:
        """Why a stage should not go into its consumers; empty if it should."""
        node: ir.Block = sch.get(block)
        users = consumers(sch, block)
        reducing = any(is_reduction(u) for u in users)
        if not users:
            return "nothing reads it"
        if not node.iters and (sch.get_loops(block) or any(not user.iters for user in users)):
            return "it is opaque, or a block that reads it is"
        size = volume(node, "spatial") or 0
        repeated = len(users) > 1 or any((volume(user, "spatial") or 0) > size for user in users)
        if is_expensive(node) and (reducing or repeated):
            return "it would be computed again"
        if any(places(user, node) > MOST_PLACES for user in users):
            return "its consumer reads it in several places, and would compute it for each"
        if has_conditions(node) and reducing:
            return "its conditions would stand inside a reduction"
        if transposes(node):
            return "it changes which elements are contiguous"
        if any(grows_too_large(user, node, len(users) > 1) for user in users):
            return "its consumer would have too large an expression"
        return ""


def places(user: ir.Block, stage: ir.Block) -> int:
    """In how many different places a block reads the results of a stage."""
    buffer = stage.writes[0].buffer
    return len({tuple(map(ir.expr_key, load.indices)) for load in loads(user) if load.buffer is buffer})


def grows_too_large(user: ir.Block, stage: ir.Block, is_repeated: bool) -> bool:
    """Whether a block that computes a stage for each of its reads would be too large: chains of stages that
    are read twice would double at every step."""
    buffer = stage.writes[0].buffer
    reads = sum(load.buffer is buffer for load in loads(user))
    own, put = (sum(1 for _ in ir.expressions(b.body)) for b in (user, stage))
    most = MOST_REPEATED_NODES if is_repeated or reads > 1 else MOST_NODES
    return own + reads * put > most or depth(user) + depth(stage) > MOST_DEPTH


def depth(block: ir.Block) -> int:
    """Of the deepest expression that a block evaluates."""
    found = [ir.height(e) for s in ir.walk(block.body) for e in ir.own_expressions(s)]
    return max(found, default=0)


def transposes(block: ir.Block) -> bool:
    """Whether some load jumps where the results are contiguous."""
    along = find_vector_iterator(block)
    return along is not None and any(stride(load, along) not in (0, 1) for load in loads(block))
