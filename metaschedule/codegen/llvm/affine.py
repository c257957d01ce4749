"""Affine forms of index expressions.

Integer index expressions are kept in this form as long as possible: constants of unrolled loops fold into
it, addresses that differ by a constant share a base, and the multiple of the lane number says at once whether
an access is a broadcast, contiguous, reversed or a gather.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from .values import Operand


@dataclass
class Affine:
    """const + sum(coefficient * SSA value) + lane * (lane number) + sum(coefficient * vector)"""

    const: int = 0
    terms: dict[str, int] = field(default_factory=dict)
    lane: int = 0
    vectors: tuple[tuple[int, Operand], ...] = ()

    def plus(self, other: Affine, factor: int) -> Affine:
        terms = dict(self.terms)
        for name, coefficient in other.terms.items():
            total = terms.get(name, 0) + factor * coefficient
            if total:
                terms[name] = total
            else:
                terms.pop(name, None)
        vectors = self.vectors + tuple((c * factor, v) for c, v in other.vectors)
        return Affine(self.const + factor * other.const, terms, self.lane + factor * other.lane, vectors)

    @property
    def key(self) -> Hashable:
        return self.const, frozenset(self.terms.items()), self.lane, self.vectors

    @property
    def is_constant(self) -> bool:
        return not self.terms and not self.vectors and not self.lane

    @property
    def is_fixed(self) -> bool:
        """Known now, but for the lane."""
        return not self.terms and not self.vectors

    @property
    def is_uniform(self) -> bool:
        """The same in every lane."""
        return not self.lane and not self.vectors


def wrap_int64(n: int) -> int:
    """`n` as 64 bits hold it."""
    return n if -(2**63) <= n < 2**63 else (n + 2**63) % 2**64 - 2**63
