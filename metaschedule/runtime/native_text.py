"""The LLVM text of the native caller: one module per process, driven by tables, see `native`.

`call_arrays` and `call_pointers` are CPython functions (METH_FASTCALL). Both return 0, or -1 if an argument
is not exactly as expected, in which case nothing was run and the slow path in Python finds out why, or what a
kernel that failed returned: a tuple (status, value). Everything but the kernel itself happens under the GIL,
so the free list of workspaces needs no lock."""

from .layout import expand, llvm_types

DECLARATIONS = """
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromLong(i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyErr_NoMemory()
declare void @PyErr_Clear()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare void @Py_DecRef(ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare i32 @madvise(ptr, i64, i32)
declare void @free(ptr)
declare i32 @clock_gettime(i32, ptr)
"""

# A workspace is preceded by 64 bytes that hold the next free one and its size. A large one is on large pages
# (see pages.py; 14 is MADV_HUGEPAGE), if the system has some.
WORKSPACE = """
define ptr @take(ptr %ctx, i64 %need) {
  %slot = alloca ptr
  %list = at %Context.free, %ctx
  br label %look
look:
  %head = load ptr, ptr %list
  %none = icmp eq ptr %head, null
  br i1 %none, label %allocate, label %pop
pop:
  %next = get %Workspace.next, %head
  store ptr %next, ptr %list
  %size = get %Workspace.size, %head
  %enough = icmp uge i64 %size, %need
  br i1 %enough, label %done, label %drop
drop:
  call void @free(ptr %head)
  br label %look
allocate:
  %total = add i64 %need, 64
  %large = icmp uge i64 %total, 524288
  %alignment = select i1 %large, i64 2097152, i64 64
  %below = sub i64 %alignment, 1
  %past = add i64 %total, %below
  %mask = sub i64 0, %alignment
  %whole = and i64 %past, %mask
  %failed = call i32 @posix_memalign(ptr %slot, i64 %alignment, i64 %whole)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %got, label %fail
got:
  %new = load ptr, ptr %slot
  br i1 %large, label %advise, label %fresh
advise:
  %advised = call i32 @madvise(ptr %new, i64 %whole, i32 14)
  br label %fresh
fresh:
  %newsize = at %Workspace.size, %new
  store i64 %need, ptr %newsize
  br label %done
done:
  %block = phi ptr [%head, %pop], [%new, %fresh]
  %data = getelementptr i8, ptr %block, i64 64
  ret ptr %data
fail:
  ret ptr null
}

define void @give(ptr %ctx, ptr %data) {
  %block = getelementptr i8, ptr %data, i64 -64
  %list = at %Context.free, %ctx
  %head = load ptr, ptr %list
  store ptr %head, ptr %block
  store ptr %block, ptr %list
  ret void
}

define void @drain(ptr %ctx) {
  %list = at %Context.free, %ctx
  br label %look
look:
  %head = load ptr, ptr %list
  %none = icmp eq ptr %head, null
  br i1 %none, label %done, label %drop
drop:
  %next = get %Workspace.next, %head
  store ptr %next, ptr %list
  call void @free(ptr %head)
  br label %look
done:
  ret void
}
"""

