"""The range of a single atom: a loop variable, a quotient, a minimum, a load.

`Domain.interval` asks here once per atom, adds what facts say, and remembers the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ir
from .bounds import both, lower, upper
from .interval import UNKNOWN, Interval
from .polynomial import Atom, Poly

if TYPE_CHECKING:
    from .domain import Domain


def atom_interval(atom: Atom, domain: Domain) -> Interval:
    """What is known of an atom by itself."""
    if isinstance(atom, ir.Var):
        extent = domain.extent_of(atom)
        if extent is None:
            return of_dtype(atom.dtype)
        high = upper(extent, domain)
        return 0, None if high is None else max(high - 1, 0)
    kind, args = atom.kind, atom.args
    if kind == "//":
        low, high = both(args[0], domain)
        return (
            None if low is None else low // args[1],
            None if high is None else high // args[1],
        )
    if kind in ("min", "max"):
        return extremum_interval(kind, args[0], args[1], domain)
    if kind == "select":
        condition, a, b = args
        yes, no = domain.case(condition), domain.case(~condition)
        lows = (lower(a, yes), lower(b, no))
        highs = (upper(a, yes), upper(b, no))
        return (
            None if lows[0] is None or lows[1] is None else min(lows[0], lows[1]),
            None if highs[0] is None or highs[1] is None else max(highs[0], highs[1]),
        )
    if kind == "div":
        return quotient_interval(args[0], args[1], domain)
    if kind == "load":
        data = args[0].data
        if data is not None and data.size:
            return int(data.min()), int(data.max())
        return of_dtype(args[0].dtype)
    expr = args[0]
    if isinstance(expr, ir.Call) and expr.dtype == ir.INDEX:
        return 0, None  # the only integer function is abs
    if isinstance(expr, ir.Cast) and expr.a.dtype == "bool":
        return 0, 1
    return of_dtype(expr.dtype)


def of_dtype(dtype: str) -> Interval:
    """The range of a type. Index arithmetic does not wrap: it has none."""
    return UNKNOWN if dtype == ir.INDEX else ir.integer_limits(dtype)


def extremum_interval(kind: str, a: Poly, b: Poly, domain: Domain) -> Interval:
    pick = min if kind == "min" else max
    lows = [lower(a, domain), lower(b, domain)]
    highs = [upper(a, domain), upper(b, domain)]
    # One bound of the minimum needs both operands, the other is given by either.
    needed, either = (lows, highs) if kind == "min" else (highs, lows)
    known = [x for x in either if x is not None]
    needs = None if None in needed else pick([x for x in needed if x is not None])
    has = pick(known) if known else None
    return (needs, has) if kind == "min" else (has, needs)


def quotient_interval(a: Poly, b: Poly, domain: Domain) -> Interval:
    """Of a floor division by a polynomial: known only if that is certainly positive."""
    least = lower(b, domain, 1)
    if least is None or least < 1:
        return UNKNOWN
    most = upper(b, domain)
    if most is not None and most < 1:
        return UNKNOWN  # the facts contradict each other
    low, high = lower(a, domain), upper(a, domain)
    if low is not None:
        low = low // least if low < 0 else low // most if most is not None else 0
    if high is not None:
        high = high // least if high >= 0 else high // most if most is not None else -1
    return low, high
