"""The LLVM text of the native caller: one module per process, driven by tables, see `native`.

`call_arrays` and `call_pointers` are CPython functions (METH_FASTCALL). Both return a Python int:
what the kernel returned, or -1 if an argument is not exactly as expected, in which case nothing was
run and the slow path in Python finds out why. Everything but the kernel itself happens under the
GIL, so the free list of workspaces needs no lock.
"""

# Types mirror the ctypes structures of `native`; %Array and %Object are the stable heads of NumPy's
# and CPython's objects (checked when the module is loaded), %Tensor is DLPack's DLTensor.
TYPES = """
%Process = type { ptr, ptr, ptr, i64, ptr, ptr, ptr, ptr, ptr }
%Context = type { ptr, ptr, i64, i64, ptr, i64, i64, i64, i64, ptr }
%Param = type { ptr, i64, ptr, i64, ptr, i64, i64, i64, i64 }
%Runtime = type { ptr, ptr, ptr, i32 }
%Workspace = type { ptr, i64 }
%Object = type { i64, ptr }
%Array = type { i64, ptr, ptr, i32, ptr, ptr, ptr, ptr, i32 }
%Tensor = type { ptr, i32, i32, i32, i32, ptr, ptr, i64 }
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromLong(i64)
declare ptr @PyErr_NoMemory()
declare void @PyErr_Clear()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare void @Py_DecRef(ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i32 @clock_gettime(i32, ptr)
"""

# A workspace is preceded by 64 bytes that hold the next free one and its size.
WORKSPACE = """
define ptr @take(ptr %ctx, i64 %need) {
  %slot = alloca ptr
  %list = getelementptr %Context, ptr %ctx, i32 0, i32 4
  br label %look
look:
  %head = load ptr, ptr %list
  %none = icmp eq ptr %head, null
  br i1 %none, label %allocate, label %pop
pop:
  %next = load ptr, ptr %head
  store ptr %next, ptr %list
  %sizep = getelementptr %Workspace, ptr %head, i32 0, i32 1
  %size = load i64, ptr %sizep
  %enough = icmp uge i64 %size, %need
  br i1 %enough, label %done, label %drop
drop:
  call void @free(ptr %head)
  br label %look
allocate:
  %total = add i64 %need, 64
  %failed = call i32 @posix_memalign(ptr %slot, i64 64, i64 %total)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %fresh, label %fail
fresh:
  %new = load ptr, ptr %slot
  %newsize = getelementptr %Workspace, ptr %new, i32 0, i32 1
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
  %list = getelementptr %Context, ptr %ctx, i32 0, i32 4
  %head = load ptr, ptr %list
  store ptr %head, ptr %block
  store ptr %block, ptr %list
  ret void
}

define void @drain(ptr %ctx) {
  %list = getelementptr %Context, ptr %ctx, i32 0, i32 4
  br label %look
look:
  %head = load ptr, ptr %list
  %none = icmp eq ptr %head, null
  br i1 %none, label %done, label %drop
drop:
  %next = load ptr, ptr %head
  store ptr %next, ptr %list
  call void @free(ptr %head)
  br label %look
done:
  ret void
}
"""

