"""Double buffers: the next chunk is fetched into shared memory while threads compute with the present one.

    for k in range(n):                     fetch(0) into S[0]; barrier
        fetch(k) into S         -->        for k in range(n):
        barrier                                if k + 1 < n: fetch(k + 1) into S[(k + 1) % 2]
        compute(k) from S                      compute(k) from S[k % 2]
        barrier                                barrier

A loop asks for it by its annotation `double_buffer`. It stays as it is where that would be wrong: the fetch
must come first, only copy from memory that the kernel does not write, and nobody else may use its buffers.
On NVIDIA's devices from sm_80 on the copies of a fetch are asynchronous (`emit.py`).
"""

from __future__ import annotations

from ... import ir
from ...ir.annotations import DOUBLE_BUFFER
from .model import Barrier

ALIGNMENT = 16  # bytes, of each half: the widest load


def double_buffers(program: ir.Program) -> tuple[ir.Program, set[ir.Buffer]]:
    """The program with double buffers where loops ask for them, and those buffers."""
    pipeline = Pipeline(program)
    body = pipeline.body(program.body)
    if not pipeline.new:
        return program, set()
    allocs = tuple([pipeline.new.get(b, b) for b in program.allocs])
    return ir.replace_fields(program, body=body, allocs=allocs), set(pipeline.new.values())


class Pipeline(ir.Rewriter):
    def __init__(self, program: ir.Program) -> None:
        self.whole = program
        self.new: dict[ir.Buffer, ir.Buffer] = {}

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if not isinstance(s, ir.For) or not DOUBLE_BUFFER.get(s) or s.fixed_extent in (None, 0, 1):
            return super().stmt(s)
        fetch, compute = self.cut(s)
        if not fetch or not compute:
            return super().stmt(s)
        own = stored(fetch)
        halves = {b: double(b) for b in own}
        self.new |= halves
        first = Half(halves, ir.const(0)).body(ir.Substitute({s.var: ir.const(0)}).body(fetch))
        ahead = s.var + 1
        later = Half(halves, ahead % 2).body(ir.Substitute({s.var: ahead}).body(fetch))
        now = Half(halves, s.var % 2).body(compute)
        body = (ir.If(ir.binary("<", ahead, s.extent), later), *now, Barrier())
        return (*first, Barrier(), ir.replace_fields(s, body=body, annotations={}))

    def cut(self, s: ir.For) -> tuple[ir.Body, ir.Body]:
        """The statements of a loop's body that fetch, and the others; no fetch if it may not run ahead."""
        count = 0
        for x in s.body:
            if not all(b.scope == "shared" for b in stored((x,))) or not stored((x,)):
                break
            count += 1
        fetch, compute = s.body[:count], s.body[count:]
        own = stored(fetch)
        elsewhere = [x for x in ir.walk(self.whole) if isinstance(x, ir.Store) and x.buffer in own]
        written = {x.buffer for x in ir.walk(self.whole) if isinstance(x, ir.Store)}
        once = len(elsewhere) == len([x for x in ir.walk(fetch) if isinstance(x, ir.Store)])
        inside = len([e for e in ir.expressions(s.body) if isinstance(e, ir.Load) and e.buffer in own])
        loads = len([e for e in ir.expressions(self.whole) if isinstance(e, ir.Load) and e.buffer in own])
        reads = {e.buffer for e in ir.expressions(fetch) if isinstance(e, ir.Load)}
        return (fetch, compute) if once and inside == loads and not reads & written else ((), s.body)


def stored(body: ir.Body) -> set[ir.Buffer]:
    return {x.buffer for x in ir.walk(body) if isinstance(x, ir.Store)}


def double(b: ir.Buffer) -> ir.Buffer:
    """A buffer with room for two chunks."""
    unit = max(1, ALIGNMENT // ir.numpy_dtype(b.dtype).itemsize)
    size = -(-b.room // unit) * unit
    return ir.replace_fields(b, shape=(2, *b.shape), layout=ir.Layout((size, *b.strides)))


class Half(ir.Rewriter):
    """Accesses to one half of double buffers."""

    def __init__(self, halves: dict[ir.Buffer, ir.Buffer], which: ir.Expr) -> None:
        self.halves, self.which = halves, which

    def expr(self, e: ir.Expr) -> ir.Expr:
        e = ir.map_operands(e, self.expr)
        if isinstance(e, ir.Load) and e.buffer in self.halves:
            return ir.Load(self.halves[e.buffer], (self.which, *e.indices))
        return e

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.Store) and s.buffer in self.halves:
            return ir.Store(self.halves[s.buffer], (self.which, *self.exprs(s.indices)), self.expr(s.value))
        return s if isinstance(s, Barrier) else super().stmt(s)
