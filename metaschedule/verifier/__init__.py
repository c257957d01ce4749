"""The rules every program keeps, checked in one walk: `verify(program)`.

Read `Verifier.stmt` in `statements.py` first. A rule is broken only where that is certain: an index
is out of bounds if an instance that is sure to run goes there. So nothing under a condition, a
`while`, a predicate, a possibly empty loop or beside an assertion is held against a program, and
nothing whose bounds are not known exactly.

Refused: variables used outside their scope or declared twice, and loop variables inside a block;
buffers that are not declared; stores to inputs and tables; indices out of bounds or too few; dtypes
that do not fit; accesses a block's signature does not cover; iterators without binding or bound
outside their extent; `init` without a reduction; unknown kinds and scopes; negative extents; one
GPU axis with several extents; outputs that nothing writes; parameters given twice; annotations
that are not plain data; expressions and statements too deep inside each other.
"""

from __future__ import annotations

from ..errors import VerifyError
from ..ir import Program, find_too_deep
from ..validation import check_arguments
from .statements import Verifier

__all__ = ["check_depth", "verify"]


def check_depth(program: Program) -> None:
    """Refuse what is too deep for passes that recurse; see `ir/depth.py`."""
    if (found := find_too_deep(program)) is not None:
        statement, why = found
        raise VerifyError(why, {statement: "here"}, "store partial results", program)


@check_arguments
def verify(program: Program) -> None:
    """Raise `VerifyError` if `program` breaks a rule; the message shows the place."""
    check_depth(program)
    Verifier(program).run()
