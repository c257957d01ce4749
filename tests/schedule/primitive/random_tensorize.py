"""A plausible random use of tensorize: a dot product of two terms, in a sum of products."""

from __future__ import annotations

import random

import metaschedule as ms
from metaschedule.ir import Block
from metaschedule.schedule import Schedule, register_intrinsic

HEAD = """def dot2(A: T.Tensor((2,), "float32"), B: T.Tensor((2,), "float32"), C: T.Output((1,), "float32")):
"""
register_intrinsic(
    "test.dot2",
    ms.parse(HEAD + "    for k in range(2):\n        C[0] = C[0] + A[k] * B[k]"),
    ms.parse(HEAD + "    C[0] = C[0] + A[0] * B[0] + A[1] * B[1]"),
)


def tensorize_at_random(sch: Schedule, rng: random.Random) -> None:
    from tests.schedule.random_steps import NothingToDo, a_block, reduction_loops

    def is_product(b: Block) -> bool:
        return bool(b.init) and len(b.reads) == 2 and all(r.buffer.dtype == "float32" for r in b.reads)

    block = a_block(sch, rng, is_product)
    loops = [x for x in reduction_loops(sch, block) if sch.get(x).kind == "serial"]
    if not loops:
        raise NothingToDo
    loop = rng.choice(loops)
    extent = sch.get(loop).fixed_extent
    if extent is None or extent % 2:
        raise NothingToDo
    outer, inner = sch.split(loop, [None, 2])
    every = sch.get_loops(block)
    rest = [x for x in every if sch.get(x).var is not sch.get(inner).var]
    sch.reorder(*rest, inner)
    sch.decompose_reduction(block, rest[0])
    sch.tensorize(inner, "test.dot2")
