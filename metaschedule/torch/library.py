"""A plan as the tables of a shared library (`runtime/model_library.py`): everything but torch."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..ir import dense_strides, normal_strides, reach
from ..runtime import ArgSpec
from ..runtime.kernel import align
from ..runtime.model_library import FIRST, MEMORY, WEIGHTS, CopyStep, ModelStep, ModelTables, weight_offsets
from ..runtime.sequence import Place
from ..target import Target
from .graph import Spec
from .outputs import COPY, Given, Output
from .plan import CONSTANTS, EagerStep, KernelStep, Plan, Ref
from .plan import FIRST as FIRST_OF_PLAN


class NotExportable(ValueError):
    """A model that needs torch when it runs."""


@dataclass(frozen=True)
class View:
    """Elements `offset` bytes behind a place of the plan: their shape, dtype and strides."""

    place: Place
    offset: int
    spec: Spec
    strides: tuple[int, ...]

    def is_all_of(self, base: int, spec: Spec) -> bool:
        """Whether it is what lies behind a base, element for element."""
        same = self.spec[1] == spec[1] and math.prod(self.spec[0]) == math.prod(spec[0])
        dense = normal_strides(self.spec[0], self.strides) is None
        return same and dense and self.place == Place(base, 0) and self.offset == 0


def model_tables(
    plan: Plan, input_names: Sequence[str], output_names: Sequence[str], target: Target
) -> ModelTables:
    """`output_names` are of all that the model returns; what is no tensor there is left out."""
    refuse_eager_steps(plan)
    shown = [(n, o) for n, o in zip(output_names, plan.outputs, strict=True) if is_tensor(o)]
    views = [(name, view_of(plan, output)) for name, output in shown]
    inputs = [ArgSpec(name, *spec) for name, spec in zip(input_names, plan.inputs, strict=True)]
    outputs = [ArgSpec(name, *view.spec) for name, view in views]
    weights, offsets = distinct_weights(plan.constants)
    first_output = FIRST + len(inputs)
    bases = {MEMORY: Place(MEMORY, 0)}
    bases |= {FIRST_OF_PLAN + n: Place(FIRST + n, 0) for n in range(len(inputs))}
    memory, written = align(plan.memory), set[int]()  # outputs that a kernel writes itself
    for base, spec in enumerate(plan.returned, FIRST_OF_PLAN + len(plan.inputs)):
        found = [n for n, (_, view) in enumerate(views) if view.is_all_of(base, spec)]
        if found:
            written.add(found[0])
            bases[base] = Place(first_output + found[0], 0)
        else:
            bases[base] = Place(MEMORY, memory)
            memory += align(ArgSpec("", *spec).nbytes)

    def place(at: Place, further: int = 0) -> Place:
        if at.base == CONSTANTS:
            return Place(WEIGHTS, offsets[at.offset] + further)
        return Place(bases[at.base].base, bases[at.base].offset + at.offset + further)

    steps = [
        ModelStep(step.kernel, place(step.workspace), tuple(map(place, step.arguments)), step.name)
        for step in plan.steps
        if isinstance(step, KernelStep)
    ]
    copies = [
        CopyStep(place(view.place, view.offset), n, view.strides)
        for n, (_, view) in enumerate(views)
        if n not in written
    ]
    kernels = [(compiled.on_cpu.kernel, compiled.on_cpu.code) for compiled in plan.kernels]
    return ModelTables(
        tuple(inputs), tuple(outputs), tuple(kernels), tuple(steps), tuple(copies), tuple(weights), memory,
        plan.threads, target,
    )  # fmt: skip


def refuse_eager_steps(plan: Plan) -> None:
    eager = [step for step in plan.steps if isinstance(step, EagerStep)]
    if eager:
        nodes = "\n".join(f"  {step.name} = {step.target}: {step.why}" for step in eager)
        raise NotExportable(f"this model runs partly in torch, which a library has not:\n{nodes}")


def is_tensor(output: Output) -> bool:
    return isinstance(output.source, (Ref, Given))


def view_of(plan: Plan, output: Output) -> View:
    """Where an output is, as what torch's views make of it."""
    if isinstance(output.source, Given):
        number = output.source.number
        (shape, dtype), at = plan.inputs[number], Place(FIRST_OF_PLAN + number, 0)
        strides = dense_strides(shape)
    else:
        ref = output.source
        shape, dtype, at = ref.shape, ref.dtype, ref.place
        strides = ref.strides or dense_strides(shape)
    memory = torch.empty(reach(shape, strides)[1], dtype=getattr(torch, dtype), device="meta")
    tensor = memory.as_strided(shape, strides)
    for call in output.views:
        if call == COPY:  # every output is a copy of its own
            continue
        seen = call.target(tensor, *call.args)
        tensor = seen[call.index] if isinstance(seen, (list, tuple)) else seen
        if tensor.untyped_storage()._cdata != memory.untyped_storage()._cdata or tensor.is_neg():
            raise NotExportable(
                f"an output is {call.target} of what lies in another order; return a copy of it"
            )
    dtype = str(tensor.dtype).removeprefix("torch.")
    offset = int(tensor.storage_offset()) * tensor.element_size()
    return View(at, offset, (tuple(tensor.shape), dtype), tuple(tensor.stride()))


def distinct_weights(constants: Sequence[torch.Tensor]) -> tuple[list[np.ndarray], list[int]]:
    """The constants as arrays of bytes, equal ones once; and the offset of each constant among them."""
    found: dict[bytes, int] = {}
    arrays: list[np.ndarray] = []
    numbers: list[int] = []
    for tensor in constants:
        array = tensor.contiguous().flatten().view(torch.uint8).numpy()
        key = hashlib.blake2b(array.data, digest_size=16).digest()
        if key not in found:
            found[key] = len(arrays)
            arrays.append(array)
        numbers.append(found[key])
    offsets = weight_offsets(a.nbytes for a in arrays)
    return arrays, [offsets[n] for n in numbers]
