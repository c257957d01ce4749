"""What the tests of tensor expressions share."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaschedule import te
from metaschedule.interpreter import interpret
from metaschedule.ir import Block, Program


def run(program: Program, *inputs: Any) -> np.ndarray:
    """The one output of a program."""
    result = interpret(program, *inputs)
    assert isinstance(result, np.ndarray)
    return result


def ints(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Small integers."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def signature(block: Block) -> list[str]:
    """Reads and writes of a block as the script has them."""
    lines = [line.strip() for line in str(block).splitlines()]
    return [line for line in lines if line.startswith(("T.reads", "T.writes"))]


X = te.placeholder((5, 7), name="X")
ROWS = ints(5, 7)
