"""Instructions on tiles: registers that hold a matrix each (AMX), named by number.

LLVM does not assign these registers, so it is done here, for a whole nest of loops: the tiles of results that
the loops add to stay in registers of their own from before the loops to after them; the others take turns to
hold operands. An operand is loaded where memory has its rows a constant distance apart, whatever that is.

    C[r, c, ..] = 0, r and c of 2, and k serial:     tilezero 0, 1, 2, 3
      C[r, c, ..] += A[r, k, ..] * B[k, c, ..]         tileloadd 4, A[0, k]; tileloadd 6, B[k, 0]; tdp 0, 4, 6
                                                       tileloadd 7, B[k, 1]; tdp 1, 4, 7;  ...
                                                     tilestored 0, C[0, 0];  ...

Rows of a tile may be fewer than the instruction has at most: a loop of 14 * 16 lanes is 14 rows of 16. The
shapes of the registers (`ldtilecfg`) are loaded once per function where its nests agree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from ... import ir
from ...affine.form import form_of, uses
from ...affine.values import value_of
from ..lower.scope import inside
from .affine import Affine
from .expressions import ExpressionEmitter
from .values import BYTES

Shape = tuple[int, int]  # of a tile: rows, and bytes of a row
MOST_ZEROS = 1 << 14  # stores that are looked at


@dataclass(frozen=True)
class TileLayout:
    """Where a tile is in memory: it begins so many elements after what `first` loads in lane 0, and its rows
    are `step` elements apart."""

    first: ir.Load
    begin: int
    step: int
    shape: Shape

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def columns(self) -> int:
        return self.shape[1] // BYTES[self.first.buffer.dtype]

    def elements(self, start: int) -> np.ndarray:
        """The offsets of all elements of a tile that begins at one."""
        rows, columns = np.indices((self.rows, self.columns))
        return (start + self.step * rows + columns).reshape(-1)


@dataclass(frozen=True)
class Product:
    """A vectorised loop that is an instruction on tiles: where its results are, those it adds to, and its
    operands. It is carried out where `tests` hold, inside of `loops` (of a nest)."""

    loop: ir.For
    known: ir.HardwareInstruction
    result: TileLayout
    before: TileLayout
    operands: tuple[TileLayout, ...]
    tests: tuple[ir.Expr, ...]
    loops: tuple[ir.For, ...] = ()


@dataclass(frozen=True)
class Accumulator:
    """A tile of results: a register, what it starts from and where it ends."""

    register: int
    before: TileLayout
    start: Affine
    result: TileLayout
    end: Affine
    certain: bool  # that it is added to


@dataclass
class TileNest:
    """Loops around products on tiles, with the registers for all of them."""

    accumulators: dict[Hashable, Accumulator]
    pools: list[list[int]]  # the registers of every operand
    shapes: list[Shape]  # of the registers
    # Operands in registers, least recently used first.
    held: dict[int, Hashable] = field(default_factory=dict)

    def find_held(self, operand: int, key: Hashable) -> int | None:
        """The register that holds an operand now."""
        found = next((r for r in self.pools[operand] if self.held.get(r) == key), None)
        if found is not None:
            self.held[found] = self.held.pop(found)
        return found

    def take(self, operand: int, key: Hashable) -> int:
        """A register to be loaded with an operand: an empty one, or that which was not used for longest."""
        pool = self.pools[operand]
        taken = next((r for r in pool if r not in self.held), None)
        if taken is None:
            taken = next(r for r in self.held if r in pool)
            del self.held[taken]
        self.held[taken] = key
        return taken


class TileEmitter(ExpressionEmitter):
    """Writes nests of products on tiles. `nest` is that which is being written."""

    nest: TileNest | None = None
    tile_shapes: list[Shape] | None = None  # of the registers, all through this function
    shapes_last: bool = True  # whether nothing that is called from this function changes them
    target_tiles: int = 0  # registers
    products: dict[ir.For, Product | None]  # vectorised loops that have been looked at

    def loop(self, s: ir.For) -> None:
        """Write any loop."""
        raise NotImplementedError

    def stmt(self, s: ir.Stmt) -> None:
        """Write any statement."""
        raise NotImplementedError

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What registers hold inside is not what they hold before and after."""
        if self.nest is not None:
            self.nest.held.clear()
        with super().scope():
            yield
        if self.nest is not None:
            self.nest.held.clear()

    # --- what is a nest ---

    def find_nest(self, s: ir.For) -> TileNest | None:
        """The registers for a loop and all inside, if it is nothing but products on tiles whose results stand
        still while it runs."""
        products = list(self.find_products((s,), (), ()) or ())
        if not products or len({p.known.name for p in products}) > 1:
            return None
        shapes = [[layout.shape for layout in (p.result, *p.operands)] for p in products]
        if any(each != shapes[0] for each in shapes):
            return None
        accumulators: dict[Hashable, Accumulator] = {}
        different: list[set[Hashable]] = [set() for _ in products[0].operands]
        for product in products:
            found = self.place_accumulators(product, s, accumulators, different)
            if not found or len(accumulators) + len(different) > self.target_tiles:
                return None
        if (
            not accumulators
            or not are_apart(list(accumulators.values()))
            or any(layout.first.buffer is p.result.first.buffer for p in products for layout in p.operands)
        ):
            return None
        free = list(range(len(accumulators), self.target_tiles))
        *before, last = different
        most = len(free) - len(before)  # the last operand is what the others go through again and again
        pools = [free[: max(1, min(len(last), most))]]
        for n, each in enumerate(reversed(before)):
            free = free[len(pools[-1]) :]
            most = len(free) - (len(before) - 1 - n)
            pools.append(free[: max(1, min(len(each), most))])
        numbered = dict.fromkeys(range(self.target_tiles), (0, 0))
        numbered |= dict.fromkeys(range(len(accumulators)), shapes[0][0])
        for pool, shape in zip(reversed(pools), shapes[0][1:], strict=True):
            numbered |= dict.fromkeys(pool, shape)
        return TileNest(accumulators, pools[::-1], list(numbered.values()))

    def find_products(
        self, body: ir.Body, loops: tuple[ir.For, ...], tests: tuple[ir.Expr, ...]
    ) -> list[Product] | None:
        """The products that loops and conditions come down to; None if there is anything else."""
        found: list[Product] = []
        for s in body:
            inner: list[Product] | None = None
            if isinstance(s, ir.For) and s.kind == "vectorized":
                product = self.find_product(s, loops, tests)
                inner = [product] if product else None
            elif isinstance(s, ir.For) and s.kind in ("serial", "unrolled"):
                inner = self.find_products(s.body, (*loops, s), tests)
            elif isinstance(s, ir.If) and not s.orelse:
                inner = self.find_products(s.then, loops, (*tests, s.cond))
            if inner is None:
                return None
            found += inner
        return found

    def find_product(
        self, s: ir.For, loops: tuple[ir.For, ...] = (), tests: tuple[ir.Expr, ...] = ()
    ) -> Product | None:
        if s not in self.products:
            self.products[s] = describe_product(s, lambda access: not self.unproved.axes(access))
        found = self.products[s]
        return replace(found, tests=(*tests, *found.tests), loops=loops) if found else None

    def place_accumulators(
        self, product: Product, s: ir.For, found: dict[Hashable, Accumulator],
        different: Sequence[set[Hashable]],
    ) -> bool:  # fmt: skip
        """Add the tiles of results of a product, and the operands that it goes through while it goes through
        these. False if a loop that is not unrolled moves the results."""
        unrolled = [loop for loop in product.loops if loop.kind == "unrolled" and loop.fixed_extent]
        rolled = [loop for loop in product.loops if loop not in unrolled]
        indices = (*product.result.first.indices, *product.before.first.indices)
        if any(uses(index, loop.var) for index in indices for loop in rolled):
            return False
        if product.before is not product.result and product.loops:
            return False  # what is added to is elsewhere
        runs = all(loop.fixed_extent for loop in rolled)
        moved = [any(uses(index, loop.var) for index in indices) for loop in unrolled]
        constants = {v: at.const for v, at in self.env.items() if at.is_constant}
        saved = dict(self.env), self.domain
        for loop in (*product.loops, product.loop):
            self.domain = inside(self.domain, loop)
            self.env[loop.var] = Affine(0)
        for at in itertools.product(*[range(loop.fixed_extent or 0) for loop in unrolled]):
            values = {loop.var: n for loop, n in zip(unrolled, at, strict=True)}
            holds = [decide(test, constants | values) for test in product.tests]
            if False in holds:
                continue
            self.env |= {v: Affine(n) for v, n in values.items()}
            end = self.tile_place(product.result)
            start = end if product.before is product.result else self.tile_place(product.before)
            key, certain = key_of(product.result, end), runs and None not in holds
            old = found.get(key)
            if old is None or certain > old.certain:
                register = old.register if old else len(found)
                found[key] = Accumulator(register, product.before, start, product.result, end, certain)
            if not any(n for n, moves in zip(at, moved, strict=True) if not moves):
                for layout, seen in zip(product.operands, different, strict=True):
                    seen.add(key_of(layout, self.tile_place(layout)))
        self.env, self.domain = saved
        return all(a.certain or self.is_own(a) for a in found.values())

    def tile_place(self, layout: TileLayout) -> Affine:
        at = self.address(layout.first.buffer, layout.first.indices)
        return Affine(at.const + layout.begin, at.terms)

    def is_own(self, a: Accumulator) -> bool:
        """Whether a tile of results may be loaded and stored where the program does not: it is within memory
        of this call."""
        buffer = a.result.first.buffer
        self.base(buffer)
        last = a.end.const + (a.result.rows - 1) * a.result.step + a.result.columns - 1
        return buffer in self.stack and not a.end.terms and a.end.const >= 0 and last < buffer.room

    # --- writing it ---

    def emit_nest(self, s: ir.For, nest: TileNest, from_zero: bool = False) -> None:
        with self.with_shapes(nest.shapes):
            for a in nest.accumulators.values():
                if from_zero:
                    self.tile_effect("tilezero", a.register)
                else:
                    self.move_tile("tileloadd64", a.register, a.before, a.start)
            self.nest = nest
            self.loop(s)
            self.nest = None
            for a in nest.accumulators.values():
                self.move_tile("tilestored64", a.register, a.result, a.end)

    def emit_product(self, product: Product, first: int = 0) -> None:
        """A product of the nest that is being written, where its tests from the `first` on hold."""
        nest = self.nest
        assert nest is not None
        for n, test in enumerate(product.tests[first:], first):
            holds = self.evaluate(test)
            if holds.truth is False:
                return
            if holds.truth is None:
                with self.f.when(holds.text), self.scope():
                    self.emit_product(product, n + 1)
                return
        self.env[product.loop.var] = Affine(0)
        numbers = [nest.accumulators[key_of(product.result, self.tile_place(product.result))].register]
        for n, layout in enumerate(product.operands):
            at = self.tile_place(layout)
            key = key_of(layout, at)
            number = nest.find_held(n, key)
            if number is None:
                number = nest.take(n, key)
                self.move_tile("tileloadd64", number, layout, at)
            numbers.append(number)
        del self.env[product.loop.var]
        self.tile_effect(product.known.code.removeprefix("llvm.x86."), *numbers)

    def move_tile(self, name: str, register: int, layout: TileLayout, at: Affine) -> None:
        step = layout.step * BYTES[layout.first.buffer.dtype]
        pointer = self.pointer(layout.first.buffer, at)
        self.declare(f"void @llvm.x86.{name}(i8 immarg, ptr, i64)")
        self.f.effect(f"call void @llvm.x86.{name}(i8 {register}, ptr {pointer}, i64 {step})")

    def tile_effect(self, name: str, *registers: int) -> None:
        self.declare(f"void @llvm.x86.{name}({', '.join(['i8 immarg'] * len(registers))})")
        self.f.effect(f"call void @llvm.x86.{name}({', '.join(f'i8 {n}' for n in registers)})")

    @contextmanager
    def with_shapes(self, shapes: list[Shape]) -> Iterator[None]:
        """With tiles of these shapes inside."""
        if self.shapes_last and self.tile_shapes is None:
            self.tile_shapes = shapes
            self.f.start.append(self.configure_tiles(shapes))
        different = shapes != self.tile_shapes
        if different:
            self.f.effect(self.configure_tiles(shapes))
        yield
        if different and self.tile_shapes is None:
            self.tile_effect("tilerelease")
        elif different and self.tile_shapes is not None:
            self.f.effect(self.configure_tiles(self.tile_shapes))

    def configure_tiles(self, shapes: list[Shape]) -> str:
        self.declare("void @llvm.x86.ldtilecfg(ptr)")
        return f"call void @llvm.x86.ldtilecfg(ptr {self.palette(shapes)})"

    def palette(self, shapes: list[Shape]) -> str:
        """A constant of the module: what the registers of tiles are like."""
        raise NotImplementedError

    def body(self, body: ir.Body) -> None:
        """Statements one after the other; results that start from zero are not stored before."""
        statements = iter(itertools.zip_longest(body, body[1:]))
        for s, following in statements:
            if isinstance(s, ir.For) and isinstance(following, ir.For) and self.may_be_nest(following):
                nest = self.find_nest(following)
                if nest is not None and self.is_zero(s, nest):
                    self.emit_nest(following, nest, from_zero=True)
                    next(statements)
                    continue
            self.stmt(s)

    def may_be_nest(self, s: ir.For) -> bool:
        """Whether a loop can be written with tiles, as far as that is seen at once."""
        inside_of = self.nest is not None or self.lanes > 1 or self.mask is not None
        return self.target_tiles > 0 and not inside_of and s.kind != "parallel"

    def is_zero(self, s: ir.For, nest: TileNest) -> bool:
        """Whether a loop stores zero to all tiles of results of a nest, and nothing else."""
        loops: list[ir.For] = []
        tests: list[ir.Expr] = []
        inner: ir.Stmt = s
        while isinstance(inner, (ir.For, ir.If)):
            if isinstance(inner, ir.For):
                loops.append(inner)
                inside_of = inner.body
            else:
                tests.append(inner.cond)
                inside_of = () if inner.orelse else inner.then
            if len(inside_of) != 1:
                return False
            inner = inside_of[0]
        if not isinstance(inner, ir.Store) or not is_plain_zero(inner.value):
            return False
        tiles = list(nest.accumulators.values())
        if any(not a.certain or a.result.first.buffer is not inner.buffer for a in tiles):
            return False
        extents = [loop.fixed_extent or 0 for loop in loops]
        if math.prod(extents) > MOST_ZEROS:
            return False
        grid = np.indices(extents).reshape(len(loops), -1)
        values = {loop.var: at for loop, at in zip(loops, grid, strict=True)}
        known = {v: at.const for v, at in self.env.items() if at.is_constant}
        try:
            moved = distance_moved(inner, values)
            holds = [np.broadcast_to(value_of(test, known | values), moved.shape) for test in tests]
        except ValueError:
            return False
        saved = dict(self.env), self.domain
        for loop in loops:
            self.domain = inside(self.domain, loop)
            self.env[loop.var] = Affine(0)
        start = self.address(inner.buffer, inner.indices)
        self.env, self.domain = saved
        if any(a.end.terms != start.terms for a in tiles):
            return False
        zeros = start.const + moved[np.all([np.ones(moved.shape, dtype=bool), *holds], axis=0)]
        return np.array_equal(np.unique(zeros), np.unique([a.result.elements(a.end.const) for a in tiles]))

    def finish(self) -> None:
        """The end of the function."""
        if self.tile_shapes is not None:
            self.tile_effect("tilerelease")
        self.f.effect("ret void")


