"""A model as a shared library, for programs without Python: its kernels, their order, the weights.

The library is `c/model.c` compiled with tables of one model (`tables.h`, written here), the kernels' object
code with every symbol renamed and hidden, and the weights, inside or in a file beside it that is mapped. It
exports the functions of the header alone. Beside it are written `NAME.h` and `NAME_loader.py`, which needs
NumPy only (Python would take `NAME.so` for an extension called NAME).
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metaschedule.ir import numpy_dtype
from metaschedule.target import Target

from .cpu_features import features_test
from .elf import hide_symbols
from .export import c_string, comment, function_name
from .kernel import ALIGNMENT, ArgSpec, Kernel, align
from .sequence import Place

SOURCES = Path(__file__).parent / "c"
WEIGHTS, MEMORY, FIRST = 0, 1, 2  # bases; then the inputs, then the outputs
MAGIC = b"metaschedule weights 1\n"
FILE_HEAD = 4096  # bytes before the weights in their file, as in model.c
MOST_INSIDE = 1 << 30  # bytes: code reaches its own library by 32-bit offsets
INSIDE, BESIDE = "inside", "beside"


@dataclass(frozen=True)
class ModelStep:
    """A kernel by number, with the places of its workspace and of all its parameters."""

    kernel: int
    workspace: Place
    arguments: tuple[Place, ...]
    name: str


@dataclass(frozen=True)
class CopyStep:
    """An output that no kernel writes in its place: elements from another place on, `strides` apart."""

    source: Place
    output: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class ModelTables:
    """What a call of a model does. Places with base 0 are offsets among the weights, which lie one behind the
    other, each aligned (`weight_offsets`)."""

    inputs: tuple[ArgSpec, ...]
    outputs: tuple[ArgSpec, ...]
    kernels: tuple[tuple[Kernel, bytes], ...]  # with object code
    steps: tuple[ModelStep, ...]
    copies: tuple[CopyStep, ...]
    weights: tuple[np.ndarray, ...]  # dense
    memory: int
    threads: int
    target: Target


def weight_offsets(sizes: Iterable[int]) -> list[int]:
    """Where arrays of these sizes lie, and where the last ends.

    >>> weight_offsets([4, 100, 1])
    [0, 64, 192, 256]
    """
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + align(size))
    return offsets


def export_model(path: Path, model: ModelTables, name: str | None, weights: str, cc: str) -> Path:
    """Write the library to `path`, header and loader (and weights) beside it; its path."""
    name = function_name(path.stem.removeprefix("lib")) if name is None else name
    if function_name(name) != name:
        raise ValueError(f"name must be an identifier of C, got {name!r}; {function_name(name)!r} is one")
    if weights not in (INSIDE, BESIDE):
        raise ValueError(f"weights must be {INSIDE!r} or {BESIDE!r}, got {weights!r}")
    size = weight_offsets(w.nbytes for w in model.weights)[-1]
    if weights == INSIDE and size > MOST_INSIDE:
        raise ValueError(
            f"{size / 2**30:.1f} GiB of weights do not fit into a library; export with weights={BESIDE!r}"
        )
    compiler = shlex.split(cc)
    if not compiler or shutil.which(compiler[0]) is None:
        raise RuntimeError(f"export_library needs a C compiler; {cc!r} is not installed")
    file = f"{name}.weights"
    with tempfile.TemporaryDirectory(prefix="metaschedule-", dir=path.parent) as scratch:
        work = Path(scratch)
        digest = write_weights(work / "weights", model.weights)
        (work / "header.h").write_text(header(name, model, weights, file))
        (work / "tables.h").write_text(tables(name, model, weights, file, digest))
        (work / "model.c").write_text(put_name((SOURCES / "model.c").read_text(), name))
        (work / "team.h").write_text((SOURCES / "team.h").read_text())
        objects = [work / f"kernel{n}.o" for n in range(len(model.kernels))]
        for n, (target, (_, code)) in enumerate(zip(objects, model.kernels)):
            target.write_bytes(hide_symbols(code, f"{name}_{n}_"))
        sources = ["model.c", *[o.name for o in objects]]
        if weights == INSIDE:
            (work / "weights.s").write_text(included_weights(name))
            sources.append("weights.s")
        link(compiler, sources, model, work)
        (work / "loader.py").write_text(loader(name, path.name))
        written = {"header.h": f"{name}.h", "loader.py": f"{name}_loader.py", "library.so": path.name}
        written |= {"weights": file} if weights == BESIDE else {}
        for source, destination in written.items():
            (work / source).replace(path.parent / destination)
    return path


def link(compiler: Sequence[str], sources: Sequence[str], model: ModelTables, work: Path) -> None:
    command = [*compiler, "-O2", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-o", "library.so"]
    command += [*sources, "-Wl,-z,defs", "-Wl,-z,noexecstack", "-Wl,-s", "-lm", "-ldl"]
    command += ["-fopenmp"] if is_parallel(model) else []
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")


def is_parallel(model: ModelTables) -> bool:
    return any(kernel.max_threads > 1 for kernel, _ in model.kernels)


def put_name(text: str, name: str) -> str:
    """The text with the model's own names."""
    return re.sub(r"(?<![A-Za-z])MODEL(?![A-Za-z])", name, text)


