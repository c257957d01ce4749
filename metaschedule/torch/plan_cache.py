"""Plans of graphs in the cache on disk: a process that finds one traces, fuses, compiles and packs nothing.

A plan refers to its kernels, which are entries by themselves, and to its constants: weights as they are
given, or what was made of them, by content. Of equal constants a process has one copy, whoever uses them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.weak import WeakIdKeyDictionary

from ..cache import Entry, digest_of, identify, store
from ..database import Database
from ..measure.kernel_cache import extensions, find_stages
from ..target import Target
from .graph_key import NoKey, Source, digests, raw_bytes
from .kernels import KNOWN, Compiled, Compiler, load_kernels
from .plan import Plan
from .stored import get_dtype, plan_from_json, plan_to_json

log = logging.getLogger("metaschedule")
PLANS, CONSTANTS = "plans", "constants"
CONTENT = "content"  # the identity of constants: bytes mean the same everywhere
SMALL = 4096  # bytes up to which a constant is part of the plan

SHARED: WeakValueDictionary[str, torch.Tensor] = WeakValueDictionary()  # constants by content
DIGESTS: Any = WeakIdKeyDictionary()  # of constants that nobody changes


def plan_key(source: Source, database: Database | None, weights: str | None) -> str | None:
    """The name of a graph's plan; None if it has none. `weights` is that of `Options`."""
    bound = store().bound
    if not bound or sum(source.args[n].nbytes for n in source.constants) > bound // 2:
        return None
    try:
        name = None if database is None else database.name
        return digest_of(["plan", source.key, weights, name, extensions()])
    except NoKey as why:
        log.info("cache: the plan of a graph is not kept: it has %s", why)
        return None


def find_plan(key: str, source: Source, target: Target, database: Database | None) -> Plan | None:
    """The plan that was kept, if all of it is there and there are no better records."""
    entry = store().read(PLANS, key, identify(target.to_json()))
    if entry is None:
        return None
    compiler = Compiler(target, database, entry.data["model"])
    if any(compiler.describe_records(workload) != known for workload, known in entry.data["records"]):
        store().counts["plans outdated"] += 1
        return None
    kernels = [find_kernel(name, latency, target) for name, latency in entry.data["kernels"]]
    constants = find_constants(entry, source)
    if constants is None or None in kernels:
        store().counts["plans incomplete"] += 1
        return None
    return plan_from_json(entry.data["plan"], [k for k in kernels if k is not None], constants)


def find_kernel(name: Sequence[str], latency: float | None, target: Target) -> Compiled | None:
    full: Any = tuple(name)
    if (known := KNOWN.get(full)) is not None:
        return known
    stages = find_stages(full[0], target)
    if stages is None:
        return None
    found = KNOWN[full] = load_kernels(stages, latency, full)
    return found


def find_constants(entry: Entry, source: Source) -> list[torch.Tensor] | None:
    """None if one is not there any more."""
    specs, places = entry.data["plan"]["constants"], entry.data["constants"]
    names = [f"{place.get('content')} {dtype}{list(shape)}" for (shape, dtype), place in zip(specs, places)]
    missing = {
        place["content"]
        for name, place in zip(names, places)
        if "content" in place and not place["inside"] and name not in SHARED
    }
    read = read_constants(sorted(missing))
    inside = iter(entry.parts)
    found: list[torch.Tensor] = []
    for name, (shape, dtype), place in zip(names, specs, places, strict=True):
        if "argument" in place:
            found.append(source.args[place["argument"]].detach().view(shape))
            continue
        memory = next(inside) if place["inside"] else read.get(place["content"])
        known = SHARED.get(name)
        if known is None:
            if memory is None:
                return None
            known = SHARED[name] = tensor_in(memory, shape, dtype)
            DIGESTS[known] = place["content"]
        found.append(known)
    return found


