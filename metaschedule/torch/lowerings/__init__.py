"""The lowerings, by family; importing this package registers them all."""

from ..lowering import LOWERINGS
from . import (
    activations,
    adaptive_pooling,
    arithmetic,
    bessel,
    convolution,
    creation,
    functions,
    gather,
    integer,
    logic,
    matmul,
    movement,
    normalisation,
    ordering,
    padding,
    polynomials,
    pooling,
    reductions,
    resampling,
    running,
    scatter,
    segments,
    special,
    statistics,
    views,
)

OWN = frozenset(LOWERINGS)  # the package's; others are users'
