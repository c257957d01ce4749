"""Virtual threads: loops that every thread runs itself, as far inside as they go, written out.

Their iterations are independent, as threads are, so that a loop over them may be moved inside of loops and
split over statements. What depends on one gets its own registers for each.

    for v in range(2): for k in range(8): S[v * 64 + t] is read; acc = acc + S[...]
    for k in range(8): for v in unrolled(2): acc[v] = acc[v] + S[v * 64 + t]
"""

from __future__ import annotations

from ... import ir
from .model import VTHREADS, Axes


def sink_vthreads(program: ir.Program, axes: Axes) -> ir.Program:
    """The program with its loops over virtual threads moved inside."""
    for key in reversed([key for key, axis in axes.base.items() if axis in VTHREADS]):
        program = sink_axis(program, key, axes)
    return program


def sink_axis(program: ir.Program, key: str, axes: Axes) -> ir.Program:
    var, extent = axes.vars[key], axes.extents[key]
    body = without_loop(program.body, var)
    expanded: set[ir.Buffer] = set()
    while True:
        found = {
            s.buffer
            for s in ir.walk(body)
            if isinstance(s, ir.Store) and s.buffer.scope == "local" and is_inside(body, s, var, expanded)
        }
        if found <= expanded:
            break
        expanded |= found
    new = {b: ir.replace_fields(b, shape=(extent, *b.shape), layout=None) for b in expanded}
    sink = Sink(var, extent, new)
    allocs = tuple(new.get(b, b) for b in program.allocs)
    return ir.replace_fields(program, body=sink.body(body), allocs=allocs)


def without_loop(body: ir.Body, var: ir.Var) -> ir.Body:
    """The bodies of the loops over axes, without that over one of them."""
    (s,) = body
    assert isinstance(s, ir.For)
    if s.var is var:
        return s.body
    return (ir.replace_fields(s, body=without_loop(s.body, var)),)


def depends(s: ir.Stmt, var: ir.Var, expanded: set[ir.Buffer]) -> bool:
    """Whether a statement is another for other values of a variable."""
    for x in ir.walk(s):
        if isinstance(x, ir.Store) and x.buffer in expanded:
            return True
    return any(e is var or (isinstance(e, ir.Load) and e.buffer in expanded) for e in ir.expressions(s))


def is_inside(body: ir.Body, store: ir.Store, var: ir.Var, expanded: set[ir.Buffer]) -> bool:
    """Whether a store, or a condition or loop around it, depends on a variable."""
    for s in body:
        if not any(x is store for x in ir.walk(s)):
            continue
        if s is store:
            return depends(s, var, expanded)
        if own_depends(s, var, expanded):
            return True
        return any(is_inside(inner, store, var, expanded) for inner in ir.bodies(s))
    return False


def own_depends(s: ir.Stmt, var: ir.Var, expanded: set[ir.Buffer]) -> bool:
    return any(
        x is var or (isinstance(x, ir.Load) and x.buffer in expanded)
        for e in ir.own_expressions(s)
        for x in ir.subexpressions(e)
    )


def is_row_of_results(s: ir.Stmt) -> bool:
    """Whether a loop only stores: neighbouring elements, which can be one store of a vector then."""
    if not isinstance(s, ir.For) or len(s.body) != 1:
        return False
    store = s.body[0]
    while isinstance(store, ir.If) and len(store.then) == 1 and not store.orelse:
        store = store.then[0]
    return isinstance(store, ir.Store) and store.buffer.scope != "local"


class Sink(ir.Rewriter):
    def __init__(self, var: ir.Var, extent: int, new: dict[ir.Buffer, ir.Buffer]) -> None:
        self.var, self.extent, self.new = var, extent, new
        self.expand = Expand(var, new)

    def body(self, body: ir.Body) -> ir.Body:
        made: list[ir.Stmt] = []
        for s in body:
            if not depends(s, self.var, set(self.new)):
                made.append(s)
            elif (
                isinstance(s, (ir.For, ir.If))
                and not own_depends(s, self.var, set(self.new))
                and not is_row_of_results(s)
            ):
                if isinstance(s, ir.For):
                    made.append(ir.replace_fields(s, body=self.body(s.body)))
                else:
                    made.append(ir.If(s.cond, self.body(s.then), self.body(s.orelse)))
            else:
                inner = ir.Var(self.var.name)
                again = ir.Substitute({self.var: inner})
                made.append(
                    ir.For(inner, ir.const(self.extent), again.body(self.expand.body((s,))), "unrolled")
                )
        return tuple(made)


class Expand(ir.Rewriter):
    """Registers for every value of a variable."""

    def __init__(self, var: ir.Var, new: dict[ir.Buffer, ir.Buffer]) -> None:
        self.var, self.new = var, new

    def expr(self, e: ir.Expr) -> ir.Expr:
        e = ir.map_operands(e, self.expr)
        if isinstance(e, ir.Load) and e.buffer in self.new:
            return ir.Load(self.new[e.buffer], (self.var, *e.indices))
        return e

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.Store) and s.buffer in self.new:
            return ir.Store(self.new[s.buffer], (self.var, *self.exprs(s.indices)), self.expr(s.value))
        return super().stmt(s)
