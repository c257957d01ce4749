"""matrix_product: sums of products as batches of matrix products."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import Program
from metaschedule.schedule import Schedule
from tests.schedule.checks import check
from tests.schedule.refusals import refusal


def einsum(spec: str, sizes: dict[str, int]) -> Program:
    """As numpy.einsum has it, of two intermediate buffers into a third."""
    inputs, result = spec.split("->")
    names = inputs.split(",")
    given = [te.placeholder(tuple(sizes[c] for c in n), name=f"X{k}") for k, n in enumerate(names)]
    copies = [
        te.compute(x.shape, lambda *i, x=x: x[i] + 1.0, name=name)
        for x, name in zip(given, "AB", strict=True)
    ]
    axes = {c: te.reduce_axis(sizes[c], name=c) for c in dict.fromkeys(inputs) if c not in result + ","}

    def element(*i: Any) -> Any:
        at = dict(zip(result, i)) | axes
        a, b = (x[tuple(at[c] for c in n)] for x, n in zip(copies, names, strict=True))
        return te.sum(a * b, axis=list(axes.values()))

    total = te.compute(tuple(sizes[c] for c in result), element, name="C", axes=list(result))
    out = te.compute(total.shape, lambda *i: total[i] * 2.0, name="out")
    return te.program(given, [out], name="einsum")


def laid_out(program: Program) -> Schedule:
    sch = Schedule(program)
    sch.matrix_product(sch.get_block("C"))
    return sch


def uses(sch: Schedule) -> list[str]:
    block = sch.get(sch.get_block("C"))
    return [f"{r.buffer.name}{list(r.buffer.shape)} {', '.join(str(s) for s, _ in r.ranges)}"
            for r in (*block.reads, *block.writes)]  # fmt: skip


def test_golden() -> None:
    sch = laid_out(einsum("nahk,akc->nahc", {"n": 2, "a": 3, "h": 7, "k": 5, "c": 4}))
    assert uses(sch) == ["A[3, 14, 5] v0, v1, v3", "B[3, 5, 4] v0, v3, v2", "C[3, 14, 4] v0, v1, v2"]


def test_iterators_of_extent_one_disappear() -> None:
    sch = laid_out(einsum("nhpk,pkc->nhc", {"n": 1, "h": 7, "p": 1, "k": 5, "c": 4}))
    assert uses(sch) == ["A[7, 5] v0, v2", "B[5, 4] v2, v1", "C[7, 4] v0, v1"]


@pytest.mark.parametrize("spec", [
    "ik,kj->ij", "ik,kj->ji", "ki,jk->ij", "bik,bkj->bij", "ibk,kjb->jbi", "ihk,kj->ijh", "iklm,jmlk->ij",
    "k,kj->j", "ik,k->i", "bk,bk->b", "iabk,bkca->iabc",
])  # fmt: skip
@given(data=st.data())
def test_same(spec: str, data: st.DataObject) -> None:
    sizes = {c: data.draw(st.integers(1, 5), c) for c in sorted(set(spec) - set(",->"))}
    program = einsum(spec, sizes)
    check(laid_out(program), program, compiled=data.draw(st.integers(0, 9)) == 0)


def test_matrix_product_refuses_other_sums() -> None:
    a, k = te.placeholder((5, 6), name="A"), te.reduce_axis(6, name="k")
    for value in (a[0, k], a[0, k] * a[1, k], a[0, k] * 2.0):
        sch = Schedule(te.program([a], [te.compute((1,), lambda i, v=value: te.sum(v, axis=k), name="C")]))
        assert "does not add up products of two buffers" in refusal(sch.matrix_product, sch.get_block("C"))


def test_matrix_product_refuses_indices_that_are_no_iterators() -> None:
    sch = Schedule(ms.workloads.create("C1D", l=8, ci=2, co=3))
    assert "not different iterators over all" in refusal(sch.matrix_product, sch.get_block("conv"))


def test_matrix_product_refuses_sums_of_one_factor() -> None:
    sch = Schedule(einsum("ikl,kj->ij", {"i": 2, "k": 3, "l": 4, "j": 5}))
    assert "v_l is neither of rows or columns" in refusal(sch.matrix_product, sch.get_block("C"))


def test_matrix_product_refuses_parameters_and_leaves_nothing() -> None:
    program = ms.workloads.create("GMM", b=1, n=4, m=5, k=3)
    sch = Schedule(program)
    block = sch.get_block("matmul")
    assert "is a parameter of the program" in refusal(sch.matrix_product, block)
    assert ms.structural_equal(sch.program, program)
