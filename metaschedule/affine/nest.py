"""`Nest`: loops around blocks, as questions about accesses see them. `schedule.State` is one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from ..arith import Domain
from ..ir import Expr, Var
from .definitions import Definition

# A loop is known by its variable, a block by its name, another statement by a number. Keys are compared with
# `is`: `==` on a Var builds an expression. So a name is always the object that is in the tables.
Key = Var | str | int
ROOT = ""  # the key of the program itself, whose children are the top-level statements


class Variables(Protocol):
    """Loops with their extents, and what became of those that were split or fused."""

    @property
    def definitions(self) -> Mapping[Var, Definition]: ...

    @property
    def extents(self) -> Mapping[Var, Expr]: ...


class NoLoops(NamedTuple):
    """For questions about variables that are all given."""

    definitions: Mapping[Var, Definition] = MappingProxyType({})
    extents: Mapping[Var, Expr] = MappingProxyType({})


NO_LOOPS = NoLoops()


class Nest(Variables, Protocol):
    """The tree of loops and blocks."""

    @property
    def nodes(self) -> Mapping[Key, Any]: ...

    def fixed_extent(self, var: Var) -> int | None:
        """The extent of a loop or variable if it is a constant."""
        ...

    def leaf_loops(self, var: Var) -> tuple[Var, ...]:
        """The loops that a variable depends on."""
        ...

    def definition(self, var: Var) -> Expr | None:
        """What a variable is in terms of others, or None for a loop's."""
        ...

    def fresh(self, name: str) -> Var:
        """A variable that is new here."""
        ...

    def resolve(self, e: Expr) -> Expr:
        """`e` in terms of the loops that exist."""
        ...

    def loops_around(self, key: Key) -> list[Var]:
        """The loops around a node up to the enclosing block, outermost first."""
        ...

    def ancestors(self, key: Key) -> list[Key]:
        """What encloses a node, from the inside out, without the root."""
        ...

    def domain(self, key: Key) -> Domain:
        """The loops around a node."""
        ...
