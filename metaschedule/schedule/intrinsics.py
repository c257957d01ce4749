"""Intrinsics: small computations that a user knows a better way to carry out.

An intrinsic has a *description*, a plain loop nest that says what is computed, and a better way: either an
*implementation*, a program with the same parameters that computes the same, or an *instruction* of the
hardware (`instructions.py` shows many). `Schedule.tensorize` finds the description in a program and puts
the better way there. A description that accumulates reads and writes its output and has no `init`: that
stays in the program.

>>> from metaschedule import parse
>>> head = 'def square(A: T.Tensor((4,), "float32"), C: T.Output((1,), "float32")):'
>>> step = "C[0] = C[0] + A[k] * A[k]"
>>> register_intrinsic(
...     "doc.square4",
...     description=parse(f"{head}\\n    for k in range(4):\\n        {step}"),
...     implementation=parse(f"{head}\\n    for k in T.unrolled(4):\\n        {step}"),
... )
>>> get_intrinsic("doc.square4").description.name
'square'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .. import ir
from ..arith import Domain, access_region, contains, union
from ..codegen.lower.flatten import flatten
from ..errors import ScheduleError
from ..interpreter import interpret
from ..validation import check_arguments
from .instruction_semantics import describe_instruction


@dataclass(slots=True, eq=False)
class Intrinsic:
    name: str
    description: ir.Program
    loops: tuple[ir.For, ...]  # of the description, outermost first
    stores: tuple[ir.Store, ...]  # in them
    implementation: ir.Program | None = None
    body: ir.Body = ()  # of the implementation, without blocks
    allocs: tuple[ir.Buffer, ...] = ()  # of the implementation
    instruction: ir.HardwareInstruction | None = None


INTRINSICS: dict[str, Intrinsic] = {}


@check_arguments
def register_intrinsic(
    name: str,
    description: ir.Program,
    implementation: ir.Program | None = None,
    instruction: str | None = None,
    features: Sequence[str] = (),
    tiles: bool = False,
) -> None:
    """Make an intrinsic known under a name, which traces refer to it by.

    An `implementation` is run on random numbers beside the description, and must agree; `ValueError` says
    what is wrong otherwise. An `instruction` is the name of an LLVM intrinsic that takes the accumulator
    (if the description reads its output) and the inputs as vectors, or lines of LLVM that end in the
    result and call the operands by the names of the parameters, `%A`. A parameter is a register: its
    elements in row-major order. The target must have `features`, by LLVM's names. With `tiles` the registers
    are tiles, a row for each value of a parameter's first index, and the LLVM intrinsic takes their numbers.
    """
    new = make_intrinsic(name, description, implementation, instruction, tuple(features), tiles)
    old = INTRINSICS.get(name)
    if old is not None:
        if is_same(old, new):
            return
        raise ValueError(f"intrinsic {name!r} is registered already, as something else")
    if implementation is not None:
        check_agreement(name, description, implementation)
    if new.instruction is not None:
        ir.INSTRUCTIONS[name] = new.instruction
    INTRINSICS[name] = new


def make_intrinsic(
    name: str,
    description: ir.Program,
    implementation: ir.Program | None,
    instruction: str | None,
    features: tuple[str, ...],
    tiles: bool,
) -> Intrinsic:
    if (implementation is None) == (instruction is None):
        raise ValueError(f"intrinsic {name!r}: give an implementation or an instruction, one of them")
    loops, stores = nest_of(name, description)
    check_covered(name, description, loops, stores)
    if instruction is not None:
        known = describe_instruction(name, description, loops, stores, instruction, features, tiles)
        return Intrinsic(name, description, loops, stores, instruction=known)
    assert implementation is not None
    if features or tiles:
        raise ValueError(f"intrinsic {name!r}: features and tiles are those of an instruction")
    check_parameters(name, description, implementation)
    flat = flatten(implementation)
    return Intrinsic(name, description, loops, stores, implementation, flat.body, flat.allocs)


def is_same(a: Intrinsic, b: Intrinsic) -> bool:
    if not ir.structural_equal(a.description, b.description):
        return False
    if a.instruction is not None and b.instruction is not None:
        return a.instruction.is_same(b.instruction)
    both = a.implementation, b.implementation
    return both[0] is not None and both[1] is not None and ir.structural_equal(both[0], both[1])


def get_intrinsic(name: str) -> Intrinsic:
    found = INTRINSICS.get(name)
    if found is None:
        known = ", ".join(map(repr, INTRINSICS)) or "none"
        raise ScheduleError(
            f"there is no intrinsic {name!r}", help=f"register_intrinsic makes one; known are: {known}"
        )
    return found


def check_parameters(name: str, description: ir.Program, implementation: ir.Program) -> None:
    def spec(buffers: tuple[ir.Buffer, ...]) -> list[tuple[tuple[int, ...], str]]:
        return [(b.shape, b.dtype) for b in buffers]

    if spec(description.inputs) != spec(implementation.inputs) or spec(description.outputs) != spec(
        implementation.outputs
    ):
        raise ValueError(
            f"intrinsic {name!r}: parameters of {description!r} and {implementation!r} "
            "differ: they must have the same shapes and dtypes"
        )


def nest_of(name: str, description: ir.Program) -> tuple[tuple[ir.For, ...], tuple[ir.Store, ...]]:
    """The loops of a description and the stores in them, without blocks."""
    flat = flatten(description)
    loops: list[ir.For] = []
    body = flat.body
    while len(body) == 1 and isinstance(body[0], ir.For):
        loops.append(body[0])
        body = body[0].body
    stores = tuple([s for s in body if isinstance(s, ir.Store)])
    plain = len(stores) == len(body) and all(loop.fixed_extent is not None for loop in loops)
    if not plain or not stores or flat.allocs:
        raise ValueError(
            f"intrinsic {name!r}: a description is one nest of loops of constant extents with stores in it: "
            "no init, no predicate, no buffers of its own"
        )
    return tuple(loops), stores


def check_covered(
    name: str, description: ir.Program, loops: tuple[ir.For, ...], stores: tuple[ir.Store, ...]
) -> None:
    """An implementation may touch all of its parameters; so the description must be about all of them."""
    extents: dict[ir.Var, ir.Expr | int] = {loop.var: loop.extent for loop in loops}
    touched: dict[ir.Buffer, list[ir.Region]] = {}
    accesses: list[ir.Store | ir.Load] = [*stores]
    for s in stores:
        for e in (*s.indices, s.value):
            accesses += certain_loads(e)
    for a in accesses:
        touched.setdefault(a.buffer, []).append(access_region(a.buffer, a.indices, extents, Domain()))
    for b in description.params:
        if b not in touched or not contains(union(touched[b], Domain()), b.whole(), Domain()):
            raise ValueError(
                f"intrinsic {name!r}: the description does not use all of {b.name}: make it smaller"
            )


def certain_loads(e: ir.Expr) -> Iterator[ir.Load]:
    """The loads that are evaluated whatever conditions say."""
    parts = ir.operands(e)
    if isinstance(e, ir.Select) or (isinstance(e, ir.Binary) and e.op in ("and", "or")):
        parts = parts[:1]
    for part in parts:
        yield from certain_loads(part)
    if isinstance(e, ir.Load):
        yield e


def check_agreement(name: str, description: ir.Program, implementation: ir.Program) -> None:
    rng = np.random.default_rng(0)

    def numbers(b: ir.Buffer) -> np.ndarray:
        low, high = (0, 2) if b.dtype == "bool" else (0 if b.dtype.startswith("u") else -8, 9)
        return rng.integers(low, high, b.shape).astype(ir.numpy_dtype(b.dtype))

    values = [numbers(b) for b in description.params]
    results = [interpret(accumulate(p), *values) for p in (description, implementation)]
    pairs = [r if isinstance(r, tuple) else (r,) for r in results]
    for b, want, got in zip(description.outputs, *pairs, strict=True):
        a, c = np.asarray(want, "float64"), np.asarray(got, "float64")
        if not np.allclose(
            a, c, rtol=1e-2 if ir.is_float(b.dtype) else 0, atol=1e-3 if ir.is_float(b.dtype) else 0
        ):
            raise ValueError(
                f"intrinsic {name!r}: the implementation gives another {b.name} than the description"
            )


def accumulate(p: ir.Program) -> ir.Program:
    """The program with its outputs starting from values that are inputs."""
    before = tuple([ir.Buffer(f"{b.name}_before", b.shape, b.dtype) for b in p.outputs])
    body: list[ir.Stmt] = []
    for old, new in zip(before, p.outputs, strict=True):
        at = tuple([ir.Var(f"i{n}") for n in range(len(new.shape))])
        copy: ir.Stmt = ir.Store(new, at, ir.Load(old, at))
        for var, extent in reversed(list(zip(at, new.shape, strict=True))):
            copy = ir.For(var, ir.const(extent), (copy,))
        body.append(copy)
    return ir.Program(p.name, (*p.inputs, *before), p.outputs, (*body, *p.body), p.allocs)
