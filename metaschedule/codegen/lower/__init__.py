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


def steps(program: Program) -> Iterator[tuple[str, Program]]:
    """The name of each pass with the program after it."""
    for name, run in PASSES:
        program = run(program)
        yield name, program


def lower(program: Program) -> Lowered:
    for _, run in PASSES:
        program = run(program)
    return Lowered(program, place(program, ITEM_BYTES))
