"""From the description of an instruction to what a lane of it computes, and from a store to the operands.

    for i, k in T.grid(16, 4): C[i] = C[i] + T.cast(A[i, k], "int32") * T.cast(B[i, k], "int32")

The loops of the output (`i`) are the lanes, the others (`k`) what one lane does: here
`((c + a0 * b0) + a1 * b1) + ...`, and `a1` of lane 2 is element 2 * 4 + 1 of the register A.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import ir
from ..affine.values import value_of
from ..arith import simplify
from ..errors import ScheduleError

COMMUTATIVE = frozenset({"+", "*", "min", "max", "&", "|", "^", "and", "or", "==", "!="})


def describe_instruction(
    name: str,
    description: ir.Program,
    loops: Sequence[ir.For],
    stores: Sequence[ir.Store],
    code: str,
    features: tuple[str, ...],
    tiles: bool = False,
) -> ir.HardwareInstruction:
    """The instruction that computes a description, whose loops and stores are given."""
    if "." not in name:  # functions have names without
        raise ValueError(f"instruction {name!r}: its name has no dot, as in 'x86.vpdpbusd.512'")
    if tiles and (not code.startswith("llvm.") or len(description.outputs[0].shape) != 2):
        raise ValueError(f"instruction {name!r}: with tiles it is an LLVM intrinsic whose output is a matrix")
    if len(stores) != 1 or len(description.outputs) != 1:
        raise ValueError(f"instruction {name!r}: a description has one output and one store")
    (store,), (output,) = stores, description.outputs
    lanes, steps = split_loops(loops, store)
    grid = lane_values(lanes)
    places = list(elements_of(ir.Load(store.buffer, store.indices), grid))
    if places != list(range(output.size)):
        raise ValueError(f"instruction {name!r}: lanes must be the elements of {output.name}, in order")
    accumulator = ir.Load(output, store.indices)
    arguments: list[tuple[ir.Buffer, tuple[int, ...], ir.Expr]] = []  # with the elements of every lane
    meaning: ir.Expr = accumulator

    def place(load: ir.Load, step: Mapping[ir.Var, ir.Expr]) -> ir.Expr:
        """The argument that a load is in some step: the same elements are the same argument."""
        elements = elements_of(load, grid, step)
        for buffer, known, argument in arguments:
            if buffer is load.buffer and known == elements:
                return argument
        new = ir.Load(load.buffer, tuple([ir.substitute(index, dict(step)) for index in load.indices]))
        arguments.append((load.buffer, elements, new))
        return new

    for step in points(steps):
        before = meaning

        def put(e: ir.Expr, step: Mapping[ir.Var, ir.Expr] = step, before: ir.Expr = before) -> ir.Expr:
            if isinstance(e, ir.Load):
                return before if e.buffer is output else place(e, step)
            return ir.map_operands(e, put)

        meaning = put(store.value)
    reads = any(isinstance(e, ir.Load) and e.buffer is output for e in parts(store.value))
    if reads:
        arguments.insert(0, (output, tuple(places), accumulator))
    elif tiles:
        raise ValueError(f"instruction {name!r}: tiles are added to, and it does not read {output.name}")
    elif steps:
        raise ValueError(f"instruction {name!r}: only the last step over {steps[0].var.name} would count")
    registers: list[ir.Register] = []
    ordered: list[ir.Expr] = []
    for buffer in (*description.outputs, *description.inputs):
        mine = [(elements, e) for b, elements, e in arguments if b is buffer]
        if mine:
            at = tuple(zip(*[elements for elements, _ in mine], strict=True))
            registers.append(
                ir.Register(buffer.name, buffer.dtype, buffer.size, (*buffer.shape, 1)[0], len(ordered), at)
            )
            ordered += [e for _, e in mine]
    return ir.HardwareInstruction(
        name, output.dtype, output.size, tuple(registers), tuple(ordered), meaning, code, features, reads,
        tiles,
    )  # fmt: skip


def points(loops: Sequence[ir.For]) -> list[dict[ir.Var, ir.Expr]]:
    """All iterations of loops, in order."""
    ranges = [range(loop.fixed_extent or 0) for loop in loops]
    variables = [loop.var for loop in loops]
    return [dict(zip(variables, map(ir.const, at), strict=True)) for at in itertools.product(*ranges)]


def split_loops(loops: Sequence[ir.For], store: ir.Store) -> tuple[list[ir.For], list[ir.For]]:
    """The loops of a description that are lanes, and those that are steps of a lane."""
    along = {v for index in store.indices for v in ir.free_vars(index)}
    return [x for x in loops if x.var in along], [x for x in loops if x.var not in along]


def lane_values(lanes: Sequence[ir.For]) -> dict[ir.Var, np.ndarray]:
    """The loops of the lanes as arrays over all lanes."""
    grid = np.indices([loop.fixed_extent or 0 for loop in lanes]).reshape(len(lanes), -1)
    return {loop.var: values for loop, values in zip(lanes, grid, strict=True)}


def elements_of(
    load: ir.Load, lanes: Mapping[ir.Var, np.ndarray], step: Mapping[ir.Var, ir.Expr] | None = None
) -> tuple[int, ...]:
    """Which element of its register every lane loads in some step."""
    values: dict[ir.Var, Any] = {**lanes, **{v: ir.as_int(e) for v, e in (step or {}).items()}}
    total: Any = 0
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        total = total * extent + value_of(index, values)
    return tuple(np.broadcast_to(total, len(next(iter(lanes.values()), (0,)))).tolist())


def parts(e: ir.Expr) -> list[ir.Expr]:
    return [e, *[x for part in ir.operands(e) for x in parts(part)]]


# --- matching -------------------------------------------------------------------------------------


Operands = dict[ir.Buffer, ir.Load]  # of the parameters of a description


def match_operands(
    wanted: ir.Expr, found: ir.Expr, bound: Operands, converts: Callable[[str, str], bool] = operator.eq
) -> Iterator[Operands]:
    """The ways in which `found` is `wanted` with some load for each parameter, besides those bound already.
    `converts(mine, theirs)` says whether a load of another dtype than the parameter's would do."""
    if isinstance(wanted, ir.Load) and isinstance(found, ir.Load):
        known = bound.get(wanted.buffer)
        if known is None and converts(found.dtype, wanted.dtype):
            yield {**bound, wanted.buffer: found}
        elif known is not None and is_equal_load(known, found):
            yield bound
        return
    if wanted.dtype != found.dtype or type(wanted) is not type(found):
        return
    if isinstance(wanted, ir.Const) and isinstance(found, ir.Const):
        if repr(wanted.value) == repr(found.value):
            yield bound
        return
    for kind, field in ((ir.Binary, "op"), (ir.Unary, "op"), (ir.Call, "name")):
        if isinstance(wanted, kind) and getattr(wanted, field) != getattr(found, field):
            return
    if not isinstance(wanted, (ir.Binary, ir.Unary, ir.Call, ir.Cast, ir.Select)):
        return
    mine, theirs = ir.operands(wanted), ir.operands(found)
    yield from match_all(mine, theirs, bound, converts)
    if isinstance(wanted, ir.Binary) and wanted.op in COMMUTATIVE:
        yield from match_all(mine, theirs[::-1], bound, converts)


