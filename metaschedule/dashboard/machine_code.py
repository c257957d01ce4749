"""The inner loop of a kernel, found in its assembly, and what bounds it.

A loop is a label with a jump back to it and no other loop between. The one that matters has the most vector
products: it is the reduction of the register tile.

    .LBB0_5:                                    3 loads, 2 products, 0 stores: bound by loads
        vmovups (%rsi,%rax), %ymm0
        vfmadd231ps (%rdi), %ymm0, %ymm1
        vfmadd231ps 32(%rdi), %ymm0, %ymm2
        jne .LBB0_5

Two products, two loads and one store of vectors start in a cycle on the cores of today (half of each where
vectors of 64 bytes take two passes, which leaves the comparison as it is), and six instructions are decoded.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

COMMENT = re.compile(r"(#\s|//).*")  # "#16" is a number on ARM
LABEL = re.compile(r"([.\w$]+):")
JUMP = re.compile(
    r"\s+(?:j\w+|b(?:\.\w+|eq|ne|lt|ge|ltu|geu|eqz|nez)?|cbn?z|tbn?z)\s+(?:.*,\s*)?([.\w$]+)\s*$"
)
PRODUCT = re.compile(
    r"vf?n?m(add|sub)|vfn?m(add|sub)|vpdp|vdpbf|vpmadd|fml[as]|[su]+m?mla|bfmmla|[su]+dot|bfdot|tdp|v[fw]*macc"
)
IN_MEMORY = re.compile(r"\([^)]*\)|(?<!\w)\[")  # AT&T and RISC-V; ARM, where v2.s[0] is a register
RATES = {"products": 2, "loads": 2, "stores": 1, "instructions": 6}  # a cycle


@dataclass(frozen=True)
class InnerLoop:
    """Lines `first` to `last` of the assembly, counted from 0, and how many instructions of each kind."""

    first: int
    last: int
    instructions: int
    products: int  # multiply-adds and dot products of vectors
    loads: int
    stores: int

    @property
    def bound(self) -> str:
        """The kind that takes the most cycles."""
        return max(RATES, key=lambda kind: getattr(self, kind) / RATES[kind])

    def as_data(self) -> dict[str, Any]:
        return asdict(self) | {"bound": self.bound}


def find_inner_loop(text: str) -> InnerLoop | None:
    r"""The innermost loop with the most vector products, or with the most instructions if none has any.

    >>> loop = find_inner_loop("f:\n\tnop\n.L1:\n\tvfmadd231ps (%rdi), %ymm0, %ymm1\n\tjne\t.L1\n\tret")
    >>> loop.products, loop.loads, loop.stores, loop.bound
    (1, 1, 0, 'products')
    """
    lines = [COMMENT.sub("", line).rstrip() for line in text.splitlines()]
    labels = {found[1]: n for n, line in enumerate(lines) if (found := LABEL.match(line))}
    jumps = [(n, found[1]) for n, line in enumerate(lines) if (found := JUMP.match(line))]
    spans = [(labels[label], n) for n, label in jumps if labels.get(label, n) < n]
    inner = [a for a in spans if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in spans)]
    loops = [count_instructions(lines, first, last) for first, last in inner]
    return max(loops, key=lambda loop: (loop.products, loop.instructions), default=None)


def count_instructions(lines: list[str], first: int, last: int) -> InnerLoop:
    body = [line.split(None, 1) for line in lines[first : last + 1] if line[:1].isspace() and line.strip()]
    code = [(parts[0], parts[1] if len(parts) > 1 else "") for parts in body if not parts[0].startswith(".")]
    touching = [
        (op, args) for op, args in code if IN_MEMORY.search(args) and not op.startswith(("lea", "prefetch"))
    ]
    stores = sum(is_store(op, args) for op, args in touching)
    products = sum(bool(PRODUCT.match(op)) for op, _ in code)
    return InnerLoop(first, last, len(code), products, len(touching) - stores, stores)


def is_store(op: str, args: str) -> bool:
    """x86 writes its last operand; ARM and RISC-V say it in the name."""
    if "%" in args:
        return args.endswith(")") and op.startswith(("mov", "vmov", "vextract", "vpextr", "vpmov"))
    return op.startswith(("st", "vs", "sw", "sd"))
