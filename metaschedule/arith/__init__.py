"""Integer reasoning about index expressions: bounds, proofs, simplification, regions, affine maps."""

from .domain import Domain
from .index_map import IndexMap
from .iter_map import Digit, IterationMap, IterSum, iteration_map
from .region import access_region, contains, disjoint, relax, union
from .signature import block_signature
from .simplify import simplify
