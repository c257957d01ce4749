"""Integer reasoning about index expressions: bounds, proofs, simplification, regions, affine maps."""

from .domain import Domain
from .region import access_region, contains, disjoint, relax, union
from .simplify import simplify
