"""Writes the life of a matrix product into docs/architecture.md: `python scripts/architecture.py`.

Target and decisions are fixed, so the text does not depend on the machine; the assembly depends on the
version of LLVM, which the page names.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm

import metaschedule as ms
from metaschedule import te
from metaschedule.codegen import generate
from metaschedule.codegen.lower import PASSES, steps
from metaschedule.runtime.compile import assembly
from metaschedule.target import resolve

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- written by scripts/architecture.py -->\n", "<!-- end -->\n"
TARGET = "x86-64-v3,cores=2"
VERSION = ".".join(map(str, llvm.llvm_version_info))
ASSEMBLY = f"### Machine code, by LLVM {VERSION}"


def product() -> ms.Program:
    a = te.placeholder((128, 64), name="A")
    b = te.placeholder((64, 96), name="B")
    k = te.reduce_axis(64, name="k")
    c = te.compute((128, 96), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.program([a, b], [c], name="product")


def tiled(program: ms.Program) -> ms.Schedule:
    sch = ms.Schedule(program)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, sch.sample_tile(i, n=2, max_innermost_factor=8, decision=[22, 6]))
    j0, j1 = sch.split(j, [None, 16])
    sch.reorder(i0, j0, k, i1, j1)
    copy = sch.cache_write(block, 0, "local")  # sums in registers, then to memory
    sch.reverse_compute_at(copy, j0)
    sch.parallel(i0)
    for stage in (block, copy):
        *_, rows, columns = sch.get_loops(stage)
        sch.unroll(rows)
        sch.vectorize(columns)
    sch.decompose_reduction(block, k)
    return sch


def life() -> str:
    """The text of every stage."""
    program, target = product(), resolve(TARGET)
    sch = tiled(program)
    source = inspect.getsource(product).partition("\n")[2]
    parts = [
        "### Tensor expression (`te`)\n",
        code("python", inspect.cleandoc(source).replace("return te.program", "program = te.program")),
        "### Program (`ir`)\n",
        code("python", str(program)),
        "### Schedule (`schedule`)\n",
        "The trace: the steps taken, with the decision that was drawn. It prints as Python, and replays.\n",
        code("python", str(sch.trace)),
        "The program it makes. 6 does not divide 128, so the blocks have a predicate.\n",
        code("python", body_of(sch.program)),
        *lowering(sch.program),
    ]
    kernel = generate(sch.program, target)
    parts += [
        "### LLVM (`codegen/llvm`)\n",
        f"For `{TARGET}`: the loop over k of a full tile, the first of its six rows, and its end.\n",
        code("llvm", shortened(block_with(kernel.llvm, "fmul contract"), 17, 4)),
        f"{ASSEMBLY}\n",
        "The same loop: 12 fused multiply-adds of 8 floats for 8 loads; the sums stay in registers.\n",
        code("asm", loop_of(block_with(assembly(kernel.llvm, target), "vfmadd"))),
    ]
    return "\n".join(parts)


def lowering(program: ms.Program) -> Iterator[str]:
    before = body_of(program)
    for run, (name, after) in zip(PASSES, steps(program), strict=True):
        path = run.__module__.replace(".", "/") + ".py"
        what = inspect.getdoc(run) or inspect.getdoc(sys.modules[run.__module__]) or ""
        yield f"### {name} (`{path}`)\n\n{what.partition(chr(10) * 2)[0]}\n"
        text = body_of(after)
        yield "Nothing to do here.\n" if text == before else code("python", text)
        before = text


def body_of(program: ms.Program) -> str:
    """A printed program without its head, which stays as it is."""
    return inspect.cleandoc("\n" + str(program).partition("\n):\n")[2])


def block_with(text: str, word: str) -> str:
    """The basic block in which a word comes most often."""
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if line and not line[0].isspace() and line.endswith(":"):
            blocks.append([])
        blocks[-1].append(line.replace("\t", "  "))
    return "\n".join(max(blocks, key=lambda lines: sum(word in line for line in lines)))


def loop_of(block: str) -> str:
    """A basic block up to the jump to its own label."""
    label, _, _ = block.partition(":")
    lines = block.splitlines()
    end = next(n for n, line in enumerate(lines) if line.endswith(f" {label}"))
    return "\n".join(lines[: end + 1])


def shortened(text: str, first: int, last: int) -> str:
    lines = text.splitlines()
    return "\n".join([*lines[:first], "  ...", *lines[-last:]])


def code(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n"


def page(old: str) -> str:
    """A page with what stands between the markers written anew."""
    before, _, rest = old.partition(BEGIN)
    return f"{before}{BEGIN}\n{life()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
