"""Random, mostly plausible calls of every primitive: what the property test and the long run draw from.

A primitive whose fields are handles and numbers needs nothing here (`any_call`); what is seldom accepted with
any operands, or has others, has a call of its own in `CALLS`.

`step(sch, rng)` makes one call and says which primitive it was and whether it was accepted. Anything but a
`ScheduleError` propagates.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import numpy as np

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import Block, Program, as_int
from metaschedule.schedule import BlockRV, Distribution, LoopRV, Primitive, Schedule
from metaschedule.schedule.primitive.base import REGISTRY
from tests.cases.case import Case
from tests.cases.programs import CASES
from tests.schedule.checks import inputs_of

Call = Callable[[Schedule, random.Random], Any]


class NothingToDo(Exception):
    """There is no operand for this primitive in this program."""


def a_block(sch: Schedule, rng: random.Random, wanted: Callable[[Block], bool] = lambda b: True) -> BlockRV:
    names = [k for k, node in sch.state.nodes.items() if isinstance(k, str) and k and wanted(node)]
    if not names:
        raise NothingToDo
    return sch.get_block(rng.choice(names))


def its_loops(sch: Schedule, block: BlockRV) -> list[LoopRV]:
    loops = sch.get_loops(block)
    if not loops:
        raise NothingToDo
    return loops


def a_loop(sch: Schedule, rng: random.Random, plain: bool = True) -> LoopRV:
    loops = its_loops(sch, a_block(sch, rng))
    serial = [loop for loop in loops if sch.get(loop).kind == "serial"]
    if plain and not serial:
        raise NothingToDo
    return rng.choice(serial if plain else loops)


def reduces(b: Block) -> bool:
    return bool(b.init)


def is_spatial(b: Block) -> bool:
    return not b.init and all(it.kind == "spatial" for it in b.iters)


def is_output(sch: Schedule, b: Block) -> bool:
    return any(w.buffer in sch.state.original.outputs for w in b.writes)


def reduction_vars(sch: Schedule, block: BlockRV) -> set[Any]:
    b = sch.get(block)
    return {
        leaf
        for it, binding in zip(b.iters, b.bindings, strict=True)
        if it.kind == "reduce"
        for var in ms.ir.free_vars(binding)
        for leaf in sch.state.leaf_loops(var)
    }


def reduction_loops(sch: Schedule, block: BlockRV) -> list[LoopRV]:
    reducing = reduction_vars(sch, block)
    return [loop for loop in its_loops(sch, block) if sch.get(loop).var in reducing]


def spatial_loops(sch: Schedule, block: BlockRV) -> list[LoopRV]:
    reducing = reduction_vars(sch, block)
    return [loop for loop in its_loops(sch, block) if sch.get(loop).var not in reducing]


def split(sch: Schedule, rng: random.Random) -> None:
    loop = a_loop(sch, rng)
    way = rng.randrange(4)
    if way == 0:
        sch.split(loop, sch.sample_perfect_tile(loop, rng.choice((2, 3)), rng.choice((0, 4))))
    elif way == 1:
        sch.split(loop, sch.sample_tile(loop, 2, rng.choice((0, 4))))
    elif way == 2:
        sch.split(loop, [None, rng.choice((1, 2, 3, 5))])
    else:
        sch.split(loop, [rng.choice((1, 2, 3)), None])


def sample_partitioned_tile(sch: Schedule, rng: random.Random) -> None:
    loop = a_loop(sch, rng)
    sch.split(loop, sch.sample_partitioned_tile(loop, 2, 1, rng.choice((1, 1, 2))))


def sample_categorical(sch: Schedule, rng: random.Random) -> None:
    sch.split(a_loop(sch, rng), [None, sch.sample_categorical([1, 2, 3], [0.2, 0.5, 0.3])])


def fuse(sch: Schedule, rng: random.Random) -> None:
    loops = its_loops(sch, a_block(sch, rng))
    at = rng.randrange(len(loops))
    sch.fuse(*loops[at : at + rng.choice((2, 2, 3))])


def reorder(sch: Schedule, rng: random.Random) -> None:
    loops = its_loops(sch, a_block(sch, rng))
    at = rng.randrange(len(loops))
    some = loops[at : at + rng.choice((2, 3, 4))]
    sch.reorder(*rng.sample(some, len(some)))


def kind(name: str) -> Call:
    def call(sch: Schedule, rng: random.Random) -> None:
        loops = [x for x in spatial_loops(sch, a_block(sch, rng)) if sch.get(x).kind == "serial"]
        if not loops:
            raise NothingToDo
        loop = loops[0] if name in ("parallel", "bind") else rng.choice(loops)
        if name == "bind":
            sch.bind(loop, rng.choice(("blockIdx.x", "threadIdx.x")))
        else:
            getattr(sch, name)(loop)

    return call


def compute_at(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, lambda b: not is_output(sch, b))
    consumers = sch.get_consumers(block)
    if not consumers:
        raise NothingToDo
    sch.compute_at(block, rng.choice(its_loops(sch, consumers[0])))


def reverse_compute_at(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    producers = sch.get_producers(block)
    if not producers:
        raise NothingToDo
    loops = spatial_loops(sch, producers[-1]) or its_loops(sch, producers[-1])
    sch.reverse_compute_at(block, rng.choice(loops))


def sample_compute_location(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, lambda b: not is_output(sch, b))
    sch.compute_at(block, sch.sample_compute_location(block))


def annotate(sch: Schedule, rng: random.Random) -> None:
    sch.annotate(a_block(sch, rng), "note", rng.randrange(9))


def unannotate(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    if "note" not in sch.get(block).annotations:
        sch.annotate(block, "note", 1)
    sch.unannotate(block, "note")


def reverse_compute_inline(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, is_spatial)
    producers = sch.get_producers(block)
    if len(producers) != 1 or not is_spatial(sch.get(producers[0])):
        raise NothingToDo
    sch.reverse_compute_inline(block)


def transform_layout(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, lambda b: not is_output(sch, b))
    rank = len(sch.get(block).writes[0].buffer.shape)
    if rank == 0:
        raise NothingToDo
    maps: list[Any] = [lambda *i: tuple(reversed(i)), lambda *i: (*i[:-1], i[-1] // 2, i[-1] % 2)]
    sch.transform_layout(block, 0, "write", rng.choice(maps))


def transform_block_layout(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, is_spatial)
    extents = [as_int(it.extent) for it in sch.get(block).iters]
    if not extents or None in extents:
        raise NothingToDo

    def flat(*i: Any) -> tuple[Any, ...]:
        total = i[0]
        for index, extent in zip(i[1:], extents[1:], strict=True):
            total = total * extent + index
        return (total,)

    sch.transform_block_layout(block, rng.choice([flat, lambda *i: tuple(reversed(i))]))


def storage_align(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, lambda b: not is_output(sch, b) and len(b.writes[0].buffer.shape) > 1)
    sch.storage_align(block, 0, 0, rng.choice((4, 8)), rng.choice((0, 1)))


def rfactor(sch: Schedule, rng: random.Random) -> None:
    loops = reduction_loops(sch, a_block(sch, rng, reduces))
    if not loops:
        raise NothingToDo
    sch.rfactor(rng.choice(loops), 0)


def winograd(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, reduces)
    sch.winograd(block, rng.choice(its_loops(sch, block)), rng.randint(2, 5))


def decompose_reduction(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, reduces)
    reducing = {sch.get(x).var for x in reduction_loops(sch, block)}
    loops = its_loops(sch, block)
    first = next((n for n, x in enumerate(loops) if sch.get(x).var in reducing), 0)
    sch.decompose_reduction(block, rng.choice(loops[: first + 1]))


def fuse_reduction_epilogue(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, reduces)
    consumers = sch.get_consumers(block)
    if not consumers:
        raise NothingToDo
    sch.fuse_reduction_epilogue(block, consumers[0])


def pad_einsum(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, reduces)
    sch.pad_einsum(block, [rng.choice((1, 2, 4)) for _ in sch.get(block).iters])


def convert_operand(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, reduces)
    read = rng.randrange(len(sch.get(block).reads))
    wider = {"int8": "int16", "uint8": "int16", "float32": "float64"}
    dtype: str = sch.get(block).reads[read].buffer.dtype
    offset = rng.choice((0, 5)) if dtype.endswith("int8") else 0
    sch.convert_operand(block, read, wider.get(dtype, dtype), offset)


def decompose_padding(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, lambda b: "pad" in b.name)
    sch.decompose_padding(block, its_loops(sch, block)[0])


def tensorize(sch: Schedule, rng: random.Random) -> None:
    from tests.schedule.primitive.random_tensorize import tensorize_at_random

    tensorize_at_random(sch, rng)


def loop_partition(sch: Schedule, rng: random.Random) -> None:
    sch.loop_partition(a_loop(sch, rng), [None, rng.choice((1, 2))])


def merge(sch: Schedule, rng: random.Random) -> None:
    firsts = [its_loops(sch, sch.get_block(k))[0] for k in list(sch.state.nodes) if isinstance(k, str) and k]
    if len(firsts) < 2:
        raise NothingToDo
    at = rng.randrange(len(firsts) - 1)
    sch.merge(firsts[at], firsts[at + 1])


CALLS: dict[str, Call] = {
    "split": split,
    "sample_perfect_tile": split,
    "sample_tile": split,
    "sample_partitioned_tile": sample_partitioned_tile,
    "sample_categorical": sample_categorical,
    "fuse": fuse,
    "reorder": reorder,
    "add_unit_loop": lambda sch, rng: sch.add_unit_loop(a_block(sch, rng)),
    "parallel": kind("parallel"),
    "vectorize": kind("vectorize"),
    "unroll": kind("unroll"),
    "bind": kind("bind"),
    "merge": merge,
    "loop_partition": loop_partition,
    "annotate": annotate,
    "unannotate": unannotate,
    "compute_at": compute_at,
    "reverse_compute_at": reverse_compute_at,
    "sample_compute_location": sample_compute_location,
    "compute_inline": lambda sch, rng: sch.compute_inline(
        a_block(sch, rng, lambda b: is_spatial(b) and not is_output(sch, b))
    ),
    "reverse_compute_inline": reverse_compute_inline,
    "cache_read": lambda sch, rng: sch.cache_read(a_block(sch, rng, lambda b: bool(b.reads)), 0, "local"),
    "cache_write": lambda sch, rng: sch.cache_write(a_block(sch, rng), 0, "local"),
    "reindex": lambda sch, rng: sch.reindex(
        a_block(sch, rng, lambda b: bool(b.reads)), 0, rng.choice(("read", "write"))
    ),
    "set_scope": lambda sch, rng: sch.set_scope(
        a_block(sch, rng, lambda b: not is_output(sch, b)), 0, rng.choice(("local", "shared"))
    ),
    "storage_align": storage_align,
    "rfactor": rfactor,
    "winograd": winograd,
    "decompose_reduction": decompose_reduction,
    "fuse_reduction_epilogue": fuse_reduction_epilogue,
    "blockize": lambda sch, rng: sch.blockize(its_loops(sch, a_block(sch, rng))[-1]),
    "tensorize": tensorize,
    "transform_layout": transform_layout,
    "transform_block_layout": transform_block_layout,
    "reorder_block_iter_var": lambda sch, rng: shuffled_iters(sch, rng),
    "pad_einsum": pad_einsum,
    "convert_operand": convert_operand,
    "decompose_padding": decompose_padding,
}


def any_call(cls: type[Primitive]) -> Call | None:
    """A call for a primitive that has none above: operands of the types that its fields declare."""
    types = get_type_hints(cls)
    if not all(draw_operand(types[name]) for name in cls.names):
        return None

    def call(sch: Schedule, rng: random.Random) -> None:
        operands = [draw(sch, rng) for name in cls.names if (draw := draw_operand(types[name]))]
        sch.sample(cls(*operands)) if issubclass(cls, Distribution) else sch.run(cls(*operands))

    return call


def draw_operand(declared: Any) -> Call | None:
    """How to draw an operand; None if its type is neither a handle nor a number."""
    alternatives = {*get_args(declared), declared}
    if BlockRV in alternatives:
        return a_block
    if LoopRV in alternatives:
        return a_loop
    if bool in alternatives:
        return lambda sch, rng: rng.random() < 0.5
    if int in alternatives:
        return lambda sch, rng: rng.randrange(5)
    return None


for name, cls in REGISTRY.items():
    if name not in CALLS and not cls.is_query and cls.__module__.startswith("metaschedule.schedule."):
        found = any_call(cls)
        if found is not None:
            CALLS[name] = found


# What few programs have room for is tried more often.
RARE = {"reverse_compute_inline": 4, "pad_einsum": 2, "fuse_reduction_epilogue": 4, "decompose_padding": 2,
        "reverse_compute_at": 3, "rfactor": 2, "tensorize": 3, "merge": 2,
        "winograd": 3}  # fmt: skip


def chain() -> Program:
    """Element-wise stages one after the other, with a transpose."""
    x = te.placeholder((5, 6), name="x")
    a = te.compute((5, 6), lambda i, j: x[i, j] + 1.0, name="a")
    b = te.compute((6, 5), lambda i, j: a[j, i] * 2.0, name="b")
    c = te.compute((6, 5), lambda i, j: te.maximum(b[i, j], 0.0), name="c")
    return te.program([x], [c], name="chain")


def biased() -> Program:
    """A matrix product with a bias."""
    x, w = te.placeholder((5, 8), name="x"), te.placeholder((8, 6), name="w")
    bias = te.placeholder((6,), name="bias")
    k = te.reduce_axis(8, name="k")
    product = te.compute((5, 6), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="product")
    out = te.compute((5, 6), lambda i, j: product[i, j] + bias[j], name="out")
    return te.program([x, w, bias], [out], name="biased")


def shuffled_iters(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng, lambda b: bool(b.iters))
    count = len(sch.get(block).iters)
    sch.reorder_block_iter_var(block, rng.sample(range(count), count))


def step(sch: Schedule, rng: random.Random, counts: Counter[str], op: str | None = None) -> Schedule:
    """One random call on a fork; gives the fork if it was accepted, else the schedule as it was."""
    op = op or rng.choices(list(CALLS), [RARE.get(name, 1) for name in CALLS])[0]
    fork = sch.fork()
    try:
        CALLS[op](fork, rng)
    except NothingToDo:
        return sch
    except ms.ScheduleError as error:
        str(error)  # rendering must work too
        counts[f"{op} refused"] += 1
        return sch
    counts[op] += 1
    return fork


def programs() -> dict[str, Callable[[], tuple[Program, list[np.ndarray]]]]:
    """Small programs: the paper's workloads, softmax-like chains, and the cases that broke other tuners; each
    with inputs for it."""
    small: dict[str, dict[str, Any]] = {
        "C1D": {"l": 9, "ci": 3, "co": 5}, "C2D": {"h": 7, "w": 7, "ci": 2, "co": 4, "k": 3},
        "C3D": {"d": 3, "h": 5, "w": 5, "ci": 1, "co": 3, "k": 3}, "DEP": {"h": 5, "w": 5, "c": 3},
        "DIL": {"h": 9, "w": 9, "ci": 1, "co": 4, "k": 3}, "GMM": {"b": 1, "n": 6, "m": 7, "k": 8},
        "GRP": {"h": 5, "w": 5, "ci": 4, "co": 4, "groups": 2}, "T2D": {"h": 3, "w": 3, "ci": 2, "co": 3},
        "CBR": {"h": 5, "w": 5, "ci": 2, "co": 4, "k": 3}, "TBG": {"s": 5, "h": 2, "d": 4},
        "NRM": {"b": 2, "m": 4, "n": 6}, "SFM": {"shape": (4, 7)},
    }  # fmt: skip
    found: dict[str, Callable[[], tuple[Program, list[np.ndarray]]]] = {}
    for name, keys in small.items():

        def workload(name: str = name, keys: dict[str, Any] = keys) -> tuple[Program, list[np.ndarray]]:
            program = ms.workloads.create(name, **keys)
            return program, inputs_of(program)

        found[name] = workload
    found["chain"] = lambda: (chain(), inputs_of(chain()))
    found["biased"] = lambda: (biased(), inputs_of(biased()))
    for number, case in CASES.items():

        def example(case: Case = case) -> tuple[Program, list[np.ndarray]]:
            program = case.small_program()
            return program, case.inputs(program, np.random.default_rng(0))

        if not case.build_only:
            found[f"case {number}"] = example
    return found
