"""Arguments that share memory which a graph writes to.

AOTAutograd computes overlapping views of one buffer from that buffer, with the offsets that it has seen, and
all other tensors as if each had its memory alone; Dynamo guards neither. So a graph that writes is run only
for arguments that lie as the traced ones did:

    f(x, y): x.add_(1); return y * 2        traced with b[0:4], b[2:6]: one buffer, views at 0 and 2
                                            called with b[0:4], b[4:8]: y would be read at 2
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from .fallback import NotCaptured, give_up

# The numbers of two arguments, where each begins in its storage, and the bytes between these places.
Overlap = tuple[int, int, int, int, int]


def find_overlaps(args: Sequence[Any], written: Collection[int]) -> list[Overlap]:
    """The pairs of tensors that may have memory in common, of which one is written to.

    >>> b = torch.zeros(10)
    >>> find_overlaps([b[0:4], b[2:6], torch.zeros(4)], written={0})
    [(0, 1, 0, 2, 8)]
    >>> find_overlaps([b[0:4], b[4:8]], written={0}), find_overlaps([b, b[2:]], written={})
    ([], [])
    """
    ranges = [(a.data_ptr(), n, a) for n, a in enumerate(args) if has_memory(a)]
    ranges.sort(key=lambda one: one[0])
    found: list[Overlap] = []
    reaching: list[tuple[int, int, int]] = []  # end, begin and number of those that reach into the next
    for begin, n, tensor in ranges:
        reaching = [other for other in reaching if other[0] > begin]
        for _, other, m in reaching:
            if n in written or m in written:
                found.append((m, n, args[m].storage_offset(), tensor.storage_offset(), begin - other))
        reaching.append((begin + (tensor.nbytes if tensor.is_contiguous() else span(tensor)), begin, n))
    return found


def has_memory(arg: Any) -> bool:
    """Whether it is a tensor with elements at an address; fake and meta tensors have none."""
    plain = type(arg) in (torch.Tensor, torch.nn.Parameter) and arg.layout is torch.strided
    return plain and arg.device.type != "meta" and arg.numel() > 0


def span(tensor: torch.Tensor) -> int:
    """How many bytes are from the first to the last element."""
    steps = zip(tensor.shape, tensor.stride())
    return (1 + sum([(extent - 1) * stride for extent, stride in steps])) * tensor.element_size()


def keep_overlaps(
    run: Callable[..., Any],
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    written: Collection[int],
    weights: Collection[int],
    strict: bool,
) -> Callable[..., Any]:
    """Run a call by `run` if its arguments overlap as the traced ones did, otherwise in eager. Weights that
    nothing writes to are taken to be by themselves."""
    asked = [n for n in range(len(inputs)) if n in written or n not in weights]
    places = {place for place, n in enumerate(asked) if n in written}
    examples = [inputs[n] for n in asked]
    traced: list[Overlap] | None = find_overlaps(examples, places)
    if not all(is_one_storage(examples[m], examples[n]) for m, n, *_ in traced):
        traced = None  # it was not seen that they overlap
    said = False

    def call(*args: Any) -> Any:
        nonlocal said
        if find_overlaps([args[n] for n in asked], places) == traced:
            return run(*args)
        if strict or not said:
            why = NotCaptured("arguments share memory that is written to, otherwise than when it was traced")
            if strict:
                raise why
            give_up(why)
            said = True
        return module.forward(*args)

    return call


def is_one_storage(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.untyped_storage()._cdata == y.untyped_storage()._cdata
