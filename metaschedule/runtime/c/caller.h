/* What the callers of kernels share. The structures are those of layout.py, which writes layout.h. */
#include "layout.h"
#include "python.h"

/* The calling convention of kernels, see kernel.py. */
typedef int32_t Kernel(void **arguments, void *workspace, Runtime *runtime);

int64_t form_team(const Process *process, int64_t wanted, Runtime *runtime);
PyObject *outcome(int64_t status, const Runtime *runtime);
