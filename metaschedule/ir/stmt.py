"""Statements: loops, blocks and what block bodies hold.

Read `For` and `Block` first. A body is always a tuple of statements. Nodes are immutable by
convention and compared by identity, so that `==` and dict keys mean *this* loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .buffer import Buffer, Region
from .expr import Expr, Var, as_int

GPU_AXES = tuple(f"{unit}.{axis}" for unit in ("blockIdx", "threadIdx", "vthread") for axis in "xyz")
LOOP_KINDS = ("serial", "parallel", "vectorized", "unrolled", *GPU_AXES)
ITER_KINDS = ("spatial", "reduce")

Annotations = Mapping[str, Any]
NO_ANNOTATIONS: Annotations = {}


class Stmt:
    """Base of all statements."""

    __slots__ = ()

    def __str__(self) -> str:
        from .printer import print_stmt

        return print_stmt(self)


Body = tuple[Stmt, ...]


@dataclass(eq=False, slots=True, repr=False)
class For(Stmt):
    """`for var in range(extent): body`.

    Every kind means what the serial loop means; the kind says how the iterations may be carried out.
    A loop bound to a GPU axis has the axis as its kind. The extent may be any integer expression of
    outer variables or of loaded values (triangular loops, CSR).
    """

    var: Var
    extent: Expr
    body: Body
    kind: str = "serial"
    annotations: Annotations = field(default_factory=lambda: NO_ANNOTATIONS)

    @property
    def fixed_extent(self) -> int | None:
        """The extent if it is a constant."""
        return as_int(self.extent)


@dataclass(eq=False, slots=True, repr=False)
class Iter:
    """An iteration variable of a block: `extent` values, each a separate result (spatial) or a term
    of one (reduce)."""

    var: Var
    extent: Expr
    kind: str = "spatial"


@dataclass(eq=False, slots=True, repr=False)
class Block(Stmt):
    """A computation isolated from the loops around it.

    The body speaks of the block's own iteration variables only; `bindings` says what they are in terms
    of the loops, and an instance runs where every conjunct of `predicate` (over the loops) holds. A
    loop transformation edits bindings and predicates, never bodies. `reads` and `writes` are the
    signature; a reduction's reading of its own result is not listed. `init` runs before the body in
    the instances whose reduction iterators are all at 0. A block without iterators is opaque: it runs
    as written. `allocs` are buffers that live for one instance.
    """

    name: str
    iters: tuple[Iter, ...]
    bindings: tuple[Expr, ...]
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    body: Body
    init: Body = ()
    predicate: tuple[Expr, ...] = ()
    allocs: tuple[Buffer, ...] = ()
    annotations: Annotations = field(default_factory=lambda: NO_ANNOTATIONS)


@dataclass(eq=False, slots=True, repr=False)
class Store(Stmt):
    """`buffer[indices] = value`"""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(eq=False, slots=True, repr=False)
class TupleStore(Stmt):
    """`a[i], b[j] = x, y`: every value is computed before any is stored (argmax, other tuple
    reductions)."""

    stores: tuple[Store, ...]


@dataclass(eq=False, slots=True, repr=False)
class If(Stmt):
    cond: Expr
    then: Body
    orelse: Body = ()


@dataclass(eq=False, slots=True, repr=False)
class While(Stmt):
    cond: Expr
    body: Body


@dataclass(eq=False, slots=True, repr=False)
class Assert(Stmt):
    """The program fails with `message` where `cond` does not hold."""

    cond: Expr
    message: str = ""
