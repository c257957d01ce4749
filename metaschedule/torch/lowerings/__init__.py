"""The lowerings, by family; importing this package registers them all."""

from . import (
    activations,
    arithmetic,
    convolution,
    creation,
    functions,
    gather,
    logic,
    matmul,
    movement,
    padding,
    views,
)
