"""From a program to kernels: one for every statement of its body.

Passes in order, of each statement: loops unrolled as blocks ask for it, blocks away (`lower/flatten`),
indices simplified, shared memory cut down, threads merged, registers cut down, virtual threads moved inside,
chunks fetched ahead, barriers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ... import ir
from ...target import Target
from ..lower.flatten import flatten
from ..lower.hoist import hoist_conditions
from ..lower.simplify import simplify_program
from ..lower.unproved import Unproved, find_unproved
from ..lower.unroll import unroll_annotated
from .barriers import place_barriers
from .merge import cut_axes, find_axes, merge_axes
from .model import THREADS, Axes, GpuKernel, buffer_bytes, refuse
from .pipeline import pipeline_loops
from .reductions import split_cross_thread
from .storage import place_local, place_shared, promote_shared
from .vthreads import sink_vthreads


@dataclass
class LoweredGpu:
    """Kernels in order, and the buffers in memory of the device that they pass values through."""

    kernels: list[GpuKernel]
    workspace: list[ir.Buffer]
    tables: list[ir.Buffer]


def lower_gpu(program: ir.Program, target: Target, checked: bool = True, synced: bool = True) -> LoweredGpu:
    """The kernels of a program. Without `synced` they have no barriers, for tests of what finds that out."""
    users = count_users(program)
    kernels: list[GpuKernel] = []
    workspace: list[ir.Buffer] = []
    tables: list[ir.Buffer] = []
    for number, s in enumerate(program.body):
        part = ir.replace_fields(program, body=(s,))
        own = {b for b, n in users.items() if n == 1 and b in set(program.allocs)}
        kernel = lower_statement(
            part, program, own, f"{clean_name(program.name)}_{number}", target, checked, synced
        )
        kernels.append(kernel)
        used = buffers_of(kernel.program)
        for b in kernel.program.allocs:
            if b in used and b.data is not None and b not in tables:
                tables.append(b)
            elif b in used and b.data is None and b.scope == "global" and b not in workspace:
                workspace.append(b)
    return LoweredGpu(kernels, workspace, tables)


def lower_statement(
    part: ir.Program,
    source: ir.Program,
    own: set[ir.Buffer],
    name: str,
    target: Target,
    checked: bool,
    synced: bool,
) -> GpuKernel:
    axes = find_axes(part.body[0], source)
    check_threads(axes, target, part)
    warp = target.gpu.warp if target.gpu is not None and target.kind == "cuda" else 1
    lowered = unroll_annotated(split_cross_thread(part, source, warp))
    flat = flatten(lowered)
    own = own | {b for b in flat.allocs if b not in source.allocs}
    flat = simplify_program(flat)
    flat = place_shared(flat, own, source)
    flat = promote_private(flat, own)
    check_shared(buffers_in(flat, "shared"), target, part)
    axes = cut_axes(axes, flat)
    body: ir.Body = ()
    for s in flat.body:
        body += merge_axes(s, axes)
    merged = simplify_program(ir.replace_fields(flat, body=join_axes(body)))
    merged = place_local(merged, axes, own, source, instance_buffers(lowered))
    merged = sink_vthreads(merged, axes)
    check_private(buffers_in(merged, "local"), axes, target, part)
    merged = simplify_program(hoist_conditions(merged))
    merged, ahead = pipeline_loops(merged)
    check_shared(buffers_in(merged, "shared"), target, part)
    if synced:
        merged = place_barriers(merged, axes, source)
    used = buffers_of(merged)
    allocs = [b for b in merged.allocs if b in used]
    return GpuKernel(
        name,
        axes,
        merged,
        tuple(b for b in allocs if b.scope == "local"),
        tuple(b for b in allocs if b.scope == "shared"),
        find_unproved(part, merged) if checked else Unproved(enabled=False),
        frozenset(ahead),
    )


def instance_buffers(program: ir.Program) -> set[ir.Buffer]:
    """The buffers that every instance of a block has for itself, run by one thread."""
    found: set[ir.Buffer] = set()
    for block in ir.blocks(program):
        if not any(isinstance(s, ir.For) and s.kind in ir.GPU_AXES for s in ir.walk(block.body)):
            found |= set(block.allocs)
    return found


def promote_private(flat: ir.Program, own: set[ir.Buffer]) -> ir.Program:
    """Buffers without a scope: what may be registers stays for `place_local` to find."""
    new = promote_shared(flat, own)
    for old, b in zip(flat.allocs, new.allocs, strict=True):
        if old is not b and old in own:
            own.add(b)
    return new


def join_axes(body: ir.Body) -> ir.Body:
    """Statements inside of the same loops over axes, as one."""
    if len(body) <= 1:
        return body
    first = body[0]
    if isinstance(first, ir.For) and first.kind in ir.GPU_AXES:
        inner: ir.Body = ()
        for s in body:
            assert isinstance(s, ir.For)
            inner += s.body
        return (ir.replace_fields(first, body=join_axes(inner)),)
    return body


def check_threads(axes: Axes, target: Target, source: ir.Program) -> None:
    """That a block has no more threads than the device allows."""
    gpu, threads = target.gpu, math.prod(axes.sizes(THREADS))
    if gpu is not None and threads > gpu.max_threads:
        bound = {s: s.kind for s in ir.walk(source) if isinstance(s, ir.For) and s.kind in THREADS}
        raise refuse(
            f"a block would have {threads} threads; {gpu.device} has at most {gpu.max_threads}",
            source,
            dict(bound),
            "split the loops bound to threadIdx",
        )


def check_private(buffers: list[ir.Buffer], axes: Axes, target: Target, source: ir.Program) -> None:
    """That what threads have for themselves fits the device."""
    gpu, threads = target.gpu, math.prod(axes.sizes(THREADS))
    size = sum(map(buffer_bytes, buffers)) * threads
    if gpu is not None and size > gpu.max_private:
        raise refuse(
            f"{threads} threads would need {size} bytes for themselves; {gpu.device} has {gpu.max_private}",
            source,
            {
                b: "in memory of a thread"
                for b in ir.blocks(source)
                if any(w.buffer.scope == "local" for w in b.writes)
            },
            "fewer threads, or fewer results of each",
        )


def check_shared(buffers: list[ir.Buffer], target: Target, source: ir.Program) -> None:
    """That what is shared by the threads of a block fits the device."""
    gpu, size = target.gpu, sum(map(buffer_bytes, buffers))
    if gpu is not None and size > gpu.max_shared:
        names = ", ".join(f"{b.name} {list(b.shape)}" for b in buffers)
        raise refuse(
            f"a block would need {size} bytes of shared memory ({names}); {gpu.device} has {gpu.max_shared}",
            source,
            {
                b: "in shared memory"
                for b in ir.blocks(source)
                if any(w.buffer.scope == "shared" for w in b.writes)
            },
            "smaller tiles",
        )


def buffers_in(program: ir.Program, scope: str) -> list[ir.Buffer]:
    """The buffers of a scope that the kernel uses; a program may have others, of other kernels."""
    used = buffers_of(program)
    return [b for b in program.allocs if b.scope == scope and b in used]


def buffers_of(program: ir.Program) -> set[ir.Buffer]:
    found = {s.buffer for s in ir.walk(program) if isinstance(s, ir.Store)}
    return found | {e.buffer for e in ir.expressions(program) if isinstance(e, ir.Load)}


def count_users(program: ir.Program) -> dict[ir.Buffer, int]:
    """How many statements of the program's body use a buffer."""
    counts: dict[ir.Buffer, int] = {}
    for s in program.body:
        for b in buffers_of(ir.replace_fields(program, body=(s,))):
            counts[b] = counts.get(b, 0) + 1
    return counts


def clean_name(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name) or "kernel"
