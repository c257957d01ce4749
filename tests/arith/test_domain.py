"""What must be provable, and what must not be claimed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from metaschedule import ir
from metaschedule.arith import Domain

I, J, K, N, M, F = (ir.Var(name) for name in "ijknmf")  # noqa: E741
PTR = ir.Buffer("ptr", (100,), "int64")
BYTES = ir.Buffer("bytes", (100,), "uint8")
INTS = ir.Buffer("ints", (100,), "int32")
X = ir.Buffer("x", (100,), "float32")

PROVABLE: dict[str, tuple[Domain, ir.Expr]] = {
    "split index in bounds": (Domain({I: 32, J: 4}), I * 4 + J < 128),
    "triangular": (Domain({I: 8, J: I + 1}), J <= I),
    "strictly triangular": (Domain({I: 8, J: I}), (J < I) & (I >= 1)),
    "upper triangular": (Domain({I: 8, J: 8 - I}), I + J < 8),
    "predicate": (Domain({I: 22, J: 6}, [I * 6 + J < 128]), I * 6 + J < 128),
    "predicate bounds one loop": (Domain({I: 40, J: 6}, [I * 6 + J < 128]), I <= 21),
    "inner predicate": (Domain({I: 5, J: 2, K: 4}, [J * 4 + K < 6]), I * 6 + J * 4 + K < 30),
    "two predicates": (Domain({I: 9, J: 9}, [I + J < 6, I - J >= 2]), (J <= 1) & (I >= 2)),
    "symbolic extent": (Domain({I: N}), I < N),
    "symbolic extent is positive": (Domain({I: N}), N >= 1),
    "symbolic flattening": (Domain({I: M, J: N}), I * N + J < M * N),
    "symbolic quotient": (Domain({I: M, J: N}), (I * N + J) // N == I),
    "symbolic remainder": (Domain({I: M, J: N}), (I * N + J) % N == J),
    "quotient by an expression": (Domain({I: M, J: N + 1}), (I * (N + 1) + J) // (N + 1) == I),
    "remainder by a symbol": (Domain({}, [N >= 1]), (M % N < N) & (M % N >= 0)),
    "constant by symbolic": (Domain({I: 8, J: N}), I * N + J < 8 * N),
    "ceiling division": (Domain({I: (N + 3) // 4, J: 4}), I * 4 < N),
    "ceiling division covers": (Domain(), (N + 3) // 4 * 4 >= N),
    "fused": (Domain({F: 64}), (F // 8 < 8) & (F % 8 < 8) & (F // 8 * 8 + F % 8 == F)),
    "unaligned fused": (Domain({F: 60}), F // 7 * 7 <= F),
    "remainder bounds": (Domain(), (N % 7 >= 0) & (N % 7 < 7)),
    "shifted tile": (Domain({I: 22, J: 6}), ir.minimum(I * 6, 122) + J < 128),
    "shifted tile is not negative": (Domain({I: 22}), ir.minimum(I * 6, 122) >= 0),
    "clamp": (Domain(), (ir.minimum(ir.maximum(N, 0), 7) >= 0) & (ir.minimum(ir.maximum(N, 0), 7) <= 7)),
    "max of both": (Domain(), ir.maximum(N, M) >= N),
    "min of both": (Domain(), ir.minimum(N, M) <= M),
    "select by cases": (Domain({I: 9}), ir.select(I < 4, I, I - 4) < 5),
    "csr": (
        Domain({I: 99, K: PTR[I + 1] - PTR[I]}, [PTR[I + 1] <= 500]),
        PTR[I] + K < 500,
    ),
    "csr, canonical index": (Domain({K: PTR[I + 1]}), PTR[1 + I] > K),
    "bytes": (Domain(), (BYTES[I].astype("int64") < 256) & (BYTES[I].astype("int64") >= 0)),
    "bytes widened before adding": (Domain(), (BYTES[I].astype("int32") + 1) > 0),
    "int32 range": (Domain(), INTS[I].astype("int64") < 2**31),
    "bool": (Domain(), (I < N).astype("int64") <= 1),
    "parity": (Domain(), I * 2 != J * 2 + 1),
    "gcd": (Domain({I: 3}), I * 4 + J * 6 != 7),
    "disequality by sign": (Domain({I: 4, J: 4}), I - 4 != J),
    "or": (Domain({I: 8}), (I < 4) | (I >= 4)),
    "not": (Domain({I: 8}), ~(I > 7)),
    "equality of facts": (Domain({I: 8, J: 8}, [I.__eq__(J)]), I - J == 0),
    "equality is transitive": (Domain({}, [I.__eq__(J), J.__eq__(K)]), I == K),
    "fact on a quotient": (Domain({I: 100}, [I // 4 < 3]), I < 12),
    "fact on a minimum": (Domain({}, [ir.minimum(N, M) >= 3]), N >= 3),
    "fact by negation": (Domain({I: 8}, [~(I >= 4)]), I < 4),
    "fact as a disjunction": (Domain({I: 8}, [(I > 20) | (I < 3)]), I < 3),
    "not zero": (Domain({I: 8}, [I != 0]), I >= 1),
    "opaque condition": (Domain({}, [X[I] > 0.5]), X[I] > 0.5),
    "negated opaque condition": (Domain({}, [~(X[I] > 0.5)]), ~(X[I] > 0.5)),
    "empty loop": (Domain({I: 0}), I > 100),
    "contradiction": (Domain({I: 8}, [I > 9]), I > 100),
    "nothing": (Domain(), ir.all_of([])),
    "absolute value": (Domain({I: 8}), (abs(I) < 8) & (abs(I - N) >= 0)),
    "table": (
        Domain({I: 3}),
        ir.Buffer("t", (3,), "int64", data=np.array([4, 7, 5]))[I] <= 7,
    ),
    "power of two": (Domain({I: 64}), ((I & 7) < 8) & ((I >> 3) < 8) & ((I << 1) < 127)),
    "product of loops": (Domain({I: 4, J: 5}), I * J <= 12),
    "square": (Domain({I: 4}), I * I <= 9),
}


@pytest.mark.parametrize("name", PROVABLE)
def test_provable(name: str) -> None:
    domain, claim = PROVABLE[name]
    assert domain.prove(claim)


UNPROVABLE: dict[str, tuple[Domain, ir.Expr]] = {
    "off by one": (Domain({I: 32, J: 4}), I * 4 + J < 127),
    "predicate off by one": (Domain({I: 22, J: 6}, [I * 6 + J < 128]), I * 6 + J < 127),
    "free": (Domain(), N >= 0),
    "quotient by an unknown sign": (Domain(), M % N >= 0),
    "bytes that wrap": (Domain(), (BYTES[I] + 1).astype("int64") > 0),
    "int32 that wraps": (Domain(), (INTS[I] + 1).astype("int64") > INTS[I].astype("int64")),
    "narrowing": (Domain(), N.astype("int8").astype("int64") == N),
    "nan": (Domain({}, [~(X[I] > 0.5)]), X[I] <= 0.5),
    "another element": (Domain({}, [X[I] > 0.5]), X[J] > 0.5),
    "false": (Domain(), ir.Const(False, "bool")),
}


@pytest.mark.parametrize("name", UNPROVABLE)
def test_unprovable(name: str) -> None:
    domain, claim = UNPROVABLE[name]
    assert not domain.prove(claim)


BOUNDS: dict[str, tuple[Domain, ir.Expr, tuple[int | None, int | None]]] = {
    "linear": (Domain({I: 8, J: 4}), I * 4 - J + 1, (-2, 29)),
    "remainder": (Domain({I: 100}), I % 7, (0, 6)),
    "small remainder": (Domain({I: 5}), I % 7, (0, 4)),
    "quotient": (Domain({I: 100}), I // 7, (0, 14)),
    "negative quotient": (Domain({I: 10}), (I - 5) // 3, (-2, 1)),
    "digits recombined": (Domain({F: 64}), F // 8 + F % 8, (0, 14)),
    "triangular": (Domain({I: 8, J: I + 1}), I - J, (0, 7)),
    "fact": (Domain({I: 22, J: 6}, [I * 6 + J < 128]), I * 6 + J, (0, 127)),
    "free": (Domain(), N, (None, None)),
    "half free": (Domain({I: N}), I, (0, None)),
    "facts on a free variable": (Domain({I: N}, [N <= 10]), I, (0, 9)),
    "minimum": (Domain({I: 8}), ir.minimum(I, 3), (0, 3)),
    "maximum with an unknown": (Domain({I: 8}), ir.maximum(I, N), (0, None)),
    "symbols cancel": (Domain({I: N}), N - I, (1, None)),
    "select": (Domain({I: 8}), ir.select(I < 4, I, 11 - I), (0, 7)),
    "byte": (Domain(), BYTES[I].astype("int64") * 2, (0, 510)),
    "constant": (Domain(), ir.Const(5, "int64"), (5, 5)),
    "division by zero": (Domain(), ir.typed_binary("//", I, 0), (None, None)),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name: str) -> None:
    domain, e, expected = BOUNDS[name]
    assert domain.bounds(e) == expected


def test_exact_bounds() -> None:
    d = Domain({I: 8, J: 4, K: N})
    assert d.exact_bounds(I * 4 - J) == (-3, 28)
    assert d.exact_bounds(I + 0) == (0, 7)
    assert d.exact_bounds(ir.Const(3, "int64")) == (3, 3)
    assert d.exact_bounds(K + 0) is None  # unknown extent
    assert d.exact_bounds(I + N) is None
    assert d.exact_bounds(I // 3) is None  # not linear
    assert d.with_fact(I + J < 5).exact_bounds(I + 0) is None
    assert d.with_fact(X[I] > 0.0).exact_bounds(I + 0) is None
    assert Domain({I: 8, J: I}).exact_bounds(I + 0) is None  # no point has i = 0
    assert Domain({I: 8, J: I + 1}).exact_bounds(I + 0) == (0, 7)
    assert Domain({I: 0}).exact_bounds(I + 0) is None


def test_domains_do_not_change() -> None:
    d = Domain({I: 8})
    inner = d.with_loop(J, I + 1).with_fact(I < 4)
    assert list(d.extents) == [I]
    assert not d.facts
    assert d.bounds(I + 0) == (0, 7)
    assert inner.bounds(I + 0) == (0, 3)
    assert inner.bounds(J + 0) == (0, 3)


def test_a_range_that_mentions_itself_ends() -> None:
    assert Domain({I: I + 1}).bounds(I + 0) == (0, None)


def test_effort_is_bounded() -> None:
    loops = [ir.Var(f"i{at}") for at in range(8)]
    facts = [a * (at + 2) + b * 3 <= 40 for at, (a, b) in enumerate(pairwise(loops))]
    d = Domain(dict.fromkeys(loops, N), facts)
    total = loops[0] // 3
    for at, v in enumerate(loops):
        total = total + (v * (at + 1) + total) // (at + 2)
    d.prove(total < 1000)  # whatever the answer, it comes


def test_contradictory_facts_do_no_harm() -> None:
    d = Domain({I: 8}, [N >= 3, M + N <= 2, M >= 0, N * M >= 2])
    d.bounds(I // (M - N + 5))
    d.prove(I // (2 - N) < 1)


def test_floats_have_no_bounds_to_offer() -> None:
    assert not Domain().prove(ir.call("exp", X[I]) > 0.0)
