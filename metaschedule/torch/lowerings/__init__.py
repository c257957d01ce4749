"""The lowerings, by family; importing this package registers them all."""

from . import (
    activations,
    adaptive_pooling,
    arithmetic,
    convolution,
    creation,
    functions,
    gather,
    logic,
    matmul,
    movement,
    normalisation,
    padding,
    pooling,
    reductions,
    resampling,
    scatter,
    special,
    statistics,
    views,
    winograd,
)
