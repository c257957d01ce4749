"""Index maps as plain data: a tuple of texts over `i0`, `i1`, ..., so that traces go through JSON.

>>> texts = index_texts(lambda k, n: (n // 4, k, n % 4), 2)
>>> texts
('i1 // 4', 'i0', 'i1 % 4')
>>> print(index_map(texts, 2))
(i0, i1) -> (i1 // 4, i0, i1 % 4)

Reading a text executes nothing: it may hold indices, integers, + - * // % and parentheses, no more.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ... import ir
from ...arith import IndexMap
from ...errors import ScheduleError
from .limits import check_elements

Texts = tuple[str, ...]
Spec = Callable[..., Sequence[ir.Operand] | ir.Operand] | str | Sequence[str]
OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
MOST_CHARACTERS = 2000
MOST_OUTPUTS = 32
HELP = 'write it as ("i1 // 4", "i0", "i1 % 4"): one text per new index, over the old i0, i1, ...'


def index_texts(spec: Any, ndim: int) -> Texts:
    """The texts of a map: a function of `ndim` indices, the text of a lambda, or texts already."""
    if callable(spec):
        f: Any = spec
        found = IndexMap.from_function(f, ndim)
        names = {v: ir.Var(f"i{n}") for n, v in enumerate(found.inputs)}
        return tuple([str(ir.substitute(e, names)) for e in found.outputs])
    if isinstance(spec, str):
        return lambda_texts(spec)
    return tuple(spec)


def put_parameters(texts: Texts, numbers: Sequence[int]) -> Texts:
    """The texts with numbers for p0, p1, ...

    >>> put_parameters(("i0 // p0", "i0 % p0"), [8])
    ('i0 // 8', 'i0 % 8')
    """
    if not numbers:
        return texts
    known = {f"p{n}": str(number) for n, number in enumerate(numbers)}
    return tuple([re.sub(r"\bp\d+\b", lambda m: known.get(m[0], m[0]), str(t)) for t in texts])


def lambda_texts(text: str) -> Texts:
    """The texts of `lambda i, j: (j, i)`."""
    tree = parse_index(text)
    if not isinstance(tree, ast.Lambda):
        raise ScheduleError(f"the index map {text!r:.80} is not a lambda", help=HELP)
    names: dict[str, ir.Expr] = {a.arg: ir.Var(f"i{n}") for n, a in enumerate(tree.args.args)}
    body = tree.body
    parts = body.elts if isinstance(body, (ast.Tuple, ast.List)) else [body]
    return tuple([str(expression(part, names, text)) for part in parts])


@lru_cache(maxsize=512)
def index_map(texts: Texts, ndim: int) -> IndexMap:
    """The map that texts describe, of `ndim` indices; raises `ScheduleError` if they describe none."""
    if not 0 < len(texts) <= MOST_OUTPUTS:
        raise ScheduleError(f"{texts!r:.80} is no index map", help=HELP)
    inputs = tuple([ir.Var(f"i{n}") for n in range(ndim)])
    names: dict[str, ir.Expr] = {v.name: v for v in inputs}
    return IndexMap(inputs, tuple([expression(parse_index(t), names, t) for t in texts]))


def parse_index(text: str) -> ast.expr:
    if len(text) > MOST_CHARACTERS:
        raise ScheduleError(f"{text!r:.80} is no index of an index map", help=HELP)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ScheduleError(f"the index map {text!r:.80} cannot be read", help=HELP) from None


def expression(node: ast.expr, names: Mapping[str, ir.Expr], text: str) -> ir.Expr:
    """A syntax tree as an index expression."""
    try:
        return build(node, names)
    except RecursionError:
        raise ScheduleError(f"the index map {text!r:.80} is nested too deeply", help=HELP) from None
    except (KeyError, ValueError, OverflowError):
        known = ", ".join(names)
        raise ScheduleError(
            f"the index map {text!r:.80} has more than indices ({known}), integers and + - * // %", help=HELP
        ) from None


def build(node: ast.expr, names: Mapping[str, ir.Expr]) -> ir.Expr:
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return ir.const(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return ir.unary("-", build(node.operand, names))
    if isinstance(node, ast.BinOp):
        return ir.binary(OPERATORS[type(node.op)], build(node.left, names), build(node.right, names))
    raise ValueError


@lru_cache(maxsize=512)
def image_shape(texts: Texts, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that a map gives a buffer of `shape`; raises unless different indices stay different."""
    found = index_map(texts, len(shape))
    try:
        extents = found.output_shape(shape)
        if not found.is_injective(shape):
            raise ScheduleError(
                f"the index map {found} may send two indices within {shape} to one",
                help="a map must keep different indices different, as splits, fusions and permutations do",
            )
    except (ValueError, ZeroDivisionError) as error:
        if isinstance(error, ScheduleError):
            raise
        raise ScheduleError(str(error)) from None
    check_elements(extents, f"what {found} makes of {shape}", {})
    return extents
