"""Hardware instructions: one lane of a call in a program, all lanes of a register in machine code.

An operand of several elements a lane is read in one load where memory has the register's order, or as one
group that is broadcast where all lanes take the same. Elsewhere (a tail of fewer lanes, operands that
are not packed) the call is evaluated by its meaning, which is as right and slower.

    C[j] = T.instruction("x86.vpdpbusd.512", C[j], A[k], ..., A[k + 3], B[j, 0], ..., B[j, 3]), j of 16 lanes:
    A moves with no lane:           load i32, broadcast to <64 x i8>
    B moves by 4 elements a lane:   load <64 x i8>
"""

from __future__ import annotations

from ... import ir
from ...arith import simplify
from ...target import Target
from .affine import Affine
from .memory import MemoryAccess, has_division
from .values import BYTES, Operand, memory_type, register_type, vector_type

GROUP = 8  # bytes that are broadcast at most


class Instructions(MemoryAccess):
    target: Target
    instructions_used: dict[str, ir.HardwareInstruction]

    def instruct(self, e: ir.Call, known: ir.HardwareInstruction) -> Operand:
        check_target(known, self.target)
        fits = not known.tiles and self.lanes % known.lanes == 0
        result = self.registers(e, known) if fits else None
        return self.evaluate(known.expand(e.args)) if result is None else result

    def registers(self, e: ir.Call, known: ir.HardwareInstruction) -> Operand | None:
        """The lanes of a vectorised loop, a register after the other; None if an operand does not fit."""
        operands = [self.operand(r, e.args[r.first : r.first + r.count], known) for r in known.registers]
        results: list[str] = []
        kind = operand_type(known.dtype, known.lanes)
        for piece in range(self.lanes // known.lanes):
            parts: list[str] = []
            for operand in operands:
                if operand is None:
                    return None
                parts.append(operand[piece])
            results.append(self.f.emit(f"call {kind} @{symbol_of(known)}({', '.join(parts)})"))
        self.instructions_used[known.name] = known
        raw = self.concatenate(results, kind, known.lanes)
        return self.from_memory(raw, known.dtype, self.lanes)

    def operand(
        self, r: ir.Register, args: tuple[ir.Expr, ...], known: ir.HardwareInstruction
    ) -> list[str] | None:
        """A register of every piece, as typed operands."""
        if r.count == 1 and all(at == (lane,) for lane, at in enumerate(r.at)):
            whole = self.to_memory(self.spread(self.evaluate(args[0])))
            return self.pieces_of(whole, r, known.lanes)
        if any(not isinstance(a, ir.Load) or a.buffer is not args[0].buffer for a in args):  # pyright: ignore
            return None
        loads = [a for a in args if isinstance(a, ir.Load)]
        safe = self.mask is None or all(self.is_inside(load.buffer, load.indices) for load in loads)
        for load in loads:
            self.check_access(load)
        places = self.lane_places(loads)
        if places is None:
            return None
        terms, consts = places
        found: list[str] = []
        for piece in range(self.lanes // known.lanes):
            offsets = [-1] * r.size
            for lane, at in enumerate(r.at):
                for n, element in enumerate(at):
                    offset = consts[n][piece * known.lanes + lane]
                    if offsets[element] not in (-1, offset):
                        return None  # memory has two values for one element
                    offsets[element] = offset
            at = Affine(offsets[0], terms)
            steps = [offset - offsets[0] for offset in offsets]
            if safe:
                loaded = self.load_register(loads[0], at, steps, r)
            else:
                loaded = self.load_masked(loads[0], at, steps, r, piece * known.lanes, known.lanes)
            if loaded is None:
                return None
            found.append(loaded)
        return found

    def lane_places(self, loads: list[ir.Load]) -> tuple[dict[str, int], list[list[int]]] | None:
        """Where lanes load from: what is the same for all loads and lanes, and what is known now of each. A
        lane may be a row and a column, digits of one loop."""
        along = next((v for v, at in self.env.items() if at.lane), None)
        if along is None or not any(has_division(index) for load in loads for index in load.indices):
            places = [self.address(load.buffer, load.indices) for load in loads]
            if any(p.vectors or p.terms != places[0].terms or p.lane != places[0].lane for p in places):
                return None
            lanes = range(self.lanes)
            return places[0].terms, [[p.const + p.lane * lane for lane in lanes] for p in places]
        flat = [self.flat_index(load.buffer, load.indices) for load in loads]
        apart = [ir.as_int(simplify(e - flat[0], self.domain)) for e in flat]
        starts: list[Affine] = []
        before = self.env[along]
        try:
            for lane in range(self.lanes):
                self.env[along] = Affine(before.const + before.lane * lane, before.terms)
                starts.append(self.affine(flat[0]))
        finally:
            self.env[along] = before
        if any(p.vectors or p.lane or p.terms != starts[0].terms for p in starts):
            return None
        consts = [[p.const + n for p in starts] for n in apart if n is not None]
        return (starts[0].terms, consts) if len(consts) == len(loads) else None

    def load_masked(
        self, load: ir.Load, at: Affine, steps: list[int], r: ir.Register, first: int, lanes: int
    ) -> str | None:
        """What of a register the active lanes take, where there may be no such elements for the others: a
        group of 32 or 64 bits is one element of the hardware's masked loads."""
        assert self.mask is not None
        if steps != list(range(r.size)):  # all lanes take the same: at least one must be active
            return self.load_register(load, at, steps, r) if "true" in self.mask.text else None
        bits = 8 * r.count * BYTES[r.dtype]
        if bits not in (32, 64) or any(each[0] != lane * r.count for lane, each in enumerate(r.at)):
            return None
        kind, wanted = f"<{lanes} x i{bits}>", operand_type(r.dtype, r.size)
        symbol = f"@llvm.masked.load.v{lanes}i{bits}.p0"
        self.declare(f"{kind} {symbol}(ptr, i32 immarg, <{lanes} x i1>, {kind})")
        active = self.part(self.mask.typed, first, lanes)
        pointer = self.pointer(load.buffer, at)
        raw = self.f.emit(
            f"call {kind} {symbol}(ptr {pointer}, i32 {BYTES[r.dtype]}, {active}, {kind} zeroinitializer)"
        )
        return f"{wanted} {self.f.emit(f'bitcast {kind} {raw} to {wanted}')}"

    def load_register(self, load: ir.Load, at: Affine, steps: list[int], r: ir.Register) -> str | None:
        element, align, wanted = memory_type(r.dtype), BYTES[r.dtype], operand_type(r.dtype, r.size)
        key = ("register", load.buffer, at.key, tuple(steps))
        known = next((scope[key] for scope in reversed(self.known) if key in scope), None)
        if known is not None:
            return known
        if steps == list(range(r.size)):
            kind = vector_type(element, r.size)
            raw = self.f.emit(f"load {kind}, ptr {self.pointer(load.buffer, at)}, align {align}")
        elif runs := find_runs(steps):
            kind = vector_type(element, r.size)
            raw = self.load_runs(load, at, runs, r)
        else:
            period = next((n for n in range(1, r.size) if steps == [x % n for x in range(r.size)]), 0)
            if not period or period * BYTES[r.dtype] > GROUP or period & (period - 1):
                return None
            group = f"i{8 * period * BYTES[r.dtype]}"
            one = self.f.emit(f"load {group}, ptr {self.pointer(load.buffer, at)}, align {align}")
            kind = f"<{r.size // period} x {group}>"
            first = self.f.emit(f"insertelement {kind} poison, {group} {one}, i64 0")
            zeros = f"<{r.size // period} x i32> zeroinitializer"
            raw = self.f.emit(f"shufflevector {kind} {first}, {kind} poison, {zeros}")
        if kind != wanted:
            raw = self.f.emit(f"bitcast {kind} {raw} to {wanted}")
        self.known[-1][key] = f"{wanted} {raw}"
        return f"{wanted} {raw}"

    def load_runs(self, load: ir.Load, at: Affine, runs: list[int], r: ir.Register) -> str:
        """A register whose parts lie in several places, as rows of a matrix."""
        size = r.size // len(runs)
        kind = vector_type(memory_type(r.dtype), size)
        parts: list[str] = []
        for start in runs:
            pointer = self.pointer(load.buffer, Affine(at.const + start, at.terms))
            parts.append(self.f.emit(f"load {kind}, ptr {pointer}, align {BYTES[r.dtype]}"))
        return self.concatenate(parts, kind, size)

    def pieces_of(self, whole: str, r: ir.Register, lanes: int) -> list[str]:
        """A typed operand of all lanes, cut into registers."""
        wanted, kind = operand_type(r.dtype, lanes), memory_type(r.dtype, lanes)
        found = [self.part(whole, first, lanes) for first in range(0, self.lanes, lanes)]
        if kind == wanted:
            return found
        return [f"{wanted} {self.f.emit(f'bitcast {piece} to {wanted}')}" for piece in found]

    def concatenate(self, parts: list[str], kind: str, lanes: int) -> str:
        """Registers one behind the other."""
        element = kind.removeprefix(f"<{lanes} x ").removesuffix(">")
        while len(parts) > 1:
            order = ", ".join(f"i32 {n}" for n in range(2 * lanes))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [
                self.f.emit(f"shufflevector {kind} {a}, {kind} {b}, <{2 * lanes} x i32> <{order}>")
                for a, b in pairs
            ]
            lanes *= 2
            kind = vector_type(element, lanes)
        return parts[0]


def find_runs(steps: list[int]) -> list[int]:
    """Where the parts of a register begin that are side by side in memory, if there are few: a power of two
    of equal length.

    >>> find_runs([0, 1, 2, 3, 10, 11, 12, 13])
    [0, 10]
    """
    for count in (2, 4):
        size = len(steps) // count
        starts = steps[::size] if size > 1 else []
        if len(set(starts)) == count and steps == [start + n for start in starts for n in range(size)]:
            return starts
    return []


def operand_type(dtype: str, size: int) -> str:
    """The type of a register, as LLVM's intrinsics have it."""
    if dtype == "bfloat16":
        return vector_type("bfloat", size)
    return vector_type("half", size) if dtype == "float16" else register_type(dtype, size)


def symbol_of(known: ir.HardwareInstruction) -> str:
    return known.code if is_name(known.code) else f'"ms.instruction.{known.name}"'


def is_name(code: str) -> bool:
    """Whether the code of an instruction is the name of an LLVM intrinsic."""
    return code.startswith("llvm.") and code.split() == [code]


def check_target(known: ir.HardwareInstruction, target: Target) -> None:
    missing = [feature for feature in known.features if not target.has(feature)]
    if missing:
        raise ValueError(f"{target.name} has no instruction {known.name}: it lacks {', '.join(missing)}")


def instruction_text(known: ir.HardwareInstruction) -> tuple[list[str], str | None]:
    """What a module that uses an instruction declares, and what it defines."""
    result = operand_type(known.dtype, known.lanes)
    types = [operand_type(r.dtype, r.size) for r in known.registers]
    if is_name(known.code):
        return [f"declare {result} @{known.code}({', '.join(types)})"], None
    lines = [line.strip() for line in known.code.strip().splitlines()]
    declared = [line for line in lines if line.startswith("declare ")]
    *lines, last = [line for line in lines if line not in declared]
    parameters = ", ".join(f"{kind} %{r.name}" for kind, r in zip(types, known.registers, strict=True))
    body = "\n".join(f"  {line}" for line in (*lines, f"%result = {last}", f"ret {result} %result"))
    head = f"define internal {result} @{symbol_of(known)}({parameters}) alwaysinline nounwind"
    return declared, f"{head} {{\n{body}\n}}"
