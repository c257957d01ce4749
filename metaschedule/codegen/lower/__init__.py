"""Lowering: from a program with blocks to loops, conditions and stores with a place for every buffer.

`PASSES` in order; each takes and gives a `Program`, so that `str` before and after shows what it did:

>>> from metaschedule import workloads
>>> from metaschedule.codegen.lower import steps
>>> [name for name, program in steps(workloads.create("NRM", m=4, n=4))][:4]
['unroll_annotated', 'flatten', 'simplify_program', 'compact_buffers']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...ir import Program
from .compact import compact_buffers
from .flatten import flatten
from .hoist import hoist_conditions
from .loop_versioning import version_loops
from .serialize import serialize_loops
from .simplify import simplify_program
from .storage_allocation import Storage, allocate_storage, serialize_unsafe_parallel
from .unproved import Unproved, find_unproved
from .unroll import unroll_annotated

PASSES: tuple[Callable[[Program], Program], ...] = (
    unroll_annotated,
    flatten,
    simplify_program,
    compact_buffers,
    serialize_loops,
    hoist_conditions,
    version_loops,
    serialize_unsafe_parallel,
)


@dataclass(frozen=True)
class Lowered:
    program: Program
    storage: Storage
    unproved: Unproved


def steps(program: Program) -> Iterator[tuple[str, Program]]:
    """The name of each pass with the program after it."""
    for run in PASSES:
        program = run(program)
        yield run.__name__, program


def lower(program: Program, checked: bool = True) -> Lowered:
    """With `checked`, what is not proved in range is to be checked when it runs."""
    lowered = program
    for run in PASSES:
        lowered = run(lowered)
    unproved = find_unproved(program, lowered) if checked else Unproved(enabled=False)
    return Lowered(lowered, allocate_storage(lowered), unproved)
