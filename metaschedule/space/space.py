"""`Space`: modules in order, and what becomes of a program under them.

The modules are applied one after the other, each to every block from the outputs up; a module may fork. What
results is completed by the post-processors. The trace of each is a *sketch*: its structure does not depend on
the decisions in it, so a candidate is a sketch replayed with other decisions, and no module runs again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

from ..errors import ScheduleError
from ..ir import INSTRUCTIONS, Program, blocks, structural_hash
from ..markup import html
from ..schedule import BlockRV, Schedule, Trace
from ..target import Target, resolve
from ..validation import Randomness, check_arguments, describe_value, random_numbers
from .block_predicates import blocks_from_outputs, is_claimed
from .partial import FEWEST_SKETCHES, MOST_SKETCHES, Partial, most_sketches, thin
from .pieces import Sketch, join_traces, pieces
from .rare_collections import rare_collections
from .size import Size, size_of

Module = Callable[[Schedule, BlockRV, Target], list[Schedule]]
PostProcessor = Callable[[Schedule, Target], None]
Check = Callable[[Schedule, Target], None]  # raises ScheduleError
Rejections = Counter[tuple[str, str]]  # (who, why) -> how often

ATTEMPTS = 64  # draws for one valid candidate


class SpaceLike(Protocol):
    """What a search needs of a space."""

    @property
    def name(self) -> str: ...
    def sketches(self, program: Program) -> list[Trace]: ...
    def explore(self, program: Program) -> tuple[list[Trace], Rejections]: ...
    def sample(self, program: Program, rng: Randomness = 0) -> Schedule: ...
    def check(self, sch: Schedule) -> None: ...


class Space:
    """An ordered collection of modules, post-processors and checks, for a target.

    `space + module` lets a module see every block before the others do; `space - "Name"` leaves one out;
    `space.replace("Name", module)` puts one in its place. Spaces compare by what they hold.

    >>> space = Space([], name="loops as written")
    >>> from metaschedule import workloads
    >>> len(space.sketches(workloads.create("GMM")))
    1
    """

    @check_arguments
    def __init__(
        self,
        modules: Iterable[Module] = (),
        postprocessors: Iterable[PostProcessor] = (),
        checks: Iterable[Check] = (),
        target: Target | str = "native",
        name: str = "",
    ) -> None:
        self.modules = tuple(modules)
        self.postprocessors = tuple(postprocessors)
        self.checks = tuple(checks)
        self.target = resolve(target)
        self._name = name
        self._sketches: dict[tuple[str, int, int], tuple[list[Sketch], Rejections]] = {}

    # --- composition ---

    @property
    def name(self) -> str:
        """What a record says it came from."""
        return self._name or " + ".join(name_of(m) for m in self.modules) or "empty"

    @check_arguments
    def __add__(self, module: Module) -> Space:
        return self._with((module, *self.modules), f"{name_of(module)} + {self.name}")

    @check_arguments
    def __sub__(self, name: str) -> Space:
        self._position(name)
        kept = tuple(m for m in self.modules if name_of(m) != name)
        rest = tuple(p for p in self.postprocessors if name_of(p) != name)
        new = self._with(kept, f"{self.name} - {name}")
        new.postprocessors = rest
        new.checks = tuple(c for c in self.checks if name_of(c) != name)
        return new

    @check_arguments
    def replace(self, name: str, module: Callable[..., Any]) -> Space:
        """The space with another module (or post-processor, or check) in the place of one."""
        self._position(name)
        new = self._with(self.modules, f"{self.name}[{name} = {name_of(module)}]")
        for field in ("modules", "postprocessors", "checks"):
            parts = getattr(self, field)
            setattr(new, field, tuple(module if name_of(p) == name else p for p in parts))
        return new

    def _position(self, name: str) -> None:
        known = [name_of(p) for p in (*self.modules, *self.postprocessors, *self.checks)]
        if name not in known:
            raise ValueError(f"the space has no {name!r}; it has {', '.join(known)}")

    def _with(self, modules: Sequence[Module], name: str) -> Space:
        return Space(modules, self.postprocessors, self.checks, self.target, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((self.target, *map(repr, self.modules)))

    def _parts(self) -> tuple[Any, ...]:
        return (self.target, self.modules, self.postprocessors, self.checks)

    def __repr__(self) -> str:
        lines = [f"Space {self.name} for {self.target}"]
        for title in ("modules", "postprocessors", "checks"):
            lines += [f"  {title[:-1]} {part!r}" for part in getattr(self, title)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The modules in their order, for notebooks."""
        rows = [
            (title[:-1], name_of(part), parameters_of(part))
            for title in ("modules", "postprocessors", "checks")
            for part in getattr(self, title)
        ]
        head = html.paragraph(f"Space {self.name} for {self.target}")
        return html.view(head, html.table(["part", "name", "parameters"], rows))

    # --- generation ---

    def sketches(self, program: Program) -> list[Trace]:
        """The traces that the modules give, each with the decisions of one draw."""
        return self.explore(program)[0]

    @check_arguments
    @rare_collections()
    def explore(self, program: Program) -> tuple[list[Trace], Rejections]:
        """The sketches, and what was refused on the way."""
        parts = pieces(program)
        found = [self._explore_piece(part, len(parts)) for part in parts]
        refused = Counter({key: count for _, counts in found for key, count in counts.items()})
        if len(parts) == 1:
            return [sketch.trace for sketch in found[0][0]], refused
        return self._join_pieces(program, parts, [sketches for sketches, _ in found]), refused

    @rare_collections()
    def pieces(self, program: Program) -> list[tuple[Program, list[Trace]]]:
        """The pieces that a program is scheduled in, one if it is not large, and the sketches of each."""
        parts = pieces(program)
        return [
            (part, [sketch.trace for sketch in self._explore_piece(part, len(parts))[0]]) for part in parts
        ]

    def _explore_piece(self, program: Program, pieces: int) -> tuple[list[Sketch], Rejections]:
        """What is made of a program, or of one of several pieces."""
        most = MOST_SKETCHES if pieces == 1 else FEWEST_SKETCHES
        key = structural_hash(program), most, len(INSTRUCTIONS)  # a new instruction gives new sketches
        if key not in self._sketches:
            self._sketches[key] = self._explore(program, most)
        return self._sketches[key]

    def _join_pieces(
        self, program: Program, parts: list[Program], choices: list[list[Sketch]]
    ) -> list[Trace]:
        """Sketches of a program of many pieces: those that take the first sketch of every piece, the second
        (or the last that there is), and so on, then as many that are drawn."""
        ranks, rng = max(map(len, choices)), random.Random(0)
        if not all(choices):
            return []
        chosen = [[sketches[min(n, len(sketches) - 1)] for sketches in choices] for n in range(ranks)]
        chosen += [[rng.choice(sketches) for sketches in choices] for _ in range(ranks if ranks > 1 else 0)]
        return [join_traces(program, list(zip(parts, sketches, strict=True))) for sketches in chosen]

    def _explore(self, program: Program, most: int) -> tuple[list[Sketch], Rejections]:
        refused: Rejections = Counter()
        partial = [Partial(Schedule(program, seed=0))]
        rng, count = random.Random(0), len(blocks(program))
        for module in self.modules:
            count = min(count, len(blocks_from_outputs(partial[0].schedule)) if partial else 0)
            partial = visit_blocks(module, partial, self.target, refused, most_sketches(count, most), rng)
        found: dict[Trace, Sketch] = {}
        for sch in [state.schedule for state in partial]:
            for post in self.postprocessors:
                try:
                    post(sch, self.target)
                except ScheduleError as error:
                    refused[name_of(post), error.message] += 1
                    break
            else:
                sketch = Sketch.of(sch)
                found[sketch.trace] = sketch
        return list(found.values()), refused

    @check_arguments
    def sample(self, program: Program, rng: Randomness = 0, rejections: Rejections | None = None) -> Schedule:
        """One valid candidate: a sketch with its decisions drawn."""
        rng = random_numbers(rng)
        sketches = self.sketches(program)
        refused: Rejections = Counter() if rejections is None else rejections
        for _ in range(ATTEMPTS if sketches else 0):
            try:
                sch = rng.choice(sketches).apply(program, rng=rng)
                self.check(sch)
                return sch
            except ScheduleError as error:
                refused[error.call.partition("(")[0] or "check", error.message] += 1
        raise ScheduleError(
            f"no valid candidate in {ATTEMPTS} draws from {len(sketches)} sketches of {program.name}",
            help=f"most often: {refused.most_common(1)}; see `metaschedule space` for all reasons",
        )

    @check_arguments
    def size(self, program: Program) -> Size:
        """How many decision vectors the sketches have together: exact where no random variable depends on
        another, else an unbiased estimate; `print` says which."""
        sizes = [size_of(sketch, program) for sketch in self.sketches(program)]
        return Size(sum(sizes), all(size.exact for size in sizes))

    def check(self, sch: Schedule) -> None:
        """Raise `ScheduleError` if a candidate should not be built."""
        for check in self.checks:
            check(sch, self.target)