# Fill `%rt` for a call of this executable and say how much workspace it needs.
RUN = """
define i64 @prepare(ptr %ctx, ptr %rt) {
  %processp = getelementptr %Context, ptr %ctx, i32 0, i32 9
  %process = load ptr, ptr %processp
  %gomp = load ptr, ptr %process
  %numberp = getelementptr %Process, ptr %process, i32 0, i32 1
  %number = load ptr, ptr %numberp
  %teamp = getelementptr %Process, ptr %process, i32 0, i32 2
  %team = load ptr, ptr %teamp
  %defaultp = getelementptr %Process, ptr %process, i32 0, i32 3
  %default = load i64, ptr %defaultp
  %mostp = getelementptr %Context, ptr %ctx, i32 0, i32 7
  %most = load i64, ptr %mostp
  %ownp = getelementptr %Context, ptr %ctx, i32 0, i32 8
  %own = load i64, ptr %ownp
  %unset = icmp eq i64 %own, 0
  %asked = select i1 %unset, i64 %default, i64 %own
  %capped = call i64 @llvm.umin.i64(i64 %asked, i64 %most)
  %serial = icmp eq ptr %gomp, null
  %threads = select i1 %serial, i64 1, i64 %capped
  %threads32 = trunc i64 %threads to i32
  store ptr %gomp, ptr %rt
  %rt1 = getelementptr %Runtime, ptr %rt, i32 0, i32 1
  store ptr %number, ptr %rt1
  %rt2 = getelementptr %Runtime, ptr %rt, i32 0, i32 2
  store ptr %team, ptr %rt2
  %rt3 = getelementptr %Runtime, ptr %rt, i32 0, i32 3
  store i32 %threads32, ptr %rt3
  %sharedp = getelementptr %Context, ptr %ctx, i32 0, i32 5
  %shared = load i64, ptr %sharedp
  %privatep = getelementptr %Context, ptr %ctx, i32 0, i32 6
  %private = load i64, ptr %privatep
  %privates = mul i64 %threads, %private
  %need = add i64 %shared, %privates
  ret i64 %need
}
declare i64 @llvm.umin.i64(i64, i64)

define internal ptr @run(ptr %ctx, ptr %addresses) {
  %rt = alloca %Runtime
  %need = call i64 @prepare(ptr %ctx, ptr %rt)
  %entry = load ptr, ptr %ctx
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
  %result = call ptr @PyLong_FromLong(i64 %wide)
  ret ptr %result
}

define i32 @bench(ptr %entry, ptr %addresses, ptr %workspace, ptr %rt, i64 %number, i64 %repeats, ptr %times) {
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
  %descrp = getelementptr %Array, ptr %object, i32 0, i32 7
  %descr = load ptr, ptr %descrp
  %wantedp = getelementptr %Param, ptr %param, i32 0, i32 2
  %wanted = load ptr, ptr %wantedp
  %dtype = icmp eq ptr %descr, %wanted
  br i1 %dtype, label %rank, label %no
rank:
  %ndp = getelementptr %Array, ptr %object, i32 0, i32 3
  %nd32 = load i32, ptr %ndp
  %nd = sext i32 %nd32 to i64
  %ndimp = getelementptr %Param, ptr %param, i32 0, i32 3
  %ndim = load i64, ptr %ndimp
  %ranks = icmp eq i64 %nd, %ndim
  br i1 %ranks, label %flags, label %no
flags:
  %havep = getelementptr %Array, ptr %object, i32 0, i32 8
  %have32 = load i32, ptr %havep
  %have = zext i32 %have32 to i64
  %needp = getelementptr %Param, ptr %param, i32 0, i32 6
  %need = load i64, ptr %needp
  %both = and i64 %have, %need
  %layout = icmp eq i64 %both, %need
  br i1 %layout, label %shape, label %no
shape:
  %dimsp = getelementptr %Array, ptr %object, i32 0, i32 4
  %dims = load ptr, ptr %dimsp
  %extentsp = getelementptr %Param, ptr %param, i32 0, i32 4
  %extents = load ptr, ptr %extentsp
  %same = call i1 @same_shape(ptr %dims, ptr %extents, i64 %ndim)
  br i1 %same, label %yes, label %no
yes:
  %datap = getelementptr %Array, ptr %object, i32 0, i32 2
  %data = load ptr, ptr %datap
  ret ptr %data
no:
  ret ptr inttoptr (i64 -1 to ptr)
}

define internal ptr @tensor_address(ptr %process, ptr %param, ptr %object) {
  %t = alloca %Tensor
  %namep = getelementptr %Process, ptr %process, i32 0, i32 7
  %name = load ptr, ptr %namep
  %grad = call ptr @PyObject_GetAttr(ptr %object, ptr %name)
  %raised = icmp eq ptr %grad, null
  br i1 %raised, label %error, label %plain
plain:
  call void @Py_DecRef(ptr %grad)
  %falsep = getelementptr %Process, ptr %process, i32 0, i32 8
  %false = load ptr, ptr %falsep
  %detached = icmp eq ptr %grad, %false
  br i1 %detached, label %export, label %no
export:
  %functionp = getelementptr %Process, ptr %process, i32 0, i32 6
  %function = load ptr, ptr %functionp
  %failed = call i32 %function(ptr %object, ptr %t)
  %exported = icmp eq i32 %failed, 0
  br i1 %exported, label %device, label %error
device:
  %devicep = getelementptr %Tensor, ptr %t, i32 0, i32 1
  %kind = load i32, ptr %devicep
  %cpu = icmp eq i32 %kind, 1
  br i1 %cpu, label %type, label %no
type:
  %typep = getelementptr %Tensor, ptr %t, i32 0, i32 4
  %type32 = load i32, ptr %typep
  %type64 = zext i32 %type32 to i64
  %wantedp = getelementptr %Param, ptr %param, i32 0, i32 7
  %wanted = load i64, ptr %wantedp
  %dtype = icmp eq i64 %type64, %wanted
  br i1 %dtype, label %rank, label %no
rank:
  %ndp = getelementptr %Tensor, ptr %t, i32 0, i32 3
  %nd32 = load i32, ptr %ndp
  %nd = sext i32 %nd32 to i64
  %ndimp = getelementptr %Param, ptr %param, i32 0, i32 3
  %ndim = load i64, ptr %ndimp
  %ranks = icmp eq i64 %nd, %ndim
  br i1 %ranks, label %shape, label %no
shape:
  %dimsp = getelementptr %Tensor, ptr %t, i32 0, i32 5
  %dims = load ptr, ptr %dimsp
  %extentsp = getelementptr %Param, ptr %param, i32 0, i32 4
  %extents = load ptr, ptr %extentsp
  %same = call i1 @same_shape(ptr %dims, ptr %extents, i64 %ndim)
  br i1 %same, label %layout, label %no
layout:
  %stridesp = getelementptr %Tensor, ptr %t, i32 0, i32 6
  %strides = load ptr, ptr %stridesp
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
  %data = load ptr, ptr %t
  %offsetp = getelementptr %Tensor, ptr %t, i32 0, i32 7
  %offset = load i64, ptr %offsetp
  %address = getelementptr i8, ptr %data, i64 %offset
  %maskp = getelementptr %Param, ptr %param, i32 0, i32 8
  %mask = load i64, ptr %maskp
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
  %typep = getelementptr %Object, ptr %object, i32 0, i32 1
  %type = load ptr, ptr %typep
  %arraysp = getelementptr %Process, ptr %process, i32 0, i32 4
  %arrays = load ptr, ptr %arraysp
  %array = icmp eq ptr %type, %arrays
  br i1 %array, label %numpy, label %other
numpy:
  %a = call ptr @array_address(ptr %param, ptr %object)
  ret ptr %a
other:
  %tensorsp = getelementptr %Process, ptr %process, i32 0, i32 5
  %tensors = load ptr, ptr %tensorsp
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
  %kindp = getelementptr %Param, ptr %p, i32 0, i32 1
  %kind = load i64, ptr %kindp
  %sizep = getelementptr %Param, ptr %p, i32 0, i32 5
  %size = load i64, ptr %sizep
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
  %qsizep = getelementptr %Param, ptr %q, i32 0, i32 5
  %qsize = load i64, ptr %qsizep
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
  %wantp = getelementptr %Context, ptr %ctx, i32 0, i32 3
  %want = load i64, ptr %wantp
  %right = icmp eq i64 %nargs, %want
  br i1 %right, label %begin, label %no
begin:
  %paramsp = getelementptr %Context, ptr %ctx, i32 0, i32 1
  %params = load ptr, ptr %paramsp
  %countp = getelementptr %Context, ptr %ctx, i32 0, i32 2
  %count = load i64, ptr %countp
  %processp = getelementptr %Context, ptr %ctx, i32 0, i32 9
  %process = load ptr, ptr %processp
  %addresses = alloca ptr, i64 %count
  br label %loop
loop:
  %i = phi i64 [0, %begin], [%i.next, %set]
  %j = phi i64 [0, %begin], [%j.next, %set]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %pick, label %call
pick:
  %param = getelementptr %Param, ptr %params, i64 %i
  %kindp = getelementptr %Param, ptr %param, i32 0, i32 1
  %kind = load i64, ptr %kindp
  %bound = icmp eq i64 %kind, 2
  br i1 %bound, label %constant, label %given
constant:
  %kept = load ptr, ptr %param
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

TEXT = "".join(
    (
        TYPES,
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
