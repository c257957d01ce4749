"""Integer reasoning about index expressions: bounds, proofs, simplification, regions, affine
maps."""

from .digits import Digit, IterSum, conjuncts
from .domain import Domain
from .index_map import IndexMap
from .iter_map import IterationMap, iteration_map
from .prove import negation
from .region import access_region, are_disjoint, contains, relax, union
from .signature import block_signature
from .simplify import simplify

__all__ = [
    "Digit",
    "Domain",
    "IndexMap",
    "IterSum",
    "IterationMap",
    "access_region",
    "are_disjoint",
    "block_signature",
    "conjuncts",
    "contains",
    "iteration_map",
    "negation",
    "relax",
    "simplify",
    "union",
]
