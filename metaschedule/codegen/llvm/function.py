"""One LLVM function as text: instructions, labels, loops and branches.

Text is written directly: an instruction costs a fraction of a microsecond here and 2 to parse, where a
builder of objects costs 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .values import Operand


class Function:
    def __init__(self, name: str, parameters: list[str], attributes: str, result: str = "void") -> None:
        self.head = f"define internal {result} @{name}({', '.join(parameters)}) {attributes} {{"
        self.allocas: list[str] = []
        self.start: list[str] = []  # what comes before everything else
        self.lines: list[str] = []
        self.block = "entry"  # the label of the block being written: what a phi must name
        self.count = 0

    def text(self) -> str:
        start = [f"  {line}" for line in self.start]
        return "\n".join([self.head, "entry:", *self.allocas, *start, *self.lines, "}"])

    def fresh(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def emit(self, instruction: str) -> str:
        """Write `%t = instruction`, give back the name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def effect(self, instruction: str) -> None:
        """Write an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def alloca(self, type_text: str, align: int) -> str:
        """Memory of this call, in the entry block whatever loop asks for it."""
        name = self.fresh()
        self.allocas.append(f"  {name} = alloca {type_text}, align {align}")
        return name

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.effect(f"br label %{label}")

    def branch_if(self, cond: str, then: str, orelse: str) -> None:
        self.effect(f"br i1 {cond}, label %{then}, label %{orelse}")

    @contextmanager
    def when(self, cond: str) -> Iterator[None]:
        """What is written inside runs where `cond` holds."""
        then, end = self.label("then"), self.label("end")
        self.branch_if(cond, then, end)
        self.begin(then)
        yield
        self.branch(end)
        self.begin(end)

    def choose(self, cond: str, then: Callable[[], Operand], orelse: Callable[[], Operand]) -> Operand:
        """A value by control flow: only the branch taken is evaluated."""
        yes, no, end = self.label("then"), self.label("else"), self.label("end")
        self.branch_if(cond, yes, no)
        self.begin(yes)
        a = then()
        from_a = self.block
        self.branch(end)
        self.begin(no)
        b = orelse()
        from_b = self.block
        self.branch(end)
        self.begin(end)
        phi = self.emit(f"phi {a.type} [ {a.text}, %{from_a} ], [ {b.text}, %{from_b} ]")
        return Operand(phi, a.dtype, a.lanes)

    @contextmanager
    def loop(self, start: str, stop: str, certain: bool) -> Iterator[str]:
        """`for i in start..stop`: yields the induction variable; `certain` says it runs at least once."""
        head, end = self.label("loop"), self.label("end")
        if certain:
            before = self.block
            self.branch(head)
        else:
            enter = self.emit(f"icmp slt i64 {start}, {stop}")
            before = self.block
            self.branch_if(enter, head, end)
        self.begin(head)
        var, following = self.fresh(), self.fresh()
        phi = len(self.lines)
        self.lines.append("")  # the latch is known only when the body is written
        yield var
        self.effect(f"{following} = add nuw nsw i64 {var}, 1")
        again = self.emit(f"icmp slt i64 {following}, {stop}")
        self.branch_if(again, head, end)
        self.lines[phi] = f"  {var} = phi i64 [ {start}, %{before} ], [ {following}, %{self.block} ]"
        self.begin(end)
