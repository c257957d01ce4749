/* From Python objects to a kernel and back (see native.py).

   call_arrays and call_pointers are CPython functions (METH_FASTCALL). Both return 0, or -1 if an argument is
   not exactly as expected, in which case nothing was run and the slow path in Python finds out why, or what a
   kernel that failed returned: a tuple (status, value). Everything but the kernel itself happens under the
   GIL, so the free list of workspaces needs no lock. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "caller.h"

enum { INPUT, OUTPUT, BOUND };            /* Param.kind */
#define MISMATCH ((void *)-1)             /* no address: 0 is one, of an empty array */
#define HEAD 64                           /* bytes before a workspace, for its Workspace */
#define LARGE_PAGE ((size_t)2 << 20)
#define LARGE ((size_t)512 << 10)         /* from here on, large pages (see pages.py) */
#define DLPACK_CPU 1

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* --- workspaces ----------------------------------------------------------------------------------------- */

/* An idle workspace of at least so many bytes, or a new one; NULL if there is no memory. */
EXPORT void *take(Context *context, int64_t need) {
    for (Workspace *head; (head = context->free);) {
        context->free = head->next;
        if (head->size >= need) return (char *)head + HEAD;
        free(head);
    }
    size_t total = (size_t)need + HEAD;
    size_t alignment = total >= LARGE ? LARGE_PAGE : HEAD;
    size_t whole = (total + alignment - 1) & -alignment;
    void *memory;
    if (posix_memalign(&memory, alignment, whole)) return NULL;
#ifdef MADV_HUGEPAGE
    if (total >= LARGE) madvise(memory, whole, MADV_HUGEPAGE);
#endif
    ((Workspace *)memory)->size = need;
    return (char *)memory + HEAD;
}

EXPORT void give(Context *context, void *data) {
    Workspace *head = (Workspace *)((char *)data - HEAD);
    head->next = context->free;
    context->free = head;
}

/* Free the idle workspaces. */
EXPORT void drain(Context *context) {
    for (Workspace *head; (head = context->free);) {
        context->free = head->next;
        free(head);
    }
}

/* --- running -------------------------------------------------------------------------------------------- */

/* Fill `runtime` for so many threads, or one where OpenMP is missing; gives how many. */
int64_t form_team(const Process *process, int64_t wanted, Runtime *runtime) {
    int64_t threads = process->gomp_parallel ? wanted : 1;
    *runtime = (Runtime){
        .gomp_parallel = process->gomp_parallel,
        .thread_num = process->thread_num,
        .num_threads = process->num_threads,
        .threads = (int32_t)threads,
    };
    return threads;
}

/* Fill `runtime` for a call of an executable; gives how many bytes of workspace it needs. */
EXPORT int64_t prepare(const Context *context, Runtime *runtime) {
    int64_t usual = least(context->process->default_threads, context->cores);
    int64_t asked = context->threads ? context->threads : usual;
    int64_t threads = form_team(context->process, least(asked, context->max_threads), runtime);
    return context->shared + threads * context->private;
}

PyObject *outcome(int64_t status, const Runtime *runtime) {
    PyObject *number = PyLong_FromLongLong(status);
    if (status == 0) return number;
    PyObject *pair = PyTuple_New(2);
    if (!pair) return NULL;
    PyTuple_SetItem(pair, 0, number);
    PyTuple_SetItem(pair, 1, PyLong_FromLongLong(runtime->value));
    return pair;
}

static PyObject *run(Context *context, void **addresses) {
    Runtime runtime;
    int64_t need = prepare(context, &runtime);
    void *workspace = NULL;
    if (need && !(workspace = take(context, need))) return PyErr_NoMemory();
    PyThreadState *state = PyEval_SaveThread();
    int32_t status = ((Kernel *)context->entry)(addresses, workspace, &runtime);
    PyEval_RestoreThread(state);
    if (workspace) give(context, workspace);
    return outcome(status, &runtime);
}

static double seconds_between(struct timespec begin, struct timespec end) {
    return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

/* The mean time of a call, in seconds, `repeats` times over `number` calls each, or fewer where those take
   longer than `longest`: the clock is read after 1, 2, 4, 8 ... of them, which costs no call much. The status
   of a kernel that failed, at once. */
EXPORT int32_t bench(Kernel *entry, void **addresses, void *workspace, Runtime *runtime, int64_t number,
                     int64_t repeats, double longest, double *times) {
    for (int64_t r = 0; r < repeats; r++) {
        struct timespec begin, end;
        int64_t done = 0;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int64_t next = 1; done < number; next *= 2) {
            for (; done < next && done < number; done++) {
                int32_t status = entry(addresses, workspace, runtime);
                if (status) return status;
            }
            clock_gettime(CLOCK_MONOTONIC, &end);
            if (seconds_between(begin, end) > longest) break;
        }
        times[r] = seconds_between(begin, end) / (double)done;
    }
    return 0;
}

