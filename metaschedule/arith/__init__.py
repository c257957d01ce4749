"""Integer reasoning about index expressions: bounds, proofs, simplification, regions, affine
maps."""

from .digits import conjuncts
from .domain import Domain
from .index_map import IndexMap, find_parameters
from .iter_map import IterationMap, iteration_map
from .prove import negation
from .region import access_region, contains, relax, union
from .signature import block_signature
from .simplify import simplify