def visit_blocks(
    module: Module,
    partial: list[Partial],
    target: Target,
    refused: Rejections,
    most: int,
    rng: random.Random,
) -> list[Partial]:
    """The sketches that a module makes of some, block by block from the outputs up, at most so many."""
    waiting = [(state, blocks_from_outputs(state.schedule)) for state in partial]
    for n in range(max((len(names) for _, names in waiting), default=0)):
        families: list[list[Partial]] = []
        for state, names in waiting:
            made = apply_module(module, state.schedule, names[n], target, refused) if n < len(names) else None
            families.append([state] if made is None else state.options(made))
        kept = thin(families, most, rng)
        waiting = [(state, names) for (_, names), family in zip(waiting, kept) for state in family]
    return [state for state, _ in waiting]


def apply_module(
    module: Module, sch: Schedule, name: str, target: Target, refused: Rejections
) -> list[Schedule] | None:
    """What a module makes of one block of a schedule; None if it leaves it alone."""
    known = sch.state.find_block(name)
    if known is None or is_claimed(sch.state.nodes[known]):
        return None
    attempt = sch.fork()
    try:
        return module(attempt, attempt.get_block(name), target)
    except ScheduleError as error:
        refused[name_of(module), error.message] += 1
        return None
    except Exception as error:  # a bug: it goes on, and says whose it is
        error.add_note(f"in module {name_of(module)}, at block {name!r} of {sch.state.original.name}")
        raise


