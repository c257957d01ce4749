"""Graphs within graphs: conditions and trip counts must be known; loops are written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import InvalidModel
from ..registry import Op, Tensor, operator
from ..tensors import axes_of, constant, dtype_of, number


@operator("If")
def if_(op: Op, condition: Tensor, *, then_branch: Any, else_branch: Any) -> tuple[Any, ...]:
    chosen = then_branch if number(condition, "the condition of If") else else_branch
    return tuple(op.run(chosen, []))


@operator("Loop")
def loop(op: Op, trips: Tensor | None, condition: Tensor | None, *carried: Any, body: Any) -> tuple[Any, ...]:
    """Carried values, then what each trip gives, stacked."""
    most = None if trips is None else int(number(trips, "the trip count of Loop"))
    going = condition is None or bool(number(condition, "the condition of Loop"))
    values, given = list(carried), []
    done = 0
    while going and (most is None or done < most):
        goes_on, *results = op.run(body, [constant(done, torch.int64), constant(True, torch.bool), *values])
        values = results[: len(carried)]
        given.append(results[len(carried) :])
        done += 1
        going = bool(number(goes_on, "the condition of Loop"))
    count = len(body.proto.output) - 1 - len(carried)
    stacked = [
        torch.stack([row[n] for row in given]) if given else empty_scan(body, len(carried) + 1 + n)
        for n in range(count)
    ]
    return (*values, *stacked)


def empty_scan(body: Any, number: int) -> Tensor:
    """What no trip has given."""
    tensor = body.proto.output[number].type.tensor_type
    extents = [d.dim_value for d in tensor.shape.dim]
    return torch.zeros([0, *extents], dtype=dtype_of(tensor.elem_type))


@operator("Scan")
def scan(
    op: Op,
    *inputs: Any,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> tuple[Any, ...]:
    """Along an axis of some inputs, with values carried from step to step."""
    if op.version < 9:
        raise InvalidModel("Scan of opset 8 has batches and lengths")
    carried, along = list(inputs[:-num_scan_inputs]), inputs[-num_scan_inputs:]
    axes = [axes_of([a], x.ndim)[0] for a, x in zip(scan_input_axes or [0] * len(along), along)]
    backwards = list(scan_input_directions or [0] * len(along))
    steps = along[0].shape[axes[0]]
    given: list[list[Tensor]] = []
    count = len(carried)
    for step in range(steps):
        at = [steps - 1 - step if back else step for back in backwards]
        results = op.run(body, [*carried, *(x.select(a, n) for x, a, n in zip(along, axes, at))])
        carried = results[:count]
        given.append(results[count:])
    outputs = len(body.proto.output) - count
    reverse = list(scan_output_directions or [0] * outputs)
    places = list(scan_output_axes or [0] * outputs)
    stacked = []
    for n in range(outputs):
        rows = [row[n] for row in given]
        if not rows:
            stacked.append(empty_scan(body, count + n))
            continue
        rows = rows[::-1] if reverse[n] else rows
        stacked.append(torch.stack(rows, places[n]))
    return (*carried, *stacked)