# `team` fills `%rt` for so many threads, or one where OpenMP is missing, and says how many; `prepare` does so
# for a call of an executable and says how much workspace it needs.
RUN = """
define i64 @team(ptr %process, i64 %wanted, ptr %rt) {
  %gomp = get %Process.gomp_parallel, %process
  %number = get %Process.thread_num, %process
  %size = get %Process.num_threads, %process
  %serial = icmp eq ptr %gomp, null
  %threads = select i1 %serial, i64 1, i64 %wanted
  %threads32 = trunc i64 %threads to i32
  store ptr %gomp, ptr %rt
  %rt1 = at %Runtime.thread_num, %rt
  store ptr %number, ptr %rt1
  %rt2 = at %Runtime.num_threads, %rt
  store ptr %size, ptr %rt2
  %rt3 = at %Runtime.threads, %rt
  store i32 %threads32, ptr %rt3
  %rt4 = at %Runtime.value, %rt
  store i64 0, ptr %rt4
  ret i64 %threads
}

define i64 @prepare(ptr %ctx, ptr %rt) {
  %process = get %Context.process, %ctx
  %default = get %Process.default_threads, %process
  %most = get %Context.max_threads, %ctx
  %own = get %Context.threads, %ctx
  %unset = icmp eq i64 %own, 0
  %cores = get %Context.cores, %ctx
  %usual = call i64 @llvm.umin.i64(i64 %default, i64 %cores)
  %asked = select i1 %unset, i64 %usual, i64 %own
  %capped = call i64 @llvm.umin.i64(i64 %asked, i64 %most)
  %threads = call i64 @team(ptr %process, i64 %capped, ptr %rt)
  %shared = get %Context.shared, %ctx
  %private = get %Context.private, %ctx
  %privates = mul i64 %threads, %private
  %need = add i64 %shared, %privates
  ret i64 %need
}
declare i64 @llvm.umin.i64(i64, i64)

define internal ptr @outcome(i64 %status, ptr %rt) {
  %number = call ptr @PyLong_FromLong(i64 %status)
  %good = icmp eq i64 %status, 0
  br i1 %good, label %plain, label %failed
plain:
  ret ptr %number
failed:
  %about = get %Runtime.value, %rt
  %value = call ptr @PyLong_FromLong(i64 %about)
  %pair = call ptr @PyTuple_New(i64 2)
  %first = call i32 @PyTuple_SetItem(ptr %pair, i64 0, ptr %number)
  %second = call i32 @PyTuple_SetItem(ptr %pair, i64 1, ptr %value)
  ret ptr %pair
}

define internal ptr @run(ptr %ctx, ptr %addresses) {
  %rt = alloca %Runtime
  %need = call i64 @prepare(ptr %ctx, ptr %rt)
  %entry = get %Context.entry, %ctx
  %without = icmp eq i64 %need, 0
  br i1 %without, label %go, label %with
with:
  %taken = call ptr @take(ptr %ctx, i64 %need)
  %full = icmp eq ptr %taken, null
  br i1 %full, label %nomemory, label %go
nomemory:
  %error = call ptr @PyErr_NoMemory()
  ret ptr %error
go:
  %workspace = phi ptr [null, %0], [%taken, %with]
  %gil = call ptr @PyEval_SaveThread()
  %status = call i32 %entry(ptr %addresses, ptr %workspace, ptr %rt)
  call void @PyEval_RestoreThread(ptr %gil)
  br i1 %without, label %done, label %back
back:
  call void @give(ptr %ctx, ptr %workspace)
  br label %done
done:
  %wide = sext i32 %status to i64
  %result = call ptr @outcome(i64 %wide, ptr %rt)
  ret ptr %result
}

define i32 @bench(ptr %entry, ptr %addresses, ptr %workspace, ptr %rt,
                  i64 %number, i64 %repeats, ptr %times) {
  %begin = alloca { i64, i64 }
  %end = alloca { i64, i64 }
  %begin.ns = getelementptr i64, ptr %begin, i64 1
  %end.ns = getelementptr i64, ptr %end, i64 1
  %count = uitofp i64 %number to double
  br label %repeat
repeat:
  %r = phi i64 [0, %0], [%r.next, %timed]
  %more = icmp ult i64 %r, %repeats
  br i1 %more, label %start, label %done
start:
  %c0 = call i32 @clock_gettime(i32 1, ptr %begin)
  br label %loop
loop:
  %i = phi i64 [0, %start], [%i.next, %loop]
  %status = call i32 %entry(ptr %addresses, ptr %workspace, ptr %rt)
  %i.next = add i64 %i, 1
  %good = icmp eq i32 %status, 0
  %again = icmp ult i64 %i.next, %number
  %continue = and i1 %good, %again
  br i1 %continue, label %loop, label %stop
stop:
  %c1 = call i32 @clock_gettime(i32 1, ptr %end)
  %s0 = load i64, ptr %begin
  %n0 = load i64, ptr %begin.ns
  %s1 = load i64, ptr %end
  %n1 = load i64, ptr %end.ns
  %ds = sub i64 %s1, %s0
  %dn = sub i64 %n1, %n0
  %dsf = sitofp i64 %ds to double
  %dnf = sitofp i64 %dn to double
  %nanoseconds = fmul double %dsf, 1.0e9
  %sum = fadd double %nanoseconds, %dnf
  %per = fdiv double %sum, %count
  %seconds = fdiv double %per, 1.0e9
  %slot = getelementptr double, ptr %times, i64 %r
  store double %seconds, ptr %slot
  br i1 %good, label %timed, label %failed
timed:
  %r.next = add i64 %r, 1
  br label %repeat
failed:
  ret i32 %status
done:
  ret i32 0
}
"""

