"""Spaces of other systems, rebuilt out of our modules, to compare spaces under one search and one code
generator (`metaschedule bench spaces`). Each says what of the original it leaves out. `union` joins the
sketches of spaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import ScheduleError
from ..ir import Program
from ..schedule import Schedule, Trace
from ..target import Target, resolve
from ..validation import Randomness, check_arguments, random_numbers
from .compute_location import RandomComputeLocation
from .default import default
from .inline import AutoInline, InlineConstants
from .loop_kinds import ParallelVectorizeUnroll, RewriteLoopKinds
from .multi_level_tiling import MultiLevelTiling
from .postprocess import Buildable, RewriteReductionBlock
from .rfactor import AddRFactor
from .space import Module, Rejections, Space, SpaceLike, as_space


class Preset(NamedTuple):
    """What a space searches, and what of the system that it is named after it leaves out, in a line each."""

    searches: str
    leaves_out: str
    modules: tuple[Module, ...] = ()  # none: those of `default`


PRESETS: dict[str, Preset] = {
    "loops": Preset(
        "the loops as written: which run in parallel, as vectors, unrolled how far",
        "nothing, it is the naive space: no tile, nothing moved or inlined",
        (ParallelVectorizeUnroll(),),
    ),
    "autotvm": Preset(
        "one tiling of every reduction, S S R S with factors that divide, as AutoTVM's templates have it",
        "templates by operator and target: packed layouts, cached writes, injective stages inlined into them",
        (
            InlineConstants(),
            MultiLevelTiling("SSRS", max_innermost_factor=64, write="no"),
            ParallelVectorizeUnroll(),
        ),
    ),
    "ansor": Preset(
        "Ansor's sketch rules: inlining, rfactor, S S R S R S with its consumer or a cached result in the"
        " tiles; and its annotations: where stages are computed, loop kinds, unrolling",
        "rewritten layouts of constant operands, user-defined sketch rules, unrolling inside of stages",
        (
            InlineConstants(),
            AutoInline(),
            AddRFactor(),
            MultiLevelTiling("SSRSRS", max_innermost_factor=64, write="may", write_levels=(1, 2)),
            RandomComputeLocation(),
            ParallelVectorizeUnroll(),
        ),
    ),
    "default": Preset(
        "all of Ansor's; tiles of registers that need not divide, packing, instructions, Winograd",
        "nothing, it is this package's own",
    ),
}


@check_arguments
def preset(name: str, target: Target | str = "native") -> Space:
    """A space by the name of the system that searches it.

    >>> [preset(name, "x86-64-v3,cores=2").name for name in ("loops", "autotvm", "ansor", "default")]
    ['loops', 'autotvm', 'ansor', 'cpu']
    """
    if name == "default":
        return default(target)
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; known are {', '.join(PRESETS)}")
    return Space(
        modules=PRESETS[name].modules,
        postprocessors=[RewriteLoopKinds(), RewriteReductionBlock()],
        checks=[Buildable()],
        target=resolve(target),
        name=name,
    )


class Union:
    """The sketches of several spaces; a candidate is checked by the space that its sketch is of."""

    def __init__(self, spaces: tuple[SpaceLike, ...]) -> None:
        self.spaces = spaces

    @property
    def name(self) -> str:
        return " | ".join(space.name for space in self.spaces)

    def __repr__(self) -> str:
        return f"Union of {self.name}"

    def sketches(self, program: Program) -> list[Trace]:
        """Those of every space, each structure once."""
        return self.explore(program)[0]

    def explore(self, program: Program) -> tuple[list[Trace], Rejections]:
        """The sketches, and what was refused on the way."""
        found: dict[Trace, None] = {}
        refused: Rejections = Counter()
        for space in self.spaces:
            sketches, counts = space.explore(program)
            found |= dict.fromkeys(sketches)
            refused += counts
        return list(found), refused

    @check_arguments
    def sample(self, program: Program, rng: Randomness = 0) -> Schedule:
        """A candidate of one of the spaces, more often of one that has more sketches."""
        rng = random_numbers(rng)
        weights = [len(space.sketches(program)) for space in self.spaces]
        if not any(weights):
            raise ScheduleError(f"none of {len(self.spaces)} spaces has a sketch for {program.name}")
        (space,) = rng.choices(self.spaces, weights)
        return space.sample(program, rng)

    def check(self, sch: Schedule) -> None:
        """Raise `ScheduleError` unless one of the spaces would build a candidate."""
        errors: list[ScheduleError] = []
        for space in self.spaces:
            try:
                space.check(sch)
                return
            except ScheduleError as error:
                errors.append(error)
        raise errors[0]


@check_arguments
def union(first: SpaceLike | Callable[..., Any], *others: SpaceLike | Callable[..., Any]) -> Union:
    """The space of everything that some spaces have, or functions that are spaces.

    >>> from metaschedule import workloads
    >>> program, both = workloads.create("GMM"), union(preset("loops"), preset("ansor"))
    >>> len(both.sketches(program)) > len(preset("ansor").sketches(program))
    True
    """
    return Union(tuple([as_space(space) for space in (first, *others)]))
