"""Every program of CASES.md, by the number of its report: `CASES[number]` and `REFUSED[number]`.

    case = CASES["18424"]
    program = case.small_program()          # or case.make(), with the shapes of the table
    inputs = case.inputs(program, np.random.default_rng(0))
    case.check(program, run(program, *inputs), inputs)

18383 is of two functions tuned together: `CASES["18383"]` and `CASES["18383, second"]`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metaschedule.errors import VerifyError
from metaschedule.ir import Program
from tests.cases import expressions as e
from tests.cases import scripts as s
from tests.cases.case import Case

CASES: dict[str, Case] = {
    "17960": Case(s.searchsorted, lambda a, q: np.searchsorted(a, q), s.searchsorted_inputs),
    "17973": Case(s.top_k, s.top_k_reference, small={"rows": 6}),
    "17934": Case(
        e.pooling_gradients, e.pooling_gradients_reference, small={"c": 3, "h": 8}
    ),
    "18380": Case(e.max_reduction, lambda x: x.max(1)),
    "18423": Case(
        s.reverse_sequence, s.reverse_sequence_reference, s.reverse_sequence_inputs
    ),
    "18424": Case(e.gather, lambda x, at: np.take_along_axis(x, at, axis=1), e.gather_inputs),
    "18383": Case(e.addition, lambda x, y: x + y),
    "18383, second": Case(e.addition, lambda x, y: x + y),
    "18387": Case(s.assertion, np.sqrt, s.assertion_inputs),
    "17936": Case(e.group_norm, e.group_norm_reference, tolerance=1e-5),
    "12907": Case(s.opaque_matmul, np.matmul, small={"n": 12}),
    "14137": Case(
        e.dense_add, lambda x, w, bias: x @ w.T + bias, small={"n": 40, "k": 32}
    ),
    "15987": Case(e.matmul, np.matmul, build_only=True),
    "13203": Case(
        e.mean, lambda x: x.mean(axis=(1, 2), keepdims=True), small={"c": 24}, tolerance=1e-6
    ),
    "8991": Case(
        e.weight_gradient, e.weight_gradient_reference, small={"ci": 5, "co": 3}
    ),
    "12929": Case(
        e.sparse_dense, e.sparse_dense_reference, e.sparse_dense_inputs,
        small={"n": 11, "m": 7, "k": 9, "entries": 20},
    ),
    "18224": Case(
        e.dense_int8, lambda x, w: x.astype(np.int32) @ w.astype(np.int32).T,
        small={"m": 8, "n": 8, "k": 16},
    ),
    "16288": Case(e.elementwise, lambda x: x * 2 + 1),
    "15198": Case(e.sine_of_sum, lambda x: np.sin(x.sum(keepdims=True)), tolerance=1e-6),
    "15201": Case(
        e.conv1d_transpose, e.conv1d_transpose_reference, small={"length": 13, "co": 4}
    ),
    "15203": Case(e.min_of_table, e.min_of_table_reference),
    "15209": Case(s.difference, lambda a: -a.sum(1)),
    "17799": Case(e.sum_of_middle, lambda x: x.sum(1), small={"n": 12}),
    "15911": Case(e.three_maps, lambda a, b: 2 * (a + b) + a),
    "Halide 8256": Case(e.adaptive_argmax, e.adaptive_argmax_reference),
    "Halide 8308": Case(e.embedding, e.embedding_reference, e.embedding_inputs),
    "20401": Case(
        e.concatenate_pool, e.concatenate_pool_reference, small={"c": 4, "h": 6}
    ),
}  # fmt: skip

# What must be refused: how to write it, the error, and words that it must say.
REFUSED: dict[str, tuple[Callable[[], Program], type[Exception], str]] = {
    "15205": (e.read_past_the_end, VerifyError, r"table\[v_k\] is out of bounds: .* 0 to 63"),
    "17465": (e.linear_of_unknown_batch, TypeError, "dynamic shapes are not supported"),
}
