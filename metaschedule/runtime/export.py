"""A kernel as a shared library and a C header, for programs without Python.

The kernel's object is compiled again with its entry renamed and everything in it hidden; a wrapper
in C gives it the workspace, the threads and the bound constants, and `cc` links the two. The
library exports `int NAME(inputs..., outputs...)` and `const char *NAME_message(int status)`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .compile import compile_hidden
from .kernel import ArgSpec, Kernel, align

C_TYPES = {
    "float16": "uint16_t",  # its bits: C has no portable name for the type
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "bool": "bool",
}
_RESERVED = (
    "auto bool break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while asm class delete new private protected public template "
    "this throw try catch namespace operator virtual true false main"
)
RESERVED = frozenset(_RESERVED.split())

HEADER = """\
/* {description}
   Compiled by metaschedule for {target}. */
#ifndef {guard}
#define {guard}
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

/* Arrays are aligned to their element, dense and row-major unless strides are given, in elements. No output
   may overlap another argument.
{arguments}
   Returns 0, -1 if there is no memory for the workspace, -2 if the system does not let this process use the
   tiles of AMX that the kernel needs, or k > 0 if the kernel could not go on{checks};
   what the outputs hold is then undefined. May be called from several threads at once. */
int {name}({parameters});

/* What a status means. */
const char *{name}_message(int status);

#ifdef __cplusplus
}}
#endif
#endif
"""

# One idle workspace is kept between calls; concurrent calls allocate their own.
WRAPPER = """\
#include "{name}.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

struct runtime {{
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    int (*thread_num)(void);
    int (*num_threads)(void);
    int32_t threads;
    int64_t value;
}};
extern int32_t {kernel}(void **, void *, struct runtime *) __attribute__((visibility("hidden")));
{declarations}
struct workspace {{ size_t size; char padding[{alignment} - sizeof(size_t)]; }};
static _Atomic(struct workspace *) idle;

__attribute__((destructor)) static void release(void) {{ free(atomic_exchange(&idle, NULL)); }}

__attribute__((visibility("default"))) int {name}({parameters}) {{
    void *args[] = {{ {arguments} }};
    struct runtime runtime = {runtime};
{tiles}{threads}
    size_t size = {shared}u + (size_t)runtime.threads * {private}u;
    struct workspace *workspace = NULL;
    if (size) {{
        workspace = atomic_exchange(&idle, NULL);
        if (workspace && workspace->size < size) {{
            free(workspace);
            workspace = NULL;
        }}
        if (!workspace) {{
            void *memory;
            if (posix_memalign(&memory, {alignment}, sizeof *workspace + size)) return -1;
            workspace = memory;
            workspace->size = size;
        }}
    }}
    int status = {kernel}(args, workspace ? workspace + 1 : NULL, &runtime);
    if (workspace) {{
        struct workspace *none = NULL;
        if (!atomic_compare_exchange_strong(&idle, &none, workspace)) free(workspace);
    }}
    return status;
}}

__attribute__((visibility("default"))) const char *{name}_message(int status) {{
    static const char *const messages[] = {{ {messages} }};
    if (status == 0) return "ok";
    if (status == -1) return "out of memory";
    if (status == -2) return "the system gives no tiles of AMX to this process";
    if (status > 0 && status <= {message_count}) return messages[status - 1];
    return "unknown status";
}}
"""

# arch_prctl(ARCH_REQ_XCOMP_PERM): Linux gives tiles to processes that ask, once for all their threads.
TILES = """\
    static _Atomic(int) tiles;
    if (!tiles) tiles = syscall(158, 0x1023, 18) ? -2 : 1;
    if (tiles < 0) return tiles;
