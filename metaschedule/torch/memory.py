"""Static memory: where intermediate results live, so that those alive at the same time never overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..runtime.kernel import ALIGNMENT


@dataclass(frozen=True)
class Need:
    """So many bytes, from the step that writes them to the last that reads them, both included."""

    nbytes: int
    first: int
    last: int


def assign_offsets(needs: Sequence[Need], alignment: int = ALIGNMENT) -> tuple[list[int], int]:
    """An offset for each need, aligned to so many bytes, and the size of the whole.

    The largest are placed first, each as low as those that live at the same time allow.

    >>> assign_offsets([Need(100, 0, 1), Need(50, 1, 2), Need(128, 2, 3)])
    ([0, 128, 0], 192)
    """
    offsets = [0] * len(needs)
    done: list[int] = []
    for n in sorted(range(len(needs)), key=lambda n: (-needs[n].nbytes, n)):
        need = needs[n]
        others = [m for m in done if needs[m].first <= need.last and need.first <= needs[m].last]
        at = 0
        for m in sorted(others, key=offsets.__getitem__):
            if at + need.nbytes <= offsets[m]:
                break
            at = max(at, round_up(offsets[m] + needs[m].nbytes, alignment))
        offsets[n] = at
        done.append(n)
    ends = [round_up(at + need.nbytes, alignment) for at, need in zip(offsets, needs)]
    return offsets, max(ends, default=0)


def round_up(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment
