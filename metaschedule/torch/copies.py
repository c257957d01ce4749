"""Copies of a model and its arguments, for whoever looks at a model without leaving a trace."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


@contextmanager
def on_copies(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """The model and its arguments to call it with: the caller's stay as they are, as does torch's random
    generator. Parameters are not copied; that graphs write to none is up to `copy_inputs`."""
    with torch.random.fork_rng(devices=[]):
        memo = {id(t): copy_tensor(t) for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        own_args, own_kwargs = copy.deepcopy((tuple(args), dict(kwargs or {})), memo)
        yield copy_model(model), own_args, own_kwargs


def copy_model(model: Any) -> Any:
    """A module with the same parameters and its own buffers and attributes; the model itself if it is a
    function, or cannot be copied."""
    model = getattr(model, "_orig_mod", model)  # of what torch.compile made
    if not isinstance(model, torch.nn.Module):
        return model
    memo: dict[int, Any] = {id(parameter): parameter for parameter in model.parameters()}
    memo |= {id(buffer): copy_tensor(buffer) for buffer in model.buffers()}
    try:
        return copy.deepcopy(model, memo)
    except (TypeError, RuntimeError, NotImplementedError):  # it holds what Python cannot copy: a lock, a file
        return model


def copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """With the same strides, and memory of its own."""
    return copy.deepcopy(tensor.detach())


def copy_inputs(args: Sequence[Any], written: Collection[int]) -> list[Any]:
    return [copy_tensor(a) if n in written and isinstance(a, torch.Tensor) else a for n, a in enumerate(args)]
