"""Expressions of the script: syntax trees to typed nodes, exactly as written.

Bare numbers stay Python numbers until they meet the operand or the buffer that gives them a dtype,
as `ir.literal_dtype` says and as the printer assumes. Nothing is folded, with one exception:
arithmetic on `Captured` numbers (constants of the Python code around a decorated function) is done
here, so that `range(N // 2)` has a constant extent.
"""

from __future__ import annotations

import ast
from typing import Any

from .. import ir
from . import namespace
from .data import BINARY, STATIC, Captured, Data

COMPARE = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
BUILTINS = ("min", "max", "abs")


Value = ir.Expr | bool | int | float | Captured


class ExpressionReader(Data):
    """Reads expressions."""

    # --- what other parts ask for ---

    def expr(self, node: ast.expr, partner: str | None = None) -> ir.Expr:
        """An expression; a bare number takes the dtype it takes beside `partner`."""
        return self.convert(node, self.value(node), partner)

    def convert(self, node: ast.expr, value: Value, partner: str | None = None) -> ir.Expr:
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
        raise self.undefined_error(node)

    def indices(self, buffer: ir.Buffer, node: ast.Subscript) -> tuple[ir.Expr, ...]:
        for part in parts(node):
            if isinstance(part, ast.Slice):
                raise self.error("slices stand only in T.reads and T.writes: loop over the elements", part)
        values = tuple([plain(self.value(part)) for part in parts(node)])
        return self.source.build(node, ir.check_indices, buffer, values)

    # --- expressions ---

    def value(self, node: ast.expr) -> Value:
        self.depth += 1
        if self.depth > ir.MOST_DEPTH:
            raise self.error(
                f"the expression is nested more than {ir.MOST_DEPTH} deep: store partial results", node
            )
        method = METHODS.get(type(node))
        if method is None:
            what, _, instead = UNSUPPORTED.get(type(node), "this").partition(":")
            colon = ":" if instead else ""
            raise self.error(f"{what} is not part of the script{colon}{instead}", node)
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
        captured = self.capture(node)
        if isinstance(captured.value, (bool, int, float)):
            return captured
        raise self.error(f"{node.id} is {captured.value!r}, which is not a number", node)

    def subscript(self, node: ast.Subscript) -> Value:
        if self.is_outside(node.value):
            return self.capture_item(node)
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

    def unary_operator(self, node: ast.UnaryOp) -> Value:
        a = self.value(node.operand)
        number = plain(a)
        if isinstance(node.op, ast.UAdd):
            return a
        if isinstance(node.op, ast.USub) and type(number) in (int, float):
            return Captured(-number) if isinstance(a, Captured) else -number  # pyright: ignore[reportOperatorIssue]
        op = {ast.USub: "-", ast.Invert: "~", ast.Not: "not"}[type(node.op)]
        e = self.convert(node.operand, a)
        if op == "~" and e.dtype == "bool":
            raise self.error("`~` on a condition: write `not`", node)
        return self.negation(node, op, e)

    def negation(self, node: ast.AST, op: str, e: ir.Expr) -> ir.Expr:
        # `ir.unary` folds constants; it is asked only whether the type is right.
        self.source.build(node, ir.unary, op, ir.Var("", e.dtype))
        return ir.Unary(op, e, e.dtype)

    def boolean_operator(self, node: ast.BoolOp) -> Value:
        self.check_chain(node, len(node.values))
        op = "and" if isinstance(node.op, ast.And) else "or"
        result = self.value(node.values[0])
        for part in node.values[1:]:
            result = self.source.build(node, ir.typed_binary, op, plain(result), plain(self.value(part)))
        return result

    def check_chain(self, node: ast.expr, operands: int) -> None:
        """A flat chain of operators becomes a tree as deep as it has operands."""
        if self.depth + operands - 1 > ir.MOST_DEPTH:
            raise self.error(f"more than {ir.MOST_DEPTH} operators in a row: store partial results", node)

    def comparison(self, node: ast.Compare) -> Value:
        self.check_chain(node, len(node.ops) + 1)
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
            self.check_chain(node, len(operands))
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
        if word == "instruction":
            given = args[1] if len(args) > 1 else ()
            name, operands = self.static(args[0]), [plain(self.value(arg)) for arg in given]
            return self.source.build(node, ir.instruct, name, *operands)
        raise self.error(f"T.{word} does not stand in an expression; write {namespace.form(word)}", node)

    def typed_constant(self, node: ast.Call, dtype: str, arg: ast.expr) -> ir.Const:
        if not isinstance(arg, (ast.Constant, ast.UnaryOp, ast.Name, ast.BinOp)):
            raise self.error(f'T.{dtype} takes a number; to convert write T.cast(..., "{dtype}")', node)
        return self.source.build(node, ir.const, self.element(arg, dtype), dtype)


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
    ast.Constant: ExpressionReader.constant,
    ast.Name: ExpressionReader.name,
    ast.Subscript: ExpressionReader.subscript,
    ast.BinOp: ExpressionReader.binary_operator,
    ast.UnaryOp: ExpressionReader.unary_operator,
    ast.BoolOp: ExpressionReader.boolean_operator,
    ast.Compare: ExpressionReader.comparison,
    ast.IfExp: ExpressionReader.conditional,
    ast.Call: ExpressionReader.call,
}
UNSUPPORTED: dict[type[ast.expr], str] = {
    ast.Attribute: "an attribute: only words of T have a dot, and they are called",
    ast.Lambda: "lambda: write the expression where it is used",
    ast.NamedExpr: "a walrus: store into a buffer made with T.alloc",
    ast.ListComp: "a comprehension: write a loop",
    ast.GeneratorExp: "a comprehension: write a loop",
    ast.Tuple: "a tuple: an expression is one value",
    ast.List: "a list: store into a buffer made with T.alloc, or use T.table",
    ast.Dict: "a dictionary: store into a buffer made with T.alloc",
    ast.JoinedStr: "an f-string: only plain strings are read",
    ast.Starred: "`*`: write the values one by one",
}
