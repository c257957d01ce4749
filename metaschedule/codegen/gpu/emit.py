"""The text of kernels in a dialect: expressions and statements of the lowered program, one by one.

Index arithmetic is in 32 bits where everything fits them. Numbers of 16 bits are stored as such and computed
with in float, rounded after every operation. What `unproved` says is checked: a failed check notes its number
in `status`, and the thread goes on with an index of 0, so that it still reaches every barrier.
"""

from __future__ import annotations

import math
from typing import Any

from ... import ir
from ...affine.form import form_of
from ...arith import Domain
from ...runtime.failure import Failure
from ...target import Gpu
from ..lower.scope import assume, inside
from ..messages import out_of_range, zero_division
from .dialect import Dialect
from .model import SHUFFLE, Barrier, GpuKernel, buffer_bytes

TYPES = {
    "float32": "float", "float64": "double", "float16": "u16", "bfloat16": "u16", "bool": "u8",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8",
}  # fmt: skip
VALUES = TYPES | {"float16": "float", "bfloat16": "float", "bool": "int"}
UNSIGNED = {"int8": "u8", "int16": "u16", "int32": "u32", "int64": "u64", "uint8": "u8"}
NARROW = ("float16", "bfloat16")
VECTORS = {"float32": "float", "int32": "int"}
OTHER_REGISTERS = 56  # of a thread, besides its buffers: addresses, operands that are on their way
FETCHED_REGISTERS = 16  # of these, for values on their way to shared memory
# What results need besides to be stored as vectors, which want neighbouring registers: a product with 64
# results a thread and 8 to spare spills 8 of them (NVRTC 12.9), with 24 to spare none.
ALIGNED_REGISTERS = 16
MOST_RESIDENT = 2  # blocks that a kernel asks for; a third hides little and costs registers
MOST_REGISTERS = 64  # iterations of a loop over registers that is written out


