"""How deep a program may be: as deep as Python reads it, which is 200 parentheses and 100 indentations.

Walks over expressions and statements recurse, at up to three stack frames a level, and Python's stack has a
thousand; so what is deeper is refused where programs come in (`verify`, `interpret`, `Schedule`, `build`, the
parser), and everything behind may rely on it. Printing, hashing and `walk` take any depth. Whoever writes a
sum of a thousand terms stores partial sums; `te` does that by itself.
"""

from __future__ import annotations

from .expr import Const, Expr, Var
from .program import Program
from .stmt import Block, Stmt
from .visit import bodies, height, own_expressions, subexpressions

MOST_DEPTH = 200  # expressions inside each other
MOST_NESTED = 90  # statements inside each other: a block may take two indentations


def is_too_deep(e: Expr) -> bool:
    if isinstance(e, (Var, Const)):
        return False
    for count, _ in enumerate(subexpressions(e)):
        if count == MOST_DEPTH:  # so many nodes may be that deep
            return height(e) > MOST_DEPTH
    return False


def signature(s: Stmt) -> list[Expr]:
    regions = (*s.reads, *s.writes) if isinstance(s, Block) else ()
    return [e for region in regions for bounds in region.ranges for e in bounds]


def find_too_deep(program: Program) -> tuple[Stmt, str] | None:
    """The first statement that is nested, or holds an expression, deeper than may be; and what is."""
    waiting = [(s, 1) for s in reversed(program.body)]
    while waiting:
        s, depth = waiting.pop()
        if depth > MOST_NESTED:
            return s, f"statements are more than {MOST_NESTED} inside each other"
        if any(map(is_too_deep, own_expressions(s))) or any(map(is_too_deep, signature(s))):
            return s, f"expressions are more than {MOST_DEPTH} inside each other"
        for body in reversed(bodies(s)):
            waiting += [(inner, depth + 1) for inner in reversed(body)]
    return None
