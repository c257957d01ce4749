"""Kernels that do to their process what no program of ours could say, around a correct C = A + B."""

from __future__ import annotations

from dataclasses import replace

from metaschedule.ir import Program
from metaschedule.runtime import ArgSpec, Kernel
from metaschedule.script import parse
from metaschedule.target import resolve

N = 1000
PROGRAM = f"""
@ms.program
def add(A: T.Tensor(({N},)), B: T.Tensor(({N},)), C: T.Output(({N},))):
    for i in range({N}):
        with T.block("add"):
            v = T.spatial({N}, i)
            C[v] = A[v] + B[v]
"""

TEXT = """
@calls = internal global i64 0
@zero = internal global i32 0
@number = internal global i32 7
@text = internal constant [8 x i8] c"garbage\\00"
declare i32 @usleep(i32)
declare i64 @clock()
declare i32 @puts(ptr)
declare i32 @fflush(ptr)
declare i64 @write(i32, ptr, i64)
declare i32 @ualarm(i32, i32)
declare i32 @getpid()
declare i32 @kill(i32, i32)
declare void @exit(i32)
declare void @no_such_function()
define i32 @add(ptr %args, ptr %workspace, ptr %runtime) {{
entry:
  %a = load ptr, ptr %args
  %bp = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %bp
  %cp = getelementptr ptr, ptr %args, i64 2
  %c = load ptr, ptr %cp
  %past.a = getelementptr float, ptr %a, i64 {n}
  %past.c = getelementptr float, ptr %c, i64 {n}
  %before = load i64, ptr @calls
  %called = add i64 %before, 1
  store i64 %called, ptr @calls
  %even = and i64 %before, 1
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %loop]
  %ai = getelementptr float, ptr %a, i64 %i
  %bi = getelementptr float, ptr %b, i64 %i
  %ci = getelementptr float, ptr %c, i64 %i
  %x = load float, ptr %ai
  %y = load float, ptr %bi
  %z = {operation} float %x, %y
  store float %z, ptr %ci
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, {count}
  br i1 %more, label %loop, label %done
done:
{after}
  ret i32 0
}}
"""


def program() -> Program:
    return parse(PROGRAM)


def kernel(after: str = "", operation: str = "fadd", count: int = N, shared_bytes: int = 0) -> Kernel:
    """C = A + B, then `after`."""
    spec = ArgSpec("A", (N,), "float32")
    return Kernel(
        "add",
        TEXT.format(n=N, operation=operation, count=count, after=after),
        (spec, replace(spec, name="B")),
        (replace(spec, name="C"),),
        resolve(),
        shared_bytes=shared_bytes,
    )


def long_to_build(accesses: int) -> Kernel:
    """Right, and so long that building it takes a while, and memory."""
    access = "  %h{0} = load volatile float, ptr %a\n  store volatile float %h{0}, ptr %ci"
    return kernel("\n".join([*map(access.format, range(accesses)), "  store float %z, ptr %ci"]))


GOOD = kernel()
SLEEPS = kernel("  %s = call i32 @usleep(i32 60000)")
WORKS_LONG = kernel(  # 60 ms of the processor's time: to sleep counts as being stopped
    "  %begin = call i64 @clock()\n  br label %work\n"
    "work:\n  %now = call i64 @clock()\n  %passed = sub i64 %now, %begin\n"
    "  %on = icmp ult i64 %passed, 60000\n  br i1 %on, label %work, label %end\nend:"
)
DIVIDES_BY_ZERO = kernel(
    "  %n = load volatile i32, ptr @number\n  %d = load volatile i32, ptr @zero\n"
    "  %q = sdiv i32 %n, %d\n  store volatile i32 %q, ptr %c"
)
LOOPS_FOR_EVER = kernel("  br label %forever\nforever:\n  br label %forever\ndead:")
SEGFAULTS = kernel("  %p = inttoptr i64 8 to ptr\n  store volatile i32 0, ptr %p")
WRITES_PAST_THE_OUTPUT = kernel("  store volatile float 0.0, ptr %past.c")
READS_PAST_AN_INPUT = kernel("  %p = load volatile float, ptr %past.a")
WRITES_TO_AN_INPUT = kernel("  store volatile float 0.0, ptr %a")
EXITS = kernel("  call void @exit(i32 0)")
KILLS_ITSELF = kernel("  %p = call i32 @getpid()\n  %k = call i32 @kill(i32 %p, i32 9)")
NEEDS_100_GB = kernel(shared_bytes=100 << 30)
SUBTRACTS = kernel(operation="fsub")
LACKS_THE_LAST = kernel(count=N - 1)
WRONG_BY_TURNS = kernel(
    "  %w = sitofp i64 %even to float\n  %v = fsub float %z, %w\n  store float %v, ptr %ci"
)
RIGHT_AT_FIRST = kernel(
    "  %n = icmp ugt i64 %called, 3\n  %s = select i1 %n, float 0.0, float %z\n  store float %s, ptr %ci"
)
PRINTS = kernel("  %p = call i32 @puts(ptr @text)\n  %f = call i32 @fflush(ptr null)")
PRINTS_ERRORS = kernel("  %p = call i64 @write(i32 2, ptr @text, i64 7)")
GARBLES_ITS_PIPES = kernel(
    "\n".join(f"  %w{fd} = call i64 @write(i32 {fd}, ptr @text, i64 7)" for fd in range(12))
)
IS_NO_LLVM = kernel("  this is not LLVM")
NEEDS_A_SYMBOL = kernel("  call void @no_such_function()")
ENDS_THE_NEXT = kernel("  %p = call i32 @ualarm(i32 400000, i32 0)")  # an alarm, when others run
SLEEPS_LONGER = kernel("  %s = call i32 @usleep(i32 800000)")
