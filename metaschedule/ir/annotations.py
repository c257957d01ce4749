"""The annotation keys that this package gives a meaning to, in one table. Any other key is its user's own.

An annotation never changes what a program computes, only how it is scheduled, lowered or compared.

>>> UNROLL.key, UNROLL.problem("many")
('unroll', 'is an int, got str')
>>> sorted(ANNOTATIONS)[:3]
['double_buffer', 'loop_kinds', 'module']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from .stmt import Annotations

T = TypeVar("T")


class Annotated(Protocol):
    """A block, a loop or a program."""

    @property
    def annotations(self) -> Annotations: ...


@dataclass(frozen=True, slots=True)
class Annotation(Generic[T]):
    """`types` are those of its values, `on` what carries it."""

    key: str
    types: tuple[type, ...]
    on: str
    writer: str
    reader: str
    meaning: str

    def get(self, node: Annotated) -> T | None:
        return node.annotations.get(self.key)

    def is_on(self, node: Annotated) -> bool:
        return self.key in node.annotations

    def problem(self, value: object) -> str | None:
        """Why a value cannot be that of this key."""
        if type(value) in self.types:
            return None
        kinds = " or ".join(f"{'an' if t is int else 'a'} {t.__name__}" for t in self.types)
        return f"is {kinds}, got {type(value).__name__}"


UNROLL: Annotation[int] = Annotation(
    "unroll", (int,), "block", "ParallelVectorizeUnroll, people",
    "lowering (`codegen/lower/unroll.py`), cost, Buildable",
    "copies of the block that unrolling the loops around it may make",
)  # fmt: skip
SKIP_ZEROS: Annotation[bool | int] = Annotation(
    "skip_zeros", (bool, int), "block", "SkipZeros, UnrollTransforms",
    "lowering (`codegen/lower/predicate_padding.py`), cost, tilings",
    "padding zeros are neither multiplied nor copied",
)  # fmt: skip
ONE_TAIL: Annotation[bool | int] = Annotation(
    "one_tail", (bool, int), "loop", "UnrollTransforms", "lowering (`codegen/lower/loop_versioning.py`)",
    "the body has two versions, however many guards: full tiles, and all others with tests",
)  # fmt: skip
SIZED: Annotation[bool] = Annotation(
    "sized", (bool,), "loop", "kernels for any size (`codegen/template.py`)",
    "lowering (`codegen/lower/scope.py`, `loop_versioning.py`)",
    "the extent is one of many: nothing is concluded from it",
)  # fmt: skip
STORAGE_ALIGN: Annotation[tuple[tuple[int, int, int, int], ...]] = Annotation(
    "storage_align", (tuple,), "block; program, once it is flat", "storage_align",
    "lowering (`codegen/lower/compact.py`)",
    "tuples (number of a buffer, axis, factor, offset), see `ir.aligned_strides`: of a write of a block, or "
    "of an alloc of the program",
)  # fmt: skip
ROUNDING: Annotation[int | float] = Annotation(
    "rounding", (int, float), "block, program", "winograd, the torch frontend",
    "comparison of results (`measure/numerics.py`)",
    "errors are so many times those of adding up the terms as written",
)  # fmt: skip
CLAIMED: Annotation[str] = Annotation(
    "module", (str,), "block", "modules of a space", "modules of a space",
    "the module that has scheduled the block: others leave it alone",
)  # fmt: skip
TILED: Annotation[str] = Annotation(
    "tiled", (str,), "block", "MultiLevelTiling", "RewriteLoopKinds, RandomComputeLocation",
    "the structure of the block's tiles, as SSRSRS",
)  # fmt: skip
LOOP_KINDS: Annotation[bool] = Annotation(
    "loop_kinds", (bool,), "block", "ParallelVectorizeUnroll", "RewriteLoopKinds, which takes it away",
    "kinds are to be chosen for the block's loops when their structure is known",
)  # fmt: skip
SCHEDULE_RULE: Annotation[str] = Annotation(
    "schedule_rule", (str,), "block", "people", "ApplyCustomRule",
    "the custom rule that is meant for the block",
)  # fmt: skip
TENSORIZE: Annotation[str] = Annotation(
    "tensorize", (str,), "block", "MultiLevelTilingWithIntrinsic",
    "RewriteTensorize, which takes it away",
    "the intrinsic that the block's body is to become",
)  # fmt: skip
DOUBLE_BUFFER: Annotation[bool | int] = Annotation(
    "double_buffer", (bool, int), "loop", "GpuTiling, people", "lowering (`codegen/gpu/pipeline.py`)",
    "what the loop fetches into shared memory is fetched so many iterations ahead, each into its own part",
)  # fmt: skip

ANNOTATIONS: dict[str, Annotation[Any]] = {
    a.key: a
    for a in (
        UNROLL, SKIP_ZEROS, ONE_TAIL, SIZED, STORAGE_ALIGN, ROUNDING, CLAIMED, TILED, LOOP_KINDS,
        SCHEDULE_RULE, TENSORIZE, DOUBLE_BUFFER,
    )
}  # fmt: skip


def annotation_problem(key: str, value: object) -> str | None:
    """Why `value` cannot be noted under `key`; None for every key that is the user's own."""
    known = ANNOTATIONS.get(key)
    return None if known is None else known.problem(value)
