"""`Schedule`: a program being transformed, step by step, every step recorded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .. import ir
from ..errors import ScheduleError
from ..markup import html
from ..validation import Randomness, check_arguments, random_numbers
from ..verifier import check_depth
from .distribution import Decision, Distribution, as_decision
from .library.steps import LibrarySteps
from .primitive.annotate import AnnotationSteps
from .primitive.base import BlockRV, ExprRV, Handle, LoopRV, Primitive
from .primitive.blockize import BlockizeSteps
from .primitive.cache import CacheSteps
from .primitive.inline import InlineSteps
from .primitive.kinds import KindSteps
from .primitive.layout import LayoutSteps
from .primitive.location import LocationSteps
from .primitive.loops import LoopSteps
from .primitive.operand import OperandSteps
from .primitive.padding import PaddingSteps
from .primitive.partition import PartitionSteps
from .primitive.query import QuerySteps
from .primitive.reduction import ReductionSteps
from .sampling import SamplingSteps
from .state import State
from .trace import Choose, Instruction, Trace


class Schedule(
    QuerySteps,
    SamplingSteps,
    LoopSteps,
    KindSteps,
    AnnotationSteps,
    PartitionSteps,
    LocationSteps,
    InlineSteps,
    PaddingSteps,
    OperandSteps,
    CacheSteps,
    ReductionSteps,
    BlockizeSteps,
    LayoutSteps,
    LibrarySteps,
):
    """A program and what was done to it.

    >>> import metaschedule as ms
    >>> sch = ms.Schedule(ms.workloads.create("GMM", b=1, n=8, m=8, k=8))
    >>> b, i, j, k = sch.get_loops(sch.get_block("matmul"))
    >>> i0, i1 = sch.split(i, [None, 3])
    >>> sch.reorder(i0, k, i1)
    """

    @check_arguments
    def __init__(self, program: ir.Program, seed: Randomness = 0) -> None:
        check_depth(program)
        self.state = State(program)
        self.rng = random_numbers(seed)
        self._instructions: list[Instruction] = []
        self._handles = 0

    # --- looking ---

    @property
    def program(self) -> ir.Program:
        """The program as it is now."""
        return self.state.program

    @property
    def trace(self) -> Trace:
        """What was done so far."""
        return Trace(tuple(self._instructions), self.state.original)

    def fork(self) -> Schedule:
        """An independent copy: handles are good in both; random draws of the two differ, yet the seed fixes
        both."""
        return self.copy(random.Random(self.rng.getrandbits(64)))

    def copy(self, rng: random.Random) -> Schedule:
        """A fork that draws from `rng`."""
        new = object.__new__(Schedule)
        new.state = self.state.fork()
        new.rng = rng
        new._instructions = list(self._instructions)
        new._handles = self._handles
        return new

    @check_arguments
    def get(self, handle: Handle) -> Any:
        """What a handle stands for: a `For`, a `Block` or a number."""
        if isinstance(handle, LoopRV):
            return self.state.loop(handle)
        return self.state.block(handle) if isinstance(handle, BlockRV) else self.state.value(handle)

    def _repr_html_(self) -> str:
        """The program as it is now, and what was done, for notebooks."""
        done = html.unfold(f"{len(self._instructions)} instructions", html.script(str(self.trace)))
        return html.view(html.script(str(self.program)), done)

    def show(self) -> None:
        """Print the program with colours, in a terminal or a notebook."""
        from rich.console import Console  # here, because workers never show anything
        from rich.syntax import Syntax

        Console().print(Syntax(str(self.program), "python", theme="ansi_light", word_wrap=True))

    @check_arguments
    def can(self, primitive: Primitive) -> bool:
        """Whether a step would be legal."""
        primitive = primitive.check_operands()
        try:
            primitive.check(self.state)
        except ScheduleError:
            return False
        return True

    # --- running ---

    @check_arguments
    def run(self, primitive: Primitive) -> tuple[Any, ...]:
        """Check a primitive, carry it out, record it; gives the handles of its results."""
        if isinstance(primitive, Distribution):
            return self.sample(primitive)
        primitive = primitive.check_operands()
        return self._record(primitive, self._carry_out(primitive), None)

    @check_arguments
    def sample(self, distribution: Distribution, decision: Decision = None) -> tuple[Any, ...]:
        """Draw from a distribution, or take a decision; gives the handles of the numbers."""
        distribution, decision = distribution.check_operands(), as_decision(decision)

        def choose(site: Distribution) -> Decision:
            return site.draw(self.rng) if decision is None else decision

        return self._record(distribution, *self._draw(distribution, choose))

    @contextmanager
    def transaction(self, call: str) -> Iterator[None]:
        """All of the steps inside, or none: where one is refused, the schedule is as it was before. `call` is
        what they are together."""
        before = self.copy(self.rng)
        try:
            yield
        except ScheduleError as error:
            self.state, self._handles = before.state, before._handles
            self._instructions = before._instructions
            if not error.call:
                self._attach(error, call)
            raise

    def repeat(self, n: int, step: Instruction, choose: Choose) -> None:
        """Carry out instruction `n` of a trace, whose handles then stand for the results here, too."""
        primitive = step.primitive
        if isinstance(primitive, Distribution):
            old = step.decision
            results, decision = self._draw(primitive, lambda site: choose(n, site, old))
            step = Instruction(primitive, step.outputs, decision)
        else:
            results = self._carry_out(primitive)
        if len(results) != len(step.outputs):
            raise ScheduleError(
                f"{primitive.op}, instruction {n}: {len(results)} results, not {len(step.outputs)}",
                help="replay on a program of the structure that the trace was made on",
            )
        if results:
            self.state.values.update(zip(step.outputs, results))
            self._handles += len(results)
        self._instructions.append(step)

    def _carry_out(self, primitive: Primitive) -> tuple[Any, ...]:
        try:
            plan = primitive.check(self.state)
        except ScheduleError as error:
            raise self._attach(error, repr(primitive)) from None
        if not primitive.is_query:
            self.state.printed = None
        return primitive.apply(self.state, plan)

    def _draw(
        self, distribution: Distribution, choose: Callable[[Distribution], Decision]
    ) -> tuple[tuple[Any, ...], Decision]:
        try:
            concrete = distribution.at(self.state)
            decision = choose(concrete)
            if not concrete.valid(decision):
                raise ScheduleError(f"{decision!r} is no decision of {concrete!r}")
        except ScheduleError as error:
            raise self._attach(error, repr(distribution)) from None
        return concrete.outcome(self.state, decision), decision

    def _attach(self, error: ScheduleError, call: str) -> ScheduleError:
        state = self.state.fork()

        def locate() -> tuple[ir.Program, dict[Any, Any]]:
            program = state.program
            nodes: dict[Any, Any] = {}
            for s in ir.walk(program):
                if isinstance(s, ir.For):
                    nodes[s.var] = s
                elif isinstance(s, ir.Block):
                    nodes[s.name] = s
            return program, nodes

        error.attach(call, locate)
        return error

    def _record(self, primitive: Primitive, results: tuple[Any, ...], decision: Decision) -> tuple[Any, ...]:
        handles: list[Handle] = []
        for result in results:
            handle = KINDS.get(type(result), ExprRV)(self._handles)
            self._handles += 1
            self.state.values[handle] = result
            handles.append(handle)
        self._instructions.append(Instruction(primitive, tuple(handles), decision))
        return tuple(handles)


# Of handles, by the result of a step; others are numbers.
KINDS: dict[type, type[Handle]] = {ir.Var: LoopRV, str: BlockRV}
