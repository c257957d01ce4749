"""Kernels that differ in numbers alone are one kernel, which takes those numbers.

A program of another size, scheduled by the same steps, is the same code with other extents, strides and
offsets in it. `Template` compares the LLVM text of several sizes: where they differ in numbers alone, each
number that differs becomes one that is loaded when a function begins. So a kernel for a new size needs no
compiler: its text is written (10 ms), compared (1 ms), and its numbers are passed. Whatever the text of that
size says happens, exactly: a text that differs in anything else does not match.

    for 100 rows:   %t9 = icmp slt i64 %t8, 17       one kernel:   %t9 = icmp slt i64 %t8, %n0
    for 130 rows:   %t9 = icmp slt i64 %t8, 22

The numbers come in an array that is the last input; the entry copies them in front of the workspace,
which every function has at hand.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..errors import InternalError
from ..runtime import ArgSpec, Kernel
from ..runtime.kernel import align

NUMBERS = "numbers"  # the name of the last input

# Numbers that an instruction may as well take from a register. Others (sizes of arrays, lanes of shuffles,
# vectors of different numbers) stay in the text.
NUMBER = r"-?\d+|0x[0-9A-F]{16}"
KINDS = r"i64|i32|float|double"
OPERAND = re.compile(
    rf"<(?P<lanes>\d+) x (?:{KINDS})> (?:%[\w.]+, )?splat \((?P<element>{KINDS}) (?P<splat>{NUMBER})\)"
    rf"|\b(?P<kind>{KINDS}) (?P<number>{NUMBER})\b(?! x)"
    rf"|(?P<before>= (?:f?(?:add|sub|mul|div|rem)|[su](?:div|rem)|and|or|xor|shl|[al]shr|[if]cmp \w+)"
    rf"(?: \w+)* (?P<type>{KINDS}) %[\w.]+, )(?P<second>{NUMBER})$"
    r"|alloca \[(?P<room>\d+) x "
    rf"|(?P<phi>phi (?P<of>i64|i32) \[ ?)(?P<start>{NUMBER})"
)
FIXED = re.compile(r"^(?:declare|define|attributes|@|\w+:)|element |shufflevector|<(?:i64|i32|float) ")


@dataclass(frozen=True)
class Number:
    """An operand of the text: `kind` is its type, `lanes` how many of it are in a vector."""

    kind: str
    lanes: int
    text: str

    @property
    def bits(self) -> int:
        """As it is passed: an integer, or the bits of a float64."""
        if self.text.startswith("0x"):
            value = int(self.text, 16)
            return value - (1 << 64) if value >> 63 else value
        if self.kind in ("float", "double"):
            return struct.unpack("q", struct.pack("d", float(self.text)))[0]
        return int(self.text)


@dataclass(frozen=True)
class Text:
    """LLVM text cut at its numbers: `parts` are what is between them."""

    parts: tuple[str, ...]
    numbers: tuple[Number, ...]

    @staticmethod
    def of(llvm: str) -> Text:
        """
        >>> Text.of("  %t9 = icmp slt i64 %t8, 17").numbers
        (Number(kind='i64', lanes=1, text='17'),)
        """
        parts, numbers = [], []
        done = 0
        for line in re.finditer(r".*\n?", llvm):
            if FIXED.search(line[0]):
                continue
            for found in OPERAND.finditer(line[0].rstrip("\n")):
                at, number = read_operand(found)
                parts.append(llvm[done : line.start() + at])
                numbers.append(number)
                done = line.start() + at + written_length(number)
        return Text((*parts, llvm[done:]), tuple(numbers))


def read_operand(found: re.Match[str]) -> tuple[int, Number]:
    """Where the number of a match begins, and the number."""
    if found["splat"]:
        at = found.start("splat") - len(f"splat ({found['element']} ")
        return at, Number(found["element"], int(found["lanes"]), found["splat"])
    if found["room"]:
        return found.start("room"), Number("i64", 1, found["room"])
    for kind, number in (("kind", "number"), ("type", "second"), ("of", "start")):
        if found[number]:
            return found.start(number), Number(found[kind], 1, found[number])
    raise InternalError(f"no number in {found[0]!r}")


def written_length(number: Number) -> int:
    return len(number.text) + (len(f"splat ({number.kind} )") if number.lanes > 1 else 0)


class Template:
    """One kernel for all texts that differ from those of some `kernels` in the numbers in which these
    differ, equal ones equal. Raises `ValueError` if they differ in anything else."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.kernels = tuple(kernels)
        self.texts = [Text.of(kernel.llvm) for kernel in kernels]
        self.parts = self.texts[0].parts
        if any(text.parts != self.parts for text in self.texts):
            raise ValueError("the kernels differ in more than numbers")
        self.slots: list[int | None] = []  # of each number: which of those passed it is
        known: dict[tuple[int, ...], int] = {}
        for same in zip(*[text.numbers for text in self.texts]):
            values = tuple([number.bits for number in same])
            fixed = len(set(values)) == 1
            self.slots.append(None if fixed else known.setdefault(values, len(known)))
        self.count = len(known)

    def numbers_of(self, kernel: Kernel) -> list[int] | None:
        """What to pass so that this kernel's code runs; None if its text does not match."""
        text = Text.of(kernel.llvm)
        if text.parts != self.parts:
            return None
        passed: list[int | None] = [None] * self.count
        for number, own, slot in zip(text.numbers, self.texts[0].numbers, self.slots, strict=True):
            if slot is None:
                if number.text != own.text:
                    return None
            elif passed[slot] is None:
                passed[slot] = number.bits
            elif passed[slot] != number.bits:
                return None
        return [n or 0 for n in passed]

    @property
    def room(self) -> int:
        """Bytes in front of the workspace for the numbers."""
        return align(8 * self.count)

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel for all. What it says of shapes is that of the first one; `fit` says it of another."""
        lines, body = [], []
        names: dict[str, str] = {}  # of what the function being written loads
        head: str | None = None
        for line in self.marked_text().split("\n"):
            if line.startswith("define"):
                head, body, names = line, [], {}
            elif head is not None and line == "}":
                lines += [*self.function(head, body, names), line]
                head = None
            elif head is not None:
                for mark in re.findall(r"\0([\w ]+)\0", line):
                    line = line.replace(f"\0{mark}\0", self.name(mark, names))
                body.append(line)
            else:
                lines.append(line)
        return self.fit(replace(self.kernels[0], llvm="\n".join(lines)))

    def fit(self, kernel: Kernel) -> Kernel:
        """A kernel that matches, as one that takes numbers: with one more input and room for them."""
        numbers = ArgSpec(NUMBERS, (max(1, self.count),), "int64", constant=True)
        return replace(
            kernel, inputs=(*kernel.inputs, numbers), shared_bytes=align(kernel.shared_bytes) + self.room
        )

    def marked_text(self) -> str:
        """The text with a mark for each number that is passed."""
        found: list[str] = []
        for part, number, slot in zip(self.parts, self.texts[0].numbers, self.slots):
            typed = f"{slot} {number.kind} {number.lanes}"
            plain = f"splat ({number.kind} {number.text})" if number.lanes > 1 else number.text
            found += [part, plain if slot is None else f"\0{typed}\0"]
        text = "".join([*found, self.parts[-1]])
        return re.sub("alloca \\[(\0[^\0]*\0) x (\\w+)\\]", r"alloca \2, i64 \1", text)

    def name(self, mark: str, names: dict[str, str]) -> str:
        slot, kind, lanes = mark.split()
        return names.setdefault(mark, f"%n{slot}.{kind}.{lanes}")

    def function(self, head: str, body: list[str], names: dict[str, str]) -> list[str]:
        """A function that begins with what it loads."""
        first = [body.pop(0)] if body and body[0].endswith(":") else []
        first += ["  " + line for line in self.load_workspace(head)] if names or is_entry(head) else []
        if is_entry(head):
            head = head.replace("ptr %workspace", "ptr %given")
            body = [re.sub(r"(ptr %args, i64 )(\d+)$", self.move_behind, line) for line in body]
        for mark, name in names.items():
            slot, kind, lanes = mark.split()
            first += ["  " + line for line in load_number(slot, kind, lanes, name)]
        return [head, *first, *body]

    def move_behind(self, argument: re.Match[str]) -> str:
        """Outputs come behind the numbers."""
        place = int(argument[2])
        return f"{argument[1]}{place + (place >= len(self.kernels[0].inputs))}"

    def load_workspace(self, head: str) -> list[str]:
        """Lines behind which `%numbers` is the end of the numbers that are passed."""
        if is_entry(head):
            lines = [
                f"%workspace = getelementptr i8, ptr %given, i64 {self.room}",
                f"%numbers.at = getelementptr ptr, ptr %args, i64 {len(self.kernels[0].inputs)}",
                "%numbers.given = load ptr, ptr %numbers.at",
                "%numbers = getelementptr i8, ptr %workspace, i64 0",
            ]
            for n in range(self.count):
                lines += [
                    f"%from{n} = getelementptr i64, ptr %numbers.given, i64 {n}",
                    f"%copy{n} = load i64, ptr %from{n}",
                    f"%to{n} = getelementptr i64, ptr %numbers, i64 {-1 - n}",
                    f"store i64 %copy{n}, ptr %to{n}",
                ]
            return lines
        if "ptr %workspace" in head:
            return ["%numbers = getelementptr i8, ptr %workspace, i64 0"]
        if "ptr %closure" in head:  # whose second slot is the workspace
            return [
                "%numbers.at = getelementptr i64, ptr %closure, i64 1",
                "%numbers = load ptr, ptr %numbers.at",
            ]
        raise ValueError(f"numbers differ in a function that cannot load them: {head}")


def is_entry(head: str) -> bool:
    return "ptr %args, ptr %workspace" in head


def load_number(slot: str, kind: str, lanes: str, name: str) -> list[str]:
    lines = [
        f"{name}.at = getelementptr i64, ptr %numbers, i64 {-1 - int(slot)}",
        f"{name}.raw = load i64, ptr {name}.at",
    ]
    scalar = name if lanes == "1" else f"{name}.one"
    lines.append(
        {
            "i64": f"{scalar} = add i64 {name}.raw, 0",
            "i32": f"{scalar} = trunc i64 {name}.raw to i32",
            "double": f"{scalar} = bitcast i64 {name}.raw to double",
            "float": f"{name}.wide = bitcast i64 {name}.raw to double",
        }[kind]
    )
    if kind == "float":
        lines.append(f"{scalar} = fptrunc double {name}.wide to float")
    if lanes != "1":
        vector = f"<{lanes} x {kind}>"
        lines += [
            f"{name}.low = insertelement {vector} poison, {kind} {scalar}, i64 0",
            f"{name} = shufflevector {vector} {name}.low, {vector} poison, <{lanes} x i32> zeroinitializer",
        ]
    return lines
