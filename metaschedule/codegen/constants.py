"""Work on constants is done once, when a kernel is built: stages that read nothing else leave the program.

Packing a weight or transposing it is an ordinary stage of a schedule. If the weight is a constant, the stage
goes to a *preparation* program, and the kernel proper takes its result as a constant.

>>> from metaschedule import parse
>>> whole = parse('''
... def scaled(X: T.Tensor((4,), "float32"), W: T.Tensor((4,), "float32", constant=True),
...            Y: T.Output((4,), "float32")):
...     V = T.alloc((4,), "float32")
...     for i in range(4):
...         V[i] = W[3 - i]
...     for i in range(4):
...         Y[i] = X[i] * V[i]
... ''')
>>> preparation, kernel = split_constants(whole)
>>> [b.name for b in preparation.outputs], [b.name for b in kernel.inputs]
(['V'], ['X', 'V'])
"""

from __future__ import annotations

from collections.abc import Collection

from .. import ir


def split_constants(
    program: ir.Program, names: Collection[str] | None = None
) -> tuple[ir.Program | None, ir.Program]:
    """(preparation, kernel) of a program; the first is None if nothing depends on constants alone.

    Constant are the parameters of these names, or else those that are declared so.
    """
    fixed = {b for b in program.inputs if (b.constant if names is None else b.name in names)}
    if not fixed:
        return None, program
    tables = {b for b in program.allocs if b.data is not None}
    first = select_rooted(select_prepared(program, fixed | tables), fixed)
    rest = [s for s in program.body if s not in first]
    results = {b for s in first for b in ir.buffers_written(s)}
    made = [b for b in program.allocs if b in results]
    if not made:
        return None, program
    needed = set().union(*[ir.buffers_read(s) for s in rest])
    kept = [b for b in made if b in needed]
    as_constants = {
        b: ir.replace_fields(b, scope="global", constant=True, layout=of_parameter(b)) for b in kept
    }
    kernel = ir.replace_fields(
        program,
        inputs=(*[b for b in program.inputs if b not in fixed or b in needed], *as_constants.values()),
        body=ir.Substitute({}, as_constants).body(tuple(rest)),
        allocs=tuple([b for b in program.allocs if b not in made]),
    )
    as_results = {b: ir.replace_fields(b, scope="global", layout=of_parameter(b)) for b in kept}
    used = set().union(*[ir.buffers_read(s) for s in first])
    preparation = ir.Program(
        f"{program.name}_preparation",
        tuple([b for b in program.inputs if b in used]),
        tuple(as_results.values()),
        ir.Substitute({}, as_results).body(tuple(first)),
        tuple([b for b in program.allocs if (b in made and b not in kept) or b.data is not None]),
    )
    return preparation, kernel


def of_parameter(b: ir.Buffer) -> ir.Layout | None:
    """A parameter begins at its first element."""
    return b.layout and ir.Layout(b.strides)


def select_prepared(program: ir.Program, known: set[ir.Buffer]) -> list[ir.Stmt]:
    """The statements that depend on nothing but `known`, directly or through each other."""
    found = [s for s in program.body if ir.buffers_written(s) <= set(program.allocs) and not fails(s)]
    while True:
        others = {b for s in program.body if s not in found for b in ir.buffers_written(s)}
        available = known | {b for s in found for b in ir.buffers_written(s)} - others
        kept = [s for s in found if ir.buffers_read(s) <= available and not ir.buffers_written(s) & others]
        if len(kept) == len(found):
            return found
        found = kept


def select_rooted(statements: list[ir.Stmt], fixed: set[ir.Buffer]) -> list[ir.Stmt]:
    """Those that depend on a constant parameter, and what they need: the others (fills, tables) are cheaper
    computed by the kernel, which may fold them, than read."""
    derived = set(fixed)
    for s in statements:
        if ir.buffers_read(s) & derived:
            derived |= ir.buffers_written(s)
    kept: list[ir.Stmt] = []
    needed: set[ir.Buffer] = set()
    for s in reversed(statements):
        if ir.buffers_written(s) & (derived | needed):
            needed |= ir.buffers_read(s)
            kept.insert(0, s)
    return kept


def fails(s: ir.Stmt) -> bool:
    return any(isinstance(x, ir.Assert) for x in ir.walk(s))