"""

OPENMP = """\
extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
extern int omp_get_max_threads(void);
"""


def export_library(
    path: Path,
    kernel: Kernel,
    constants: Mapping[str, np.ndarray],
    threads: int | None,
    name: str | None,
    cc: str,
) -> Path:
    """Write the library to `path` and its header beside it, named after the function; its path."""
    name = function_name(path.stem.removeprefix("lib")) if name is None else name
    if function_name(name) != name:
        raise ValueError(f"name must be an identifier of C, got {name!r}; {function_name(name)!r} is one")
    if shutil.which(cc) is None:
        raise RuntimeError(f"export_library needs a C compiler; {cc!r} is not installed")
    parallel = kernel.max_threads > 1
    entry = f"{name}_kernel"
    with tempfile.TemporaryDirectory(prefix="metaschedule-") as scratch:
        work = Path(scratch)
        (work / f"{name}.h").write_text(header(name, kernel, constants))
        (work / "wrapper.c").write_text(wrapper(name, entry, kernel, constants, threads))
        (work / "kernel.o").write_bytes(compile_hidden(kernel.llvm, kernel.target, kernel.entry, entry))
        sources = ["wrapper.c", "kernel.o"]
        if constants:
            (work / "constants.s").write_text(constant_text(name, kernel, constants, work))
            sources.append("constants.s")
        command = [
            cc,
            "-O2",
            "-std=gnu11",
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
            "-o",
            "library.so",
        ]
        command += [*sources, "-Wl,-z,defs", "-Wl,-z,noexecstack", "-lm"]
        command += ["-fopenmp"] if parallel else []
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
        shutil.copy(work / f"{name}.h", path.parent / f"{name}.h")
        shutil.copy(work / "library.so", path)
    return path


def function_name(text: str) -> str:
    """An identifier of C as near to `text` as possible.

    >>> function_name("gmm"), function_name("2-layer"), function_name("double")
    ('gmm', '_2_layer', 'double_')
    """
    name = re.sub(r"\W", "_", text, flags=re.ASCII) or "_"
    name = f"_{name}" if name[0].isdigit() else name
    return f"{name}_" if name in RESERVED else name


def parameter_names(kernel: Kernel) -> dict[ArgSpec, str]:
    """A C identifier for each parameter, all different."""
    names: dict[ArgSpec, str] = {}
    for i, spec in enumerate(kernel.params):
        name = function_name(spec.name)
        names[spec] = f"{name}_{i}" if name in names.values() else name
    return names


def parameters(kernel: Kernel, constants: Mapping[str, np.ndarray]) -> str:
    names = parameter_names(kernel)
    parts = [f"const {C_TYPES[s.dtype]} *{names[s]}" for s in kernel.inputs if s.name not in constants]
    parts += [f"{C_TYPES[s.dtype]} *{names[s]}" for s in kernel.outputs]
    return ", ".join(parts) or "void"


def status_lines(kernel: Kernel) -> str:
    """What each status means, for the header."""
    return "\n".join(f"     {k}: {failure}" for k, failure in enumerate(kernel.failures, 1))


def header(name: str, kernel: Kernel, constants: Mapping[str, np.ndarray]) -> str:
    names = parameter_names(kernel)
    called = [s for s in kernel.inputs if s.name not in constants]
    lines = [f"   {names[s]}: input, {kind(s)}" for s in called]
    lines += [f"   {names[s]}: output, {kind(s)}" for s in kernel.outputs]
    return HEADER.format(
        description=comment(repr(kernel)[1:-1]),
        target=comment(str(kernel.target)),
        guard=f"METASCHEDULE_{name.upper()}_H",
        arguments=comment("\n".join(lines)),
        checks=comment(":\n" + statuses if (statuses := status_lines(kernel)) else ""),
        name=name,
        parameters=parameters(kernel, constants),
    )


def kind(spec: ArgSpec) -> str:
    return str(spec).removeprefix(f"{spec.name}: ")


def wrapper(
    name: str, entry: str, kernel: Kernel, constants: Mapping[str, np.ndarray], threads: int | None
) -> str:
    names = parameter_names(kernel)
    parallel = kernel.max_threads > 1
    declarations = OPENMP if parallel else ""
    for i, spec in enumerate(kernel.inputs):
        if spec.name in constants:
            declarations += (
                f'extern const char {name}_constant_{i}[] __attribute__((visibility("hidden")));\n'
            )
    arguments = [
        f"(void *){f'({name}_constant_{i} + {-spec.span[0]})' if spec.name in constants else names[spec]}"
        for i, spec in enumerate(kernel.params)
    ]
    most = min(kernel.max_threads, threads or kernel.max_threads)
    limit = f"    if (runtime.threads > {most}) runtime.threads = {most};"
    use_openmp = "{ GOMP_parallel, omp_get_thread_num, omp_get_num_threads, omp_get_max_threads(), 0 }"
    messages = [c_string(str(failure)) for failure in kernel.failures]
    return WRAPPER.format(
        name=name,
        kernel=entry,
        declarations=declarations,
        alignment=64,
        parameters=parameters(kernel, constants),
        arguments=", ".join(arguments) or "NULL",
        runtime=use_openmp if parallel else "{ NULL, NULL, NULL, 1, 0 }",
        tiles=TILES if "@llvm.x86.ldtilecfg" in kernel.llvm else "",
        threads=limit if parallel else "",
        shared=align(kernel.shared_bytes),
        private=align(kernel.private_bytes),
        messages=", ".join(messages) or "NULL",
        message_count=len(messages),
    )


def constant_text(name: str, kernel: Kernel, constants: Mapping[str, np.ndarray], work: Path) -> str:
    """Assembly that includes each constant's bytes from a file; C text of them would take
    minutes."""
    lines = ['.section .note.GNU-stack,"",%progbits', ".section .rodata"]
    for i, spec in enumerate(kernel.inputs):
        if spec.name in constants:
            symbol = f"{name}_constant_{i}"
            memory = np.zeros(spec.nbytes, np.uint8)
            spec.array(memory)[...] = constants[spec.name]
            (work / f"{symbol}.bin").write_bytes(memory.tobytes())
            lines += [".balign 64", f".globl {symbol}", f".hidden {symbol}", f"{symbol}:"]
            lines += [f'.incbin "{symbol}.bin"', ".byte 0"]
    return "\n".join(lines) + "\n"


def comment(text: str) -> str:
    return text.replace("*/", "* /")


def c_string(text: str) -> str:
    """A C string literal of any text."""
    body = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{body}"'
