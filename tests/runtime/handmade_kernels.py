"""Kernels written by hand, as the code generator would: small, and one per thing the runtime
does."""

from __future__ import annotations

from metaschedule.runtime import ArgSpec, Failure, Kernel
from metaschedule.target import Target, resolve

LLVM_TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "i8",
    "int32": "i32",
    "int64": "i64",
    "bfloat16": "i16",
    "float16": "i16",
    "bool": "i8",
    "uint8": "i8",
    "int16": "i16",
}

ADD = """
define i32 @add(ptr %args, ptr %workspace, ptr %runtime) {{
entry:
  %a = load ptr, ptr %args
  %bp = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %bp
  %cp = getelementptr ptr, ptr %args, i64 2
  %c = load ptr, ptr %cp
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %body]
  %more = icmp ult i64 %i, {size}
  br i1 %more, label %body, label %done
body:
  %ai = getelementptr {type}, ptr %a, i64 %i
  %bi = getelementptr {type}, ptr %b, i64 %i
  %ci = getelementptr {type}, ptr %c, i64 %i
  %x = load {type}, ptr %ai
  %y = load {type}, ptr %bi
  %z = {op} {type} %x, %y
  store {type} %z, ptr %ci
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret i32 0
}}
"""


def add(shape: tuple[int, ...] = (4, 6), dtype: str = "float32", target: Target | None = None) -> Kernel:
    """C = A + B; for 16-bit floats and bool their bits are or-ed, which exact data can check."""
    inputs = (ArgSpec("A", shape, dtype), ArgSpec("B", shape, dtype, constant=True))
    output = ArgSpec("C", shape, dtype)
    llvm = LLVM_TYPES[dtype]
    op = "fadd" if llvm in ("float", "double") else "add" if dtype.startswith(("int", "uint")) else "or"
    text = ADD.format(size=output.size, type=llvm, op=op)
    return Kernel("add", text, inputs, (output,), target or resolve())


# Each thread adds 1 to its share; out[n] is the number of threads that took part.
PARALLEL = """
%Data = type {{ ptr, ptr, ptr }}
define internal void @body(ptr %data) {{
  %rtp = getelementptr %Data, ptr %data, i32 0, i32 2
  %rt = load ptr, ptr %rtp
  %f1p = getelementptr ptr, ptr %rt, i64 1
  %f1 = load ptr, ptr %f1p
  %me = call i32 %f1()
  %f2p = getelementptr ptr, ptr %rt, i64 2
  %f2 = load ptr, ptr %f2p
  %team = call i32 %f2()
  call void @share(ptr %data, i32 %me, i32 %team)
  ret void
}}
define internal void @share(ptr %data, i32 %me, i32 %team) {{
entry:
  %a = load ptr, ptr %data
  %cp = getelementptr %Data, ptr %data, i32 0, i32 1
  %c = load ptr, ptr %cp
  %me64 = zext i32 %me to i64
  %team64 = zext i32 %team to i64
  %scaled = mul i64 %me64, {size}
  %begin = udiv i64 %scaled, %team64
  %me1 = add i64 %me64, 1
  %scaled1 = mul i64 %me1, {size}
  %end = udiv i64 %scaled1, %team64
  %first = icmp eq i32 %me, 0
  br i1 %first, label %report, label %loop
report:
  %slot = getelementptr float, ptr %c, i64 {size}
  %count = uitofp i32 %team to float
  store float %count, ptr %slot
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%begin, %report], [%i.next, %step]
  %more = icmp ult i64 %i, %end
  br i1 %more, label %step, label %done
step:
  %ai = getelementptr float, ptr %a, i64 %i
  %ci = getelementptr float, ptr %c, i64 %i
  %x = load float, ptr %ai
  %y = fadd float %x, 1.0
  store float %y, ptr %ci
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret void
}}
define i32 @parallel(ptr %args, ptr %workspace, ptr %runtime) {{
  %data = alloca %Data
  %a = load ptr, ptr %args
  %cp = getelementptr ptr, ptr %args, i64 1
  %c = load ptr, ptr %cp
  store ptr %a, ptr %data
  %d1 = getelementptr %Data, ptr %data, i32 0, i32 1
  store ptr %c, ptr %d1
  %d2 = getelementptr %Data, ptr %data, i32 0, i32 2
  store ptr %runtime, ptr %d2
  %np = getelementptr {{ ptr, ptr, ptr, i32 }}, ptr %runtime, i32 0, i32 3
  %n = load i32, ptr %np
  %serial = icmp eq i32 %n, 1
  br i1 %serial, label %one, label %many
one:
  call void @share(ptr %data, i32 0, i32 1)
  ret i32 0
many:
  %gomp = load ptr, ptr %runtime
  call void %gomp(ptr @body, ptr %data, i32 %n, i32 0)
  ret i32 0
}}
"""


