"""Groups that go over the same rows become one, with several results.

A layer norm, the extremes of its rows, scales of these and the rows in bytes are one program: a row is
normalised, measured and quantised while it is in the nearest cache; floats, bytes and scales are its results.
So are groups of a few numbers, which cost little more than their calls.

Groups may be joined if one reads another and no third one has to run between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..ir import Load, subexpressions
from ..te.tensor import Stage, Tensor
from .lowering import Kind

if TYPE_CHECKING:
    from .fuse import Fusion, Group

MOST_NODES = 64  # of a group
FEWEST_ROWS = 8  # that are worth a kernel together: rows run in parallel
FEW = 4  # elements that are a few numbers
MOST_READ = 4096  # elements that are reduced to a few

Shape = tuple[int, ...]


def join_rows(fusion: Fusion) -> None:
    """Join what can be, from the first group on."""
    for node in fusion.graph.nodes:
        group = fusion.group[node]
        while (reader := joinable_reader(fusion, group)) is not None:
            fusion.merge(group, reader)
            group = reader


def joinable_reader(fusion: Fusion, group: Group) -> Group | None:
    if group.eager or group.kind == Kind.HEAVY or group.kind == Kind.VIEW:
        return None
    for reader in readers(fusion, group):
        if reader.eager or reader.kind == Kind.HEAVY or len(group.nodes) + len(reader.nodes) > MOST_NODES:
            continue
        if share_rows(fusion, group, reader) and not runs_between(fusion, group, reader):
            return reader
    return None


def readers(fusion: Fusion, group: Group) -> list[Group]:
    """The other groups that read results of a group."""
    found = (fusion.group[reader] for node in group.nodes for reader in fusion.readers[node])
    return [other for other in dict.fromkeys(found) if other is not group]


def runs_between(fusion: Fusion, group: Group, reader: Group) -> bool:
    """Whether a third group needs one and is needed by the other."""
    seen = {group, reader}
    waiting = [other for other in readers(fusion, group) if other is not reader]
    while waiting:
        other = waiting.pop()
        if other in seen:
            continue
        seen.add(other)
        for behind in readers(fusion, other):
            if behind is reader:
                return True
            waiting.append(behind)
    return False


def share_rows(fusion: Fusion, group: Group, reader: Group) -> bool:
    both = [*stages(fusion, group), *stages(fusion, reader)]
    if not both:
        return False
    if all(is_small(stage) for stage in both):
        return True
    reduced = any(stage.reduction is not None for stage in both)
    first = stages(fusion, group)
    rows = first[0].shape[:-1] if first else ()
    return reduced and math.prod(rows) >= FEWEST_ROWS and all(is_along(stage, rows) for stage in both)


def stages(fusion: Fusion, group: Group) -> list[Stage]:
    """What the nodes of a group compute, without what only gives it another shape."""
    found: dict[Stage, None] = {}
    outside = {fusion.tensors[v] for node in group.nodes for v in node.reads if v in fusion.tensors} - {
        fusion.tensors[v] for node in group.nodes for v in node.results if v in fusion.tensors
    }
    for node in group.nodes:
        for value in node.results:
            if value in fusion.tensors:
                collect(fusion.tensors[value], outside, found)
    return list(found)


def collect(tensor: Tensor, outside: set[Tensor], found: dict[Stage, None]) -> None:
    """The stages behind a tensor, up to what comes from outside."""
    waiting = [tensor]
    while waiting:
        stage = waiting.pop().stage
        if stage is None or stage in found:
            continue
        found[stage] = None
        waiting += [b for b in loaded(stage) if b not in outside]


def loaded(stage: Stage) -> Iterator[Tensor]:
    for value in stage.values:
        for e in subexpressions(value):
            if isinstance(e, Load) and isinstance(e.buffer, Tensor):
                yield e.buffer


def is_small(stage: Stage) -> bool:
    return math.prod(stage.shape) <= FEW and all(math.prod(b.shape) <= MOST_READ for b in loaded(stage))


def is_along(stage: Stage, rows: Shape) -> bool:
    """Whether a stage computes row by row: each from the same row of what has rows."""
    count = len(rows)
    if stage.shape[:count] != rows or len(stage.shape) > count + 1:
        return False
    for value in stage.values:
        for e in subexpressions(value):
            if isinstance(e, Load) and e.buffer.shape[:count] == rows:
                pairs = zip(e.indices, stage.indices[:count])
                if not all(i is own or extent == 1 for (i, own), extent in zip(pairs, rows)):
                    return False
    return True