def match_all(
    wanted: Sequence[ir.Expr], found: Sequence[ir.Expr], bound: Operands, converts: Callable[[str, str], bool]
) -> Iterator[Operands]:
    if not wanted or len(wanted) != len(found):
        yield from () if wanted or found else (bound,)
        return
    for first in match_operands(wanted[0], found[0], bound, converts):
        yield from match_all(wanted[1:], found[1:], first, converts)


def is_equal_load(a: ir.Load, b: ir.Load) -> bool:
    return a.buffer is b.buffer and all(map(is_equal, a.indices, b.indices))


def is_equal(a: ir.Expr, b: ir.Expr) -> bool:
    return a is b or ir.as_int(simplify(a - b)) == 0


def put_instruction(
    known: ir.HardwareInstruction,
    description: ir.Store,
    described: Sequence[ir.For],
    found: ir.Store,
    loops: Sequence[ir.For],
) -> ir.Store:
    """The store of one lane that does what `found` does in all iterations of `loops`."""
    lanes, steps = split_loops(described, description)
    sizes = [[n for loop in nest if (n := loop.fixed_extent) != 1] for nest in (loops, steps)]
    if sizes[0] != sizes[1]:
        raise ScheduleError(f"its loops are {sizes[0]}, those of a lane of {known.name} are {sizes[1]}")
    bound = next(match_operands(description.value, found.value, {}), None)
    if bound is None:
        raise ScheduleError(f"it stores {found}, a lane of {known.name} computes {description.value}")
    accumulated = bound.pop(description.buffer, None)
    if accumulated is not None and not all(map(is_equal, accumulated.indices, found.indices)):
        raise ScheduleError(f"it stores to {found.buffer.name} elsewhere than it reads")
    inside = {loop.var for loop in loops}
    if any(v in inside for index in found.indices for v in ir.free_vars(index)):
        raise ScheduleError(f"where it stores moves with the loops of a lane of {known.name}")
    mine = [loop.var for loop in loops if loop.fixed_extent != 1]
    when = first_steps(description, lanes, steps)
    order = ascending_steps(known, description, when)
    arguments: list[ir.Expr] = []
    for r in known.registers:
        for n in range(r.count):
            argument = known.arguments[r.first + n]
            assert isinstance(argument, ir.Load)
            if argument.buffer is description.buffer:
                arguments.append(ir.Load(found.buffer, found.indices))
                continue
            load = bound[argument.buffer]
            step = when[argument.buffer, tuple([at[n] for at in r.at])]
            step = order.get(tuple(map(ir.as_int, step)), step)
            values: dict[ir.Var, ir.Expr] = dict(zip(mine, step, strict=True))
            values |= {loop.var: ir.const(0) for loop in loops if loop.fixed_extent == 1}
            at = tuple([simplify(ir.substitute(i, values)) for i in load.indices])
            arguments.append(ir.Load(load.buffer, at))
    return ir.Store(found.buffer, found.indices, ir.instruct(known.name, *arguments))


