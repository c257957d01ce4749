"""The probabilistic language: schedules, primitives, distributions, traces."""

from . import instructions
from .distribution import Distribution, distribution
from .intrinsics import register_intrinsic
from .primitive.base import BlockRV, ExprRV, LoopRV, Primitive, primitive
from .schedule import Schedule
from .trace import Instruction, Trace, TraceError