def describe_product(s: ir.For, is_proved: Callable[[ir.Load | ir.Store], bool]) -> Product | None:
    """A vectorised loop as an instruction on tiles, if it is one."""
    tests: list[ir.Expr] = []
    body = s.body
    while len(body) == 1 and isinstance(body[0], ir.If) and not body[0].orelse:
        tests.append(body[0].cond)
        body = body[0].then
    if len(body) != 1 or not isinstance(store := body[0], ir.Store) or not isinstance(store.value, ir.Call):
        return None
    known, call = ir.INSTRUCTIONS.get(store.value.name), store.value
    lanes = s.fixed_extent or 0
    if known is None or not known.tiles or lanes % known.columns or not 0 < lanes <= known.lanes:
        return None
    accesses = [store, *[e for e in call.args if isinstance(e, (ir.Load, ir.Store))]]
    indices = [index for access in accesses for index in access.indices]
    if len(accesses) <= len(call.args) or any(map(ir.has_load, (*tests, *indices))):
        return None
    if any(uses(test, s.var) for test in tests) or not all(map(is_proved, accesses)):
        return None
    layouts = [
        describe_layout([a for a in call.args[r.first : r.first + r.count] if isinstance(a, ir.Load)], r, s)
        for r in known.registers
    ]
    before, *operands = [layout for layout in layouts if layout is not None]
    result = describe_layout([ir.Load(store.buffer, store.indices)], known.registers[0], s)
    if result is None or len(operands) + 1 < len(layouts):
        return None
    same = before.first.buffer is store.buffer and ir.same_exprs(before.first.indices, store.indices)
    return Product(s, known, result, result if same else before, tuple(operands), tuple(tests))


