"""A sketch in a line: which blocks were inlined, cached, moved where, factored, tensorized."""

from __future__ import annotations

from ..ir.annotations import CLAIMED, TILED
from ..schedule import BlockRV, Primitive, Trace
from ..schedule.primitive.base import map_handles

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
SUFFIXES = {
    "cache_write": "_collected",
    "cache_read": "_copied",
    "rfactor": "_factored",
    "decompose_reduction": "_init",
    "blockize": "_tile",
}


def outline(trace: Trace) -> str:
    """The steps of a trace that give its programs their structure, in order; "loops as written" if none.

    >>> from metaschedule import workloads
    >>> from metaschedule.space import default
    >>> outline(default("x86-64-v3,cores=2").sketches(workloads.create("GMM"))[0])
    'collect matmul; follow with matmul_collected at loop 5 of 9; RegisterTiling, packing no, columns inside'
    """
    names: dict[object, str] = {}  # of blocks, and of the blocks that loops are around
    order: list[object] = []
    steps: list[str] = []
    modules: dict[str, None] = {}
    drawn: set[object] = set()
    for i in trace.instructions:
        p = i.primitive
        fields = dict(zip(p.names, p.operands()))
        name = next((names[h] for h in handles(p) if h in names), "")
        if p.op == "get_block":
            name = fields["name"]
        elif p.op == "reorder":
            order = list(p.operands()[0])
        elif p.op == "sample_compute_location":
            drawn.update(i.outputs)
        elif p.op == "annotate" and fields["key"] in (CLAIMED.key, TILED.key):
            modules[str(fields["value"])] = None
        for output in i.outputs:
            names[output] = name + (SUFFIXES.get(p.op, "") if isinstance(output, BlockRV) else "")
        if p.op in SHOWN:
            steps.append(f"{SHOWN[p.op]} {name}{place(fields.get('loop'), order, drawn)}")
    return "; ".join([*steps, *modules]) or "loops as written"


def handles(primitive: Primitive) -> list[object]:
    """The handles among the operands of a step."""
    found: list[object] = []
    map_handles(primitive.operands(), found.append)
    return found


def place(loop: object, order: list[object], drawn: set[object]) -> str:
    """Where a loop is among those of the last reordering."""
    if loop in drawn:
        return " at a drawn loop"
    return f" at loop {order.index(loop) + 1} of {len(order)}" if loop in order else ""