def name_of(part: Any) -> str:
    """What a module, post-processor or check is called."""
    return getattr(part, "name", None) or getattr(part, "__name__", None) or type(part).__name__


def parameters_of(part: Any) -> str:
    """The fields of a module that has some, as written."""
    if not is_dataclass(part):
        return ""
    return ", ".join(f"{field.name}={getattr(part, field.name)!r}" for field in fields(part) if field.repr)


class FunctionSpace:
    """A function that takes a schedule, as a space: every run of it draws a candidate. Its sketches are the
    different traces (decisions apart) of some runs, for it may branch on what it draws."""

    RUNS = 32

    def __init__(self, function: Callable[[Schedule], Any]) -> None:
        self.function = function

    @property
    def name(self) -> str:
        return name_of(self.function)

    def sketches(self, program: Program) -> list[Trace]:
        """The traces of some runs, one of each structure."""
        found: dict[str, Trace] = {}
        for seed in range(self.RUNS):
            try:
                trace = self.sample(program, seed).trace
            except ScheduleError:
                continue  # a draw that the function should not have used
            ops = [(i.primitive.op, repr(i.primitive)) for i in trace.instructions]
            found.setdefault(repr(ops), trace)
        return list(found.values())

    def explore(self, program: Program) -> tuple[list[Trace], Rejections]:
        """The sketches; a function refuses nothing."""
        return self.sketches(program), Counter()

    @check_arguments
    def sample(self, program: Program, rng: Randomness = 0) -> Schedule:
        """What the function makes of the program with these random numbers."""
        sch = Schedule(program, seed=rng)
        self.function(sch)
        return sch

    def check(self, sch: Schedule) -> None:
        """Everything that the function makes is meant."""


class OwnSpace:
    """An object that is not ours, as a space. It has

    `sketches(program) -> list[Trace]`: the structures to search, each replayed with other decisions, and
    `sample(program, rng) -> Schedule`: one candidate, drawn with a `random.Random`;

    it may have a `name` (default: that of its class), which records keep, and `check(sch)`, which raises
    `ScheduleError` for candidates that should not be built.
    """

    def __init__(self, space: Any) -> None:
        self.space = space

    @property
    def name(self) -> str:
        return str(name_of(self.space))

    def sketches(self, program: Program) -> list[Trace]:
        """What the object says, if it is traces."""
        found = list(self.space.sketches(program))
        for sketch in found:
            if not isinstance(sketch, Trace):
                raise TypeError(f"{self.name}.sketches must give traces, gave {describe_value(sketch)}")
        return found

    def explore(self, program: Program) -> tuple[list[Trace], Rejections]:
        """The sketches; what the object refused on the way, only it knows."""
        return self.sketches(program), Counter()

    @check_arguments
    def sample(self, program: Program, rng: Randomness = 0) -> Schedule:
        """What the object draws, if it is a schedule."""
        drawn = self.space.sample(program, random_numbers(rng))
        if not isinstance(drawn, Schedule):
            raise TypeError(f"{self.name}.sample must give a Schedule, gave {describe_value(drawn)}")
        return drawn

    def check(self, sch: Schedule) -> None:
        """The object's own check, if it has one."""
        if check := getattr(self.space, "check", None):
            check(sch)


def as_space(space: Any) -> SpaceLike:
    """A space as it is, or made of a function that takes a schedule, or of another object (`OwnSpace`)."""
    if all(hasattr(space, name) for name in ("name", "sketches", "explore", "sample", "check")):
        return space
    if callable(getattr(space, "sketches", None)) and callable(getattr(space, "sample", None)):
        return OwnSpace(space)
    if callable(space):
        return FunctionSpace(space)
    raise TypeError(
        "space must be a Space, a function that takes a schedule, or have `sketches(program)` and "
        f"`sample(program, rng)`, got {describe_value(space)}"
    )
