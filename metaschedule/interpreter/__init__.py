"""The reference meaning of a program: slow, obvious, right; the oracle of every other execution.

Read `walk.py` first: the scalar walk there *is* the definition. `numeric.py` says what an operator
computes, `memory.py` what a buffer holds. `lanes.py` is a fast path for plain loop nests and adds
no meaning: whatever it cannot do, or does not find in order, the walk does again.

Refused: only what has no meaning. An access out of bounds, a read of what was never written, a
binding outside its iterator's range, an integer division by zero, a failed assertion, a variable or
buffer used outside its scope, and an output left unwritten are `InterpreterError`s.
"""

from .errors import InterpreterError
from .interpret import interpret

__all__ = ["InterpreterError", "interpret"]
