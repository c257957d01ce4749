"""Simplification by hand: what is printed, exactly."""

from __future__ import annotations

import pytest

from metaschedule import ir
from metaschedule.arith import Domain, simplify

I, J, K, N, M, F = (ir.Var(name) for name in "ijknmf")  # noqa: E741
A = ir.Buffer("A", (64, 64))
PTR = ir.Buffer("ptr", (64,), "int64")
INTS = ir.Buffer("ints", (64,), "int32")
BYTES = ir.Buffer("bytes", (64,), "uint8")
D = Domain({I: 8, J: 4})
UNIT = Domain({I: 1})

CASES: dict[str, tuple[ir.Expr, str]] = {
    "split": (I * 4 + J, "i * 4 + j"),
    "order of first appearance": (J + I * 4, "j + i * 4"),
    "collected": (I + J + I * 3 - J, "i * 4"),
    "cancelled": (I - I, "0"),
    "constant last": (3 + I, "i + 3"),
    "subtraction": (3 - I, "3 - i"),
    "negative": (-I, "-i"),
    "negative scale": (I * -4, "i * -4"),
    "positive first": (-I + J, "j - i"),
    "distributed": ((I + 1) * 4, "i * 4 + 4"),
    "split quotient": ((I * 4 + J) // 4, "i"),
    "split remainder": ((I * 4 + J) % 4, "j"),
    "partly split quotient": ((I * 4 + J) // 8, "i // 2"),
    "partly split remainder": ((I * 4 + J) % 8, "i % 2 * 4 + j"),
    "coarser than the tile": ((I * 4 + J) // 2, "i * 2 + j // 2"),
    "finer remainder": ((I * 4 + J) % 2, "j % 2"),
    "quotient of a multiple": (F * 8 // 4, "f * 2"),
    "common factor": (F * 2 // 6, "f // 3"),
    "common factor and offset": ((F * 2 + 3) // 6, "(f + 1) // 3"),
    "multiples taken out": ((F * 8 + N + 5) // 4, "f * 2 + (n + 5) // 4"),
    "nested": (F // 4 // 8, "f // 32"),
    "nested with offset": ((F // 4 + 3) // 8, "(f + 12) // 32"),
    "digit": (F // 8 % 4, "f // 8 % 4"),
    "digit of a digit": (F % 32 // 8, "f // 8 % 4"),
    "digit with offset": ((F + 5) // 4 % 2, "(f + 5) // 4 % 2"),
    "remainder": (F % 4, "f % 4"),
    "remainder of a remainder": (F % 8 % 4, "f % 4"),
    "remainder with offset": ((F + 7) % 4, "(f + 3) % 4"),
    "recombined": (F // 8 * 8 + F % 8, "f"),
    "recombined digits": (F // 32 * 32 + F // 8 % 4 * 8 + F % 8, "f"),
    "scaled remainder": (F % 4 * 3, "f % 4 * 3"),
    "remainder of a scaled": (F * 2 % 8, "f % 4 * 2"),
    "quotient and remainder": (F // 4 + F % 4, "f // 4 + f % 4"),
    "small quotient": (I // 8, "0"),
    "small remainder": (I % 8, "i"),
    "remainder below the step": ((F * 4 + N % 4) // 16, "f // 4"),
    "coefficient above the divisor": ((F * 3 + I // 4 - I // 4 * 12) // 3, "f - i // 4 * 4"),
    "negative divisor": (F // -4, "-f // 4"),
    "ceiling": ((N + 3) // 4, "(n + 3) // 4"),
    "ceiling minus one": ((N - 1) // 4, "(n - 1) // 4"),
    "division by zero stays": (ir.typed_binary("//", F, 0), "f // 0"),
    "symbolic quotient": (F // N, "f // n"),
    "symbolic remainder": (F % N, "f % n"),
    "symbolic multiple": (F * N // N, "f"),
    "products": (I * N + N * I, "i * n * 2"),
    "minimum decided": (ir.minimum(I, 9), "i"),
    "minimum open": (ir.minimum(I, 3), "T.min(i, 3)"),
    "maximum": (ir.maximum(I + 1, I), "i + 1"),
    "equal operands": (ir.minimum(I + J, J + I), "i + j"),
    "shifted tile": (ir.minimum(I * 6, 40) + J, "T.min(i * 6, 40) + j"),
    "and mask": (F & 7, "f % 8"),
    "shift right": (F >> 3, "f // 8"),
    "shift left": (F << 3, "f * 8"),
    "bitwise not": (ir.Unary("~", F, "int64"), "-f - 1"),
    "load index": (PTR[I * 4 - I * 3], "ptr[i]"),
    "loads cancel": (PTR[I + 1] - PTR[1 + I] + F, "f"),
    "narrow load": (INTS[I].astype("int64") * 2, 'T.cast(ints[i], "int64") * 2'),
    "narrow sum may wrap": (
        (BYTES[I] + BYTES[J]).astype("int64"),
        'T.cast(bytes[i] + bytes[j], "int64")',
    ),
    "wide sum does not": (
        (BYTES[I].astype("int32") + 1).astype("int64"),
        'T.cast(bytes[i], "int64") + 1',
    ),
    "narrow stays narrow": (INTS[I + 0] + INTS[J * 1], "ints[i] + ints[j]"),
    "absolute value": (abs(I), "i"),
    "absolute value open": (abs(F), "T.abs(f)"),
    "select decided": (ir.select(I < 9, F, N), "f"),
    "select by its condition": (ir.select(I < 4, I // 4, I // 4 + 1), "T.select(i < 4, 0, 2)"),
    "select of equals": (ir.select(F < 4, I + J, J + I), "i + j"),
    "condition as integer": ((F < 4).astype("int64"), 'T.cast(f < 4, "int64")'),
    "decided condition as integer": ((I < 9).astype("int64"), "1"),
    # conditions
    "true": (I * 4 + J < 32, "True"),
    "false": (I * 4 + J > 31, "False"),
    "kept": (I * 4 + J < 30, "i * 4 + j < 30"),
    "divided": (I * 4 < 10, "i < 3"),
    "divided, at most": (I * 4 <= 10, "i <= 2"),
    "divided, more": (I * 4 > 10, "i > 2"),
    "divided, at least": (I * 4 >= 10, "i >= 3"),
    "divided, equal": (I * 4 == 8, "i == 2"),
    "never equal": (F * 4 == 10, "False"),
    "sides collected": (F + I < I + N, "f < n"),
    "step": (F + 1 <= N, "f < n"),
    "offset kept positive": (F < N - 3, "f + 3 < n"),
    "mirrored": (ir.Const(3, "int64") < F, "f > 3"),
    "remainder compared": (F % 4 < 2, "f % 4 < 2"),
    "negated": (~(F < 4), "f >= 4"),
    "double negation": (ir.Unary("not", ir.Unary("not", F < 4, "bool"), "bool"), "f < 4"),
    "and": ((I < 9) & (F < 4), "f < 4"),
    "implied": ((F < 4) & (F < 6), "f < 4"),
    "contradicted": ((F < 4) & (F > 6), "False"),
    "or": ((F < 4) | (I < 9), "True"),
    "or, implied": ((F < 4) | (F >= 4), "True"),
    # floats keep their operations
    "float": (A[I + J - J, J] * 1.0 + 0.0, "A[i, j] * 1.0 + 0.0"),
    "guarded": (
        ir.select((I >= 0) & (I * 4 + J < 30), A[I, (I * 4 + J) % 64], 0.0),
        "T.select(i * 4 + j < 30, A[i, i * 4 + j], 0.0)",
    ),
    "call": (ir.call("exp", A[I * 1, J + 0 * F]), "T.exp(A[i, j])"),
    "too large for an index": (F * 2**62 * 4, f"f * {2**62} * 4"),
}


@pytest.mark.parametrize("name", CASES)
def test_simplify(name: str) -> None:
    e, expected = CASES[name]
    assert str(simplify(e, D)) == expected


@pytest.mark.parametrize("name", CASES)
def test_simplify_is_done_at_once(name: str) -> None:
    once = simplify(CASES[name][0], D)
    assert simplify(once, D) is once


def test_unchanged_is_the_same_object() -> None:
    for e in (I * 4 + J, A[I, J] + 1.0, F % 4, F < N, ir.minimum(F, N)):
        assert simplify(e, D) is e


def test_unit_loops_vanish() -> None:
    assert str(simplify(I * 4 + J, UNIT)) == "j"


def test_facts_help() -> None:
    assert str(simplify(F // 8, Domain({}, [F >= 8, F < 16]))) == "1"
    assert str(simplify((F * N + M) // N, Domain({M: N}))) == "f"
    assert str(simplify(ir.select(A[I, J] > 0.0, I, J), Domain({}, [A[I, J] > 0.0]))) == "i"


def test_no_domain_needed() -> None:
    assert str(simplify((I * 4 + 4) // 4 - 1)) == "i"