def parallel(n: int = 1000, max_threads: int = 64, cores: int = 64) -> Kernel:
    """C[:n] = A + 1; C[n] = the number of threads."""
    return Kernel(
        "parallel",
        PARALLEL.format(size=n),
        (ArgSpec("A", (n,), "float32"),),
        (ArgSpec("C", (n + 1,), "float32"),),
        resolve(f"native,cores={cores}"),
        max_threads=max_threads,
    )


# Copies A into the workspace, pauses (another call would get in the way), checks the copy, and
# stores it doubled: shared part at 0, a second copy in the private part of thread 0.
WORKSPACE = """
declare i32 @usleep(i32)
define i32 @scratch(ptr %args, ptr %workspace, ptr %runtime) {{
  %a = load ptr, ptr %args
  %cp = getelementptr ptr, ptr %args, i64 1
  %c = load ptr, ptr %cp
  %address = ptrtoint ptr %workspace to i64
  %low = and i64 %address, 63
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %copy, label %bad
copy:
  %private = getelementptr i8, ptr %workspace, i64 {shared}
  call void @llvm.memcpy.p0.p0.i64(ptr %workspace, ptr %a, i64 {bytes}, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %private, ptr %a, i64 {bytes}, i1 false)
  %slept = call i32 @usleep(i32 {pause})
  br label %loop
loop:
  %i = phi i64 [0, %copy], [%i.next, %step]
  %more = icmp ult i64 %i, {size}
  br i1 %more, label %step, label %done
step:
  %wi = getelementptr float, ptr %workspace, i64 %i
  %pi = getelementptr float, ptr %private, i64 %i
  %ci = getelementptr float, ptr %c, i64 %i
  %x = load float, ptr %wi
  %y = load float, ptr %pi
  %z = fadd float %x, %y
  store float %z, ptr %ci
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret i32 0
bad:
  ret i32 1
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def scratch(n: int = 100, pause: int = 0) -> Kernel:
    """C = 2 * A by way of the workspace, sleeping `pause` microseconds in between."""
    shared = -(-4 * n // 64) * 64
    return Kernel(
        "scratch",
        WORKSPACE.format(size=n, bytes=4 * n, shared=shared, pause=pause),
        (ArgSpec("A", (n,), "float32"),),
        (ArgSpec("C", (n,), "float32"),),
        resolve(),
        shared_bytes=4 * n,
        private_bytes=4 * n,
        failures=(Failure("the workspace is not aligned"),),
        externals=("usleep",),
    )


FAILS = """
define i32 @fails(ptr %args, ptr %workspace, ptr %runtime) {
  %a = load ptr, ptr %args
  %x = load i32, ptr %a
  ret i32 %x
}
"""


def fails() -> Kernel:
    """Returns its input as its status."""
    return Kernel(
        "fails",
        FAILS,
        (ArgSpec("A", (), "int32"),),
        (ArgSpec("C", (), "int32"),),
        resolve(),
        failures=(Failure("x must be small"), Failure("y must be positive")),
    )


EXP = """
declare float @expf(float)
define i32 @exponential(ptr %args, ptr %workspace, ptr %runtime) {
  %a = load ptr, ptr %args
  %c1 = getelementptr ptr, ptr %args, i64 1
  %c2 = getelementptr ptr, ptr %args, i64 2
  %c = load ptr, ptr %c1
  %d = load ptr, ptr %c2
  %x = load float, ptr %a
  %y = call float @expf(float %x)
  store float %y, ptr %c
  %z = fneg float %y
  store float %z, ptr %d
  ret i32 0
}
"""


def exponential() -> Kernel:
    """Two outputs: exp(x), -exp(x)."""
    return Kernel(
        "exponential",
        EXP,
        (ArgSpec("X", (1,), "float32"),),
        (ArgSpec("E", (1,), "float32"), ArgSpec("N", (1,), "float32")),
        resolve(),
        externals=("expf",),
    )


VECTOR_EXP = """
declare <8 x float> @_ZGVdN8v_expf(<8 x float>)
define i32 @vector_exp(ptr %args, ptr %workspace, ptr %runtime) {
  %a = load ptr, ptr %args
  %c1 = getelementptr ptr, ptr %args, i64 1
  %c = load ptr, ptr %c1
  %x = load <8 x float>, ptr %a, align 4
  %y = call <8 x float> @_ZGVdN8v_expf(<8 x float> %x)
  store <8 x float> %y, ptr %c, align 4
  ret i32 0
}
"""


def vector_exp() -> Kernel:
    """exp of eight floats by glibc's vector library; needs AVX2."""
    return Kernel(
        "vector_exp",
        VECTOR_EXP,
        (ArgSpec("X", (8,), "float32"),),
        (ArgSpec("Y", (8,), "float32"),),
        resolve(),
        externals=("_ZGVdN8v_expf",),
    )
