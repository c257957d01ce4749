"""The structural hash of workloads: the same everywhere, blind to names, sensitive to constants."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from metaschedule import ir, workloads

ROOT = Path(__file__).parents[2]
PRINT_ALL = """
from metaschedule import workloads
from metaschedule.ir import structural_hash
for name in workloads.names():
    for n in range(len(workloads.configurations(name))):
        print(name, n, structural_hash(workloads.create(name, n)))
"""


def hashes_in_fresh_process(seed: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PRINT_ALL]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def test_same_in_every_process() -> None:
    first, second = hashes_in_fresh_process("1"), hashes_in_fresh_process("4242")
    assert first == second
    here = [
        f"{name} {n} {ir.structural_hash(workloads.create(name, n))}"
        for name in workloads.names()
        for n in range(len(workloads.configurations(name)))
    ]
    assert first.splitlines() == here


class Rename(ir.Rewriter):
    """Other names for every variable, buffer, block and for the program."""

    def __init__(self) -> None:
        self.vars: dict[ir.Var, ir.Var] = {}
        self.buffers: dict[ir.Buffer, ir.Buffer] = {}

    def var(self, v: ir.Var) -> ir.Var:
        return self.vars.setdefault(v, ir.Var(f"q{len(self.vars)}", v.dtype))

    def expr(self, e: ir.Expr) -> ir.Expr:
        return self.var(e) if isinstance(e, ir.Var) else super().expr(e)

    def buffer(self, b: ir.Buffer) -> ir.Buffer:
        if b not in self.buffers:
            name = f"z{len(self.buffers)}"
            self.buffers[b] = ir.Buffer(name, b.shape, b.dtype, b.scope, b.constant, b.data)
        return self.buffers[b]

    def iter(self, it: ir.Iter) -> ir.Iter:
        return ir.Iter(self.var(it.var), self.expr(it.extent), it.kind)

    def stmt(self, s: ir.Stmt) -> ir.Stmt | tuple[ir.Stmt, ...]:
        if isinstance(s, ir.For):
            s = ir.replace_fields(s, var=self.var(s.var))
        elif isinstance(s, ir.Block):
            s = ir.replace_fields(s, name=f"renamed_{s.name}")
        return super().stmt(s)


class ChangeConstant(ir.Rewriter):
    """The `target`-th constant in the bodies, one larger (an infinite one: 0)."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.count = 0

    def expr(self, e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Const) and e.dtype != "bool":
            self.count += 1
            if self.count - 1 == self.target:
                return ir.Const(e.value + 1 if math.isfinite(e.value) else 0.0, e.dtype)
        return super().expr(e)


@pytest.mark.parametrize("name", workloads.names())
def test_names_do_not_count(name: str) -> None:
    program = workloads.create(name)
    renamed = ir.replace_fields(Rename().program(program), name="another")
    assert str(renamed) != str(program)
    assert ir.structural_equal(program, renamed)
    assert ir.structural_hash(program) == ir.structural_hash(renamed)


@pytest.mark.parametrize("name", workloads.names())
def test_every_constant_counts(name: str) -> None:
    program = workloads.create(name)
    counter = ChangeConstant(-1)
    counter.program(program)
    assert counter.count > 0
    variants: list[ir.Program] = [ChangeConstant(n).program(program) for n in range(0, counter.count, 7)]
    found = {ir.structural_hash(p) for p in variants}
    assert ir.structural_hash(program) not in found
    assert len(found) == len(variants)
