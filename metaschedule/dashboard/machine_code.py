"""The inner loop of a kernel, found in its assembly, and what bounds it.

A loop is a natural one of the control flow, because compilers rotate loops: a jump back may be that of an
outer loop whose latch was put first. The innermost that matters has the most vector products: it is the
reduction of the register tile.

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
ENDS = {"b", "br", "j", "jmp", "jmpq", "jr", "ret", "retq", "ud2"}  # what never goes on with the next line
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
    loops = [count_instructions(lines, sorted(part)) for part in innermost_loops(lines)]
    return max(loops, key=lambda loop: (loop.products, loop.instructions), default=None)


def innermost_loops(lines: list[str]) -> list[set[int]]:
    """The lines of each loop that has no other in it."""
    blocks, following = basic_blocks(lines)
    before: list[list[int]] = [[] for _ in blocks]
    for n, others in enumerate(following):
        for other in others:
            before[other].append(n)
    dominators = find_dominators(before)
    bodies: dict[int, set[int]] = {}
    for n, others in enumerate(following):
        for header in others & dominators[n]:  # a jump back
            body = bodies.setdefault(header, {header})
            waiting = [n]
            while waiting:
                block = waiting.pop()
                if block not in body:
                    body.add(block)
                    waiting += before[block]
    inner = [body for header, body in bodies.items() if not body & (bodies.keys() - {header})]
    return [{line for block in body for line in range(*blocks[block])} for body in inner]


def basic_blocks(lines: list[str]) -> tuple[list[tuple[int, int]], list[set[int]]]:
    """Lines from label to jump, and the numbers of the blocks that may come next after each."""
    jumps = {n: found for n, line in enumerate(lines) if (found := JUMP.match(line))}
    ends = {n for n, line in enumerate(lines) if (op := line.split()) and op[0] in ENDS and line[0].isspace()}
    labels = {found[1]: n for n, line in enumerate(lines) if (found := LABEL.match(line))}
    starts = sorted({0, *labels.values(), *(n + 1 for n in {*jumps, *ends} if n + 1 < len(lines))})
    blocks = list(zip(starts, [*starts[1:], len(lines)], strict=True))
    number = {start: n for n, start in enumerate(starts)}
    following: list[set[int]] = []
    for n, (start, stop) in enumerate(blocks):
        is_padding = start - 1 in ends and start not in labels.values()  # an alignment that nobody comes to
        goes_on = stop - 1 not in ends and n + 1 < len(blocks) and not is_padding
        others = {n + 1} if goes_on else set()
        target = labels.get(jumps[stop - 1][1]) if stop - 1 in jumps else None
        following.append(others if target is None else others | {number[target]})
    return blocks, following


def find_dominators(before: list[list[int]]) -> list[set[int]]:
    """For each block those that come before it on every way to it, itself included.

    >>> find_dominators([[], [0, 2], [1]])
    [{0}, {0, 1}, {0, 1, 2}]
    """
    everything = set(range(len(before)))
    found = [set(everything) if others else {n} for n, others in enumerate(before)]
    is_stable = False
    while not is_stable:
        is_stable = True
        for n, others in enumerate(before):
            if others:
                new = set.intersection(*(found[other] for other in others)) | {n}
                if new != found[n]:
                    found[n], is_stable = new, False
    return found


def count_instructions(lines: list[str], part: list[int]) -> InnerLoop:
    body = [lines[n].split(None, 1) for n in part if lines[n][:1].isspace() and lines[n].strip()]
    code = [(parts[0], parts[1] if len(parts) > 1 else "") for parts in body if not parts[0].startswith(".")]
    touching = [
        (op, args) for op, args in code if IN_MEMORY.search(args) and not op.startswith(("lea", "prefetch"))
    ]
    stores = sum(is_store(op, args) for op, args in touching)
    products = sum(bool(PRODUCT.match(op)) for op, _ in code)
    return InnerLoop(part[0], part[-1], len(code), products, len(touching) - stores, stores)


def is_store(op: str, args: str) -> bool:
    """x86 writes its last operand; ARM and RISC-V say it in the name."""
    if "%" in args:
        return args.endswith(")") and op.startswith(("mov", "vmov", "vextract", "vpextr", "vpmov"))
    return op.startswith(("st", "vs", "sw", "sd"))
