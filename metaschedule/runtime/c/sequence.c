/* Kernels one after the other without Python between them (see sequence.py). */
#include "caller.h"

/* A CPython function (METH_FASTCALL) of a number of threads and of addresses, the bases. It returns 0, or a
   tuple (status, value) of the first kernel that failed, with that step's number in the upper half of the
   status; -1 for a wrong number of arguments. */
EXPORT PyObject *run_steps(PyObject *self, PyObject *const *args, ptrdiff_t count) {
    const Steps *sequence = PyLong_AsVoidPtr(self);
    if (count - 1 != sequence->bases) return PyLong_FromLongLong(-1);
    char *bases[count];
    bases[0] = NULL; /* base 0 is address 0 */
    for (ptrdiff_t b = 1; b < count; b++) bases[b] = PyLong_AsVoidPtr(args[b]);
    Runtime runtime;
    int64_t threads = (int64_t)PyLong_AsVoidPtr(args[0]);
    int64_t allowed = form_team(sequence->process, threads, &runtime);
    void *addresses[sequence->most_arguments + 1];
    int64_t failed = 0;
    PyThreadState *state = PyEval_SaveThread();
    for (int64_t s = 0; s < sequence->count && !failed; s++) {
        const SequenceStep *step = &sequence->steps[s];
        runtime.threads = (int32_t)(allowed < step->max_threads ? allowed : step->max_threads);
        for (int64_t a = 0; a < step->count; a++)
            addresses[a] = bases[step->arguments[a].base] + step->arguments[a].offset;
        int32_t status = ((Kernel *)step->entry)(addresses + 1, addresses[0], &runtime);
        if (status) failed = s << 32 | (uint32_t)status;
    }
    PyEval_RestoreThread(state);
    return outcome(failed, &runtime);
}
