"""Names, plain data and calls of words: what statements and expressions of the script both need.

Plain data (shapes, dtypes, annotations, tables) is worked out here and now, from literals,
constants captured from outside and arithmetic on them; nothing is executed.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import operator
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from .. import ir
from ..errors import ScriptError
from . import namespace
from .source import ScriptSource

BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
STATIC: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "min": min, "max": max,
}  # fmt: skip


class Captured:
    """A constant of the Python code around a decorated function."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@cache
def signature_of(word: str) -> inspect.Signature:
    return inspect.signature(namespace.WORDS[word])


class Data:
    """Reads plain data; `names` maps what is in scope to variables, expressions and buffers."""

    def __init__(self, source: ScriptSource, outside: Mapping[str, Any]) -> None:
        self.source = source
        self.outside = outside
        self.names: dict[str, ir.Expr | ir.Buffer] = {}
        self.ended: set[str] = set()  # names whose scope is over, for a better message
        self.depth = 0

    def error(self, message: str, node: ast.AST) -> ScriptError:
        return self.source.error(message, node)

    # --- names ---

    def capture(self, node: ast.Name) -> Captured:
        if node.id not in self.outside:
            raise self.undefined_error(node)
        value = self.outside[node.id]
        if isinstance(value, (bool, int, float, str, tuple)) and not isinstance(value, np.generic):
            return Captured(value)
        raise self.error(
            f"{node.id} is of type {type(value).__name__}: from outside a program only int, float, "
            "bool, str and tuples of them can be used",
            node,
        )

    def undefined_error(self, node: ast.Name) -> ScriptError:
        name = node.id
        if name in self.ended:
            return self.error(f"{name} is not defined here: its loop or block has ended", node)
        close = difflib.get_close_matches(name, self.names, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return self.error(f"{name} is not defined{hint}", node)

    def is_outside(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id not in self.names

    def capture_item(self, node: ast.Subscript) -> Captured:
        """An element of a tuple from outside."""
        assert isinstance(node.value, ast.Name)
        base, at = self.capture(node.value).value, self.static(node.slice)
        if not isinstance(base, tuple):
            raise self.error(f"{node.value.id} is {base!r} and has no elements", node)
        return Captured(self.source.build(node, operator.getitem, base, at))

    # --- words ---

    def word(self, node: ast.AST) -> str | None:
        """The x of T.x, if `node` is that."""
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            return None
        base = node.value.id
        if base in self.names or (base != "T" and self.outside.get(base) is not namespace):
            return None
        if node.attr not in namespace.WORDS:
            close = difflib.get_close_matches(node.attr, namespace.WORDS, n=1)
            hint = f"; did you mean T.{close[0]}?" if close else ""
            raise self.error(f"T has no {node.attr}{hint}", node)
        return node.attr

    def arguments(self, node: ast.Call, word: str) -> dict[str, Any]:
        """The arguments of a word by parameter name, checked against its signature; syntax trees,
        except that `*rest` parameters are tuples of them. Those left out are missing."""
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                raise self.error("write the arguments one by one", arg)
        keywords = {k.arg: k.value for k in node.keywords if k.arg is not None}
        if len(keywords) < len(node.keywords):
            raise self.error("write the keyword arguments one by one", node)
        signature = signature_of(word)
        try:
            return dict(signature.bind(*node.args, **keywords).arguments)
        except TypeError as wrong:
            raise self.error(f"T.{word}: {wrong}; write {namespace.form(word)}", node) from None

    # --- plain data ---

    def static(self, node: ast.expr) -> Any:
        """A value known now: a shape, a dtype, annotations. Nothing but data and arithmetic."""
        self.depth += 1
        if self.depth > ir.MOST_DEPTH:
            raise self.error(f"the data is nested more than {ir.MOST_DEPTH} deep", node)
        result = self.static_value(node)
        self.depth -= 1
        return result

    def static_value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            if node.value is None or isinstance(node.value, (bool, int, float, str)):
                return node.value
        elif isinstance(node, (ast.Tuple, ast.List)):
            return tuple([self.static(part) for part in node.elts])
        elif isinstance(node, ast.Dict):
            if None not in node.keys:
                keys = [self.static(key) for key in node.keys if key is not None]
                if not all(isinstance(key, str) for key in keys):
                    raise self.error("the keys must be strings", node)
                return dict(zip(keys, [self.static(v) for v in node.values], strict=True))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.static(node.operand)
            if type(value) in (int, float):
                return -value
        elif isinstance(node, ast.BinOp) and BINARY.get(type(node.op)) in STATIC:
            left, right = self.static(node.left), self.static(node.right)
            if type(left) in (int, float) and type(right) in (int, float):
                return self.fold(node, BINARY[type(node.op)], left, right)
        elif isinstance(node, ast.Name) and node.id not in self.names:
            return self.capture(node).value
        elif isinstance(node, ast.Subscript) and self.is_outside(node.value):
            return self.capture_item(node).value
        elif isinstance(node, ast.Call) and (word := self.word(node.func)) in ir.DTYPES:
            return self.element(self.arguments(node, str(word))["value"], str(word))
        raise self.error("expected plain data: numbers, strings, tuples or dictionaries", node)

    def string(self, node: ast.expr, what: str) -> str:
        value = self.static(node)
        if not isinstance(value, str):
            raise self.error(f"{what} must be a string, got {value!r}", node)
        return value

    def dtype(self, node: ast.expr) -> str:
        return self.source.build(node, ir.check_dtype, self.string(node, "a dtype"))

    def element(self, node: ast.expr, dtype: str) -> bool | int | float:
        """A number of `dtype`; those without a literal are strings: "inf", "-inf", "nan"."""
        if isinstance(node, ast.Constant) and node.value in ("inf", "-inf", "nan"):
            if not ir.is_float(dtype):
                raise self.error(f"{node.value} is not a value of {dtype}", node)
            return float(node.value)
        value = self.static(node)
        if isinstance(value, (bool, int, float)):
            return value
        raise self.error("expected a number; to convert an expression use T.cast", node)

    def fold(self, node: ast.AST, op: str, a: Any, b: Any) -> Any:
        try:
            result = STATIC[op](a, b)
        except (ZeroDivisionError, OverflowError) as wrong:
            raise self.error(str(wrong), node) from None
        if type(result) is int and abs(result) >= 2**63:
            raise self.error(f"the constant does not fit in {ir.INDEX}", node)
        return result
