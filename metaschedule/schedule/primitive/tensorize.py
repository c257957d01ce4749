"""The primitive tensorize: a loop nest that an intrinsic describes, replaced by its implementation.

Read `Tensorize.check`, then `Matcher`: it walks the description and the program side by side, finding for
each parameter of the intrinsic the buffer it stands for and where in it the tile starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ... import ir
from ...arith import Domain, block_signature, simplify
from ...errors import ScheduleError
from ..instruction_semantics import COMMUTATIVE, put_instruction
from ..intrinsics import Intrinsic, get_intrinsic
from ..state import State
from .base import BlockRV, LoopRV, Primitive, primitive
from .outer_block import Blockize, BlockizePlan, plan_blockize


@dataclass(slots=True)
class TensorizePlan:
    blockize: BlockizePlan | None
    block: ir.Block  # with the implementation as its body


@primitive("tensorize")
class Tensorize(Primitive):
    """Replace the body of a block by an intrinsic; a loop is made a block first, as by blockize.

    rewrite:   for io, jo, ko: with T.block("C_o"): for i, j, k in T.grid(4, 4, 4): ...
          -->  for io, jo, ko: with T.block("C_o"): the implementation, on the tile of each parameter
    requires:  1. there is an intrinsic of that name
               2. the block holds loops and one block (or stores), as blockize makes it, with no `init` inside
               3. what is left of the inner predicate is always true: tiles are whole
               4. loops (but those of extent 1) have the extents of the description's, in its order
               5. stores are the description's, up to names, offsets, and the order of operands that commute
               6. a buffer that is written stands for one parameter only
    An intrinsic that is an instruction takes the loops of one lane: what is left is a store of one lane,
    and a vectorised loop around it are the lanes.
    Atomic, with blockize: a loop that the intrinsic does not fit stays as it is.
    """

    target: BlockRV | LoopRV
    intrinsic: str

    def check(self, s: State) -> TensorizePlan:
        if isinstance(self.target, LoopRV):
            at: ir.Var | str = s.loop(self.target).var
            made: BlockizePlan | None = plan_blockize(s, at)
            outer, loops, stores = made.outer, [s.nodes[v] for v in made.loops], made.inner
        else:
            made, outer = None, s.block(self.target)
            at, (loops, stores) = outer.name, inside_of(s, outer)
        intrinsic = get_intrinsic(self.intrinsic)
        where = Domain.keeping_names({it.var: it.extent for it in outer.iters})
        for loop in loops:
            where = where.with_loop(loop.var, s.resolve(loop.extent))
        body = statements(stores, where)
        if intrinsic.implementation is None:
            block = ir.replace_fields(outer, body=(lane_of(intrinsic, at, loops, body),))
        else:
            views = match(intrinsic, at, loops, body, where)
            buffers = dict(zip(intrinsic.implementation.params, intrinsic.description.params, strict=True))
            put = Implementation({mine: views[theirs] for mine, theirs in buffers.items()}, intrinsic.allocs)
            block = ir.replace_fields(
                outer, body=put.body(intrinsic.body), allocs=(*outer.allocs, *put.allocs.values())
            )
        reads, writes = block_signature(block)
        return TensorizePlan(made, ir.replace_fields(block, reads=reads, writes=writes))

    def apply(self, s: State, plan: TensorizePlan) -> tuple[Any, ...]:
        if plan.blockize is not None:
            assert isinstance(self.target, LoopRV)
            (key,) = Blockize(self.target).apply(s, plan.blockize)
        else:
            key = plan.block.name
        forget_below(s, key)
        s.set_node(key, ir.replace_fields(plan.block, name=key))
        return ()


def lane_of(intrinsic: Intrinsic, at: ir.Var | str, loops: list[ir.For], body: ir.Body) -> ir.Store:
    """One lane of an instruction, for what a block does in loops."""
    assert intrinsic.instruction is not None
    (described,) = intrinsic.stores
    try:
        if len(body) != 1 or not isinstance(body[0], ir.Store):
            raise ScheduleError(f"it has {len(body)} statements, described is one store")
        return put_instruction(intrinsic.instruction, described, intrinsic.loops, body[0], loops)
    except ScheduleError as error:
        said = refuse(intrinsic, at, error.message)
        error.message, error.marks = said.message, said.marks
        raise


def refuse(intrinsic: Intrinsic, at: ir.Var | str, why: str) -> ScheduleError:
    what = f"block {at!r}" if isinstance(at, str) else f"the loop over {at.name}"
    return ScheduleError(
        f"{what} is not what intrinsic {intrinsic.name!r} describes: {why}", marks={at: "does not match"}
    )


def forget_below(s: State, key: Any) -> None:
    for child in s.children[key]:
        forget_below(s, child)
        s.forget(child)
    s.children[key] = ()


def inside_of(s: State, outer: ir.Block) -> tuple[list[ir.For], ir.Block | ir.Body]:
    """The loops in a block, and the block in them; or the statements, if there is none."""
    loops: list[ir.For] = []
    below = s.children[outer.name]
    if not below:
        body = outer.body
        while len(body) == 1 and isinstance(body[0], ir.For):
            loops.append(body[0])
            body = body[0].body
        return loops, body
    while len(below) == 1 and isinstance(below[0], ir.Var):
        loops.append(s.nodes[below[0]])
        below = s.children[below[0]]
    if len(below) != 1 or not isinstance(below[0], str):
        raise ScheduleError(
            f"block {outer.name!r} is not one block in loops", marks={outer.name: "has more in it"}
        )
    inner: ir.Block = s.nodes[below[0]]
    resolved = ir.replace_fields(
        inner,
        bindings=tuple([s.resolve(b) for b in inner.bindings]),
        predicate=tuple([s.resolve(c) for c in inner.predicate]),
    )
    if s.children[inner.name]:
        raise ScheduleError(
            f"block {inner.name!r} has blocks inside", marks={inner.name: "must be the innermost"}
        )
    return loops, resolved


def statements(inner: ir.Block | ir.Body, where: Domain) -> ir.Body:
    """What runs in the loops, in terms of them and of the iterators of the outer block."""
    if not isinstance(inner, ir.Block):
        return inner
    if inner.init:
        raise ScheduleError(
            f"the init of block {inner.name!r} is inside of the loops",
            marks={inner.name: "its init is not part of an intrinsic"},
            help="decompose_reduction first",
        )
    for c in inner.predicate:
        if not where.prove(c):
            raise ScheduleError(
                f"the tile is not always whole: it runs only where {c}",
                marks={inner.name: "partial tiles"},
                help="split by factors that divide the extents, or pad_einsum first",
            )
    values = dict(zip([it.var for it in inner.iters], inner.bindings, strict=True))
    return ir.Substitute(values).body(inner.body)


# --- matching ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class TileView:
    """A parameter of an intrinsic as a tile of a buffer: per dimension of the buffer where the tile starts,
    and which dimension of the parameter moves in it, if any."""

    buffer: ir.Buffer
    starts: tuple[ir.Expr, ...]
    axes: tuple[int | None, ...]

    def indices(self, within: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        return tuple(
            [start if axis is None else start + within[axis] for start, axis in zip(self.starts, self.axes)]
        )


def match(
    intrinsic: Intrinsic, at: ir.Var | str, loops: list[ir.For], body: ir.Body, where: Domain
) -> dict[ir.Buffer, TileView]:
    """The views of the parameters of the description, if `body` in `loops` is what it describes."""
    mine = [loop for loop in loops if ir.as_int(loop.extent) != 1]
    theirs = [loop for loop in intrinsic.loops if ir.as_int(loop.extent) != 1]
    if [ir.as_int(loop.extent) for loop in mine] != [ir.as_int(loop.extent) for loop in theirs]:
        extents = [[str(loop.extent) for loop in group] for group in (mine, theirs)]
        raise refuse(
            intrinsic, at, f"its loops are ({', '.join(extents[0])}), described are ({', '.join(extents[1])})"
        )
    if len(body) != len(intrinsic.stores) or not all(isinstance(x, ir.Store) for x in body):
        raise refuse(
            intrinsic, at, f"it has {len(body)} statements, described are {len(intrinsic.stores)} stores"
        )
    values: dict[ir.Var, ir.Expr] = {loop.var: ir.Const(0, "int64") for loop in intrinsic.loops}
    values |= {a.var: b.var for a, b in zip(theirs, mine, strict=True)}
    matcher = Matcher(values, {loop.var for loop in loops}, where)
    for wanted, found in zip(intrinsic.stores, body, strict=True):
        assert isinstance(found, ir.Store)
        same = matcher.access(wanted.buffer, wanted.indices, found.buffer, found.indices)
        if not same or not matcher.expr(wanted.value, found.value):
            raise refuse(intrinsic, at, f"it stores {found}, described is {wanted}")
    outputs = set(intrinsic.description.outputs)
    for b, view in matcher.views.items():
        for other, also in matcher.views.items():
            if b is not other and view.buffer is also.buffer and (b in outputs or other in outputs):
                raise refuse(intrinsic, at, f"{view.buffer.name} is both {b.name} and {other.name}")
    return matcher.views


class Matcher:
    def __init__(self, values: Mapping[ir.Var, ir.Expr], inside: set[ir.Var], where: Domain) -> None:
        self.values = values  # loops of the description -> of the program
        self.inside = inside
        self.where = where
        self.views: dict[ir.Buffer, TileView] = {}

    def expr(self, wanted: ir.Expr, found: ir.Expr) -> bool:
        """Whether `found` is `wanted`, the parameters seen so far being where they are; learns new ones."""
        if wanted.dtype != found.dtype:
            return False
        if isinstance(wanted, ir.Load) and isinstance(found, ir.Load):
            return self.access(wanted.buffer, wanted.indices, found.buffer, found.indices)
        if type(wanted) is ir.Var or (ir.is_integer(wanted.dtype) and not ir.has_load(wanted)):
            return not ir.has_load(found) and ir.is_zero(self.difference(found, wanted))
        if type(wanted) is not type(found):
            return False
        if isinstance(wanted, ir.Const) and isinstance(found, ir.Const):
            return repr(wanted.value) == repr(found.value)
        if isinstance(wanted, (ir.Binary, ir.Unary)) and isinstance(found, (ir.Binary, ir.Unary)):
            if wanted.op != found.op:
                return False
        elif isinstance(wanted, ir.Call) and isinstance(found, ir.Call):
            if wanted.name != found.name:
                return False
        elif not isinstance(wanted, (ir.Cast, ir.Select)):
            return False
        parts, others = ir.operands(wanted), ir.operands(found)
        before = dict(self.views)
        if len(parts) == len(others) and all(map(self.expr, parts, others)):
            return True
        self.views = before
        if isinstance(wanted, ir.Binary) and wanted.op in COMMUTATIVE:
            if all(map(self.expr, parts, reversed(others))):
                return True
            self.views = before
        return False

    def access(
        self, param: ir.Buffer, wanted: tuple[ir.Expr, ...], buffer: ir.Buffer, found: tuple[ir.Expr, ...]
    ) -> bool:
        if param.dtype != buffer.dtype:
            return False
        known = self.views.get(param)
        if known is not None:
            at = known.indices(tuple([ir.substitute(e, self.values) for e in wanted]))
            return known.buffer is buffer and all(
                ir.is_zero(self.difference(a, b)) for a, b in zip(found, at)
            )
        # Dimensions keep their order; those that the parameter lacks must not move. Last ones first.
        places = range(len(found) - 1, -1, -1)
        for chosen in combinations(places, len(wanted)):
            axes: list[int | None] = [None] * len(found)
            for axis, place in enumerate(reversed(chosen)):
                axes[place] = axis
            starts = [
                self.difference(e, wanted[axis]) if axis is not None else simplify(e, self.where)
                for e, axis in zip(found, axes, strict=True)
            ]
            if not any(v in self.inside for start in starts for v in ir.free_vars(start)):
                self.views[param] = TileView(buffer, tuple(starts), tuple(axes))
                return True
        return False

    def difference(self, found: ir.Expr, wanted: ir.Expr) -> ir.Expr:
        return simplify(found - ir.substitute(wanted, self.values), self.where)


class Implementation(ir.Rewriter):
    """A copy of an implementation, on the tiles that its parameters stand for."""

    def __init__(self, views: Mapping[ir.Buffer, TileView], allocs: tuple[ir.Buffer, ...]) -> None:
        self.views = views
        self.loops: dict[ir.Var, ir.Expr] = {}
        self.allocs = {
            b: ir.Buffer(b.name, b.shape, b.dtype, b.scope, b.constant, b.data, b.layout) for b in allocs
        }

    def buffer(self, b: ir.Buffer) -> ir.Buffer:
        return self.allocs.get(b, b)

    def expr(self, e: ir.Expr) -> ir.Expr:
        if type(e) is ir.Var:
            return self.loops.get(e, e)
        e = super().expr(e)
        if isinstance(e, ir.Load) and e.buffer in self.views:
            view = self.views[e.buffer]
            return ir.Load(view.buffer, view.indices(e.indices))
        return e

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.For):
            new = self.loops[s.var] = ir.Var(s.var.name)
            return ir.replace_fields(s, var=new, extent=self.expr(s.extent), body=self.body(s.body))
        new_stmt = super().stmt(s)
        if isinstance(new_stmt, ir.Store) and new_stmt.buffer in self.views:
            view = self.views[new_stmt.buffer]
            return ir.Store(view.buffer, view.indices(new_stmt.indices), new_stmt.value)
        return new_stmt
