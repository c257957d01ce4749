"""`parse` for text and `@program` for functions: the two ways into the parser."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, overload

from .. import ir
from ..errors import VerifyError
from ..verifier import verify
from .parser import Parser
from .source import ScriptSource, function_source, outside_names


def parse(text: str, filename: str = "<script>", check: bool = True) -> ir.Program:
    """The program that a script describes, verified unless `check` is False. Nothing is executed.

    >>> p = parse('''
    ... @ms.program
    ... def double(A: T.Tensor((4,), "float32"), B: T.Output((4,), "float32")):
    ...     for i in range(4):
    ...         B[i] = A[i] * 2
    ... ''')
    >>> p
    <Program double(A: float32[4]) -> B: float32[4]>
    """
    if not isinstance(text, str):
        raise TypeError(f"ms.parse takes the text of a program, got {type(text).__name__}")
    source = ScriptSource(text, filename)
    functions: list[ast.FunctionDef] = []
    for node in source.tree(text).body:
        if isinstance(node, ast.FunctionDef):
            functions.append(node)
        elif not is_harmless(node):
            raise source.error("a script is one function decorated with @ms.program", node)
    if len(functions) != 1:
        wrong = functions[1] if functions else None
        raise source.error(f"a script is one function, this text has {len(functions)}", wrong)
    for decorator in functions[0].decorator_list:
        if not is_program(decorator):
            raise source.error("the only decorator of a script is @ms.program", decorator)
    return finish(source, functions[0], {}, check)


@overload
def program(function: Callable[..., Any]) -> ir.Program: ...
@overload
def program(*, check: bool = True) -> Callable[[Callable[..., Any]], ir.Program]: ...
def program(function: Callable[..., Any] | None = None, *, check: bool = True) -> Any:
    """Decorator: the program that the text of a Python function describes. The body never runs.

    Names from outside the function that are ints, floats, bools, strings or tuples are constants.
    """
    if function is None:
        return lambda decorated: _program(decorated, check)
    return _program(function, check)


def _program(function: Callable[..., Any], check: bool) -> ir.Program:
    source, tree = function_source(function)
    node = tree.body[0]
    if isinstance(node, ast.If):
        node = node.body[0]
    if not isinstance(node, ast.FunctionDef):
        raise source.error("@ms.program decorates a function written with def", node)
    return finish(source, node, outside_names(function), check)  # pyright: ignore[reportArgumentType]


def finish(
    source: ScriptSource, node: ast.FunctionDef, outside: Mapping[str, Any], check: bool
) -> ir.Program:
    parser = Parser(source, outside)
    try:
        result = parser.program(node)
        if check:
            verify(result)
    except RecursionError:
        raise source.error("the script is nested too deeply: store partial results", node) from None
    except VerifyError as wrong:
        for marked in wrong.marks:
            if marked in parser.places:
                wrong.place = source.place(parser.places[marked])
                break
        raise
    return result


def is_program(decorator: ast.expr) -> bool:
    """Whether a decorator is `program` or `ms.program`."""
    if isinstance(decorator, ast.Attribute) and isinstance(decorator.value, ast.Name):
        return decorator.attr == "program"
    return isinstance(decorator, ast.Name) and decorator.id == "program"


def is_harmless(node: ast.stmt) -> bool:
    """Lines around a pasted program that say nothing: its imports of us, a docstring."""
    if isinstance(node, ast.Import):
        return all(alias.name == "metaschedule" for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module in ("metaschedule", "metaschedule.script", "__future__")
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
