"""A plan as JSON and back: everything but object code and the values of constants."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import TreeSpec, treespec_loads

from ..runtime.sequence import Place
from .graph import spec_of
from .kernels import Compiled
from .outputs import Given, Output, ViewCall
from .plan import EagerStep, KernelStep, Plan, Ref, Write

NAMED = {  # what operators take besides tensors and numbers, by the names torch has for them
    "dtype": torch.dtype,
    "memory_format": torch.memory_format,
    "layout": torch.layout,
}


def plan_to_json(plan: Plan) -> dict[str, Any]:
    return {
        "inputs": plan.inputs,
        "returned": plan.returned,
        "eager_results": plan.eager_results,
        "constants": [spec_of(tensor) for tensor in plan.constants],
        "steps": [step_to_json(step) for step in plan.steps],
        "outputs": [output_to_json(output) for output in plan.outputs],
        "writes": [(w.input, None if w.output is None else output_to_json(w.output)) for w in plan.writes],
        "memory": plan.memory,
        "threads": plan.threads,
    }


def plan_from_json(
    data: Mapping[str, Any], kernels: Sequence[Compiled], constants: Sequence[torch.Tensor]
) -> Plan:
    return Plan(
        [(tuple(shape), dtype) for shape, dtype in data["inputs"]],
        [(tuple(shape), dtype) for shape, dtype in data["returned"]],
        data["eager_results"],
        list(constants),
        list(kernels),
        [step_from_json(step) for step in data["steps"]],
        [output_from_json(*output) for output in data["outputs"]],
        data["memory"],
        data["threads"],
        [
            Write(number, None if output is None else output_from_json(*output))
            for number, output in data.get("writes", [])
        ],
    )


def tensor(shape: Sequence[int], dtype: str, values: bytes) -> torch.Tensor:
    """In memory of torch's, which is aligned."""
    kind = get_dtype(dtype)
    if len(values) != math.prod(shape) * kind.itemsize:
        raise ValueError(f"a constant {dtype}{list(shape)} has {len(values)} bytes")
    result = torch.empty(shape, dtype=kind)
    if values:
        result.view(-1).view(torch.uint8).copy_(torch.frombuffer(bytearray(values), dtype=torch.uint8))
    return result


def get_dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name} is not a dtype")
    return found


def output_to_json(output: Output) -> Any:
    return encode(output.source), [call_to_json(view) for view in output.views], output.strides


def output_from_json(source: Any, views: Sequence[Any], strides: Sequence[int] | None) -> Output:
    calls = tuple([ViewCall(**call_from_json(view)) for view in views])
    return Output(decode(source), None, calls, None if strides is None else tuple(strides))


def step_to_json(step: KernelStep | EagerStep) -> dict[str, Any]:
    return asdict(step) if isinstance(step, KernelStep) else call_to_json(step)


def step_from_json(data: Mapping[str, Any]) -> KernelStep | EagerStep:
    if "target" in data:
        call = call_from_json(data)
        call["results"] = tuple([(tuple(shape), dtype) for shape, dtype in call["results"]])
        return EagerStep(**call)
    arguments = tuple([Place(*place) for place in data["arguments"]])
    return KernelStep(data["kernel"], arguments, Place(*data["workspace"]), data["name"])


def call_to_json(call: EagerStep | ViewCall) -> dict[str, Any]:
    """A call of one of torch's operators; all else in it is plain."""
    return {name: encode(value) for name, value in vars(call).items()}


def call_from_json(data: Mapping[str, Any]) -> dict[str, Any]:
    call = {name: decode(value) for name, value in data.items()}
    return call | {"args": tuple(call["args"])}


def encode(item: Any) -> Any:
    """As JSON; what that has not is a dictionary of one entry."""
    if item is None or isinstance(item, (bool, int, float, str)):
        return item
    if isinstance(item, (list, tuple)) and not isinstance(item, Ref):
        return [encode(part) for part in item]
    if isinstance(item, dict):
        return {"dict": {key: encode(value) for key, value in item.items()}}
    if isinstance(item, Ref):
        return {"ref": [item.place, item.shape, item.dtype, item.strides]}
    if isinstance(item, Given):
        return {"given": item.number}
    if isinstance(item, OpOverload):
        return {"operator": str(item).split(".")}
    if isinstance(item, torch.device):
        return {"device": str(item)}
    for name, kind in NAMED.items():
        if isinstance(item, kind):
            return {name: str(item).removeprefix("torch.")}
    raise TypeError(f"a model that passes {item!r} to an operator in eager cannot be saved")


def decode(data: Any) -> Any:
    if isinstance(data, list):
        return [decode(part) for part in data]
    if not isinstance(data, dict):
        return data
    ((kind, value),) = data.items()
    if kind == "dict":
        return {key: decode(item) for key, item in value.items()}
    if kind == "ref":
        place, shape, dtype, strides = value
        return Ref(Place(*place), tuple(shape), dtype, None if strides is None else tuple(strides))
    if kind == "given":
        return Given(value)
    if kind == "operator":
        found: Any = torch.ops
        for name in value:
            found = getattr(found, name)
        if not isinstance(found, OpOverload):
            raise ValueError(f"{'.'.join(value)} is not an operator of torch")
        return found
    if kind == "device":
        return torch.device(value)
    found = getattr(torch, value)
    if not isinstance(found, NAMED[kind]):
        raise ValueError(f"{value} is no {kind} of torch")
    return found


def structure(text: str) -> TreeSpec:
    """How arguments or results are nested. Torch imports the modules of enumerations and factories in it by
    name; here they must have been imported."""
    waiting: list[Any] = [json.loads(text)]
    while waiting:
        data = waiting.pop()
        if isinstance(data, str) and data[:1] in ("{", "["):  # JSON in JSON
            waiting.append(json.loads(data))
        elif isinstance(data, list):
            waiting += data
        elif isinstance(data, dict):
            waiting += data.values()
            for name in (data.get("fqn"), data.get("default_factory_module")):
                if name is not None and name.partition(":")[0] not in sys.modules:
                    raise ValueError(f"it speaks of {name}: import that first")
    return treespec_loads(text)
