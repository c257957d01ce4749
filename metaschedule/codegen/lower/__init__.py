"""Lowering: from a program with blocks to loops, conditions and stores with a place for every buffer.

`PASSES` in order; each takes and gives a `Program`, so that `str` before and after shows what it did:

>>> from metaschedule import workloads
>>> from metaschedule.codegen.lower import steps
>>> [name for name, program in steps(workloads.create("NRM", m=4, n=4))]
['unroll_annotated', 'flatten', 'simplify', 'compact', 'hoist', 'version_tails', 'without_doubtful_loops']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...ir import Program, numpy_dtype
from ...ir.dtypes import DTYPES
from .compact import compact
from .flatten import flatten
from .hoist import hoist
from .places import Places, place, without_doubtful_loops
from .simplify import simplify_program
from .tails import version_tails
from .unproved import Unproved, find_unproved
from .unroll import unroll_annotated

PASSES: tuple[tuple[str, Callable[[Program], Program]], ...] = (
    ("unroll_annotated", unroll_annotated),
    ("flatten", flatten),
    ("simplify", simplify_program),
    ("compact", compact),
    ("hoist", hoist),
    ("version_tails", version_tails),
    ("without_doubtful_loops", without_doubtful_loops),
)
ITEM_BYTES = {name: numpy_dtype(name).itemsize for name in DTYPES}


@dataclass(frozen=True)
class Lowered:
    program: Program
    places: Places
    unproved: Unproved


def steps(program: Program) -> Iterator[tuple[str, Program]]:
    """The name of each pass with the program after it."""
    for name, run in PASSES:
        program = run(program)
        yield name, program


def lower(program: Program, checked: bool = True) -> Lowered:
    """With `checked`, what is not proved in range is to be checked when it runs."""
    lowered = program
    for _, run in PASSES:
        lowered = run(lowered)
    unproved = find_unproved(program, lowered) if checked else Unproved(enabled=False)
    return Lowered(lowered, place(lowered, ITEM_BYTES), unproved)
