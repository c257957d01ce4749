"""A sketch in a line: which blocks were inlined, cached, moved where, factored, tensorized."""

from __future__ import annotations

from ..schedule import BlockRV, LoopRV, Trace
from .facts import CLAIMED, TILED

SHOWN = {
    "compute_inline": "inline",
    "reverse_compute_inline": "inline back",
    "cache_read": "copy operand of",
    "cache_write": "collect",
    "compute_at": "compute",
    "reverse_compute_at": "follow with",
    "rfactor": "factor",
    "tensorize": "tensorize",
    "decompose_padding": "peel",
    "transform_layout": "re-lay",
    "transform_block_layout": "re-index",
}
SUFFIXES = {"cache_write": "_collected", "cache_read": "_copied", "rfactor": "_factored"}


def outline(trace: Trace) -> str:
    """The steps of a trace that give its programs their structure, in order; "loops as written" if none.

    >>> from metaschedule import workloads
    >>> from metaschedule.space import default
    >>> outline(default("x86-64-v3,cores=2").sketches(workloads.create("GMM"))[0])
    'collect matmul; follow with matmul_collected at loop 5 of 9; RegisterTiling, packing no, columns inside'
    """
    names: dict[object, str] = {}
    order: list[object] = []
    steps: list[str] = []
    modules: dict[str, None] = {}
    for i in trace.instructions:
        p = i.primitive
        fields = dict(zip(p.names, p.operands()))
        handle = fields.get("block", fields.get("target"))
        name = names.get(handle, "")
        if p.op == "get_block":
            names[i.outputs[0]] = fields["name"]
        elif p.op == "reorder":
            order = list(p.operands()[0])
        elif p.op == "annotate" and fields["key"] in (CLAIMED, TILED):
            modules[str(fields["value"])] = None
        suffix = SUFFIXES.get(p.op, "_new")
        for output in i.outputs:
            if isinstance(output, BlockRV):
                names.setdefault(output, f"{name}{suffix}")
        if p.op in SHOWN:
            where = ""
            loop = fields.get("loop")
            if p.op.endswith("compute_at") and isinstance(loop, LoopRV):
                known = loop in order
                where = f" at loop {order.index(loop) + 1} of {len(order)}" if known else " at a drawn loop"
            steps.append(f"{SHOWN[p.op]} {name}{where}".strip())
    return "; ".join([*steps, *modules]) or "loops as written"
