"""`program`: the stages behind some outputs, one loop nest and one block each.

A reduction that may be over nothing (extent 0, or one known only when the program runs) has its
identity stored by a block of its own, because a block's `init` runs only with a first iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .. import ir
from ..arith import Domain
from ..validation import check_arguments
from ..verifier import verify
from .reduction import Reduction
from .tensor import Stage, Tensor


@check_arguments
def program(
    inputs: Tensor | Sequence[Tensor], outputs: Tensor | Sequence[Tensor], name: str = "main"
) -> ir.Program:
    """The program that computes `outputs` from `inputs`, called with them in these orders.

    Stages appear in the order in which they are needed; what no output needs does not appear. The
    program is verified: `VerifyError` if it surely reads out of bounds.
    """
    inputs = check_tensors(inputs, "inputs")
    for t in inputs:
        if not t.is_placeholder:
            raise ValueError(f"input {t.name} is computed: inputs are what te.placeholder gives")
    return program_between(inputs, inputs, outputs, name)


def program_between(
    inputs: Sequence[Tensor], parameters: Sequence[Tensor], outputs: Tensor | Sequence[Tensor], name: str
) -> ir.Program:
    """The program that computes `outputs` out of `inputs`, which may be results of other programs: what is
    before them is left out. `parameters`, placeholders, are what they are in this one."""
    inputs, outputs = check_tensors(inputs, "inputs"), check_tensors(outputs, "outputs")
    for t in outputs:
        if t.stage is None:
            raise ValueError(
                f"output {t.name} is not computed: to return it, compute a copy, "
                f"te.compute({t.name}.shape, lambda *i: {t.name}[i])"
            )
    stages, tables = reachable(inputs, outputs)
    buffers: dict[ir.Buffer, ir.Buffer] = {}
    names = FreshNames()
    inner = [t for s in stages for t in s.tensors if not any(t is o for o in outputs)]
    others = [*outputs, *tables, *inner]
    for t, own in zip([*inputs, *others], [*parameters, *others], strict=True):
        layout = own.layout
        if layout is not None and (own.is_placeholder or any(t is o for o in outputs)):
            layout = ir.Layout(layout.strides)  # the caller says where a parameter begins
        buffers[t] = ir.Buffer(
            names.fresh(own.name), t.shape, t.dtype, "global", own.constant, t.data, layout
        )
    block_names = FreshNames()
    body: list[ir.Stmt] = []
    for stage in stages:
        body += StageLowering(stage, buffers, block_names).statements()
    result = ir.Program(
        name,
        tuple([buffers[t] for t in inputs]),
        tuple([buffers[t] for t in outputs]),
        tuple(body),
        tuple([buffers[t] for t in [*tables, *inner]]),
    )
    verify_once(result)
    return result


def verify_once(program: ir.Program) -> None:
    """A model has the same program in each of its layers."""
    key = ir.structural_hash(program)
    if key not in VERIFIED:
        verify(program)
        if len(VERIFIED) >= MOST_VERIFIED:
            VERIFIED.clear()
        VERIFIED.add(key)


VERIFIED: set[str] = set()  # programs by hash
MOST_VERIFIED = 4096


class FreshNames:
    """Hands out names, each once: `a`, `a_1`, `a_2`."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def fresh(self, base: str) -> str:
        name, count = base, 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name


def check_tensors(tensors: Any, what: str) -> list[Tensor]:
    found = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    for t in found:
        if not isinstance(t, Tensor):
            raise TypeError(f"{what} must be tensors, got {t!r}")
    if len({id(t) for t in found}) != len(found):
        twice = next(t for n, t in enumerate(found) if any(t is u for u in found[:n]))
        raise ValueError(f"{twice.name} is given twice among the {what}")
    if what == "outputs" and not found:
        raise ValueError("a program needs at least one output")
    return found


def reachable(inputs: list[Tensor], outputs: list[Tensor]) -> tuple[list[Stage], list[Tensor]]:
    """The stages that the outputs need, each after those it reads, and the embedded tables."""
    known = {id(t) for t in inputs}
    done: dict[Stage, bool] = {}
    tables: dict[Tensor, None] = {}

    def visit(root: Stage) -> None:
        todo = [(root, False)]  # an explicit stack: chains of stages may be long
        while todo:
            stage, finished = todo.pop()
            if finished:
                done[stage] = True
                continue
            if stage in done:
                continue
            todo.append((stage, True))
            for t in [t for t in reversed(read_by(stage)) if id(t) not in known]:
                if t.stage is not None:
                    if t.stage not in done:
                        todo.append((t.stage, False))
                elif t.data is not None:
                    tables.setdefault(t)
                else:
                    names = ", ".join(i.name for i in inputs) or "none"
                    raise ValueError(
                        f"{stage.name} reads placeholder {t.name}, which is not among the inputs ({names})"
                    )

    for t in outputs:
        if t.stage is not None and t.stage not in done:
            visit(t.stage)
    return [s for s in done if done[s]], list(tables)


def read_by(stage: Stage) -> list[Tensor]:
    found: dict[Tensor, None] = {}
    for e in stage_expressions(stage):
        for x in ir.subexpressions(e):
            if isinstance(x, ir.Load) and isinstance(x.buffer, Tensor):
                found.setdefault(x.buffer)
    return list(found)