def read_constants(contents: Sequence[str]) -> dict[str, memoryview]:
    """Those that are there, by content; several at once, since digests take as long as reading."""

    def read(content: str) -> memoryview | None:
        kept = store().read(CONSTANTS, content, CONTENT)
        return None if kept is None or kept.data["content"] != content else kept.parts[0]

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = list(pool.map(read, contents))
    return {content: memory for content, memory in zip(contents, found) if memory is not None}


def tensor_in(memory: memoryview, shape: Sequence[int], dtype: str) -> torch.Tensor:
    """The tensor that a part of an entry is; it keeps the memory."""
    if not len(memory):
        return torch.empty(shape, dtype=get_dtype(dtype))
    return torch.frombuffer(memory, dtype=torch.uint8).view(get_dtype(dtype)).view(shape)


def share_constants(plan: Plan, given: Sequence[torch.Tensor]) -> list[dict[str, Any]]:
    """Let the plan use the process's copies of its constants, except of those in the memory of tensors that
    were `given`: these may be changed. Says where each constant is found again."""
    plain = [(n, t) for n, t in enumerate(given) if not is_traceable_wrapper_subclass(t)]
    memory = {t.untyped_storage().data_ptr() for one in given for t in tensors_inside(one)}
    whole = {(t.data_ptr(), t.nbytes, t.dtype): n for n, t in plain if t.is_contiguous()}
    own = [t for t in plan.constants if t.untyped_storage().data_ptr() not in memory and t not in DIGESTS]
    for tensor, content in zip(own, digests(own)):
        DIGESTS[tensor] = content
    places: list[dict[str, Any]] = []
    for n, tensor in enumerate(plan.constants):
        number = whole.get((tensor.data_ptr(), tensor.nbytes, tensor.dtype)) if tensor.nbytes else None
        if number is not None and tensor.is_contiguous():
            places.append({"argument": number})
            continue
        content = DIGESTS.get(tensor)
        if content is not None:
            dtype = str(tensor.dtype).removeprefix("torch.")
            plan.constants[n] = SHARED.setdefault(f"{content} {dtype}{list(tensor.shape)}", tensor)
        else:
            (content,) = digests([tensor])
        places.append({"content": content, "inside": tensor.nbytes <= SMALL})
    return places


def tensors_inside(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors with memory that one is made of: several if it is of a subclass, as torchao's weights."""
    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for name in names:
        yield from tensors_inside(getattr(tensor, name))


def keep_plan(
    key: str,
    plan: Plan,
    source: Source,
    places: Sequence[dict[str, Any]],
    made: Compiler,
    records: Mapping[str, str],
) -> None:
    """Write a plan and its constants down, whole or, where something cannot be, not at all. `records` is what
    the database said of each program."""
    if not all(one.name for one in plan.kernels):
        return
    own = [(t, p) for t, p in zip(plan.constants, places) if "content" in p]
    if sum(t.nbytes for t, _ in own) > store().bound // 2:
        return
    tensors = [n for n, a in enumerate(source.args) if isinstance(a, torch.Tensor)]
    places = [{"argument": tensors[p["argument"]]} if "argument" in p else p for p in places]
    data = {
        "kernels": [[one.name, one.latency] for one in plan.kernels],
        "constants": places,
        "model": made.model,
        "records": sorted(records.items()),
    }
    try:
        data["plan"] = plan_to_json(plan)
    except TypeError as why:
        log.info("cache: the plan of a graph is not kept: %s", why)
        return
    for tensor, place in own:
        if not place["inside"] and not keep_constant(tensor, place["content"]):
            return
    parts = [raw_bytes(tensor) for tensor, place in own if place["inside"]]
    store().write(PLANS, key, identify(made.target.to_json()), data, parts)


def keep_constant(tensor: torch.Tensor, content: str) -> bool:
    """Whether it is there afterwards."""
    there = store().has(CONSTANTS, content, CONTENT)
    return there or store().write(CONSTANTS, content, CONTENT, {"content": content}, [raw_bytes(tensor)])
