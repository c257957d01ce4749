"""metaschedule: search spaces of tensor programs as probabilistic programs, and the fast kernels in them.

>>> import numpy as np
>>> import metaschedule as ms
>>> program = ms.workloads.create("GMM", b=1, n=4, m=4, k=8)
>>> x, y = np.ones((1, 4, 8), "float32"), np.ones((1, 8, 4), "float32")
>>> float(ms.interpret(program, x, y)[0, 0, 0])
8.0
"""

__version__ = "0.1.0"  # first, because records name it

from typing import TYPE_CHECKING, Any

from . import cost, database, ir, runtime, search, space, target, te, workloads
from .build import build
from .errors import InternalError, ScheduleError, ScriptError, VerifyError
from .interpreter import InterpreterError, interpret
from .ir import Buffer, Program, structural_equal, structural_hash
from .schedule import Schedule, Trace
from .script import T, parse, program
from .search import tune
from .verifier import verify

__all__ = [
    "Buffer",
    "InternalError",
    "InterpreterError",
    "Program",
    "Schedule",
    "ScheduleError",
    "ScriptError",
    "T",
    "Trace",
    "VerifyError",
    "build",
    "cost",
    "database",
    "interpret",
    "ir",
    "onnx",
    "parse",
    "program",
    "runtime",
    "search",
    "space",
    "structural_equal",
    "structural_hash",
    "target",
    "te",
    "torch",
    "tune",
    "verify",
    "workloads",
]

if TYPE_CHECKING:
    from . import onnx, torch


def __getattr__(name: str) -> Any:
    """`metaschedule.torch` and `metaschedule.onnx` import PyTorch and ONNX when they are asked for."""
    if name in ("onnx", "torch"):
        from importlib import import_module

        return import_module(f"metaschedule.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
