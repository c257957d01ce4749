"""Kernels for all sizes of a graph: batches, sequences, images whose extents change from call to call.

A graph that Dynamo traced with symbolic sizes is planned for each size that comes, which takes no compiler:
`Family` schedules the programs of a further size by the steps of the first one, and has their text compared
with that of the kernels there are (`codegen/template.py`), which take their numbers as an argument. Sizes
from 2 to 16, to 128, to 512 and so on have families of their own: what is fast for 500 rows is not for 3.

What a family makes is what would have been compiled for that very size; a program whose text does not match
(another number of loops, say) is compiled, and belongs to the family from then on.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import torch

from .. import ir
from ..codegen.template import NUMBERS, Template
from ..errors import ScheduleError
from ..ir.annotations import SIZED
from ..measure.build import BuildJob, build_all
from ..measure.stage import KernelStage, lower_stages
from ..runtime import Executable, Kernel
from ..schedule import Trace
from ..schedule.distribution import PerfectTile, Tile
from ..space.default import default
from ..space.space import Space
from ..space.untuned import schedule_untuned
from ..target import Target
from .graph import Graph
from .kernels import Compiled, Compiler
from .passes.narrow_weights import Narrowing

log = logging.getLogger("metaschedule")
BOUNDS = (1, 16, 128, 512)  # sizes up to each of these share kernels; beyond, up to four times the one before


def size_class(size: int, bounds: Sequence[int] = BOUNDS) -> int:
    """The largest size that shares kernels with this one.

    >>> [size_class(n) for n in (1, 2, 16, 17, 500, 513, 2049)]
    [1, 16, 16, 128, 512, 2048, 8192]
    """
    for bound in bounds:
        if size <= bound:
            return bound
    bound = bounds[-1]
    while bound < size:
        bound *= 4
    return bound


def other_sizes(size: int) -> list[int]:
    """Sizes to compare with this one, as even as it is.

    >>> other_sizes(224), other_sizes(37), other_sizes(1)
    ([320, 128], [56, 22], [2])
    """
    even = min(32, size & -size)
    found = [max(1, round(size * part / even)) * even for part in (1.5, 0.6)]
    return [n for n in dict.fromkeys([*found, size + even]) if n != size][: 2 if size > 2 else 1]


@dataclass
class Built:
    """A template and its code."""

    template: Template
    executable: Executable


Found = tuple[Built, list[int]]  # and the numbers of a size


@dataclass
class Member:
    """The programs of one place in a graph, of all sizes: scheduled by one trace, which is fitted to each."""

    trace: Trace
    latency: float | None
    sized: frozenset[int] = frozenset()  # loops, by their number, whose extents differ
    drawn: frozenset[int] = frozenset()  # steps of the trace that draw for extents that differ
    built: list[Built] = field(default_factory=list)
    preparations: dict[str, Executable] = field(default_factory=dict)
    packed: dict[Any, dict[str, torch.Tensor]] = field(default_factory=dict)

    def schedule(self, program: ir.Program) -> ir.Program:
        rng = random.Random(0)

        def choose(n: int, site: Any, old: Any) -> Any:
            if n in self.drawn and isinstance(site, PerfectTile):  # what divides one size divides no other
                return [site.extent, *[1] * (site.n - 1)]
            return fit_decision(site, old, rng)

        return self.trace.replay(program, choose).program

    def lower(self, program: ir.Program, compiler: Compiler) -> list[KernelStage]:
        scheduled = self.schedule(program)
        loops = [s.var for n, s in enumerate(loops_of(scheduled)) if n in self.sized]
        return lower_stages(MarkSized(set(loops)).mark(scheduled), compiler.target)

    def find(self, kernel: Kernel) -> Found | None:
        for one in self.built:
            numbers = one.template.numbers_of(kernel)
            if numbers is not None:
                return one, numbers
        return None

    def generalise(self, kernels: Sequence[Kernel]) -> Template:
        """A template of kernels of which the first is needed, and of those there are, as far as they are
        alike."""
        known = [k for one in self.built for k in one.template.kernels]
        alike = [kernels[0]]
        for other in [*kernels[1:], *known]:
            try:
                Template([*alike, other])
            except ValueError:
                continue
            alike.append(other)
        return Template(alike)


def fit_decision(site: Any, old: Any, rng: random.Random) -> Any:
    """A decision for an extent in the place of one for another: tiles with as many parts outside, which run
    in parallel, and the same parts inside, which are in registers; what is between them follows."""
    if isinstance(site, Tile) and len(old) == site.n > 1:
        outer, first, *inside = old
        within = math.prod(inside)
        fitted = site.whole([max(1, -(-site.extent // (max(1, outer) * within))), *inside])
        free = site.n > 2 or not site.max_innermost_factor
        for decision in [fitted] * free + [site.whole([first, *inside])]:
            if site.valid(decision):
                return decision
    return old if site.valid(old) else site.repair(old, rng)


class AnyTile(Tile):
    """Tiles of any factors, which may overhang by any part: what is little of one size is not of another."""

    def valid(self, decision: Any) -> bool:
        inner = decision[1:]
        return len(decision) == self.n and min(decision) >= 1 and list(decision) == self.whole(inner)


def allow_any_tiles(trace: Trace) -> Trace:
    steps = [
        replace(step, primitive=AnyTile(**{f.name: getattr(step.primitive, f.name) for f in fields(Tile)}))
        if isinstance(step.primitive, Tile)
        else step
        for step in trace.instructions
    ]
    return Trace(tuple(steps))


def find_sized_draws(trace: Trace, *programs: ir.Program) -> frozenset[int]:
    """The steps that draw tiles of extents which differ between programs."""
    found: list[dict[int, int]] = []
    rng = random.Random(0)
    for program in programs:
        extents: dict[int, int] = {}

        def choose(n: int, site: Any, old: Any, extents: dict[int, int] = extents) -> Any:
            if isinstance(site, (Tile, PerfectTile)):
                extents[n] = site.extent
            return fit_decision(site, old, rng)

        trace.replay(program, choose)
        found.append(extents)
    return frozenset([n for n in found[0] if any(other.get(n) != found[0][n] for other in found[1:])])


def loops_of(program: ir.Program) -> list[ir.For]:
    return [s for s in ir.walk(program) if isinstance(s, ir.For)]


@lru_cache(maxsize=8)
def space_for_sizes(target: Target) -> Space:
    """Without tiles that must divide: what divides 512 does not divide 511."""
    return default(target) - "MultiLevelTiling"


class MarkSized(ir.Rewriter):
    """Notes the loops whose extents are of many sizes. Blocks in them say where they end, whether or not the
    tiles of this size divide it."""

    def __init__(self, loops: set[ir.Var]) -> None:
        self.loops = loops

    def mark(self, program: ir.Program) -> ir.Program:
        return ir.replace_fields(program, body=self.body(program.body))

    def expr(self, e: ir.Expr) -> ir.Expr:
        return e

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        new = super().stmt(s)
        if isinstance(new, ir.For) and new.var in self.loops:
            return ir.replace_fields(new, annotations={**new.annotations, SIZED.key: True})
        if isinstance(new, ir.Block):
            ends = [
                ir.binary("<", binding, it.extent)
                for it, binding in zip(new.iters, new.bindings, strict=True)
                if not isinstance(binding, ir.Var) and not self.loops.isdisjoint(ir.free_vars(binding))
            ]
            missing = [e for e in ends if not any(ir.same_expr(e, own) for own in new.predicate)]
            return ir.replace_fields(new, predicate=(*missing, *new.predicate)) if missing else new
        return new


Wanted = dict[str, tuple[ir.Program, Member, list[ir.Program]]]  # by hash, with programs of other sizes


class Family:
    """The kernels of a graph for a class of sizes. `siblings` gives the programs of other sizes of it,
    `largest` those of the largest, whose record counts where the first size that comes has none."""

    def __init__(
        self,
        siblings: Callable[[], Iterable[Sequence[ir.Program]]],
        largest: Callable[[], Sequence[ir.Program]] = list,
    ) -> None:
        self.siblings, self.largest = siblings, largest
        self.narrowing: Narrowing | None = None  # of weights, in graphs of all sizes
        self.members: list[Member | None] | None = None  # by place; None: the same for all sizes
        self.builds = 0  # how many kernels were compiled
        self.constants: dict[int, torch.Tensor] = {}  # of the graph, by place

    def share_constants(self, graph: Graph) -> None:
        """Let graphs of all sizes have one copy of constants that are equal."""
        for n, (value, tensor) in enumerate(list(graph.constants.items())):
            own = self.constants.setdefault(n, tensor.contiguous())
            if own.dtype == tensor.dtype and own.shape == tensor.shape and torch.equal(own, tensor):
                graph.constants[value] = own

    def compile(self, programs: Sequence[ir.Program], compiler: Compiler) -> list[Compiled]:
        others: list[Sequence[ir.Program]] = []
        if self.members is None or len(self.members) != len(programs):
            others = [found for found in self.siblings() if len(found) == len(programs)]
            largest = self.largest() if compiler.database is not None else []
            largest = largest if len(largest) == len(programs) else programs
            self.members = self.make_members(list(zip(programs, *others)), largest, compiler)
        plain = [p for p, member in zip(programs, self.members) if member is None]
        done: dict[str, Compiled] = dict(zip(map(ir.structural_hash, plain), compiler(plain)))
        wanted: Wanted = {}
        for n, (program, member) in enumerate(zip(programs, self.members)):
            if member is not None:
                key = ir.structural_hash(program)
                wanted.setdefault(key, (program, member, [found[n] for found in others]))
        done |= self.compile_members(wanted, compiler)
        return [done[ir.structural_hash(program)] for program in programs]

    def make_members(
        self, programs: Sequence[tuple[ir.Program, ...]], largest: Sequence[ir.Program], compiler: Compiler
    ) -> list[Member | None]:
        """Of each place, given its programs of several sizes."""
        known: dict[tuple[str, ...], Member | None] = {}
        members: list[Member | None] = []
        for same, most in zip(programs, largest, strict=True):
            key = tuple(map(ir.structural_hash, same))
            if key not in known:
                alike = len(set(key)) == 1 and len(key) > 1
                known[key] = None if alike else self.make_member(same, most, compiler)
            members.append(known[key])
        return members

    def make_member(self, programs: Sequence[ir.Program], largest: ir.Program, compiler: Compiler) -> Member:
        record = compiler.find_record(programs[0]) or compiler.find_record(largest)
        trace = record.trace if record else None
        trace = (
            trace or schedule_untuned(programs[0], compiler.target, space_for_sizes(compiler.target)).trace
        )
        member = Member(allow_any_tiles(trace), record.latency if record else None)
        try:
            member.drawn = find_sized_draws(member.trace, *programs)
            nests = [loops_of(member.schedule(program)) for program in programs]
        except ScheduleError as error:
            log.debug("%s is scheduled for one size: %s", programs[0].name, error)
            return member
        if len(set(map(len, nests))) == 1:
            differ = [any(not ir.same_expr(s.extent, same[0].extent) for s in same) for same in zip(*nests)]
            member.sized = frozenset([n for n, d in enumerate(differ) if d])
        return member

    def compile_members(self, wanted: Wanted, compiler: Compiler) -> dict[str, Compiled]:
        lowered = {key: self.lower(program, member, compiler) for key, (program, member, _) in wanted.items()}
        found: dict[str, Found] = {}
        missing: dict[str, Template] = {}
        for key, (_, member, others) in wanted.items():
            kernel = lowered[key][-1].cpu_kernel
            known = member.find(kernel)
            if known is not None:
                found[key] = known
            else:
                others = [self.lower(other, member, compiler)[-1].cpu_kernel for other in others]
                missing[key] = member.generalise([kernel, *others])
        if missing:
            self.builds += len(missing)
            log.info("sizes: %d kernels are compiled", len(missing))
        code = build_all([BuildJob(t.kernel) for t in missing.values()], compiler.target)
        for (key, template), (stage,) in zip(missing.items(), code):
            member = wanted[key][1]
            member.built.insert(0, Built(template, Executable(template.kernel, code=stage.code)))
            made = member.find(lowered[key][-1].cpu_kernel)
            assert made is not None
            found[key] = made
        return {key: self.fit(member, lowered[key], *found[key]) for key, (_, member, _) in wanted.items()}

    def lower(self, program: ir.Program, member: Member, compiler: Compiler) -> list[KernelStage]:
        try:
            return member.lower(program, compiler)
        except ScheduleError as error:  # of this size: by its own steps
            log.debug("%s cannot be scheduled as other sizes are: %s", program.name, error)
            return lower_stages(schedule_untuned(program, compiler.target).program, compiler.target)

    def fit(self, member: Member, stages: Sequence[KernelStage], one: Built, numbers: list[int]) -> Compiled:
        """The kernel of a size: code that there is, with the numbers of that size."""
        *before, last = stages
        kernel = replace(one.template.fit(last.cpu_kernel), llvm=one.template.kernel.llvm)
        loaded = one.executable
        executable = Executable(kernel, code=loaded.code, script=last.script, _loaded=loaded._loaded)
        preparation = None
        if before:
            text = before[0].llvm
            if text not in member.preparations:
                member.preparations[text] = Executable(before[0].cpu_kernel, script=before[0].script)
            preparation = member.preparations[text]
        passed = torch.tensor(numbers or [0], dtype=torch.int64)
        return Compiled(executable, preparation, member.latency, {NUMBERS: passed}, member.packed)