def ascending_steps(
    known: ir.HardwareInstruction,
    description: ir.Store,
    when: dict[tuple[ir.Buffer, tuple[int, ...]], list[ir.Expr]],
) -> dict[tuple[int | None, ...], list[ir.Expr]]:
    """What iterations of a program the steps of a sum are: those may come in any order, and what lies side by
    side in a register should in memory. (`vdpbf16ps` adds the odd product first.)"""
    value = description.value
    is_sum = isinstance(value, ir.Binary) and value.op in COMMUTATIVE
    if not is_sum or not any(
        isinstance(e, ir.Load) and e.buffer is description.buffer for e in ir.operands(value)
    ):
        return {}
    first = next((b for b, _ in when if b is not description.buffer), None)
    taken = [(elements, step) for (b, elements), step in when.items() if b is first]
    steps = [step for _, step in taken]
    if len(taken) < max(r.count for r in known.registers):  # elements that several steps share
        return {}
    ranked = sorted(taken, key=lambda pair: pair[0])
    return {tuple(map(ir.as_int, step)): to for (_, step), to in zip(ranked, steps, strict=True)}


def first_steps(
    description: ir.Store, lanes: Sequence[ir.For], steps: Sequence[ir.For]
) -> dict[tuple[ir.Buffer, tuple[int, ...]], list[ir.Expr]]:
    """In which iteration of its steps a description loads elements first, which the lanes take of a
    buffer."""
    grid, found = lane_values(lanes), dict[tuple[ir.Buffer, tuple[int, ...]], list[ir.Expr]]()
    loads = [e for e in parts(description.value) if isinstance(e, ir.Load)]
    for at in points(steps):
        for load in loads:
            step = [at[loop.var] for loop in steps if loop.fixed_extent != 1]
            found.setdefault((load.buffer, elements_of(load, grid, at)), step)
    return found
