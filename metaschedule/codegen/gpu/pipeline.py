"""Software pipelines: chunks are fetched into shared memory while threads compute with an earlier one.

    for k in range(n):                     fetch(0) into S[0]; ... fetch(a - 1) into S[a - 1]; barrier
        fetch(k) into S         -->        for k in range(n):
        barrier                                if k + a < n: fetch(k + a) into S[(k + a) % (a + 1)]
        compute(k) from S                      compute(k) from S[k % (a + 1)]
        barrier                                barrier

A loop asks for `a` by its annotation `double_buffer`, which is 1 for two buffers. It stays as it is where
that would be wrong: the fetch must come first, only copy from memory that the kernel does not write, and
nobody else may use its buffers. Where copies are asynchronous (`Gpu.asynchronous`), the barrier of iteration
k waits for what was fetched for k + 1; the `a - 1` fetches after that are still under way.
"""

from __future__ import annotations

from ... import ir
from ...ir.annotations import DOUBLE_BUFFER
from .model import Barrier

ALIGNMENT = 16  # bytes, of each chunk: the widest load


def pipeline_loops(program: ir.Program) -> tuple[ir.Program, set[ir.Buffer]]:
    """The program with pipelines where loops ask for them, and the buffers that are filled ahead."""
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
        extent = s.fixed_extent if isinstance(s, ir.For) else None
        if not isinstance(s, ir.For) or not extent or (count := chunks_ahead(s, extent)) < 1:
            return super().stmt(s)
        fetch, compute = self.cut(s)
        if not fetch or not compute:
            return super().stmt(s)
        own = stored(fetch)
        chunks = {b: repeat(b, count + 1) for b in own}
        self.new |= chunks
        first: ir.Body = ()
        for n in range(count):
            at = ir.const(n)
            first += Chunk(chunks, at).body(ir.Substitute({s.var: at}).body(fetch))
        ahead = s.var + count
        later = Chunk(chunks, ahead % (count + 1)).body(ir.Substitute({s.var: ahead}).body(fetch))
        now = Chunk(chunks, s.var % (count + 1)).body(compute)
        body = (ir.If(ir.binary("<", ahead, s.extent), later), *now, Barrier(count - 1))
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


def chunks_ahead(s: ir.For, extent: int) -> int:
    """How many iterations ahead a loop fetches: no further than to its end."""
    return min(int(DOUBLE_BUFFER.get(s) or 0), extent - 1)


def repeat(b: ir.Buffer, count: int) -> ir.Buffer:
    """A buffer with room for so many chunks."""
    unit = max(1, ALIGNMENT // ir.numpy_dtype(b.dtype).itemsize)
    size = -(-b.room // unit) * unit
    return ir.replace_fields(b, shape=(count, *b.shape), layout=ir.Layout((size, *b.strides)))


class Chunk(ir.Rewriter):
    """Accesses to one chunk of repeated buffers."""

    def __init__(self, chunks: dict[ir.Buffer, ir.Buffer], which: ir.Expr) -> None:
        self.chunks, self.which = chunks, which

    def expr(self, e: ir.Expr) -> ir.Expr:
        e = ir.map_operands(e, self.expr)
        if isinstance(e, ir.Load) and e.buffer in self.chunks:
            return ir.Load(self.chunks[e.buffer], (self.which, *e.indices))
        return e

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.Store) and s.buffer in self.chunks:
            return ir.Store(self.chunks[s.buffer], (self.which, *self.exprs(s.indices)), self.expr(s.value))
        return s if isinstance(s, Barrier) else super().stmt(s)
