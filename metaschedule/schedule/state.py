"""The state of a schedule: the tree of loops and blocks, kept flat so that edits are local.

Every loop is an entry under its variable, every block under its name, every other statement under a
number; `children` and `parent` are the tree. `For` and `Block` records have empty bodies where the tree
has children. Records are never changed, only replaced, so a fork copies a few dictionaries.

Splitting and fusing leave bindings alone. The variable of a loop that is gone stays in the bindings and gets
a *definition* (`affine/definitions.py`): `Split` (a number whose digits are the new loops) or `FusedDigit` (a
digit of the fused loop). `Resolve` puts definitions in; `program` does so for the whole tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from .. import ir
from ..affine.definitions import Definition, FusedDigit, Split
from ..affine.nest import ROOT, Key
from ..arith import Domain
from ..errors import ScheduleError
from .resolve import Loops, Resolve

MANY = 8  # children, so that a dictionary finds one sooner than a look at each


class State:
    """What a schedule edits. Only `Schedule` makes one; primitives read and write it."""

    __slots__ = (
        "allocs", "changed", "children", "counter", "definitions", "extents", "known_leaves", "nodes",
        "numbers", "original", "parent", "printed", "used", "users", "values",
    )  # fmt: skip

    def __init__(self, program: ir.Program) -> None:
        self.original = program
        self.allocs: tuple[ir.Buffer, ...] = program.allocs
        self.nodes: dict[Key, Any] = {}
        self.children: dict[Key, tuple[Key, ...]] = {}
        self.parent: dict[Key, Key] = {}
        self.definitions: dict[ir.Var, Definition] = {}
        self.known_leaves: dict[ir.Var, tuple[ir.Var, ...]] = {}
        self.extents: dict[ir.Var, ir.Expr] = {}  # of loops and of variables that have a definition
        self.values: dict[Any, Any] = {}  # handle -> key, or the number it stands for
        # Which nodes use a buffer, and what each uses: `analysis/effects.py` looks at those that changed, but
        # for plain loops, which use none.
        self.users: dict[ir.Buffer, frozenset[Key]] = {}
        self.used: dict[Key, frozenset[ir.Buffer]] = {}
        self.changed: set[Key] = set()
        # Of many children, their numbers, and the children that these are right for: forks share them.
        self.numbers: dict[Key, tuple[tuple[Key, ...], dict[Key, int]]] = {}
        self.counter = 0
        self.printed: ir.Program | None = program
        self.put(ROOT, program.body)

    def fork(self) -> State:
        """A copy that shares every record."""
        new = object.__new__(State)
        new.original, new.allocs, new.counter = self.original, self.allocs, self.counter
        new.printed = self.printed
        new.nodes, new.children = self.nodes.copy(), self.children.copy()
        new.parent, new.values = self.parent.copy(), self.values.copy()
        new.definitions, new.extents = self.definitions.copy(), self.extents.copy()
        new.users, new.used, new.changed = self.users.copy(), self.used.copy(), self.changed.copy()
        new.known_leaves = self.known_leaves  # `define` makes another
        new.numbers = self.numbers
        return new

    def adopt(self, fork: State) -> None:
        """Become what a fork of this state has become."""
        self.nodes, self.children, self.parent = fork.nodes, fork.children, fork.parent
        self.definitions, self.extents = fork.definitions, fork.extents
        self.users, self.used, self.changed = fork.users, fork.used, fork.changed
        self.known_leaves = fork.known_leaves

    # --- from and to programs ---

    def put(self, parent: Key, body: ir.Body) -> None:
        """Make `body` the children of `parent`."""
        self.set_children(parent, [self.add(s) for s in body])

    def add(self, s: ir.Stmt) -> Key:
        """Enter a statement with everything below it; gives its key."""
        if isinstance(s, ir.For):
            key: Key = s.var
            self.set_node(key, ir.replace_fields(s, body=()))
            self.extents[s.var] = s.extent
            self.put(key, s.body)
        elif isinstance(s, ir.Block):
            key = self.fresh_block_name(s.name)
            nested = has_blocks(s.body)
            self.set_node(key, ir.replace_fields(s, name=key, body=() if nested else s.body))
            self.put(key, s.body if nested else ())
        else:
            self.counter += 1
            key = self.counter
            within = isinstance(s, ir.If) and not s.orelse and has_blocks(s.then)
            self.set_node(key, ir.replace_fields(s, then=()) if isinstance(s, ir.If) and within else s)
            self.put(key, s.then if isinstance(s, ir.If) and within else ())
        return key

    def fresh(self, name: str) -> ir.Var:
        """A variable that is new here; replays of one program share those that they make in the same order,
        and so what is known of expressions over them."""
        self.counter += 1
        return numbered_variable(self.original, self.counter, name)

    def fresh_block_name(self, name: str) -> str:
        base, count = name or "block", 0
        name = base
        while name in self.nodes:
            count += 1
            name = f"{base}_{count}"
        return name

    @property
    def program(self) -> ir.Program:
        """The program as it is now, definitions put in."""
        if self.printed is None:
            try:
                body = self.build(ROOT, Resolve(self), ())
            except RecursionError:
                raise ScheduleError("loops are nested, or split and fused again, too deeply") from None
            self.printed = ir.replace_fields(self.original, body=body, allocs=self.allocs)
        return self.printed

    def build(self, key: Key, resolve: Resolve, loops: Loops) -> ir.Body:
        """The statements under `key`; `loops` are those around it, with extents in terms of each other."""
        out: list[ir.Stmt] = []
        for child in self.children[key]:
            node = self.nodes[child]
            if isinstance(node, ir.For):
                extent = resolve.simplify(node.extent, loops)
                body = self.build(child, resolve, (*loops, (node.var, extent)))
                out.append(ir.For(node.var, extent, body, node.kind, node.annotations))
                continue
            new: Any = resolve.outside(node, loops) if isinstance(node, ir.Block) else resolve.stmt(node)
            if self.children[child]:
                below = self.build(child, resolve, () if isinstance(new, ir.Block) else loops)
                new = ir.replace_fields(new, **{"body" if isinstance(new, ir.Block) else "then": below})
            out.append(new)
        return tuple(out)

    def body(self, key: Key) -> ir.Body:
        """The statements under a node, definitions put in."""
        return self.build(key, Resolve(self), ())

    # --- definitions ---

    def definition(self, var: ir.Var) -> ir.Expr | None:
        """What a variable is in terms of others, or None for a loop's."""
        known = self.definitions.get(var)
        if known is None:
            return None
        if isinstance(known, Split):
            if (whole := self.find_fused_whole(known)) is not None:
                return whole
            value: ir.Expr = ir.const(0)
            for digit in known.digits:
                value = value * self.extents[digit] + digit
            return value
        stride: ir.Expr = ir.const(1)
        for digit in known.digits[known.index + 1 :]:
            stride = stride * self.extents[digit]
        value = known.whole // stride
        return value % self.extents[known.digits[known.index]] if known.index else value

    def find_fused_whole(self, split: Split) -> ir.Var | None:
        """The loop that all digits of a number were fused to, which is that number: f // 4 * 4 + f % 4."""
        part = self.definitions.get(split.digits[0])
        if type(part) is not FusedDigit or len(part.digits) != len(split.digits):
            return None
        return part.whole if all(a is b for a, b in zip(part.digits, split.digits)) else None

    def resolve(self, e: ir.Expr) -> ir.Expr:
        """`e` in terms of the loops that exist."""
        return Resolve(self).expr(e)

    def leaf_loops(self, var: ir.Var) -> tuple[ir.Var, ...]:
        """The loops that a variable depends on."""
        found = self.known_leaves.get(var)
        if found is None:
            known = self.definitions.get(var)
            if known is None:
                found = (var,)
            elif isinstance(known, Split):
                found = tuple([leaf for digit in known.digits for leaf in self.leaf_loops(digit)])
            else:
                found = self.leaf_loops(known.whole)
            self.known_leaves[var] = found
        return found

    def define(self, var: ir.Var, definition: Definition) -> None:
        """Say what a variable is whose loop is gone."""
        self.definitions[var] = definition
        self.known_leaves = {}

    # --- reading ---

    def ancestors(self, key: Key) -> list[Key]:
        """What encloses a node, from the inside out, without the root."""
        found: list[Key] = []
        parent = self.parent
        key = parent[key]
        while key is not ROOT:
            found.append(key)
            key = parent[key]
        return found

    def loops_around(self, key: Key) -> list[ir.Var]:
        """The loops around a node up to the enclosing block, outermost first."""
        found: list[ir.Var] = []
        parent = self.parent
        key = parent[key]
        while type(key) is not str:
            if type(key) is ir.Var:
                found.append(key)
            key = parent[key]
        found.reverse()
        return found

    def scope(self, key: Key) -> str:
        """The block whose body a node is in; ROOT if none."""
        parent = self.parent
        key = parent[key]
        while type(key) is not str:
            key = parent[key]
        return key

    def is_below(self, key: Key, above: Key) -> bool:
        """Whether a node is somewhere inside of another."""
        while key is not ROOT:
            key = self.parent[key]
            if key is above:
                return True
        return False

    def lowest_common_ancestor(self, a: Key, b: Key) -> Key:
        """The innermost node around `a` that is `b` or around it."""
        above = set(self.ancestors(a))
        while b is not ROOT and b not in above:
            b = self.parent[b]
        return b

    def blocks_below(self, key: Key) -> list[str]:
        """The outermost blocks under a node, in program order."""
        return [child for child in self.statements_below(key) if isinstance(child, str)]

    def statements_below(self, key: Key) -> list[Key]:
        """Everything under a node, in program order, not inside blocks."""
        found: list[Key] = []
        children = self.children
        waiting = list(reversed(children[key]))
        while waiting:
            child = waiting.pop()
            found.append(child)
            if type(child) is not str:
                waiting += reversed(children[child])
        return found

    def find_block(self, name: str) -> str | None:
        """The key of the block of that name."""
        node = self.nodes.get(name)
        return node.name if isinstance(node, ir.Block) else None

    def is_only_child(self, key: Key, of: Key) -> bool:
        return len(self.children[of]) == 1 and self.children[of][0] is key

    def number_among_siblings(self, key: Key, parent: Key) -> int:
        """How many children of `parent` come before one."""
        children = self.children[parent]
        if len(children) < MANY:
            for n, child in enumerate(children):
                if child is key:
                    return n
        known = self.numbers.get(parent)
        if known is None or known[0] is not children:
            known = children, {child: n for n, child in enumerate(children)}
            self.numbers[parent] = known
        return known[1][key]

    def value(self, handle: Any) -> Any:
        """What a handle stands for: a key, or a number that was drawn."""
        try:
            return self.values[handle]
        except KeyError:
            raise ScheduleError(
                f"{handle} is no handle of this schedule",
                help="take one that a step of this schedule gave, or of the one that it was forked from",
            ) from None

    def loop(self, handle: Any) -> ir.For:
        """The loop that a handle stands for."""
        key = self.value(handle)
        node = self.nodes.get(key)
        if type(node) is not ir.For:
            if node is not None or type(key) is not ir.Var:
                raise of_another_kind(handle, key)
            raise ScheduleError(f"the loop of {handle} is gone", help=self.fate(key))
        return node

    def fate(self, var: ir.Var) -> str:
        known = self.definitions.get(var)
        if isinstance(known, Split):
            return f"it was split into {', '.join(v.name for v in known.digits)}: use those handles"
        if isinstance(known, FusedDigit):
            return f"it was fused into {known.whole.name}: use that handle"
        return "it was removed: get the loops again with get_loops"

    def block(self, handle: Any) -> ir.Block:
        """The block that a handle stands for."""
        key = self.value(handle)
        node = self.nodes.get(key)
        if type(node) is not ir.Block:
            if node is not None or type(key) is not str:
                raise of_another_kind(handle, key)
            raise ScheduleError(f"the block of {handle} ({key!r}) is gone", help="it was inlined or removed")
        return node

    def number(self, value: Any) -> int:
        """An integer operand: itself, or what a sampled value was drawn to be."""
        if type(value) is int:
            return value
        drawn = self.value(value)
        if type(drawn) is not int:
            raise ScheduleError(f"{value} stands for {drawn!r}, which is no integer")
        return drawn

    def fixed_extent(self, var: ir.Var) -> int | None:
        """The extent of a loop if it is a constant; None for what is no loop, too."""
        extent = self.extents.get(var)
        return extent.value if type(extent) is ir.Const else None  # pyright: ignore[reportReturnType]

    def domain(self, key: Key) -> Domain:
        """The loops around a node."""
        domain = Domain()
        for var in self.loops_around(key):
            domain = domain.with_loop(var, self.resolve(self.extents[var]))
        return domain

    # --- writing ---

    def set_children(self, key: Key, children: Iterable[Key]) -> None:
        self.children[key] = tuple(children)
        for child in self.children[key]:
            self.parent[child] = key

    def put_at(self, place: Key, keys: Sequence[Key]) -> None:
        """Put nodes where one is, which may be among them."""
        parent = self.parent[place]
        siblings: list[Key] = []
        for child in self.children[parent]:
            siblings += keys if child is place else [child]
        self.set_children(parent, siblings)

    def replace(self, old: Key, new: Iterable[Key]) -> None:
        """Put other nodes in the place of one, which is forgotten."""
        self.put_at(old, list(new))
        self.forget(old)

    def remove(self, key: Key) -> None:
        """Take a node away, and the loops that hold nothing else."""
        while True:
            parent = self.parent[key]
            self.replace(key, [])
            if parent is ROOT or isinstance(parent, str) or self.children[parent]:
                return
            key = parent

    def forget(self, key: Key) -> None:
        del self.nodes[key], self.children[key], self.parent[key]
        if key in self.used:
            self.changed.add(key)

    def nest(self, loops: Iterable[ir.For], body: Iterable[Key]) -> ir.Var:
        """Enter loops, each the only child of the one before, around nodes; gives the outermost."""
        inner = tuple(body)
        for loop in reversed(list(loops)):
            var = loop.var
            self.nodes[var], self.extents[var], self.children[var] = loop, loop.extent, inner
            if not is_plain_loop(loop):
                self.changed.add(var)
            for child in inner:
                self.parent[child] = var
            inner = (var,)
        assert isinstance(inner[0], ir.Var)
        return inner[0]

    def set_node(self, key: Key, node: Any) -> None:
        """Put a record in, or another in its place."""
        self.nodes[key] = node
        if not is_plain_loop(node) or key in self.used:
            self.changed.add(key)

    def update(self, key: Key, **fields: Any) -> None:
        """Replace fields of a record."""
        self.set_node(key, ir.replace_fields(self.nodes[key], **fields))

    def guard(self, key: Key, cond: ir.Expr) -> None:
        """Let everything below a loop run only where `cond` holds."""
        for child in self.children[key]:
            node = self.nodes[child]
            if isinstance(node, ir.Block):
                self.update(child, predicate=(*node.predicate, cond))
            elif isinstance(node, ir.For):
                self.guard(child, cond)
            elif isinstance(node, ir.If):
                self.update(child, cond=ir.binary("and", node.cond, cond))
            else:
                self.set_node(child, ir.If(cond, (node,)))


def of_another_kind(handle: Any, key: Any) -> ScheduleError:
    what = f"the loop over {key.name}" if isinstance(key, ir.Var) else repr(key)
    return ScheduleError(
        f"{handle} stands for {what}, of another kind",
        help="the trace has been altered: a block is b0, a loop l0, a number v0",
    )


def is_plain_loop(node: ir.Stmt) -> bool:
    """Whether a node is a loop of constant extent, as most are."""
    return type(node) is ir.For and type(node.extent) is ir.Const


@lru_cache(maxsize=16384)
def numbered_variable(program: ir.Program, number: int, name: str) -> ir.Var:
    return ir.Var(name)


@lru_cache(maxsize=4096)
def has_blocks(body: ir.Body) -> bool:
    return bool(ir.blocks(body))