# The address of an argument that is exactly as a parameter wants it, else -1 (0 is an address:
# empty).
CHECKS = """
define internal i1 @same_shape(ptr %a, ptr %b, i64 %ndim) {
  br label %loop
loop:
  %d = phi i64 [0, %0], [%d.next, %next]
  %more = icmp ult i64 %d, %ndim
  br i1 %more, label %next, label %same
next:
  %ap = getelementptr i64, ptr %a, i64 %d
  %bp = getelementptr i64, ptr %b, i64 %d
  %av = load i64, ptr %ap
  %bv = load i64, ptr %bp
  %equal = icmp eq i64 %av, %bv
  %d.next = add i64 %d, 1
  br i1 %equal, label %loop, label %differ
same:
  ret i1 true
differ:
  ret i1 false
}

define internal ptr @array_address(ptr %param, ptr %object) {
  %descr = get %Array.descr, %object
  %wanted = get %Param.descr, %param
  %dtype = icmp eq ptr %descr, %wanted
  br i1 %dtype, label %rank, label %no
rank:
  %nd32 = get %Array.ndim, %object
  %nd = sext i32 %nd32 to i64
  %ndim = get %Param.ndim, %param
  %ranks = icmp eq i64 %nd, %ndim
  br i1 %ranks, label %flags, label %no
flags:
  %have32 = get %Array.flags, %object
  %have = zext i32 %have32 to i64
  %need = get %Param.flags, %param
  %both = and i64 %have, %need
  %layout = icmp eq i64 %both, %need
  br i1 %layout, label %shape, label %no
shape:
  %dims = get %Array.shape, %object
  %extents = get %Param.shape, %param
  %same = call i1 @same_shape(ptr %dims, ptr %extents, i64 %ndim)
  br i1 %same, label %yes, label %no
yes:
  %data = get %Array.data, %object
  ret ptr %data
no:
  ret ptr inttoptr (i64 -1 to ptr)
}

define internal ptr @tensor_address(ptr %process, ptr %param, ptr %object) {
  %t = alloca %Tensor
  %name = get %Process.requires_grad, %process
  %grad = call ptr @PyObject_GetAttr(ptr %object, ptr %name)
  %raised = icmp eq ptr %grad, null
  br i1 %raised, label %error, label %plain
plain:
  call void @Py_DecRef(ptr %grad)
  %false = get %Process.false, %process
  %detached = icmp eq ptr %grad, %false
  br i1 %detached, label %export, label %no
export:
  %function = get %Process.tensor_export, %process
  %failed = call i32 %function(ptr %object, ptr %t)
  %exported = icmp eq i32 %failed, 0
  br i1 %exported, label %device, label %error
device:
  %kind = get %Tensor.device_type, %t
  %cpu = icmp eq i32 %kind, 1
  br i1 %cpu, label %type, label %no
type:
  %type32 = get %Tensor.dtype, %t
  %type64 = zext i32 %type32 to i64
  %wanted = get %Param.dlpack_type, %param
  %dtype = icmp eq i64 %type64, %wanted
  br i1 %dtype, label %rank, label %no
rank:
  %nd32 = get %Tensor.ndim, %t
  %nd = sext i32 %nd32 to i64
  %ndim = get %Param.ndim, %param
  %ranks = icmp eq i64 %nd, %ndim
  br i1 %ranks, label %shape, label %no
shape:
  %dims = get %Tensor.shape, %t
  %extents = get %Param.shape, %param
  %same = call i1 @same_shape(ptr %dims, ptr %extents, i64 %ndim)
  br i1 %same, label %layout, label %no
layout:
  %strides = get %Tensor.strides, %t
  %implied = icmp eq ptr %strides, null
  br i1 %implied, label %place, label %stride
stride:
  %d = phi i64 [%ndim, %layout], [%d1, %counted]
  %expected = phi i64 [1, %layout], [%larger, %counted]
  %over = icmp eq i64 %d, 0
  br i1 %over, label %place, label %compare
compare:
  %d1 = sub i64 %d, 1
  %np = getelementptr i64, ptr %extents, i64 %d1
  %n = load i64, ptr %np
  %sp = getelementptr i64, ptr %strides, i64 %d1
  %s = load i64, ptr %sp
  %larger = mul i64 %expected, %n
  %unit = icmp eq i64 %n, 1
  %fits = icmp eq i64 %s, %expected
  %dense = or i1 %unit, %fits
  br i1 %dense, label %counted, label %no
counted:
  br label %stride
place:
  %data = get %Tensor.data, %t
  %offset = get %Tensor.byte_offset, %t
  %address = getelementptr i8, ptr %data, i64 %offset
  %mask = get %Param.alignment_mask, %param
  %bits = ptrtoint ptr %address to i64
  %low = and i64 %bits, %mask
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %yes, label %no
yes:
  ret ptr %address
error:
  call void @PyErr_Clear()
  br label %no
no:
  ret ptr inttoptr (i64 -1 to ptr)
}

define internal ptr @object_address(ptr %process, ptr %param, ptr %object) {
  %type = get %Array.type, %object
  %arrays = get %Process.array_type, %process
  %array = icmp eq ptr %type, %arrays
  br i1 %array, label %numpy, label %other
numpy:
  %a = call ptr @array_address(ptr %param, ptr %object)
  ret ptr %a
other:
  %tensors = get %Process.tensor_type, %process
  %tensor = icmp eq ptr %type, %tensors
  br i1 %tensor, label %torch, label %no
torch:
  %t = call ptr @tensor_address(ptr %process, ptr %param, ptr %object)
  ret ptr %t
no:
  ret ptr inttoptr (i64 -1 to ptr)
}

define internal i1 @overlap(ptr %params, i64 %count, ptr %addresses) {
  br label %outer
outer:
  %i = phi i64 [0, %0], [%i.next, %step]
  %morei = icmp ult i64 %i, %count
  br i1 %morei, label %outputs, label %clean
outputs:
  %p = getelementptr %Param, ptr %params, i64 %i
  %kind = get %Param.kind, %p
  %size = get %Param.nbytes, %p
  %ap = getelementptr i64, ptr %addresses, i64 %i
  %a = load i64, ptr %ap
  %a.end = add i64 %a, %size
  %output = icmp eq i64 %kind, 1
  br i1 %output, label %inner, label %step
inner:
  %j = phi i64 [0, %outputs], [%j.next, %next]
  %morej = icmp ult i64 %j, %count
  br i1 %morej, label %test, label %step
test:
  %q = getelementptr %Param, ptr %params, i64 %j
  %qsize = get %Param.nbytes, %q
  %bp = getelementptr i64, ptr %addresses, i64 %j
  %b = load i64, ptr %bp
  %b.end = add i64 %b, %qsize
  %before = icmp ult i64 %a, %b.end
  %after = icmp ult i64 %b, %a.end
  %meet = and i1 %before, %after
  %other = icmp ne i64 %i, %j
  %bad = and i1 %meet, %other
  br i1 %bad, label %found, label %next
next:
  %j.next = add i64 %j, 1
  br label %inner
step:
  %i.next = add i64 %i, 1
  br label %outer
found:
  ret i1 true
clean:
  ret i1 false
}
"""