/* --- arguments ------------------------------------------------------------------------------------------ */

static int same_shape(const int64_t *a, const int64_t *b, int64_t ndim) {
    for (int64_t d = 0; d < ndim; d++)
        if (a[d] != b[d]) return 0;
    return 1;
}

/* Whether strides, in elements, are those of a dense row-major array; NULL says so. */
static int is_dense(const int64_t *shape, const int64_t *strides, int64_t ndim) {
    if (!strides) return 1;
    int64_t expected = 1;
    for (int64_t d = ndim; d-- > 0;) {
        if (shape[d] != 1 && strides[d] != expected) return 0;
        expected *= shape[d];
    }
    return 1;
}

/* Whether strides, in units of so many bytes, are those that a parameter of another layout has. */
static int has_strides(const Param *param, const int64_t *strides, int64_t unit) {
    if (!strides) return 0;
    for (int64_t d = 0; d < param->ndim; d++)
        if (param->shape[d] != 1 && strides[d] * unit != param->strides[d]) return 0;
    return 1;
}

/* The address of an argument that is exactly as a parameter wants it, else MISMATCH. */
static void *array_address(const Param *param, const Array *array) {
    if (array->descr != param->descr || array->ndim != param->ndim) return MISMATCH;
    if ((array->flags & param->flags) != param->flags) return MISMATCH;
    if (!same_shape(array->shape, param->shape, param->ndim)) return MISMATCH;
    if (param->strides && !has_strides(param, array->strides, 1)) return MISMATCH;
    return array->data;
}

static void *tensor_address(const Process *process, const Param *param, PyObject *object) {
    PyObject *requires_grad = PyObject_GetAttr(object, process->requires_grad);
    if (!requires_grad) return PyErr_Clear(), MISMATCH;
    Py_DecRef(requires_grad);
    if (requires_grad != process->py_false) return MISMATCH;
    int (*describe)(PyObject *, Tensor *) = (int (*)(PyObject *, Tensor *))process->tensor_export;
    Tensor tensor;
    if (describe(object, &tensor)) return PyErr_Clear(), MISMATCH;
    if (tensor.device_type != DLPACK_CPU || tensor.dtype != param->dlpack_type) return MISMATCH;
    if (tensor.ndim != param->ndim || !same_shape(tensor.shape, param->shape, param->ndim)) return MISMATCH;
    int same = param->strides ? has_strides(param, tensor.strides, param->alignment_mask + 1)
                              : is_dense(param->shape, tensor.strides, param->ndim);
    if (!same) return MISMATCH;
    char *address = (char *)tensor.data + tensor.byte_offset;
    return (int64_t)address & param->alignment_mask ? MISMATCH : address;
}

static void *object_address(const Process *process, const Param *param, PyObject *object) {
    void *type = ((Array *)object)->type;
    if (type == process->array_type) return array_address(param, (Array *)object);
    if (type == process->tensor_type) return tensor_address(process, param, object);
    return MISMATCH;
}

/* Whether an output may share memory with anything else; of parts of one array the slow path knows more. */
static int overlap(const Param *params, int64_t count, void **addresses) {
    for (int64_t i = 0; i < count; i++) {
        if (params[i].kind != OUTPUT) continue;
        const char *a = addresses[i], *a_end = a + params[i].nbytes;
        for (int64_t j = 0; j < count; j++) {
            const char *b = addresses[j], *b_end = b + params[j].nbytes;
            if (i != j && a < b_end && b < a_end) return 1;
        }
    }
    return 0;
}

EXPORT PyObject *call_arrays(PyObject *self, PyObject *const *args, ptrdiff_t count) {
    Context *context = PyLong_AsVoidPtr(self);
    const Param *params = context->params;
    if (count != context->call_count) return PyLong_FromLongLong(-1);
    void *addresses[context->count + 1];
    for (int64_t i = 0; i < context->count; i++) {
        void *address = params[i].data;
        if (params[i].kind != BOUND) address = object_address(context->process, &params[i], *args++);
        if (address == MISMATCH) return PyLong_FromLongLong(-1);
        addresses[i] = address;
    }
    if (overlap(params, context->count, addresses)) return PyLong_FromLongLong(-1);
    return run(context, addresses);
}

/* The same with addresses, as integers, which were checked. */
EXPORT PyObject *call_pointers(PyObject *self, PyObject *const *args, ptrdiff_t count) {
    Context *context = PyLong_AsVoidPtr(self);
    if (count != context->call_count) return PyLong_FromLongLong(-1);
    void *addresses[context->count + 1];
    for (int64_t i = 0; i < context->count; i++) {
        const Param *param = &context->params[i];
        addresses[i] = param->kind == BOUND ? param->data : PyLong_AsVoidPtr(*args++);
    }
    return run(context, addresses);
}