def header(name: str, model: ModelTables, weights: str, file: str) -> str:
    lines = [f"   {which} {n}: {spec}" for which, specs in sides(model) for n, spec in enumerate(specs)]
    beside = (
        f"`weights` is\n   the path of the file {file}, which is mapped; NULL: it lies beside the library."
        if weights == BESIDE
        else "`weights` is\n   NULL: they are in the library."
    )
    text = (SOURCES / "model.h").read_text()
    for key, value in {"TARGET": str(model.target), "TENSORS": "\n".join(lines), "WEIGHTS": beside}.items():
        text = text.replace(f"@{key}@", comment(value))
    return put_name(text, name)


def sides(model: ModelTables) -> list[tuple[str, tuple[ArgSpec, ...]]]:
    return [("input", model.inputs), ("output", model.outputs)]


def tables(name: str, model: ModelTables, weights: str, file: str, digest: bytes) -> str:
    """tables.h: everything of model.c that differs from model to model."""
    parallel = is_parallel(model)
    values: dict[str, Any] = {
        "INPUTS": len(model.inputs),
        "OUTPUTS": len(model.outputs),
        "STEPS": len(model.steps),
        "COPIES": len(model.copies),
        "PARALLEL_STEPS": sum(model.kernels[step.kernel][0].max_threads > 1 for step in model.steps),
        "FAILURES": sum(len(model.kernels[step.kernel][0].failures) for step in model.steps),
        "MOST_PLACES": max((1 + len(step.arguments) for step in model.steps), default=1),
        "MEMORY_BYTES": max(ALIGNMENT, model.memory),
        "PLANNED_THREADS": model.threads,
        "MAX_THREADS": "omp_get_max_threads()" if parallel else 1,
        "RUNTIME": "{ GOMP_parallel, omp_get_thread_num, omp_get_num_threads, 1, 0 }"
        if parallel
        else "{ NULL, NULL, NULL, 1, 0 }",
        "HAS_FEATURES": features_test(model.target),
        "LACKING": c_string(f"compiled for {model.target}; this CPU lacks features of that"),
        "USES_TILES": int(model.target.has("amx-tile")),
        "WEIGHTS_BESIDE": int(weights == BESIDE),
        "WEIGHTS_BYTES": weight_offsets(w.nbytes for w in model.weights)[-1],
        "WEIGHTS_FILE": c_string(file),
        "WEIGHTS_HEAD": c_string((MAGIC + digest).decode()),
    }
    lines = [f"#define {key} {value}" for key, value in values.items()]
    if parallel:
        lines += [
            "extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);",
            "extern int omp_get_thread_num(void), omp_get_num_threads(void), omp_get_max_threads(void);",
        ]
    if weights == INSIDE:
        lines.append(f'extern const char {name}_weights[] __attribute__((visibility("hidden")));')
    lines += [line for which, specs in sides(model) for line in tensor_tables(name, which, specs)]
    lines += step_tables(name, model)
    lines += copy_tables(model)
    return "\n".join(lines) + "\n"


