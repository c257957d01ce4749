"""Arguments of other sizes, out of an example: for `ms.torch.tune(..., sizes={"seq": [1, 16, 128]})`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

Sizes = Mapping[str | int, Sequence[int]]
DIMENSIONS: dict[str, tuple[int, ...]] = {  # what a name says of tensors
    "batch": (0,),
    "seq": (1,),
    "length": (1,),
    "height": (-2,),
    "width": (-1,),
    "image": (-2, -1),
}


def arguments_of_sizes(
    args: Sequence[Any], kwargs: Mapping[str, Any] | None, sizes: Sizes
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments like these for all combinations of sizes. A name stands for a dimension, or a number does;
    the tensors that have the extent of the first one there get another, with their elements repeated.

    >>> found = arguments_of_sizes((torch.arange(6).reshape(2, 3),), {}, {"seq": [1, 4]})
    >>> [args[0].tolist() for args, _ in found]
    [[[0], [3]], [[0, 1, 2, 0], [3, 4, 5, 3]]]
    """
    leaves, spec = tree_flatten((tuple(args), dict(kwargs or {})))
    dims = [dimensions_of(name) for name in sizes]
    for name, wanted in sizes.items():
        if not wanted or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in wanted):
            raise ValueError(f"the sizes of {name!r} must be positive integers, got {wanted!r}")
    for name, own in zip(sizes, dims):
        if any(find_extent(leaves, dim) is None for dim in own):
            raise ValueError(f"no argument has a dimension {name!r}")
    for combination in itertools.product(*sizes.values()):
        new = leaves
        for own, size in zip(dims, combination):
            for dim in own:
                new = [resize(leaf, dim, find_extent(leaves, dim), size) for leaf in new]
        yield tree_unflatten(new, spec)


def dimensions_of(name: str | int) -> tuple[int, ...]:
    if isinstance(name, int):
        return (name,)
    if name not in DIMENSIONS:
        raise ValueError(f"sizes are of {', '.join(DIMENSIONS)} or of a dimension's number, not of {name!r}")
    return DIMENSIONS[name]


def has_dimension(leaf: Any, dim: int) -> bool:
    return isinstance(leaf, torch.Tensor) and -leaf.ndim <= dim < leaf.ndim


def find_extent(leaves: Sequence[Any], dim: int) -> int | None:
    """That of the first tensor that has such a dimension."""
    return next((leaf.shape[dim] for leaf in leaves if has_dimension(leaf, dim)), None)


def resize(leaf: Any, dim: int, extent: int | None, size: int) -> Any:
    if not has_dimension(leaf, dim) or leaf.shape[dim] != extent or not extent:
        return leaf
    return leaf.index_select(dim, torch.arange(size) % extent)