class Emit:
    def __init__(
        self, kernel: GpuKernel, dialect: Dialect, failures: list[Failure], gpu: Gpu | None = None
    ) -> None:
        self.kernel, self.dialect, self.failures, self.gpu = kernel, dialect, failures, gpu
        self.names = Names(kernel)
        self.domain = Domain({kernel.axes.vars[a]: n for a, n in kernel.axes.extents.items()})
        self.wide = needs_wide(kernel)
        self.index_type = "i64" if self.wide else "int"
        self.lines: list[str] = []
        self.depth = 1
        self.temporaries = 0
        self.checked = False
        has_copies = gpu is not None and gpu.asynchronous and dialect.name == gpu.language
        self.asynchronous = has_copies and bool(kernel.ahead)
        self.stored = {s.buffer for s in ir.walk(kernel.program) if isinstance(s, ir.Store)}

    # --- expressions ---

    def expr(self, e: ir.Expr) -> str:
        if isinstance(e, ir.Var):
            return self.names.var(e)
        if isinstance(e, ir.Const):
            return literal(e.value, e.dtype)
        if isinstance(e, ir.Load):
            return self.load(e)
        if isinstance(e, ir.Select):
            return f"({self.expr(e.cond)} ? {self.expr(e.a)} : {self.expr(e.b)})"
        if isinstance(e, ir.Cast):
            return self.cast(e)
        if isinstance(e, ir.Call):
            return self.call(e)
        if isinstance(e, ir.Unary):
            return self.unary(e)
        assert isinstance(e, ir.Binary)
        return self.binary(e)

    def unary(self, e: ir.Unary) -> str:
        a = self.expr(e.a)
        if e.op == "not":
            return f"(!{a})"
        if ir.is_float(e.dtype):
            return f"(-{a})"
        return f"(({TYPES[e.dtype]})({e.op if e.op == '~' else '0 -'} ({UNSIGNED[e.dtype]}){a}))"

    def is_index(self, e: ir.Expr) -> bool:
        """Whether an expression is made of loops and constants, so that it does not wrap round."""
        return e.dtype == ir.INDEX and not ir.has_load(e)

    def binary(self, e: ir.Binary) -> str:
        op, dtype = e.op, e.a.dtype
        a, b = self.expr(e.a), self.expr(e.b)
        if op in ("and", "or"):
            return f"({a} {'&&' if op == 'and' else '||'} {b})"
        if op in ("<", "<=", ">", ">=", "==", "!="):
            return f"({a} {op} {b})"
        if ir.is_float(dtype):
            return self.rounded(self.float_operation(op, a, b, dtype), dtype)
        if self.is_index(e):
            return self.index_operation(e, a, b)
        kind = TYPES[dtype]
        if op in ("//", "%"):
            if self.kernel.unproved.divides(e):
                code = self.fail_code(zero_division(e), "division")
                b = f"({b} == 0 ? ms_fail(status, {code}) : {b})"
            if dtype == "uint8":
                return f"((u8)({a} {'/' if op == '//' else '%'} {b}))"
            return f"ms_{'floordiv' if op == '//' else 'floormod'}_{kind}({a}, {b})"
        if op in ("min", "max"):
            return f"ms_{op}_{kind}({a}, {b})"
        if op in ("<<", ">>"):
            if dtype == "uint8":
                return f"((u8)(({b}) >= 8 ? 0 : ({a} {op} {b})))"
            return f"ms_{'shl' if op == '<<' else 'shr'}_{kind}({a}, {b})"
        unsigned = "u64" if dtype == "int64" else "u32"
        return f"(({kind})(({unsigned}){a} {op} ({unsigned}){b}))"

    def float_operation(self, op: str, a: str, b: str, dtype: str) -> str:
        kind = "double" if dtype == "float64" else "float"
        if op in ("min", "max"):
            return f"ms_{op}_{kind}({a}, {b})"
        if op in ("//", "%"):
            return f"ms_{'floordiv' if op == '//' else 'floormod'}_{kind}({a}, {b})"
        return f"({a} {op} {b})"

    def index_operation(self, e: ir.Binary, a: str, b: str) -> str:
        kind = "i64" if self.wide else "i32"
        if e.op in ("+", "-", "*", "&", "|", "^"):
            return f"({a} {e.op} {b})"
        if e.op in ("min", "max"):
            return f"ms_{e.op}_{kind}({a}, {b})"
        divisor = ir.as_int(e.b)
        if e.op in ("//", "%") and divisor is not None and divisor > 0:
            low, _ = self.domain.bounds(e.a)
            if low is not None and low >= 0:
                return f"({a} {'/' if e.op == '//' else '%'} {b})"
        name = {"//": "floordiv", "%": "floormod", "<<": "shl", ">>": "shr"}[e.op]
        return f"ms_{name}_{kind}({a}, {b})"

    def rounded(self, text: str, dtype: str) -> str:
        return f"ms_round_{dtype}({text})" if dtype in NARROW else text

    def cast(self, e: ir.Cast) -> str:
        a, have, want = self.expr(e.a), e.a.dtype, e.dtype
        if want == "bool":
            return f"({a} != 0)"
        if want in NARROW:
            return self.rounded(f"(float)({a})", want)
        if self.is_index(e.a) and want == "int64":
            return a
        if ir.is_float(have) and ir.is_integer(want) and want != "int64":
            return f"(({TYPES[want]})(i64)({a}))" if want != "int32" else f"((i32)({a}))"
        return f"(({VALUES[want]})({a}))"

    def call(self, e: ir.Call) -> str:
        if (known := ir.INSTRUCTIONS.get(e.name)) is not None:
            return self.expr(known.expand(e.args))
        args, dtype = [self.expr(a) for a in e.args], e.args[0].dtype
        if e.name == SHUFFLE:
            return f"(({VALUES[dtype]})__shfl_down_sync(0xffffffffu, {', '.join(args)}))"
        if e.name == "isnan":
            return f"({args[0]} != {args[0]})"
        if e.name == "isinf":
            limit = "AS_DOUBLE(0x7ff0000000000000UL)" if dtype == "float64" else "AS_FLOAT(0x7f800000u)"
            return f"(fabs({args[0]}) == {limit})"
        if e.name == "abs" and ir.is_integer(dtype):
            return args[0] if dtype == "uint8" else f"ms_abs_{TYPES[dtype]}({args[0]})"
        working = "float64" if dtype == "float64" else "float32"
        if e.name == "sigmoid":
            return self.rounded(f"ms_sigmoid_{VALUES[working]}({args[0]})", dtype)
        return self.rounded(f"{self.dialect.functions[e.name, working]}({', '.join(args)})", dtype)

    def load(self, e: ir.Load) -> str:
        text = f"{self.names.buffer(e.buffer)}[{self.address(e)}]"
        if e.buffer.dtype in NARROW:
            return f"ms_from_{e.buffer.dtype}({text})"
        return text

    def address(self, access: ir.Load | ir.Store) -> str:
        b = access.buffer
        axes = self.kernel.unproved.axes(access)
        parts: list[str] = [str(b.offset)] if b.offset else []
        for axis, (index, stride) in enumerate(zip(access.indices, b.strides, strict=True)):
            if b.shape[axis] == 1 and axis not in axes:
                continue
            text = self.expr(index)
            if axis in axes:
                code = self.fail_code(out_of_range(access, axis), "index")
                text = f"ms_check_index(status, {code}, {text}, {b.shape[axis]})"
            if ir.as_int(index) == 0:
                continue
            parts.append(text if stride == 1 else f"{text} * {stride}")
        return " + ".join(parts) or "0"

    def fail_code(self, message: str, kind: str) -> int:
        """The status of a failed check."""
        self.checked = True
        failure = Failure(message, kind)
        if failure not in self.failures:
            self.failures.append(failure)
        return self.failures.index(failure) + 1

    # --- statements ---

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def body(self, body: ir.Body) -> None:
        for s in body:
            self.stmt(s)

    def stmt(self, s: ir.Stmt) -> None:
        if isinstance(s, Barrier):
            if self.asynchronous:
                self.put(f"ms_copies_arrive<{s.under_way}>();")
            self.put(self.dialect.barrier)
        elif isinstance(s, ir.Store):
            self.put(f"{self.target(s)} = {self.stored_value(s)};")
        elif isinstance(s, ir.TupleStore):
            self.tuple_store(s)
        elif isinstance(s, ir.For):
            self.loop(s)
        elif isinstance(s, ir.If):
            self.put(f"if ({self.expr(s.cond)}) {{")
            self.nested(s.then, assume(self.domain, s.cond))
            if s.orelse:
                self.put("} else {")
                self.nested(s.orelse, self.domain)
            self.put("}")
        elif isinstance(s, ir.While):
            self.put(f"while ({self.expr(s.cond)}) {{")
            self.nested(s.body, self.domain)
            self.put("}")
        elif isinstance(s, ir.Assert):
            code = self.fail_code(s.message or f"assertion failed: {s.cond}", "assertion")
            self.put(f"if (!({self.expr(s.cond)})) ms_fail(status, {code});")
        else:
            raise TypeError(f"unknown statement {type(s).__name__}")

    def nested(self, body: ir.Body, domain: Domain) -> None:
        outside, self.domain = self.domain, domain
        self.depth += 1
        self.body(body)
        self.depth -= 1
        self.domain = outside

    def target(self, s: ir.Store) -> str:
        return f"{self.names.buffer(s.buffer)}[{self.address(s)}]"

    def stored_value(self, s: ir.Store) -> str:
        value = ir.cast(s.value, s.buffer.dtype)
        text = self.expr(value)
        return f"ms_to_{s.buffer.dtype}({text})" if s.buffer.dtype in NARROW else text

    def tuple_store(self, s: ir.TupleStore) -> None:
        made: list[tuple[str, str]] = []
        self.put("{")
        self.depth += 1
        for store in s.stores:
            name = self.temporary()
            self.put(f"{TYPES[store.buffer.dtype]} {name} = {self.stored_value(store)};")
            made.append((self.target(store), name))
        for place, name in made:
            self.put(f"{place} = {name};")
        self.depth -= 1
        self.put("}")

    def temporary(self) -> str:
        self.temporaries += 1
        return f"ms_t{self.temporaries}"

    def loop(self, s: ir.For) -> None:
        if s.kind == "vectorized" and self.vector_copy(s):
            return
        extent = s.fixed_extent
        var = self.names.var(s.var)
        wanted = s.kind in ("unrolled", "vectorized") or self.indexes_registers(s)
        if wanted and self.wide_stores(s):
            return
        if wanted and extent is not None:
            self.put("#pragma unroll")
        kind = self.index_type if not ir.has_load(s.extent) else "i64"
        self.put(f"for ({kind} {var} = 0; {var} < {self.expr(s.extent)}; ++{var}) {{")
        self.nested(s.body, inside(self.domain, s))
        self.put("}")

    def indexes_registers(self, s: ir.For) -> bool:
        """Whether a short loop selects registers: they are registers only where the index is a constant."""
        if s.fixed_extent is None or s.fixed_extent > MOST_REGISTERS:
            return False
        accesses = [x for x in ir.walk(s.body) if isinstance(x, ir.Store)]
        loads = [e for e in ir.expressions(s.body) if isinstance(e, ir.Load)]
        return any(
            x.buffer.scope == "local" and s.var in {v for i in x.indices for v in ir.free_vars(i)}
            for x in (*accesses, *loads)
        )

    def vector_copy(self, s: ir.For) -> bool:
        """A copy of neighbouring elements as one load and one store. True if it was one."""
        lanes, (store, guards) = s.fixed_extent, find_store(s)
        if lanes not in (2, 4) or store is None or not self.is_wide(store, s.var, lanes):
            return False
        value = store.value
        if not isinstance(value, ir.Load) or value.buffer.dtype != store.buffer.dtype:
            return False
        if value.buffer.data is not None or self.kernel.unproved.axes(value):
            return False
        if not self.is_aligned(value, s.var, lanes):
            return False
        first = ir.Substitute({s.var: ir.const(0)})
        at, source = first.body((store,))[0], first.expr(value)
        assert isinstance(at, ir.Store)
        assert isinstance(source, ir.Load)
        for guard in guards:
            self.put(f"if ({self.expr(guard)})")
        self.put("{")
        vector, name = f"{VECTORS[value.buffer.dtype]}{lanes}", self.temporary()
        read, write = (self.names.buffer(b) for b in (source.buffer, at.buffer))
        if self.asynchronous and at.buffer in self.kernel.ahead and source.buffer.scope == "global":
            there, here = f"{write} + ({self.address(at)})", f"{read} + ({self.address(source)})"
            self.put(f"  ms_copy_async<{lanes * 4}>({there}, {here});")
            self.put("}")
            return True
        if source.buffer.scope == "local":
            self.put(f"  {vector} {name};")
            for n, part in enumerate("xyzw"[:lanes]):
                self.put(f"  {name}.{part} = {read}[{self.address(source)} + {n}];")
        else:
            pointer = f"{self.space(source.buffer)}const {vector}*"
            self.put(f"  {vector} {name} = *({pointer})({read} + ({self.address(source)}));")
        if at.buffer.scope == "local":
            for n, part in enumerate("xyzw"[:lanes]):
                self.put(f"  {write}[{self.address(at)} + {n}] = {name}.{part};")
        else:
            self.put(f"  *({self.space(at.buffer)}{vector}*)({write} + ({self.address(at)})) = {name};")
        self.put("}")
        return True

    def wide_stores(self, s: ir.For) -> bool:
        """Results that a thread has for neighbouring elements, however they are computed, stored together.
        True if the loop was that.

            for v in range(8): C[i * 64 + v] = acc[v] + bias[v]
            -->  for v in (0, 4): C[i * 64 + v : ... + 4] = (acc[v] + bias[v], acc[v + 1] + bias[v + 1], ...)
        """
        (store, guards), extent = find_store(s), s.fixed_extent
        if store is None or extent is None or extent > MOST_REGISTERS or store.buffer.scope == "local":
            return False
        lanes = next((n for n in (4, 2) if extent % n == 0 and self.is_wide(store, s.var, n)), 0)
        if (
            not lanes
            or self.spare_registers() < ALIGNED_REGISTERS
            or any(e.buffer is store.buffer for e in ir.loads(store.value))
        ):
            return False
        var, first, values = self.names.var(s.var), self.temporary(), self.temporary()
        vector, index = f"{VECTORS[store.buffer.dtype]}{lanes}", self.index_type
        outside, self.domain = self.domain, inside(self.domain, s)
        self.put("#pragma unroll")
        self.put(f"for ({index} {first} = 0; {first} < {extent}; {first} += {lanes}) {{")
        self.depth += 1
        for guard in guards:
            self.put(f"if ({self.expr(guard)})")
        self.put("{")
        self.put(f"  {vector} {values};")
        for n, part in enumerate("xyzw"[:lanes]):
            value = self.stored_value(store)
            self.put(f"  {{ const {index} {var} = {first} + {n}; {values}.{part} = {value}; }}")
        place = f"{self.names.buffer(store.buffer)} + ({self.address(store)})"
        pointer = f"({self.space(store.buffer)}{vector}*)"
        self.put(f"  {{ const {index} {var} = {first}; *{pointer}({place}) = {values}; }}")
        self.put("}")
        self.depth -= 1
        self.put("}")
        self.domain = outside
        return True

    def spare_registers(self) -> int:
        """How many registers a thread has that it does not need, with as many blocks at once as asked for."""
        if self.gpu is None:
            return ALIGNED_REGISTERS
        threads = -(-self.kernel.threads // self.gpu.warp) * self.gpu.warp
        most = self.gpu.registers // (resident_blocks(self.kernel, self.gpu) * threads)
        needed = needed_registers(self.kernel) - (FETCHED_REGISTERS if self.asynchronous else 0)
        return min(most, self.gpu.max_registers) - needed

    def is_wide(self, store: ir.Store, var: ir.Var, lanes: int) -> bool:
        """Whether so many neighbouring iterations of a loop store a vector."""
        known = store.buffer.dtype in VECTORS and not self.kernel.unproved.axes(store)
        return known and self.is_aligned(store, var, lanes)

    def space(self, b: ir.Buffer) -> str:
        """What a pointer to a buffer is qualified with."""
        if self.dialect.name == "cuda":
            return ""
        return self.dialect.shared if b.scope == "shared" else self.dialect.space

    def is_aligned(self, access: ir.Load | ir.Store, var: ir.Var, lanes: int) -> bool:
        """Whether lane n touches the n-th element of a group of neighbours."""
        total: dict[ir.Expr, int] = {}
        const = access.buffer.offset
        for index, stride in zip(access.indices, access.buffer.strides, strict=True):
            form = form_of(index)
            const += form.const * stride
            for x, c in form.terms:
                if x is not var and var in set(ir.free_vars(x)):
                    return False
                total[x] = total.get(x, 0) + c * stride
        return const % lanes == 0 and total.pop(var, 0) == 1 and all(c % lanes == 0 for c in total.values())

    # --- kernel ---

    def text(self) -> str:
        kernel, dialect = self.kernel, self.dialect
        self.body(kernel.body)
        params = self.parameters()
        listed = [
            dialect.pointer.format(
                const="" if b in self.stored else "const ", type=TYPES[b.dtype], name=self.names.buffer(b)
            )
            for b in params
        ]
        listed.append(dialect.pointer.format(const="", type="int", name="status"))
        x, y, z = kernel.block
        head = dialect.kernel.format(
            name=kernel.name,
            x=x,
            y=y,
            z=z,
            threads=kernel.threads,
            blocks=resident_blocks(kernel, self.gpu),
            params=", ".join(listed),
        )
        opening: list[str] = []
        align = "__attribute__((aligned(16))) " if dialect.name == "opencl" else "__align__(16) "
        for b in kernel.shared:
            size = max(1, b.room)
            opening.append(
                f"  {dialect.shared}{align if dialect.name == 'cuda' else ''}{TYPES[b.dtype]} "
                f"{self.names.buffer(b)}[{size}]{' ' + align.strip() if dialect.name == 'opencl' else ''};"
            )
        opening += [f"  {TYPES[b.dtype]} {self.names.buffer(b)}[{max(1, b.room)}];" for b in kernel.local]
        axes = kernel.axes
        for key, var in axes.vars.items():
            axis = axes.base[key]
            if axis in dialect.axes:
                value, step, size = f"(int){dialect.axes[axis]}", axes.strides[key], axes.extents[key]
                value = value if step == 1 else f"{value} / {step}"
                value = value if size * step == axes.whole[axis] else f"{value} % {size}"
                opening.append(f"  const {self.index_type} {self.names.var(var)} = {value};")
        return "\n".join([*self.tables(), f"{head} {{", *opening, *self.lines, "}"])

    def tables(self) -> list[str]:
        """The constants that the kernel reads."""
        used = {e.buffer for e in ir.expressions(self.kernel.program) if isinstance(e, ir.Load)}
        found: list[str] = []
        for b in self.kernel.program.allocs:
            if b.data is not None and b in used:
                kind = {"float16": "float32", "bfloat16": "float32"}.get(b.dtype, b.dtype)
                flat = b.data.reshape(-1)
                if b.dtype in NARROW:
                    values = [str(int(x)) for x in flat.view("uint16")]
                else:
                    values = [literal(x.item(), kind) for x in flat]
                found.append(
                    self.dialect.table.format(
                        type=TYPES[b.dtype],
                        name=self.names.buffer(b),
                        size=max(1, flat.size),
                        values=", ".join(values) or "0",
                    )
                )
        return found

    def parameters(self) -> list[ir.Buffer]:
        """Buffers in memory of the device that the kernel uses, in order of the program."""
        program = self.kernel.program
        used = self.stored | {e.buffer for e in ir.expressions(program) if isinstance(e, ir.Load)}
        return [
            b
            for b in (*program.inputs, *program.outputs, *program.allocs)
            if b in used and b.scope == "global" and b.data is None
        ]


def find_store(s: ir.For) -> tuple[ir.Store | None, list[ir.Expr]]:
    """The store that is all of a loop's body, and conditions around it; none if they depend on the loop."""
    guards: list[ir.Expr] = []
    body = s.body
    while len(body) == 1 and isinstance(test := body[0], ir.If) and not test.orelse:
        guards.append(test.cond)
        body = test.then
    store = body[0] if len(body) == 1 else None
    if not isinstance(store, ir.Store) or any(s.var in set(ir.free_vars(guard)) for guard in guards):
        return None, []
    return store, guards


def needed_registers(kernel: GpuKernel) -> int:
    return sum([-(-buffer_bytes(b) // 4) for b in kernel.local]) + OTHER_REGISTERS


def resident_blocks(kernel: GpuKernel, gpu: Gpu | None) -> int:
    """How many blocks a multiprocessor should hold at once: as many as there is room for with the registers
    that a thread needs anyway. It bounds what the compiler takes for more."""
    if gpu is None:
        return 1
    words = needed_registers(kernel)
    warps = -(-kernel.threads // gpu.warp)
    return max(
        1,
        min(
            gpu.registers // (words * warps * gpu.warp),
            gpu.resident_threads // (warps * gpu.warp),
            gpu.shared // max(1, kernel.shared_bytes + gpu.reserved_shared),
            gpu.resident_blocks,
            MOST_RESIDENT,
        ),
    )


class Names:
    """Names of variables and buffers, each once in a kernel."""

    def __init__(self, kernel: GpuKernel) -> None:
        self.known: dict[Any, str] = {}
        self.taken: set[str] = {"status", kernel.name}
        self.kernel = kernel.name

    def var(self, v: ir.Var) -> str:
        return self.name(v, v.name)

    def buffer(self, b: ir.Buffer) -> str:
        return self.name(b, f"{self.kernel}_{b.name}" if b.data is not None else f"{b.name}_")

    def name(self, key: Any, wanted: str) -> str:
        if key not in self.known:
            base = "v_" + "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in wanted)
            found, n = base, 1
            while found in self.taken:
                found, n = f"{base}{n}", n + 1
            self.taken.add(found)
            self.known[key] = found
        return self.known[key]


def literal(value: bool | int | float, dtype: str) -> str:
    if dtype == "bool":
        return "1" if value else "0"
    if not ir.is_float(dtype):
        number = int(value)
        if number == -(2**63):
            return "(-9223372036854775807L - 1)"
        text = f"{number}L" if abs(number) >= 2**31 else str(number)
        return f"({text})" if number < 0 else text
    number = float(value)
    double = dtype == "float64"
    if math.isnan(number):
        return "AS_DOUBLE(0x7ff8000000000000UL)" if double else "AS_FLOAT(0x7fc00000u)"
    if math.isinf(number):
        text = "AS_DOUBLE(0x7ff0000000000000UL)" if double else "AS_FLOAT(0x7f800000u)"
    else:
        text = abs(number).hex() + ("" if double else "f")
    return f"(-{text})" if math.copysign(1.0, number) < 0 else text


def needs_wide(kernel: GpuKernel) -> bool:
    """Whether an index of the kernel may not fit 32 bits."""
    limit = 2**31
    program = kernel.program
    if any(b.room >= limit for b in (*program.inputs, *program.outputs, *program.allocs)):
        return True
    sizes = [s.fixed_extent for s in ir.walk(program) if isinstance(s, ir.For)]
    if any(n is not None and n >= limit for n in sizes):
        return True
    domain = Domain({s.var: s.extent for s in ir.walk(program) if isinstance(s, ir.For)})
    for e in ir.expressions(program):
        if isinstance(e, ir.Const) and e.dtype == ir.INDEX and abs(int(e.value)) >= limit:
            return True
        if isinstance(e, ir.Binary) and e.a.dtype == ir.INDEX and e.dtype == "bool":
            for x in (e.a, e.b):
                if not ir.has_load(x) and not isinstance(x, (ir.Var, ir.Const)):
                    low, high = domain.bounds(x)
                    if low is None or high is None or low < -limit or high >= limit:
                        return True
    return False