def describe_layout(loads: Sequence[ir.Load], r: ir.Register, s: ir.For) -> TileLayout | None:
    """How a register lies in memory, of which the lanes of a loop load so many elements each."""
    lanes = np.arange(s.fixed_extent or 0)
    places = np.empty((len(lanes), len(loads)), dtype=np.int64)
    standing: dict[object, int] | None = None  # what moves with no lane: the same for all elements
    for n, load in enumerate(loads):
        rest: dict[object, int] = {}
        places[:, n] = 0
        for index, step in zip(load.indices, load.buffer.strides, strict=True):
            form = form_of(index)
            places[:, n] += form.const * step
            for term, factor in form.terms:
                if not uses(term, s.var):
                    key = ir.expr_key(term)
                    rest[key] = rest.get(key, 0) + factor * step
                elif any(v is not s.var for v in ir.free_vars(term)):
                    return None
                else:
                    places[:, n] += factor * step * value_of(term, {s.var: lanes})
        rest = {key: factor for key, factor in rest.items() if factor}
        if load.buffer is not loads[0].buffer or (standing is not None and rest != standing):
            return None
        standing = rest
    at = np.array(r.at[: len(lanes)])
    offsets = np.full(r.size, -1, dtype=np.int64)
    places -= places[0, 0]
    low = int(places.min())
    offsets[at] = places - low
    if (offsets[at] != places - low).any():
        return None  # memory has two values for one element
    matrix = offsets.reshape(r.rows, -1)
    used = int((matrix >= 0).any(axis=1).sum())
    matrix, begin = matrix[:used], int(matrix[0, 0])
    step = int(matrix[1, 0]) - begin if used > 1 else matrix.shape[1]
    wanted = begin + np.arange(used)[:, None] * step + np.arange(matrix.shape[1])
    if (matrix < 0).any() or (matrix != wanted).any():
        return None
    return TileLayout(loads[0], begin + low, step, (used, matrix.shape[1] * BYTES[r.dtype]))


