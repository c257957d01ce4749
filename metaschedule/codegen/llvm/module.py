"""A whole LLVM module: the entry, the main function and its parts, one function per parallel loop.

Every buffer that lives outside a function and is used in it is a `noalias` parameter of it (unless it shares
its room with another): that is what lets LLVM keep a tile of the output in registers across a reduction (82
GFLOPS with it, 25 without). The body of a program of many statements is written as several functions, its
parts: passes of LLVM are slower than linear in the size of a function. A parallel loop becomes three
functions: the body over a range of iterations, `run` which unpacks the closure and picks ranges for thread t
of n, and `team` which libgomp calls on each thread.

Every thread has a part of the iterations, the same at every call, so that it finds its data in its caches. It
takes them a few at a time, and when it has done its part it helps others with theirs: iterations differ (a
border has less to do), and so do cores (something else may run on one).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from ... import ir
from ...runtime import ArgSpec, Failure, Kernel
from ...target import Target
from ..lower import Lowered
from ..lower.storage_allocation import part_of
from .affine import Affine
from .function import Function
from .functions import define, vector_libraries
from .instructions import instruction_text
from .statements import StatementEmitter
from .tiles import Shape
from .values import literal, memory_type

GRAINS = 8  # of a thread's part: how many times it takes iterations
MOST_HELPED = 8  # threads, itself included: to look at a part costs as much as a hundred operations

# Of several failures, of any thread, the first to come here is told.
FAIL = """\
define internal void @ms.fail(ptr %runtime, ptr %status, i32 %number, i64 %value) cold noinline nounwind {
  %before = cmpxchg ptr %status, i32 0, i32 %number monotonic monotonic
  %first = extractvalue { i32, i1 } %before, 1
  br i1 %first, label %tell, label %done
tell:
  %at = getelementptr { ptr, ptr, ptr, i32, i64 }, ptr %runtime, i64 0, i32 4
  store i64 %value, ptr %at
  br label %done
done:
  ret void
}"""


class Module:
    """Code of one program for one target."""

    def __init__(self, lowered: Lowered, target: Target, fma: bool = True) -> None:
        self.lowered, self.target, self.fma = lowered, target, fma
        self.functions: list[str] = []
        self.globals: list[str] = []
        self.declared: set[str] = set()
        self.math_used: set[tuple[str, str, int]] = set()
        self.externals: set[str] = set()  # functions of the C library that LLVM may call
        self.instructions_used: dict[str, ir.HardwareInstruction] = {}
        self.failures: dict[Failure, int] = {}  # with their statuses
        self.checks = 0  # that have been written
        self.parallel_loops = 0
        body = lowered.program.body
        self.is_parallel = any(isinstance(s, ir.For) and s.kind == "parallel" for s in ir.walk(body))
        self.has_tiles = target.matrix_registers > 0 and any(
            isinstance(e, ir.Call) and e.name in ir.INSTRUCTIONS and ir.INSTRUCTIONS[e.name].tiles
            for e in ir.expressions(body)
        )
        self.palettes: dict[tuple[Shape, ...], str] = {}
        program, storage = lowered.program, lowered.storage
        self.outside = [*program.params, *storage.shared]
        self.order = {b: n for n, b in enumerate([*self.outside, *storage.private])}
        self.names = {b: f"%b{n}" for b, n in self.order.items()}
        for n, b in enumerate(storage.tables):
            self.names[b] = f"@table{n}"
            self.globals.append(table_global(f"@table{n}", b))

    def palette(self, shapes: list[Shape]) -> str:
        """The constant that tells the processor what tiles are like."""
        name = self.palettes.get(tuple(shapes))
        if name is None:
            name = self.palettes[tuple(shapes)] = f"@tiles{len(self.palettes)}"
            self.globals.append(palette_global(name, shapes))
        return name

    def pointer_name(self, buffer: ir.Buffer) -> str | None:
        """How every function calls a buffer; None for one that lives on its stack."""
        return self.names.get(buffer)

    def status(self, failure: Failure) -> int:
        """The status that reports a failed check, which is being written."""
        self.checks += 1
        return self.failures.setdefault(failure, len(self.failures) + 1)

    def kernel(self) -> Kernel:
        program, storage = self.lowered.program, self.lowered.storage
        name = f"ms_{ir.identifier(program.name)}"
        self.main(program.body)
        self.functions.append(self.entry(name))
        if self.failures:
            self.functions.append(FAIL)
        externals = set(self.externals)
        for _, instruction in sorted(self.instructions_used.items()):
            declared, function = instruction_text(instruction)
            self.declared |= set(declared)
            self.functions += [function] if function else []
        for function, dtype, lanes in sorted(self.math_used):
            defined = define(function, dtype, lanes, vector_libraries(self.target))
            self.functions.append(defined.text)
            self.declared |= defined.declared
            externals |= defined.externals
        text = "\n\n".join([*self.globals, "\n".join(sorted(self.declared)), *self.functions])

        def specs(buffers: tuple[ir.Buffer, ...]) -> tuple[ArgSpec, ...]:
            return tuple(ArgSpec.of(b) for b in buffers)

        return Kernel(
            entry=name,
            llvm=f"{text}\n\n{self.attributes()}\n",
            inputs=specs(program.inputs),
            outputs=specs(program.outputs),
            target=self.target,
            shared_bytes=storage.shared_bytes,
            private_bytes=storage.private_bytes,
            failures=tuple(self.failures),
            externals=tuple(sorted(externals)),
            max_threads=self.target.cores if self.parallel_loops else 1,
        )

    def main(self, body: ir.Body) -> None:
        """The function that does everything, or calls its parts one after the other."""
        numbered = itertools.groupby(enumerate(body), key=lambda item: part_of(item[0]))
        parts = [tuple([s for _, s in group]) for _, group in numbered]
        storage = self.lowered.storage
        if len(parts) <= 1:
            self.serial_function("main", body, self.outside, list(storage.private), "#0")
            return
        main = Function("main", self.parameters(self.outside) + self.overlapping(storage.private), "#0")
        for n, part in enumerate(parts):
            outside, private = self.buffers_used(part)
            before = self.checks
            self.serial_function(f"part{n}", part, outside, private, "#1")
            pointers = [f"ptr {self.names[b]}" for b in [*outside, *private]]
            arguments = ", ".join(["ptr %runtime", "ptr %workspace", "ptr %status", *pointers])
            main.effect(f"call void @part{n}({arguments})")
            if self.checks > before:
                self.stop_if_failed(main)
        main.effect("ret void")
        self.functions.append(main.text())

    def serial_function(
        self, name: str, body: ir.Body, outside: list[ir.Buffer], private: list[ir.Buffer], attributes: str
    ) -> None:
        """Write statements that one thread runs as a function."""
        function = Function(name, self.parameters(outside) + self.overlapping(private), attributes)
        emitter = StatementEmitter(self, function, in_parallel=False)
        emitter.body(body)
        emitter.finish()
        self.functions.append(function.text())

    def overlapping(self, private: Iterable[ir.Buffer]) -> list[str]:
        """Parameters for private buffers of several loops, which may overlap."""
        return [f"ptr {self.names[b]}" for b in private]

    def buffers_used(self, body: ir.Body) -> tuple[list[ir.Buffer], list[ir.Buffer]]:
        """The buffers from outside, and those private to threads, that statements use."""
        found = ir.buffers_read(body) | ir.buffers_written(body)
        ordered = sorted([b for b in found if b in self.order], key=self.order.__getitem__)
        private = self.lowered.storage.private
        return [b for b in ordered if b not in private], [b for b in ordered if b in private]

    def stop_if_failed(self, f: Function) -> None:
        """Return from a function if something that it called has failed."""
        failed = f.emit("load i32, ptr %status")
        stop = f.emit(f"icmp ne i32 {failed}, 0")
        with f.when(stop):
            f.effect("ret void")
            f.begin(f.label("dead"))

    def attributes(self) -> str:
        # Without these LLVM may prefer half of the vector width the target was described with.
        bits = 8 * self.target.vector_bytes
        width = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        if scale := self.target.vector_scale:  # SVE registers for vectors longer than NEON's
            width = f"vscale_range({scale},16) {width}"
        return f"attributes #0 = {{ nounwind {width} }}\nattributes #1 = {{ nounwind noinline {width} }}"

    def parameters(self, buffers: list[ir.Buffer]) -> list[str]:
        overlapping = self.lowered.storage.may_overlap
        flags = {b: "" if b in overlapping else "noalias " for b in buffers}
        pointers = [f"ptr {flags[b]}{self.names[b]}" for b in buffers]
        return ["ptr %runtime", "ptr %workspace", "ptr %status", *pointers]

    def entry(self, name: str) -> str:
        """`i32 entry(args, workspace, runtime)`: unpack the arguments, call main, give the status back."""
        lines = [
            f"define i32 @{name}(ptr %args, ptr %workspace, ptr %runtime) #0 {{",
            "  %status = alloca i32, align 4",
            "  store i32 0, ptr %status",
        ]
        for n, b in enumerate(self.lowered.program.params):
            lines.append(f"  %p{n} = getelementptr ptr, ptr %args, i64 {n}")
            lines.append(f"  {self.names[b]} = load ptr, ptr %p{n}")
        for b, offset in self.lowered.storage.shared.items():
            lines.append(f"  {self.names[b]} = getelementptr i8, ptr %workspace, i64 {offset}")
        private = self.lowered.storage.private
        for b, offset in private.items():  # thread 0's, for a parallel loop that is not run as one
            offset += self.lowered.storage.shared_stride
            lines.append(f"  {self.names[b]} = getelementptr i8, ptr %workspace, i64 {offset}")
        arguments = ["ptr %runtime", "ptr %workspace", "ptr %status"]
        arguments += [f"ptr {self.names[b]}" for b in [*self.outside, *private]]
        lines.append(f"  call void @main({', '.join(arguments)})")
        lines += ["  %result = load i32, ptr %status", "  ret i32 %result", "}"]
        return "\n".join(lines)

    # --- parallel loops ---

    def parallel(self, caller: StatementEmitter, s: ir.For) -> None:
        """Write a loop as functions of their own and call them on all threads."""
        number = self.parallel_loops
        self.parallel_loops += 1
        outer = sorted({name for a in caller.env.values() for name in a.terms})
        passed = {name: f"%v{n}" for n, name in enumerate(outer)}
        outside, private = self.buffers_used((s,))
        before = self.checks
        self.parallel_body(caller, s, f"body{number}", [*outside, *private], passed)
        self.functions.append(self.runner(number, outside, private, len(passed), s.fixed_extent or 0))
        f = caller.f
        slots = ["%runtime", "%workspace", "%status", *(self.names[b] for b in outside)]
        closure = f.alloca(f"[{len(slots) + len(outer) + 1} x i64]", 16)  # the last: what was taken of parts
        for n, value in enumerate(slots):
            at = f.emit(f"getelementptr i64, ptr {closure}, i64 {n}")
            f.effect(f"store ptr {value}, ptr {at}")
        for n, value in enumerate(outer, len(slots)):
            at = f.emit(f"getelementptr i64, ptr {closure}, i64 {n}")
            f.effect(f"store i64 {value}, ptr {at}")
        f.effect(f"call void @fork{number}(ptr {closure}, ptr %runtime)")
        if self.checks > before:
            self.stop_if_failed(f)

    def parallel_body(
        self, caller: StatementEmitter, s: ir.For, name: str, buffers: list[ir.Buffer], passed: dict[str, str]
    ) -> None:
        extra = [f"i64 {v}" for v in passed.values()] + ["i64 %start", "i64 %stop"]
        function = Function(name, self.parameters(buffers) + extra, "#1")
        emitter = StatementEmitter(self, function, in_parallel=True)
        emitter.domain = caller.domain
        for var, a in caller.env.items():
            terms = {passed[t]: c for t, c in a.terms.items()}
            emitter.env[var] = Affine(a.const, terms, a.lane)
        emitter.between(s, "%start", "%stop", certain=False)
        emitter.finish()
        self.functions.append(function.text())

    def runner(
        self, number: int, outside: list[ir.Buffer], private: list[ir.Buffer], variables: int, extent: int
    ) -> str:
        """`run(closure, t, n)`, `team(closure)` for libgomp, `fork(closure, runtime)` for the caller."""
        load = [
            f"define internal void @run{number}(ptr %closure, i64 %t, i64 %n) #0 {{",
        ]
        kinds = ["ptr"] * (3 + len(outside)) + ["i64"] * variables
        slots = ["%runtime", "%workspace", "%status", *[self.names[b] for b in outside]]
        slots += [f"%v{n}" for n in range(variables)]
        for n, (kind, name) in enumerate(zip(kinds, slots, strict=True)):
            load.append(f"  %c{n} = getelementptr i64, ptr %closure, i64 {n}")
            load.append(f"  {name} = load {kind}, ptr %c{n}")
        storage = self.lowered.storage
        most = min(extent, 2**31 - 1)  # threads that have something to do
        load.append(f"  %mine = mul i64 %t, {storage.private_stride}")
        load.append(f"  %offset = add i64 %mine, {storage.shared_stride}")
        load.append("  %own = getelementptr i8, ptr %workspace, i64 %offset")
        for b in private:
            load.append(f"  {self.names[b]} = getelementptr i8, ptr %own, i64 {storage.private[b]}")
        buffers = [f"ptr {self.names[b]}" for b in [*outside, *private]]
        names = [f"{kind} {name}" for kind, name in zip(kinds, slots, strict=True)]
        arguments = names[:3] + buffers + names[3 + len(outside) :]
        self.declared.add("declare i64 @llvm.umin.i64(i64, i64)")
        self.declared.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        load += [
            f"  %taken.at = getelementptr i64, ptr %closure, i64 {len(names)}",
            f"  %single = icmp ule i64 {extent}, %n",
            "  %alone = icmp eq i64 %n, 1",
            "  %undivided = or i1 %single, %alone",
            f"  %helped = call i64 @llvm.umin.i64(i64 %n, i64 {MOST_HELPED})",
            "  br label %part",
            "part:",
            "  %p = phi i64 [%t, %0], [%p.next, %done]",
            "  %count = phi i64 [1, %0], [%count.next, %done]",
            f"  %low = mul i64 %p, {extent}",
            "  %start = udiv i64 %low, %n",
            f"  %high = add i64 %low, {extent}",
            "  %stop = udiv i64 %high, %n",
            "  %size = sub i64 %stop, %start",
            f"  %size.up = add i64 %size, {GRAINS - 1}",
            f"  %grain = udiv i64 %size.up, {GRAINS}",
            "  br i1 %undivided, label %work, label %take",
            "take:",
            "  %parts = load ptr, ptr %taken.at",
            "  %taken = getelementptr [64 x i8], ptr %parts, i64 %p",
            "  %before = atomicrmw add ptr %taken, i64 %grain monotonic, align 64",
            "  %from = add i64 %start, %before",
            "  %to = add i64 %from, %grain",
            "  %end = call i64 @llvm.umin.i64(i64 %to, i64 %stop)",
            "  %left = icmp ult i64 %from, %stop",
            "  br i1 %left, label %work, label %done",
            "work:",
            "  %first = phi i64 [%start, %part], [%from, %take]",
            "  %last = phi i64 [%stop, %part], [%end, %take]",
            f"  call void @body{number}({', '.join(arguments)}, i64 %first, i64 %last)",
            "  br i1 %undivided, label %out, label %take",
            "done:",
            "  %p.up = add i64 %p, 1",
            "  %around = icmp eq i64 %p.up, %n",
            "  %p.next = select i1 %around, i64 0, i64 %p.up",
            "  %count.next = add i64 %count, 1",
            "  %more = icmp ule i64 %count.next, %helped",
            "  br i1 %more, label %part, label %out",
            "out:",
            "  ret void",
            "}",
            f"define internal void @team{number}(ptr %closure) #0 {{",
            "  %runtime = load ptr, ptr %closure",
            "  %a = getelementptr ptr, ptr %runtime, i64 1",
            "  %thread_num = load ptr, ptr %a",
            "  %b = getelementptr ptr, ptr %runtime, i64 2",
            "  %num_threads = load ptr, ptr %b",
            "  %t = call i32 %thread_num()",
            "  %n = call i32 %num_threads()",
            "  %t64 = zext i32 %t to i64",
            "  %n64 = zext i32 %n to i64",
            f"  call void @run{number}(ptr %closure, i64 %t64, i64 %n64)",
            "  ret void",
            "}",
            f"define internal void @fork{number}(ptr %closure, ptr %runtime) #1 {{",
            "  %a = getelementptr ptr, ptr %runtime, i64 3",
            "  %asked = load i32, ptr %a",
            f"  %fewer = icmp slt i32 %asked, {most}",
            f"  %threads = select i1 %fewer, i32 %asked, i32 {most}",
            "  %alone = icmp sle i32 %threads, 1",
            "  br i1 %alone, label %serial, label %team",
            "serial:",
            f"  call void @run{number}(ptr %closure, i64 0, i64 1)",
            "  ret void",
            "team:",
            "  %parts = alloca [64 x i8], i32 %threads, align 64",
            "  %count = zext i32 %threads to i64",
            "  %bytes = shl i64 %count, 6",
            "  call void @llvm.memset.p0.i64(ptr align 64 %parts, i8 0, i64 %bytes, i1 false)",
            f"  %slot = getelementptr i64, ptr %closure, i64 {len(names)}",
            "  store ptr %parts, ptr %slot",
            "  %gomp_parallel = load ptr, ptr %runtime",
            f"  call void %gomp_parallel(ptr @team{number}, ptr %closure, i32 %threads, i32 0)",
            "  ret void",
            "}",
        ]
        return "\n".join(load)


def palette_global(name: str, shapes: list[Shape]) -> str:
    """Palette 1 of AMX: bytes of a row at 16, for each register two, and rows at 48."""
    data = bytearray(64)
    data[0] = 1
    for n, (rows, row_bytes) in enumerate(shapes):
        data[16 + 2 * n : 18 + 2 * n] = row_bytes.to_bytes(2, "little")
        data[48 + n] = rows
    text = "".join(f"\\{byte:02X}" for byte in data)
    return f'{name} = private unnamed_addr constant [64 x i8] c"{text}", align 64'


def table_global(name: str, b: ir.Buffer) -> str:
    """An embedded table as a constant of the module."""
    assert b.data is not None
    element = memory_type(b.dtype)
    if b.dtype in ("float16", "bfloat16"):
        bits = b.data.reshape(-1).view("uint16").tolist()
        element, values = "i16", [str(v) for v in bits]
    elif b.dtype == "bool":
        values = [str(int(v)) for v in b.data.reshape(-1).tolist()]
    else:
        values = [literal(v, b.dtype) for v in b.data.reshape(-1).tolist()]
    items = ", ".join(f"{element} {v}" for v in values)
    content = f"[{items}]" if values else "zeroinitializer"
    return f"{name} = private unnamed_addr constant [{len(values)} x {element}] {content}, align 64"
