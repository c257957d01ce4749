"""Translations of ONNX's operators, one family a file. Importing this registers them."""

from . import (
    control,
    convolution,
    creation,
    elementwise,
    indexing,
    integers,
    movement,
    normalisation,
    pooling,
    products,
    quantised,
    recurrent,
    reductions,
    resampling,
    selection,
    sequences,
)
