"""Spaces of other systems, rebuilt out of our modules, to compare spaces under one search and one code
generator.

| preset | what it searches | what of the original it leaves out | |---|---|---| | loops | kinds of the
loops as they are written | nothing is tiled, moved or inlined | | autotvm | a fixed tiling of every
reduction, as templates have it, with vectors and unrolling | templates per operator and layout; its
inlining of injective stages into templates | | ansor | Ansor's sketch rules: inlining, rfactor, SSRSRS
with and without a cached result, locations | its program annotations by random rewriting; layouts of
constants | | default | what `default` has | - |

`union` joins the sketches of two spaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ..errors import ScheduleError
from ..ir import Program
from ..schedule import Schedule, Trace
from ..target import Target, resolve
from ..validation import Randomness, checked, random_numbers
from .compute_location import RandomComputeLocation
from .default import default
from .inline import AutoInline, InlineConstants
from .loop_kinds import ParallelVectorizeUnroll, RewriteLoopKinds
from .multi_level_tiling import MultiLevelTiling
from .postprocess import Buildable, RewriteReductionBlock
from .rfactor import AddRFactor
from .space import Module, Rejections, Space, SpaceLike, as_space

PRESETS: dict[str, tuple[Module, ...]] = {
    "loops": (ParallelVectorizeUnroll(),),
    "autotvm": (
        InlineConstants(),
        MultiLevelTiling("SSRS", max_innermost_factor=64, write="no"),
        ParallelVectorizeUnroll(),
    ),
    "ansor": (
        InlineConstants(),
        AutoInline(),
        AddRFactor(),
        MultiLevelTiling("SSRSRS", max_innermost_factor=64, write="may", write_levels=(1, 2)),
        RandomComputeLocation(),
        ParallelVectorizeUnroll(),
    ),
}


@checked
def preset(name: str, target: Target | str = "native") -> Space:
    """A space by the name of the system that searches it.

    >>> [preset(name, "x86-64-v3,cores=2").name for name in ("loops", "autotvm", "ansor", "default")]
    ['loops', 'autotvm', 'ansor', 'cpu']
    """
    if name == "default":
        return default(target)
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; known are {', '.join(PRESETS)}, default")
    return Space(
        modules=PRESETS[name],
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
        return self.explored(program)[0]

    def explored(self, program: Program) -> tuple[list[Trace], Rejections]:
        """The sketches, and what was refused on the way."""
        found: dict[Trace, None] = {}
        refused: Rejections = Counter()
        for space in self.spaces:
            sketches, counts = space.explored(program)
            found |= dict.fromkeys(sketches)
            refused += counts
        return list(found), refused

    @checked
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


@checked
def union(first: SpaceLike | Callable[..., Any], *others: SpaceLike | Callable[..., Any]) -> Union:
    """The space of everything that some spaces have, or functions that are spaces.

    >>> from metaschedule import workloads
    >>> program, both = workloads.create("GMM"), union(preset("loops"), preset("ansor"))
    >>> len(both.sketches(program)) > len(preset("ansor").sketches(program))
    True
    """
    return Union(tuple([as_space(space) for space in (first, *others)]))
