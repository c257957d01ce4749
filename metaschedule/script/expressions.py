"""Expressions of the script: syntax trees to typed nodes, exactly as written.

Bare numbers stay Python numbers until they meet the operand or the buffer that gives them a dtype,
as `ir.literal_dtype` says and as the printer assumes. Nothing is folded, with one exception:
arithmetic on `Captured` numbers (constants of the Python code around a decorated function) is done
here, so that `range(N // 2)` has a constant extent.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import ir
from ..errors import ScriptError
from . import namespace
from .source import MAX_DEPTH, Source

BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
COMPARE = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
STATIC: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "min": min, "max": max,
}  # fmt: skip
BUILTINS = ("min", "max", "abs")


class Captured:
    """A constant of the Python code around a decorated function."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


Value = ir.Expr | bool | int | float | Captured


class Expressions:
    """Reads expressions; `names` maps what is in scope to variables, expressions and buffers."""

    def __init__(self, source: Source, outside: Mapping[str, Any]) -> None:
        self.source = source
        self.outside = outside
        self.names: dict[str, ir.Expr | ir.Buffer] = {}
        self.ended: set[str] = set()  # names whose scope is over, for a better message
        self.depth = 0

    def error(self, message: str, node: ast.AST) -> ScriptError:
        return self.source.error(message, node)

    # --- what other parts ask for ---

    def expr(self, node: ast.expr, partner: str | None = None) -> ir.Expr:
        """An expression; a bare number takes the dtype it takes beside `partner`."""
        return self.typed(node, self.value(node), partner)

    def typed(self, node: ast.expr, value: Value, partner: str | None = None) -> ir.Expr:
        return self.source.build(node, ir.as_expr, plain(value), partner)

    def condition(self, node: ast.expr) -> ir.Expr:
        e = self.expr(node)
        if e.dtype != "bool":
            raise self.error(f"a condition must be a bool, got {e.dtype}: compare it", node)
        return e

    def integer(self, node: ast.expr, what: str) -> ir.Expr:
        e = self.expr(node)
        if not ir.is_integer(e.dtype):
            raise self.error(f"{what} must be an integer, got {e.dtype}: use T.cast", node)
        return e

    def buffer(self, node: ast.expr) -> ir.Buffer:
        if not isinstance(node, ast.Name):
            raise self.error("expected the name of a buffer", node)
        found = self.names.get(node.id)
        if isinstance(found, ir.Buffer):
            return found
        if found is not None:
            raise self.error(f"{node.id} is a number and has no elements", node)
        raise self.undefined(node)

    def indices(self, buffer: ir.Buffer, node: ast.Subscript) -> tuple[ir.Expr, ...]:
        for part in parts(node):
            if isinstance(part, ast.Slice):
                raise self.error(
                    "slices stand only in T.reads and T.writes: loop over the elements", part
                )
        values = tuple([plain(self.value(part)) for part in parts(node)])
        return self.source.build(node, ir.check_indices, buffer, values)

    # --- expressions ---

    def value(self, node: ast.expr) -> Value:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(
                f"the expression is nested more than {MAX_DEPTH} deep: store partial results", node
            )
        method = METHODS.get(type(node))
        if method is None:
            kind = type(node).__name__
            raise self.error(f"{kind} is not part of the script{HINTS.get(type(node), '')}", node)
        result = method(self, node)
        self.depth -= 1
        return result

    def constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, (bool, int, float)):
            return node.value
        raise self.error(f"{node.value!r} is not a number", node)

    def name(self, node: ast.Name) -> Value:
        found = self.names.get(node.id)
        if isinstance(found, ir.Buffer):
            raise self.error(
                f"{node.id} is a buffer: index it, as in {node.id}[{index_example(found)}]", node
            )
        if found is not None:
            return found
        captured = self.captured(node)
        if isinstance(captured.value, (bool, int, float)):
            return captured
        raise self.error(f"{node.id} is {captured.value!r}, which is not a number", node)

    def captured(self, node: ast.Name) -> Captured:
        if node.id not in self.outside:
            raise self.undefined(node)
        value = self.outside[node.id]
        if isinstance(value, (bool, int, float, str, tuple)) and not isinstance(value, np.generic):
            return Captured(value)
        raise self.error(
            f"{node.id} is of type {type(value).__name__}: from outside a program only int, float, "
            "bool, str and tuples of them can be used",
            node,
        )

    def undefined(self, node: ast.Name) -> ScriptError:
        name = node.id
        if name in self.ended:
            return self.error(f"{name} is not defined here: its loop or block has ended", node)
        close = difflib.get_close_matches(name, self.names, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return self.error(f"{name} is not defined{hint}", node)

    def subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.value, ast.Name) and node.value.id not in self.names:
            base = self.captured(node.value).value
            at = self.static(node.slice)
            if not isinstance(base, tuple):
                raise self.error(f"{node.value.id} is {base!r} and has no elements", node)
            return Captured(self.source.build(node, operator.getitem, base, at))
        if isinstance(node.value, ast.Subscript):
            raise self.error("write all indices in one pair of brackets, as in A[i, j]", node)
        buffer = self.buffer(node.value)
        return ir.Load(buffer, self.indices(buffer, node))

    def binary_operator(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Pow):
            return self.source.build(node, ir.call, "pow", plain(left), plain(right))
        op = BINARY.get(type(node.op))
        if op is None:
            raise self.error("`@` is not part of the script: write the loops", node)
        return self.binary(node, op, left, right)

    def binary(self, node: ast.AST, op: str, left: Value, right: Value) -> Value:
        a, b = plain(left), plain(right)
        if not isinstance(a, ir.Expr) and not isinstance(b, ir.Expr):
            if op in STATIC and (isinstance(left, Captured) or isinstance(right, Captured)):
                return Captured(self.fold(node, op, a, b))
        elif op in ("&", "|") and is_bool(a) and is_bool(b):
            word = "and" if op == "&" else "or"
            raise self.error(f"`{op}` on conditions: write `{word}`", node)
        return self.source.build(node, ir.typed_binary, op, a, b)

    def fold(self, node: ast.AST, op: str, a: Any, b: Any) -> Any:
        try:
            result = STATIC[op](a, b)
        except (ZeroDivisionError, OverflowError) as wrong:
            raise self.error(str(wrong), node) from None
        if type(result) is int and abs(result) >= 2**63:
            raise self.error(f"the constant does not fit in {ir.INDEX}", node)
        return result

    def unary_operator(self, node: ast.UnaryOp) -> Value:
        a = self.value(node.operand)
        number = plain(a)
        if isinstance(node.op, ast.UAdd):
            return a
        if isinstance(node.op, ast.USub) and type(number) in (int, float):
            return Captured(-number) if isinstance(a, Captured) else -number  # pyright: ignore[reportOperatorIssue]
        op = {ast.USub: "-", ast.Invert: "~", ast.Not: "not"}[type(node.op)]
        e = self.typed(node.operand, a)
        if op == "~" and e.dtype == "bool":
            raise self.error("`~` on a condition: write `not`", node)
        return self.negation(node, op, e)

    def negation(self, node: ast.AST, op: str, e: ir.Expr) -> ir.Expr:
        # `ir.unary` folds constants; it is asked only whether the type is right.
        self.source.build(node, ir.unary, op, ir.Var("", e.dtype))
        return ir.Unary(op, e, e.dtype)

    def boolean_operator(self, node: ast.BoolOp) -> Value:
        op = "and" if isinstance(node.op, ast.And) else "or"
        result = self.value(node.values[0])
        for part in node.values[1:]:
            result = self.source.build(
                node, ir.typed_binary, op, plain(result), plain(self.value(part))
            )
        return result

    def comparison(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        result: Value | None = None
        for operation, right_node in zip(node.ops, node.comparators, strict=True):
            op = COMPARE.get(type(operation))
            if op is None:
                raise self.error("use <, <=, >, >=, == or != to compare numbers", node)
            right = self.value(right_node)
            link = self.binary(node, op, left, right)
            if result is None:
                result = link
            else:
                result = self.source.build(node, ir.typed_binary, "and", plain(result), plain(link))
            left = right
        assert result is not None
        return result

    def conditional(self, node: ast.IfExp) -> Value:
        return self.select(node, node.test, node.body, node.orelse)

    def select(self, node: ast.expr, test: ast.expr, a: ast.expr, b: ast.expr) -> Value:
        cond = self.condition(test)
        return self.source.build(node, ir.select, cond, plain(self.value(a)), plain(self.value(b)))

    # --- calls ---

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
        signature = inspect.signature(namespace.WORDS[word])
        try:
            return dict(signature.bind(*node.args, **keywords).arguments)
        except TypeError as wrong:
            raise self.error(f"T.{word}: {wrong}; write {namespace.form(word)}", node) from None

    def call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id in BUILTINS:
            word = node.func.id
        else:
            word = self.word(node.func)
        if word is None:
            raise self.error(
                "a script calls only words of T, such as T.exp(x), and the built-in min, max, abs",
                node,
            )
        args = list(self.arguments(node, word).values())
        if word in ir.DTYPES:
            return self.typed_constant(node, word, args[0])
        if word in ir.FUNCTIONS:
            values = [plain(self.value(arg)) for arg in args]
            return self.source.build(node, ir.call, word, *values)
        if word in ("min", "max"):
            operands = [args[0], args[1], *(args[2] if len(args) > 2 else ())]
            result = self.value(operands[0])
            for other in operands[1:]:
                result = self.binary(node, word, result, self.value(other))
            return result
        if word == "neg":
            return self.negation(node, "-", self.expr(args[0]))
        if word == "cast":
            a, dtype = self.expr(args[0]), self.dtype(args[1])
            return ir.Cast(a, dtype)
        if word == "select":
            return self.select(node, *args)
        raise self.error(
            f"T.{word} does not stand in an expression; write {namespace.form(word)}", node
        )

    def typed_constant(self, node: ast.Call, dtype: str, arg: ast.expr) -> ir.Const:
        return self.source.build(node, ir.const, self.element(arg, dtype), dtype)

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

    # --- plain data ---

    def static(self, node: ast.expr) -> Any:
        """A value known now: a shape, a dtype, annotations. Nothing but data and arithmetic."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"the data is nested more than {MAX_DEPTH} deep", node)
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
            return self.captured(node).value
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            value = self.subscript(node)
            if isinstance(value, Captured):
                return value.value
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


def plain(value: Value) -> Any:
    """A value without the mark of having been captured."""
    return value.value if isinstance(value, Captured) else value


def is_bool(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, ir.Expr) and value.dtype == "bool")


def parts(node: ast.Subscript) -> list[ast.expr]:
    """What stands between the brackets, by commas."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def index_example(buffer: ir.Buffer) -> str:
    return ", ".join(["i", "j", "k", "l", *["..."]][: len(buffer.shape)]) or "()"


METHODS: dict[type[ast.expr], Any] = {
    ast.Constant: Expressions.constant,
    ast.Name: Expressions.name,
    ast.Subscript: Expressions.subscript,
    ast.BinOp: Expressions.binary_operator,
    ast.UnaryOp: Expressions.unary_operator,
    ast.BoolOp: Expressions.boolean_operator,
    ast.Compare: Expressions.comparison,
    ast.IfExp: Expressions.conditional,
    ast.Call: Expressions.call,
}
HINTS: dict[type[ast.expr], str] = {
    ast.Attribute: ": only words of T have a dot, and they are called",
    ast.Lambda: ": write the expression where it is used",
    ast.NamedExpr: ": store into a buffer made with T.alloc",
    ast.ListComp: ": write a loop",
    ast.GeneratorExp: ": write a loop",
    ast.Tuple: " here: an expression is one value",
    ast.Slice: " here",
}
