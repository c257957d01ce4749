"""matrix_product: a sum of products of two buffers, laid out as a batch of matrix products.

    for n, a, h, c, k: C[n, a, h, c] += A[n, a, h, k] * B[a, k, c]                    (n, h of extents 2, 7)
    -->  for a, i, c, k: C[a, i, c] += A[a, i, k] * B[a, k, c]                        i is n * 7 + h

Iterators of both factors and the result number the matrices; those that the second factor does not have are
rows, those that the first does not have are columns, and sums are over the rest. Iterators of a kind become
one, in their order, and those of extent 1 disappear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ... import ir
from ...errors import ScheduleError
from ...ir.reducers import find_reducer
from ..primitive.base import BlockRV

if TYPE_CHECKING:
    from ..schedule import Schedule

Role = list[ir.Var]  # iterators that become one


@dataclass
class Roles:
    batch: list[Role]
    rows: Role
    columns: Role
    terms: Role


def matrix_product(sch: Schedule, block: BlockRV) -> None:
    """Give the block these iterators, and both factors and the result these dimensions. They must be
    intermediate buffers, which the block uses by its iterators alone."""
    with sch.transaction(f"matrix_product(block={block})"):
        node: ir.Block = sch.get(block)
        first, second, result = operands(node)
        extents = {it.var: ir.as_int(it.extent) or 1 for it in node.iters}
        for load in (first, second, result):
            check_whole(node, load, extents)
        roles = roles_of(node, first, second, result)
        # The block first: then the new indices of buffers turn out to be its new iterators.
        order = [*roles.batch, roles.rows, roles.columns, roles.terms]
        sch.transform_block_layout(block, fuse_roles(order, tuple(extents), extents))
        for load, sides in (
            (first, [roles.rows, roles.terms]),
            (second, [roles.terms, roles.columns]),
            (result, [roles.rows, roles.columns]),
        ):
            kind, regions = ("write", node.writes) if load is result else ("read", node.reads)
            at = [region.buffer is load.buffer for region in regions].index(True)
            sch.transform_layout(block, at, kind, fuse_roles([*roles.batch, *sides], load.indices, extents))


def operands(node: ir.Block) -> tuple[ir.Load, ir.Load, ir.Load]:
    """Both factors, and the result, as a load."""
    reducer = find_reducer(node)
    term = reducer.terms[0] if reducer is not None and reducer.ops == ("+",) else None
    if isinstance(term, ir.Binary) and term.op == "*" and reducer is not None:
        (store,), a, b = reducer.stores, term.a, term.b
        if isinstance(a, ir.Load) and isinstance(b, ir.Load) and a.buffer is not b.buffer:
            return a, b, ir.Load(store.buffer, store.indices)
    raise ScheduleError(
        f"block {node.name!r} does not add up products of two buffers", marks={node.name: "not such a sum"}
    )


def check_whole(node: ir.Block, load: ir.Load, extents: dict[ir.Var, int]) -> None:
    """Raise unless a block uses all of a buffer, by different iterators (or 0, where there is one index)."""
    sizes = [extents.get(i, 0) if isinstance(i, ir.Var) else 1 - (ir.as_int(i) or 0) for i in load.indices]
    own = [i for i in load.indices if isinstance(i, ir.Var)]
    if sizes != list(load.buffer.shape) or len(set(own)) != len(own):
        raise ScheduleError(
            f"the indices of {load.buffer.name} are not different iterators over all of it",
            marks={node.name: f"uses {load}"},
        )


def roles_of(node: ir.Block, first: ir.Load, second: ir.Load, result: ir.Load) -> Roles:
    roles = Roles([], [], [], [])
    for it in node.iters:
        used = [any(i is it.var for i in load.indices) for load in (first, second, result)]
        if used == [True, True, False] and it.kind == "reduce":
            roles.terms.append(it.var)
        elif used == [True, True, True]:
            roles.batch.append([it.var])
        elif used == [True, False, True]:
            roles.rows.append(it.var)
        elif used == [False, True, True]:
            roles.columns.append(it.var)
        elif ir.as_int(it.extent) != 1:
            raise ScheduleError(
                f"{it.var.name} is neither of rows or columns nor summed over, nor does it number matrices",
                marks={node.name: f"uses {first}, {second} and {result}"},
            )
    return roles


def fuse_roles(order: list[Role], indices: Sequence[ir.Expr], extents: dict[ir.Var, int]) -> tuple[str, ...]:
    """The index map, as texts over the places of `indices`, that makes one of the iterators of each role.

    >>> n, h, k = ir.Var("n"), ir.Var("h"), ir.Var("k")
    >>> fuse_roles([[k], [n, h]], [n, h, k], {n: 2, h: 7, k: 5})
    ('i2', 'i0 * 7 + i1')
    """
    place = {i: n for n, i in enumerate(indices) if isinstance(i, ir.Var)}
    texts: list[str] = []
    for role in order:
        text = ""
        for v in [v for v in role if extents[v] != 1] or role[:1]:
            outer = f"({text})" if " " in text else text
            text = (f"{outer} * {extents[v]} + " if text else "") + f"i{place[v]}"
        texts += [text] if text else []
    return tuple(texts) or ("i0",)
