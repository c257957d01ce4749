"""Signatures of blocks: by hand for the shapes that programs have, and against execution."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from index_expressions import TABLE, WIDE, Point, conditions, evaluate, integers

from metaschedule import ir
from metaschedule.arith import block_signature

A = ir.Buffer("A", (32, 32))
B = ir.Buffer("B", (32, 32))
C = ir.Buffer("C", (32, 32))
VI, VJ, VK = ir.Var("vi"), ir.Var("vj"), ir.Var("vk")


def block(body, init=(), iters=None, bindings=None, **fields) -> ir.Block:
    """A block of which only what its signature depends on is given."""
    if iters is None:
        iters = [(VI, 8, "spatial"), (VJ, 8, "spatial"), (VK, 8, "reduce")]
    made = tuple(ir.Iter(v, ir.as_expr(n), kind) for v, n, kind in iters)
    bound = tuple(bindings) if bindings is not None else tuple(ir.Var("l") for _ in made)
    return ir.Block("b", made, bound, (), (), tuple(body), tuple(init), **fields)


def shown(regions: tuple[ir.Region, ...]) -> list[str]:
    return [
        f"{r.buffer.name}[{', '.join(f'{a} : {n}' for a, n in r.ranges)}]" for r in regions
    ]  # fmt: skip


def loop(var: ir.Var, extent, *body) -> ir.For:
    return ir.For(var, ir.as_expr(extent), body)


def test_matmul_leaves_out_its_own_result() -> None:
    update = ir.Store(C, (VI, VJ), C[VI, VJ] + A[VI, VK] * B[VK, VJ])
    init = ir.Store(C, (VI, VJ), ir.as_expr(0.0))
    reads, writes = block_signature(block([update], [init]))
    assert shown(reads) == ["A[vi : 1, vk : 1]", "B[vk : 1, vj : 1]"]
    assert shown(writes) == ["C[vi : 1, vj : 1]"]
    reads, writes = block_signature(block([update]))
    assert shown(reads) == ["C[vi : 1, vj : 1]", "A[vi : 1, vk : 1]", "B[vk : 1, vj : 1]"]


def test_reading_another_element_of_the_result_is_a_read() -> None:
    update = ir.Store(C, (VI, VJ), C[VI, VJ + 1] + A[VI, VK])
    reads, _ = block_signature(block([update], [ir.Store(C, (VI, VJ), ir.as_expr(0.0))]))
    assert shown(reads) == ["C[vi : 1, vj + 1 : 1]", "A[vi : 1, vk : 1]"]


def test_inner_loops_are_relaxed_and_accesses_united() -> None:
    j = ir.Var("j")
    body = loop(j, 4, ir.Store(C, (VI, VJ * 4 + j), A[VI, VJ * 4 + j] + A[VI, VJ * 4 + j + 1]))
    reads, writes = block_signature(block([body]))
    assert shown(reads) == ["A[vi : 1, vj * 4 : 5]"]
    assert shown(writes) == ["C[vi : 1, vj * 4 : 4]"]


def test_unit_iterators_keep_their_name() -> None:
    store = ir.Store(C, (VI, VJ), A[VJ, VI])
    reads, writes = block_signature(block([store], iters=[(VI, 1, "spatial"), (VJ, 1, "spatial")]))
    assert shown(reads) == ["A[vj : 1, vi : 1]"]
    assert shown(writes) == ["C[vi : 1, vj : 1]"]


def test_local_buffers_are_left_out() -> None:
    local = ir.Buffer("local", (1,))
    body = [ir.Store(local, (ir.as_expr(0),), A[VI, VJ]), ir.Store(C, (VI, VJ), local[0])]
    reads, writes = block_signature(block(body, allocs=(local,)))
    assert shown(reads) == ["A[vi : 1, vj : 1]"]
    assert shown(writes) == ["C[vi : 1, vj : 1]"]


def test_indirect_access_is_the_whole_dimension() -> None:
    store = ir.Store(C, (VI, VJ), A[WIDE[VI], VJ])
    reads, _ = block_signature(block([store]))
    assert shown(reads) == ["W[vi : 1]", "A[0 : 32, vj : 1]"]


def test_divisions_that_may_fail_are_left_out() -> None:
    """Where the guard fails nobody divides, and the region must have a value there too."""
    guarded = ir.select(VI > 0, A[VJ // VI, VJ // (VI + 1)], 0.0)
    reads, _ = block_signature(block([ir.Store(C, (VI, VJ), guarded)]))
    assert shown(reads) == ["A[0 : 32, vj // (vi + 1) : 1]"]


def test_loaded_extents() -> None:
    k = ir.Var("k")
    rows = loop(k, WIDE[VI + 1] - WIDE[VI], ir.Store(C, (VI, VJ), A[VI, WIDE[VI] + k] + B[VI, k]))
    reads, _ = block_signature(block([rows]))
    assert shown(reads) == ["W[vi : 2]", "A[vi : 1, 0 : 32]", "B[vi : 1, 0 : 32]"]


def test_guards_tighten_constant_regions() -> None:
    j = ir.Var("j")
    padded = ir.select((j >= 1) & (j < 9), A[VI, j - 1], 0.0)
    reads, writes = block_signature(block([loop(j, 10, ir.Store(C, (VI, j), padded))]))
    assert shown(reads) == ["A[vi : 1, 0 : 8]"]
    assert shown(writes) == ["C[vi : 1, 0 : 10]"]
    guarded = ir.If(j < 6, (ir.Store(C, (VI, j), ir.as_expr(1.0)),))
    _, writes = block_signature(block([loop(j, 10, guarded)]))
    assert shown(writes) == ["C[vi : 1, 0 : 6]"]


def test_tuple_store() -> None:
    store = ir.TupleStore((ir.Store(A, (VI, VJ), B[VI, VJ]), ir.Store(B, (VI, VJ), A[VI, VJ])))
    reads, writes = block_signature(block([store]))
    assert shown(reads) == ["B[vi : 1, vj : 1]", "A[vi : 1, vj : 1]"]
    assert shown(writes) == ["A[vi : 1, vj : 1]", "B[vi : 1, vj : 1]"]


def nested_matmul(outer: ir.Var) -> ir.Block:
    """An update block over a tile, reducing k = outer * 4 + k1."""
    i, k = ir.Var("i"), ir.Var("k")
    ui, uk = ir.Var("ui"), ir.Var("uk")
    inner = block(
        [ir.Store(C, (ui, VJ), C[ui, VJ] + A[ui, uk])],
        [ir.Store(C, (ui, VJ), ir.as_expr(0.0))],
        iters=[(ui, 32, "spatial"), (uk, 32, "reduce")],
        bindings=[VI * 4 + i, outer * 4 + k],
    )
    return block([loop(i, 4, loop(k, 4, inner))])


def test_nested_block_through_its_bindings() -> None:
    reads, writes = block_signature(nested_matmul(VK))
    # The reduction goes on in the next instance of the outer block, which reads the result.
    assert shown(reads) == ["C[vi * 4 : 4, vj : 1]", "A[vi * 4 : 4, vk * 4 : 4]"]
    assert shown(writes) == ["C[vi * 4 : 4, vj : 1]"]
    reads, _ = block_signature(nested_matmul(ir.Var("free")))
    assert shown(reads)[0].startswith("A")


def test_nested_predicate_is_a_fact() -> None:
    i = ir.Var("i")
    ui = ir.Var("ui")
    inner = block(
        [ir.Store(C, (ui, VJ), ir.as_expr(0.0))],
        iters=[(ui, 10, "spatial")],
        bindings=[i],
        predicate=(i < 10,),
    )
    _, writes = block_signature(block([loop(i, 12, inner)]))
    assert shown(writes) == ["C[0 : 10, vj : 1]"]


# --- against execution ----------------------------------------------------------------------------

P, Q = ir.Var("p"), ir.Var("q")


@st.composite
def bodies(draw: st.DrawFn, variables: tuple[ir.Var, ...] = (VI, VJ), depth: int = 2) -> ir.Body:
    """Statements that index A, B, C (and tables, for indirection) in any way."""
    index = integers(variables, 2)
    found = []
    for _ in range(draw(st.integers(1, 2))):
        kind = draw(st.integers(0, 3)) if depth else 0
        if kind == 1:
            var = (P, Q)[depth - 1]
            extent = draw(st.integers(0, 5).map(ir.as_expr) | integers(variables, 1))
            found.append(ir.For(var, extent, draw(bodies((*variables, var), depth - 1))))
        elif kind == 2:
            cond = draw(conditions(variables, 1))
            found.append(ir.If(cond, draw(bodies(variables, depth - 1)), draw(bodies(variables, 0))))
        elif kind == 3:
            ui = ir.Var("ui")
            inner = block(
                draw(bodies((*variables, ui), depth - 1)),
                iters=[(ui, 64, "spatial")],
                bindings=[draw(index)],
                predicate=(draw(conditions(variables, 1)),),
            )
            found.append(inner)
        else:
            value = draw(st.sampled_from([A, B]))[draw(index), draw(index)]
            if draw(st.booleans()):
                value = ir.select(draw(conditions(variables, 1)), value, 0.0)
            found.append(ir.Store(C, (draw(index), draw(index)), value))
    return tuple(found)


Touched = tuple[ir.Buffer, tuple[int, ...], bool]


def execute(body: ir.Body, point: Point) -> Iterator[Touched]:
    """The accesses of statements at one point. Floats are not computed: no index needs them."""
    for s in body:
        if isinstance(s, ir.Store):
            yield from loads(s.value, point)
            for index in s.indices:
                yield from loads(index, point)
            yield s.buffer, tuple(evaluate(i, point) for i in s.indices), True
        elif isinstance(s, ir.For):
            yield from loads(s.extent, point)
            for value in range(min(evaluate(s.extent, point), 8)):
                yield from execute(s.body, {**point, s.var: value})
        elif isinstance(s, ir.If):
            yield from loads(s.cond, point)
            yield from execute(s.then if evaluate(s.cond, point) else s.orelse, point)
        elif isinstance(s, ir.Block) and all(evaluate(c, point) for c in s.predicate):
            bound = {it.var: evaluate(e, point) for it, e in zip(s.iters, s.bindings)}
            yield from execute(s.body, {**point, **bound})


def loads(e: ir.Expr, point: Point) -> Iterator[Touched]:
    if type(e).__name__ == "Select":
        yield from loads(e.cond, point)  # pyright: ignore[reportAttributeAccessIssue]
        taken = e.a if evaluate(e.cond, point) else e.b  # pyright: ignore
        yield from loads(taken, point)
        return
    for x in ir.subexpressions(e):
        if isinstance(x, ir.Load) and x.buffer not in (TABLE, WIDE):
            yield x.buffer, tuple(evaluate(i, point) for i in x.indices), False


@given(bodies())
def test_signature_covers_execution(body: ir.Body) -> None:
    made = block(body, iters=[(VI, 4, "spatial"), (VJ, 3, "spatial")])
    signature = dict(zip((False, True), block_signature(made)))
    for vi in range(4):
        for vj in range(3):
            point = {VI: vi, VJ: vj}
            try:
                touched = list(execute(body, point))
            except ZeroDivisionError:
                continue
            for buffer, index, is_write in touched:
                (region,) = [r for r in signature[is_write] if r.buffer is buffer]
                for x, (start, count), n in zip(index, region.ranges, buffer.shape):
                    first = evaluate(start, point)
                    inside = first <= x < first + evaluate(count, point)
                    # Of an index that is not known the region has the elements that exist.
                    assert inside or not 0 <= x < n, f"{buffer.name} {x} {start} {count}"
