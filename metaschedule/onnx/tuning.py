"""`tune`, `explain`: what becomes of a model, and its programs made fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..search import Result
from ..torch.capture import capture
from ..torch.pipeline import fuse_graph
from ..torch.placement import GraphCall
from ..torch.tasks import DatabaseLike, open_database, tasks, tune_programs
from .compile import trace_values
from .model import Model, ModelLike, load

Inputs = Sequence[Any] | Mapping[str, Any] | None


def fuse_model(
    model: ModelLike | Model, inputs: Inputs = None, sizes: Mapping[str, int] | None = None
) -> GraphCall:
    """The fused graph of a model with what comes to it: inputs like these, or zeros of the sizes given by
    name (1 for those that are not given)."""
    found = load(model)
    if inputs is None:
        arguments = found.example(sizes)
    elif isinstance(inputs, Mapping):
        arguments = found.bind((), inputs)
    else:
        arguments = found.bind(tuple(inputs), {})
    traced, _ = trace_values(found, arguments, frozenset())
    leaves: list[Any] = []
    for name in traced.takes:
        value = arguments[name]
        leaves += value if isinstance(value, list) else [value]
    graph = capture(traced.module, leaves)
    return GraphCall(fuse_graph(graph), [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])


def tune(
    model: ModelLike | Model,
    inputs: Inputs = None,
    *,
    database: DatabaseLike,
    sizes: Mapping[str, int] | None = None,
    trials: int | None = None,
    minutes: float | None = None,
    show: bool = True,
    **options: Any,
) -> list[Result]:
    """Tune the programs of a model for inputs like these, or for zeros with the given `sizes` of dimensions
    that the model leaves open; the records go to the database. `options` are those of `metaschedule.tune`."""
    call = fuse_model(model, inputs, sizes)
    with open_database(database) as db:
        return tune_programs(tasks([call.parts]), db, show, [call], trials=trials, minutes=minutes, **options)
