"""Which of two programs a group of a model runs: the one that was measured to be faster, if it is as exact.

Today's alternative to a convolution is Winograd's. Tuning compares every candidate with its own program as
written; how far rounding takes that one from a direct convolution depends on the weights, so it is found out
here, for the weights of each node.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from ..database import Database
from ..ir import Program
from ..search.result import fastest
from ..target import Target
from .fuse import Group
from .graph import Graph
from .lowerings.winograd import deviation
from .pipeline import Pieces

log = logging.getLogger("metaschedule")
TOLERANCE = 1e-4  # of the largest result


def faster_programs(pieces: Pieces, database: Database | None, target: Target) -> Pieces:
    """The pieces with each alternative that has a faster record than the program has. Without records of both
    nothing is changed."""
    if database is None:
        return pieces
    programs = dict(pieces.programs)
    for group, other in pieces.alternatives.items():
        times = [latency(database, program, target) for program in (programs[group], other)]
        if times[0] is None or times[1] is None or times[1] >= times[0]:
            continue
        exact = is_exact(group, pieces.graph)
        verdict = f"instead of {1e6 * times[0]:.1f} us" if exact else "not taken: it rounds too much"
        log.info("%s: %.1f us %s", other.name, 1e6 * times[1], verdict)
        if exact:
            programs[group] = other
    return replace(pieces, programs=programs)


def latency(database: Database, program: Program, target: Target) -> float | None:
    found = fastest(database.records(program, target), program)
    return found[0].latency if found else None


def is_exact(group: Group, graph: Graph) -> bool:
    assert group.anchor is not None
    _, weight, *_ = group.anchor.args
    return deviation(graph.constants[weight], group.anchor.result.shape) <= TOLERANCE
