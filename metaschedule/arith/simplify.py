"""`simplify`: an expression of equal value that is shorter. `canonical.py` has the rules."""

from __future__ import annotations

from ..ir import Expr, same_expr
from .canonical import rewrite
from .domain import Domain

ANYWHERE = Domain()


def simplify(e: Expr, domain: Domain = ANYWHERE) -> Expr:
    """An expression with the value of `e` at every point of the domain; `e` itself if unchanged.

    Where evaluating `e` is an error (a division by zero) the result may have a value.

    >>> from metaschedule.ir import Var
    >>> i, j = Var("i"), Var("j")
    >>> str(simplify((i * 4 + j) // 4, Domain({i: 8, j: 4})))
    'i'
    >>> str(simplify((i * 4 + j) % 8, Domain({i: 8, j: 4})))
    'i % 2 * 4 + j'
    """
    new = rewrite(e, domain)
    return e if same_expr(e, new) else new