# The two callers differ in how an argument becomes an address, and in whether that is still to be
# checked.
CALLER = """
define ptr @{name}(ptr %self, ptr %args, i64 %nargs) {{
  %ctx = call ptr @PyLong_AsVoidPtr(ptr %self)
  %want = get %Context.call_count, %ctx
  %right = icmp eq i64 %nargs, %want
  br i1 %right, label %begin, label %no
begin:
  %params = get %Context.params, %ctx
  %count = get %Context.count, %ctx
  %process = get %Context.process, %ctx
  %addresses = alloca ptr, i64 %count
  br label %loop
loop:
  %i = phi i64 [0, %begin], [%i.next, %set]
  %j = phi i64 [0, %begin], [%j.next, %set]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %pick, label %call
pick:
  %param = getelementptr %Param, ptr %params, i64 %i
  %kind = get %Param.kind, %param
  %bound = icmp eq i64 %kind, 2
  br i1 %bound, label %constant, label %given
constant:
  %kept = get %Param.data, %param
  br label %set
given:
  %objectp = getelementptr ptr, ptr %args, i64 %j
  %object = load ptr, ptr %objectp
  %found = call ptr {address}
  %j.given = add i64 %j, 1
  %bad = icmp eq ptr %found, inttoptr (i64 -1 to ptr)
  br i1 %bad, label %no, label %set
set:
  %address = phi ptr [%kept, %constant], [%found, %given]
  %j.next = phi i64 [%j, %constant], [%j.given, %given]
  %slot = getelementptr ptr, ptr %addresses, i64 %i
  store ptr %address, ptr %slot
  %i.next = add i64 %i, 1
  br label %loop
call:
  %shared = {overlap}
  br i1 %shared, label %no, label %run
run:
  %result = call ptr @run(ptr %ctx, ptr %addresses)
  ret ptr %result
no:
  %mismatch = call ptr @PyLong_FromLong(i64 -1)
  ret ptr %mismatch
}}
"""

TEXT = llvm_types() + "".join(
    expand(part)
    for part in (
        DECLARATIONS,
        WORKSPACE,
        RUN,
        CHECKS,
        CALLER.format(
            name="call_arrays",
            address="@object_address(ptr %process, ptr %param, ptr %object)",
            overlap="call i1 @overlap(ptr %params, i64 %count, ptr %addresses)",
        ),
        CALLER.format(
            name="call_pointers",
            address="@PyLong_AsVoidPtr(ptr %object)",
            overlap="icmp ne i64 0, 0",
        ),
    )
)