def tensor_tables(name: str, which: str, specs: Sequence[ArgSpec]) -> Iterator[str]:
    for n, spec in enumerate(specs):
        yield f"static const int64_t {which}_shape_{n}[] = {numbers(spec.shape)};"
    rows = [
        f"{{ {c_string(s.name)}, {c_string(s.dtype)}, {len(s.shape)}, {which}_shape_{n}, {s.nbytes}u }}"
        for n, s in enumerate(specs)
    ]
    yield f"static const {name}_tensor {which}_specs[] = {{ {', '.join(rows) or '{ 0 }'} }};"
    yield f"static const int64_t {which}_items[] = {numbers([numpy_dtype(s.dtype).itemsize for s in specs])};"


def step_tables(name: str, model: ModelTables) -> Iterator[str]:
    hidden = '__attribute__((visibility("hidden")))'
    for n, (kernel, _) in enumerate(model.kernels):
        yield f"extern int32_t {symbol(name, n, kernel)}(void **, void *, Runtime *) {hidden};"
    status, rows, messages = 1, list[str](), list[str]()
    for n, step in enumerate(model.steps):
        kernel = model.kernels[step.kernel][0]
        places = [step.workspace, *step.arguments]
        yield f"static const Place places_{n}[] = {{ {', '.join(map(place, places))} }};"
        entry = symbol(name, step.kernel, kernel)
        rows.append(f"{{ {entry}, places_{n}, {len(places)}, {kernel.max_threads}, {status} }}")
        status += len(kernel.failures)
        messages += [c_string(f"{step.name}: {failure}") for failure in kernel.failures]
    yield f"static const Step steps[] = {{ {', '.join(rows) or '{ 0 }'} }};"
    yield f"static const char *const failures[] = {{ {', '.join(messages) or 'NULL'} }};"


def copy_tables(model: ModelTables) -> Iterator[str]:
    rows: list[str] = []
    for n, copy in enumerate(model.copies):
        spec = model.outputs[copy.output]
        item = numpy_dtype(spec.dtype).itemsize
        yield f"static const int64_t copy_strides_{n}[] = {numbers([s * item for s in copy.strides])};"
        rows.append(
            f"{{ {place(copy.source)}, {copy.output}, {len(spec.shape)}, output_shape_{copy.output}, "
            f"copy_strides_{n}, {item} }}"
        )
    yield f"static const Copy copies[] = {{ {', '.join(rows) or '{ { 0 } }'} }};"


def symbol(name: str, number: int, kernel: Kernel) -> str:
    return f"{name}_{number}_{kernel.entry}"


def place(at: Place) -> str:
    return f"{{ {at.base}, {at.offset} }}"


def numbers(values: Sequence[int]) -> str:
    return f"{{ {', '.join(map(str, values)) or '0'} }}"


def write_weights(path: Path, weights: Sequence[np.ndarray]) -> bytes:
    """The file of the weights; gives the digest in its head, by which a library knows its own."""
    whole = hashlib.sha256()
    with open(path, "wb") as file:
        file.seek(FILE_HEAD)
        for array in weights:
            data = array.reshape(-1).view(np.uint8).data
            padding = bytes(align(array.nbytes) - array.nbytes)
            for part in (data, padding):
                file.write(part)
                whole.update(part)
        file.truncate()
        digest = whole.hexdigest().encode()
        file.seek(0)
        file.write(MAGIC + digest)
    return digest


def included_weights(name: str) -> str:
    """Assembly that includes the weights' bytes; C text of them would take minutes."""
    symbol = f"{name}_weights"
    return (
        '.section .note.GNU-stack,"",%progbits\n.section .rodata\n.balign 64\n'
        f'.globl {symbol}\n.hidden {symbol}\n{symbol}:\n.incbin "weights", {FILE_HEAD}\n.byte 0\n'
    )


def loader(name: str, library: str) -> str:
    """The Python module for a library: `standalone.py` with its names."""
    text = Path(__file__).with_name("standalone.py").read_text()
    for key, value in {"NAME": name, "LIBRARY": library}.items():
        text = re.sub(rf"^{key}: .*$", lambda _: f"{key} = {value!r}", text, flags=re.MULTILINE)  # noqa: B023
    return text
