"""The LLVM text of `run_steps`: kernels one after the other without Python between them (see `sequence`).

A CPython function (METH_FASTCALL) of a number of threads and of addresses, the bases. It returns 0, or a
tuple (status, value) of the first kernel that failed, with that step's number in the upper half of the
status; -1 for a wrong number of arguments.
"""

from .layout import expand

TEXT = expand("""
define ptr @run_steps(ptr %self, ptr %args, i64 %nargs) {
  %seq = call ptr @PyLong_AsVoidPtr(ptr %self)
  %want = get %Steps.bases, %seq
  %given = sub i64 %nargs, 1
  %right = icmp eq i64 %given, %want
  br i1 %right, label %begin, label %no
no:
  %mismatch = call ptr @PyLong_FromLong(i64 -1)
  ret ptr %mismatch
begin:
  %bases = alloca ptr, i64 %nargs
  %most = get %Steps.most_arguments, %seq
  %addresses = alloca ptr, i64 %most
  %rt = alloca %Runtime
  br label %read
read:
  %r = phi i64 [0, %begin], [%r.next, %read]
  %object.at = getelementptr ptr, ptr %args, i64 %r
  %object = load ptr, ptr %object.at
  %base = call ptr @PyLong_AsVoidPtr(ptr %object)
  %base.at = getelementptr ptr, ptr %bases, i64 %r
  store ptr %base, ptr %base.at
  %r.next = add i64 %r, 1
  %more = icmp ult i64 %r.next, %nargs
  br i1 %more, label %read, label %prepare
prepare:
  %threads = load i64, ptr %bases
  store ptr null, ptr %bases
  %process = get %Steps.process, %seq
  %allowed = call i64 @team(ptr %process, i64 %threads, ptr %rt)
  %rt.threads = at %Runtime.threads, %rt
  %steps = get %Steps.steps, %seq
  %count = get %Steps.count, %seq
  %gil = call ptr @PyEval_SaveThread()
  br label %loop
loop:
  %s = phi i64 [0, %prepare], [%s.next, %ran]
  %left = icmp ult i64 %s, %count
  br i1 %left, label %step, label %done
step:
  %this = getelementptr %Step, ptr %steps, i64 %s
  %limit = get %Step.max_threads, %this
  %used = call i64 @llvm.umin.i64(i64 %allowed, i64 %limit)
  %used32 = trunc i64 %used to i32
  store i32 %used32, ptr %rt.threads
  %arguments = get %Step.arguments, %this
  %filled = get %Step.count, %this
  br label %fill
fill:
  %a = phi i64 [0, %step], [%a.next, %fill]
  %argument = getelementptr %Argument, ptr %arguments, i64 %a
  %which = get %Argument.base, %argument
  %offset = get %Argument.offset, %argument
  %from.at = getelementptr ptr, ptr %bases, i64 %which
  %from = load ptr, ptr %from.at
  %address = getelementptr i8, ptr %from, i64 %offset
  %slot = getelementptr ptr, ptr %addresses, i64 %a
  store ptr %address, ptr %slot
  %a.next = add i64 %a, 1
  %unfilled = icmp ult i64 %a.next, %filled
  br i1 %unfilled, label %fill, label %go
go:
  %entry = get %Step.entry, %this
  %workspace = load ptr, ptr %addresses
  %kernel.args = getelementptr ptr, ptr %addresses, i64 1
  %status = call i32 %entry(ptr %kernel.args, ptr %workspace, ptr %rt)
  %s.next = add i64 %s, 1
  %good = icmp eq i32 %status, 0
  br i1 %good, label %ran, label %failed
ran:
  br label %loop
failed:
  %high = shl i64 %s, 32
  %low = zext i32 %status to i64
  %both = or i64 %high, %low
  br label %done
done:
  %result = phi i64 [0, %loop], [%both, %failed]
  call void @PyEval_RestoreThread(ptr %gil)
  %object.result = call ptr @outcome(i64 %result, ptr %rt)
  ret ptr %object.result
}
""")
