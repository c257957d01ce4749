"""Every registered primitive has its tests, by name:

test_<op>_golden...       before and after as text
test_<op>_refuses_...     each refusal, whose whole text is a golden (`refusals.refusal`)
test_<op>_same_...        differential and round trip, through `checks.check`
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import metaschedule.schedule  # noqa: F401  (registers the primitives)
from metaschedule.schedule.distribution import Distribution
from metaschedule.schedule.primitive.base import REGISTRY

HERE = Path(__file__).parent
NEVER_REFUSES = {"get_child_blocks", "get_producers", "get_consumers", "unannotate"}


def test_names() -> set[str]:
    names: set[str] = set()
    for path in HERE.rglob("test_*.py"):
        names |= {n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)}
    return names


test_names.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]
BUILT_IN = sorted(op for op, cls in REGISTRY.items() if cls.__module__.startswith("metaschedule.schedule."))


@pytest.mark.parametrize("op", BUILT_IN)
def test_primitive_is_tested(op: str) -> None:
    names = test_names()
    wanted = ["same"] if issubclass(REGISTRY[op], Distribution) else ["golden", "same"]
    wanted += [] if op in NEVER_REFUSES else ["refuses"]
    missing = [kind for kind in wanted if not any(n.startswith(f"test_{op}_{kind}") for n in names)]
    assert not missing, f"{op} lacks tests: {missing}"


LISTED = """
get_block get_loops get_child_blocks get_producers get_consumers
split fuse reorder reorder_block_iter_var merge
loop_partition add_unit_loop parallel vectorize unroll bind compute_at reverse_compute_at compute_inline
reverse_compute_inline cache_read cache_write reindex set_scope storage_align rfactor decompose_reduction
fuse_reduction_epilogue blockize tensorize
transform_layout transform_block_layout pad_einsum decompose_padding
annotate unannotate sample_categorical sample_perfect_tile sample_partitioned_tile sample_compute_location
sample_tile"""


def test_every_primitive_of_the_design_exists() -> None:
    assert sorted(set(LISTED.split()) - set(REGISTRY)) == []
