"""Boxes: what an access touches while loops run, and how boxes relate.

`relax` bounds one index over some loops by expressions of the others; `access_region` does so
for every dimension. `contains` is a proof, False meaning "not proved"; `union` covers.

Refuses: an index it cannot bound becomes the whole dimension. A box says nothing of holes: the
even elements of a row are the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import ir
from . import polynomial as poly
from .bounds import is_reached, lower, upper
from .canonical import canonical
from .comparison import always
from .division import floordiv
from .domain import Domain
from .express import Remainder, TooLarge, express, terms
from .polynomial import Composite, Monomial, Poly, variables

Pair = tuple[Poly, Poly]  # first and last value


def relax(
    e: ir.Expr, variables: Mapping[ir.Var, ir.Expr | int], domain: Domain
) -> tuple[ir.Expr, ir.Expr] | None:
    """The first value of `e`, and how many values from there on it spans, as `variables` range.

    `variables` are loops, outermost first. The result mentions none of them; None if not known.

    >>> i, j, k = ir.Var("i"), ir.Var("j"), ir.Var("k")
    >>> first, count = relax(i * 4 + j + k, {j: 4, k: 3}, Domain({i: 8}))
    >>> str(first), str(count)
    ('i * 4', '6')
    """
    where = inside(domain, variables)
    ends = relax_poly(canonical(e, where), variables, where)
    return None if ends is None else start_and_count(*ends, domain)


def start_and_count(first: Poly, last: Poly, domain: Domain) -> tuple[ir.Expr, ir.Expr] | None:
    try:
        return express(first, domain), express(poly.shift(poly.add(last, first, -1), 1), domain)
    except TooLarge:
        return None


def inside(domain: Domain, loops: Mapping[ir.Var, ir.Expr | int]) -> Domain:
    """The domain with those loops that it does not have yet."""
    for var, extent in loops.items():
        if domain.extents.get(var) is not extent:
            domain = domain.with_loop(var, extent)
    return domain


def relax_poly(p: Poly, loops: Mapping[ir.Var, ir.Expr | int], domain: Domain) -> Pair | None:
    """Bounds of p that mention none of `loops`, whose ranges `domain` knows."""
    if not any(v in loops for v in variables(p)):
        return p, p
    found, offset = terms(p, domain)
    first: Poly = poly.constant(offset)
    last: Poly = poly.constant(offset)
    for c, term in found:
        ends = bound_term(term, loops, domain)
        if ends is None:
            ends = constant_ends(term_poly(term, domain), domain)
        if ends is None:
            return None
        low, high = ends if c > 0 else (ends[1], ends[0])
        first, last = poly.add(first, low, c), poly.add(last, high, c)
    low_end, high_end = eliminate(first, loops, domain, 1), eliminate(last, loops, domain, -1)
    if low_end is None or high_end is None:
        constants = constant_ends(p, domain)
        if constants is None:
            return None
        low_end = constants[0] if low_end is None else low_end
        high_end = constants[1] if high_end is None else high_end
    return tightest(p, low_end, high_end, domain)


def tightest(p: Poly, first: Poly, last: Poly, domain: Domain) -> Pair:
    """Facts (a tile's predicate) may say more of constant ends than the loops do."""
    a, b = poly.as_constant(first), poly.as_constant(last)
    if a is not None and b is not None and (domain.inequalities or domain.ranges):
        low, high = lower(p, domain), upper(p, domain)
        first = first if low is None else poly.constant(max(a, low))
        last = last if high is None else poly.constant(min(b, high))
    return first, last


def constant_ends(p: Poly, domain: Domain) -> Pair | None:
    low, high = lower(p, domain), upper(p, domain)
    return None if low is None or high is None else (poly.constant(low), poly.constant(high))


def term_poly(term: Monomial | Remainder, domain: Domain) -> Poly:
    if isinstance(term, Remainder):
        by = term.by
        if isinstance(by, int):
            return poly.add(term.of, floordiv(term.of, by, domain), -by)
        return canonical(ir.Binary("%", express(term.of, domain), express(by, domain), ir.INDEX), domain)
    return {term: 1}  # pyright: ignore[reportReturnType]


def bound_term(
    term: Monomial | Remainder, loops: Mapping[ir.Var, ir.Expr | int], domain: Domain
) -> Pair | None:
    """Bounds of one term in which relaxed loops are at most factors, never inside a composite."""
    if isinstance(term, Remainder):
        return bound_remainder(term, loops, domain)
    low: Poly = poly.constant(1)
    high = low
    for atom in term:
        if not isinstance(atom, Composite) or not any(v in loops for v in atom.vars):
            factor: Pair = ({(atom,): 1}, {(atom,): 1})  # pyright: ignore[reportAssignmentType]
        else:
            ends = bound_composite(atom, loops, domain)
            if ends is None or len(term) > 1:  # a product needs signs; constants will have to do
                return None
            factor = ends
        low, high = poly.multiply(low, factor[0]), poly.multiply(high, factor[1])
    return low, high


def bound_remainder(term: Remainder, loops: Mapping[ir.Var, ir.Expr | int], domain: Domain) -> Pair | None:
    of, by = term
    if not isinstance(by, int):
        return None
    ends = relax_poly(of, loops, domain)
    if ends is not None:
        # All of the range lies between two multiples of the divisor: the remainder moves with it.
        start = poly.add(ends[0], floordiv(ends[0], by, domain), -by)
        end = poly.add(start, poly.add(ends[1], ends[0], -1))
        if is_reached(lower(poly.add(poly.constant(by - 1), end, -1), domain, 0), 0):
            return start, end
    return constant_ends(term_poly(term, domain), domain)


def bound_composite(atom: Composite, loops: Mapping[ir.Var, ir.Expr | int], domain: Domain) -> Pair | None:
    kind, args = atom.kind, atom.args
    if kind == "//":
        ends = relax_poly(args[0], loops, domain)
        if ends is None:
            return None
        return floordiv(ends[0], args[1], domain), floordiv(ends[1], args[1], domain)
    if kind in ("min", "max"):
        a, b = relax_poly(args[0], loops, domain), relax_poly(args[1], loops, domain)
        if a is None or b is None:
            return None
        low, high = [
            canonical(ir.Binary(kind, express(x, domain), express(y, domain), ir.INDEX), domain)
            for x, y in zip(a, b)
        ]
        return low, high
    return None


def eliminate(p: Poly, loops: Mapping[ir.Var, ir.Expr | int], domain: Domain, sign: int) -> Poly | None:
    """A bound of p without `loops`: below for sign 1, above for -1. Innermost loops go first,
    because their extents may mention the others."""
    for var in reversed(list(loops)):
        parts = poly.split(p, var)
        if parts is None:
            return None
        factor, rest = parts
        if not factor:
            continue
        if always(">=", factor, domain):
            at_start = sign > 0
        elif always("<=", factor, domain):
            at_start = sign < 0
        else:
            return None
        extent = domain.extent_of(var)
        assert extent is not None
        end = poly.constant(0) if at_start else poly.shift(extent, -1)
        p = poly.add(rest, poly.multiply(factor, end))
    # An extent may have brought in a load or a quotient of a relaxed loop.
    if any(v in loops for v in variables(p)):
        value = lower(p, domain) if sign > 0 else upper(p, domain)
        return None if value is None else poly.constant(value)
    return p


def access_region(
    buffer: ir.Buffer, indices: Sequence[ir.Expr], variables: Mapping[ir.Var, ir.Expr | int], domain: Domain
) -> ir.Region:
    """The box that `buffer[indices]` touches while `variables` range."""
    where = inside(domain, variables)
    ranges: list[tuple[ir.Expr, ir.Expr]] = []
    for index, size in zip(indices, buffer.shape, strict=True):
        ends = relax_poly(canonical(index, where), variables, where)
        found = None if ends is None else start_and_count(*ends, domain)
        ranges.append(found or (ir.as_expr(0), ir.as_expr(size)))
    return ir.Region(buffer, tuple(ranges))


# --- boxes ----------------------------------------------------------------------------------------


def polys(region: ir.Region, domain: Domain) -> list[Pair]:
    """Per dimension the first index and the one after the last."""
    found: list[Pair] = []
    for start, extent in region.ranges:
        first = canonical(start, domain)
        found.append((first, poly.add(first, canonical(extent, domain))))
    return found


def union(regions: Sequence[ir.Region], domain: Domain) -> ir.Region:
    """A box that covers all (of one buffer). Starts and ends that cannot be compared are replaced
    by their constant bounds, or else by those of the buffer."""
    if not regions:
        raise ValueError("the union of no regions has no buffer")
    buffer = regions[0].buffer
    if any(r.buffer is not buffer for r in regions):
        names = ", ".join(dict.fromkeys(r.buffer.name for r in regions))
        raise ValueError(f"regions of different buffers: {names}")
    if len(regions) == 1:
        return regions[0]
    boxes = [polys(r, domain) for r in regions]
    ranges: list[tuple[ir.Expr, ir.Expr]] = []
    for axis, size in enumerate(buffer.shape):
        starts, ends = [b[axis][0] for b in boxes], [b[axis][1] for b in boxes]
        first, last = least(starts, domain), least([poly.scale(p, -1) for p in ends], domain)
        if first is None or last is None:
            lows, highs = [lower(p, domain) for p in starts], [upper(p, domain) for p in ends]
            known = None not in lows and None not in highs
            low = max(min(x for x in lows if x is not None), 0) if known else 0
            high = min(max(x for x in highs if x is not None), size) if known else size
            ranges.append((ir.as_expr(low), ir.as_expr(max(high - low, 0))))
        else:
            found = start_and_count(first, poly.shift(poly.scale(last, -1), -1), domain)
            ranges.append(found or (ir.as_expr(0), ir.as_expr(size)))
    return ir.Region(buffer, tuple(ranges))


def least(ps: Sequence[Poly], domain: Domain) -> Poly | None:
    """The one that is nowhere above any other."""
    best = ps[0]
    for p in ps[1:]:
        if not always("<=", poly.add(best, p, -1), domain):
            best = p
    # Of two that cannot be compared the later was taken: it may still be above an earlier one.
    others = [poly.add(p, best, -1) for p in ps if p is not best]
    return best if all(always(">=", p, domain) for p in others) else None


def is_empty(box: Sequence[Pair], domain: Domain) -> bool:
    return any(always("<=", poly.add(end, start, -1), domain) for start, end in box)


def contains(outer: ir.Region, inner: ir.Region, domain: Domain) -> bool:
    """Whether every element of `inner` is certainly one of `outer`."""
    if outer.buffer is not inner.buffer:
        return False
    big, small = polys(outer, domain), polys(inner, domain)
    if all(
        always("<=", poly.add(a, b, -1), domain) and always("<=", poly.add(d, c, -1), domain)
        for (a, c), (b, d) in zip(big, small)
    ):
        return True
    return is_empty(small, domain)