def decide(test: ir.Expr, values: dict[ir.Var, int]) -> bool | None:
    """Whether a test holds, as far as some variables tell."""
    try:
        return bool(value_of(test, values))
    except ValueError:
        return None


def distance_moved(access: ir.Store, values: dict[ir.Var, np.ndarray]) -> np.ndarray:
    """How many elements an access is from where some variables are 0, for arrays of their values."""
    total = np.zeros(np.broadcast_shapes((), *[at.shape for at in values.values()]), dtype=np.int64)
    zeros = dict.fromkeys(values, 0)
    for index, step in zip(access.indices, access.buffer.strides, strict=True):
        for term, factor in form_of(index).terms:
            if any(uses(term, v) for v in values):
                total = total + factor * step * (value_of(term, values) - value_of(term, zeros))
    return total


def key_of(layout: TileLayout, at: Affine) -> Hashable:
    return layout.first.buffer, at.key, layout.step, layout.shape


def is_plain_zero(e: ir.Expr) -> bool:
    return isinstance(e, ir.Const) and repr(e.value) in ("0", "0.0")


def are_apart(tiles: list[Accumulator]) -> bool:
    """Whether no element is in two tiles of results."""
    if any(a.result.first.buffer is not tiles[0].result.first.buffer for a in tiles):
        return False
    if any(a.end.terms != tiles[0].end.terms for a in tiles):
        return False
    elements = np.concatenate([a.result.elements(a.end.const) for a in tiles])
    return len(np.unique(elements)) == len(elements)