def stage_expressions(stage: Stage) -> list[ir.Expr]:
    return [*stage.values, *(bound for a in stage.axes for bound in (a.low, a.extent))]


class Frame:
    """The loops of a stage, the iterators of its block, and expressions in their terms."""

    def __init__(self, stage: Stage, buffers: dict[ir.Buffer, ir.Buffer], with_axes: bool) -> None:
        self.loops: dict[ir.Var, ir.Expr] = {}  # with their extents
        self.iters: list[ir.Iter] = []
        names = FreshNames()
        as_loop: dict[ir.Var, ir.Expr] = {}
        as_iter: dict[ir.Var, ir.Expr] = {}
        outer, inner = ir.Substitute(as_loop, buffers), ir.Substitute(as_iter, buffers)
        for v, n in zip(stage.indices, stage.shape, strict=True):
            as_loop[v], as_iter[v] = self.add(names.fresh(v.name), ir.const(n), ir.const(n), "spatial")
        self.point = tuple([as_iter[v] for v in stage.indices])
        for a in stage.axes if with_axes else ():
            name, extents = names.fresh(a.var.name), (outer.expr(a.extent), inner.expr(a.extent))
            loop, it = self.add(name, *extents, "reduce")
            as_loop[a.var], as_iter[a.var] = loop + outer.expr(a.low), it + inner.expr(a.low)
        self.inside = inner.expr

    def add(self, name: str, of_loop: ir.Expr, of_iter: ir.Expr, kind: str) -> tuple[ir.Var, ir.Var]:
        loop, it = ir.Var(name), ir.Iter(ir.Var(f"v_{name}"), of_iter, kind)
        self.loops[loop] = of_loop
        self.iters.append(it)
        return loop, it.var

    def always_reduces(self) -> bool:
        """Whether every point has at least one term to combine, as far as can be proved."""
        domain = Domain()
        for (loop, extent), it in zip(self.loops.items(), self.iters, strict=True):
            least = domain.bounds(extent)[0]
            if it.kind == "reduce" and (least is None or least < 1):
                return False
            domain = domain.with_loop(loop, extent)
        return True


class StageLowering:
    """One stage as statements: loops around a block."""

    def __init__(self, stage: Stage, buffers: dict[ir.Buffer, ir.Buffer], block_names: FreshNames) -> None:
        self.stage = stage
        self.buffers = buffers
        self.block_names = block_names

    def statements(self) -> list[ir.Stmt]:
        stage = self.stage
        plain = Frame(stage, self.buffers, with_axes=False)
        if stage.reduction is None:
            return [self.nest(plain, stage.name, stage.values)]
        identities = stage.reduction.reducer.identities(stage.reduction)
        full = Frame(stage, self.buffers, with_axes=True)
        if full.always_reduces():
            return [self.nest(full, stage.name, stage.values, stage.reduction, identities)]
        return [
            self.nest(plain, f"{stage.name}_init", identities),
            self.nest(full, stage.name, stage.values, stage.reduction),
        ]

    def nest(
        self,
        frame: Frame,
        name: str,
        values: tuple[ir.Expr, ...],
        reduction: Reduction | None = None,
        identities: tuple[ir.Expr, ...] = (),
    ) -> ir.Stmt:
        """Loops and block. With a reduction the values are combined into what the tensors hold."""
        point = frame.point
        targets = [self.buffers[t] for t in self.stage.tensors]
        results = tuple([frame.inside(v) for v in values])
        reads = regions([*(it.extent for it in frame.iters), *results])
        if reduction is not None:
            held = [ir.Load(b, point) for b in targets]
            results = reduction.reducer.combine_values(reduction, held, results)
        result: ir.Stmt = ir.Block(
            self.block_names.fresh(name),
            tuple(frame.iters),
            tuple(frame.loops),
            reads,
            tuple([at_point(b, point) for b in targets]),
            stores(targets, point, results, together=reduction is not None),
            stores(targets, point, identities) if identities else (),
        )
        for loop, extent in reversed(frame.loops.items()):
            result = ir.For(loop, extent, (result,))
        return result


def stores(
    targets: list[ir.Buffer], point: tuple[ir.Expr, ...], values: tuple[ir.Expr, ...], together: bool = False
) -> tuple[ir.Stmt, ...]:
    each = tuple([ir.Store(b, point, v) for b, v in zip(targets, values, strict=True)])
    return (ir.TupleStore(each),) if together and len(each) > 1 else each


def at_point(buffer: ir.Buffer, point: Iterable[ir.Expr]) -> ir.Region:
    return ir.Region(buffer, tuple([(index, ir.const(1)) for index in point]))


def regions(values: list[ir.Expr]) -> tuple[ir.Region, ...]:
    """What the expressions read, each region once. Along a dimension whose index is itself read
    from memory any element may be read."""
    found: dict[Any, ir.Region] = {}
    for value in values:
        for e in ir.subexpressions(value):
            if isinstance(e, ir.Load):
                ranges = [
                    (ir.const(0), ir.const(n)) if ir.has_load(index) else (index, ir.const(1))
                    for index, n in zip(e.indices, e.buffer.shape, strict=True)
                ]
                key = (id(e.buffer), *((ir.expr_key(a), ir.expr_key(b)) for a, b in ranges))
                found.setdefault(key, ir.Region(e.buffer, tuple(ranges)))
    return tuple(found.values())
