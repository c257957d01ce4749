/* The few functions of CPython that are called, all of its stable interface: declared here, because Python.h
   is a package of its own that a machine may lack. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct PyObject PyObject;
typedef struct PyThreadState PyThreadState;

void *PyLong_AsVoidPtr(PyObject *);
PyObject *PyLong_FromLongLong(long long);
PyObject *PyTuple_New(ptrdiff_t);
int PyTuple_SetItem(PyObject *, ptrdiff_t, PyObject *);
PyObject *PyList_GetItem(PyObject *, ptrdiff_t);
PyObject *PyObject_GetAttr(PyObject *, PyObject *);
void Py_DecRef(PyObject *);
PyObject *PyErr_NoMemory(void);
void PyErr_Clear(void);
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *);
