# ruff: noqa: E501  (a table reads best with one case per line)
"""Every refusal of the parser: the message, and where it points."""

from __future__ import annotations

import sys
import textwrap
import traceback

import pytest

from metaschedule.errors import ScriptError
from metaschedule.script import parse

HEAD = """\
def f(
    A: T.Tensor((4, 8), "float32"), N: T.Tensor((4,), "int32"), B: T.Output((4, 8), "float32")
):
"""

# Body of a program, line of the body, first column, column after the last, message. The body is
# indented by four columns.
IN_A_PROGRAM = [
    ('B[0, 0] = x', 1, 15, 16, 'x is not defined'),
    ('B[0, 0] = AA[0, 0]', 1, 15, 17, 'AA is not defined; did you mean A?'),
    ('for i in range(4):\n    pass\nB[i, 0] = 0', 3, 7, 8, 'i is not defined here: its loop or block has ended'),
    ('B[0, 0] = A', 1, 15, 16, 'A is a buffer: index it, as in A[i, j]'),
    ('for i in range(4):\n    B[i[0], 0] = 0', 2, 11, 12, 'i is a number and has no elements'),
    ('for A in range(4):\n    pass', 1, 9, 10, 'A is already in use here: choose another name'),
    ('for T in range(4):\n    pass', 1, 9, 10, 'T means something else in a script: choose another name'),
    ('for i in range(4):\n    for i in range(4):\n        pass', 2, 13, 14, 'i is already in use here: choose another name'),
    ('B[0] = 0', 1, 5, 9, 'B has 2 dimension(s), indexed with 1'),
    ('B[0, 0.5] = 0', 1, 5, 14, 'index of B must be an integer, got float32: 0.5'),
    ('B[0][0] = 0', 1, 5, 12, 'write all indices in one pair of brackets, as in A[i, j]'),
    ('B[0, 0] = A[0][0]', 1, 15, 22, 'write all indices in one pair of brackets, as in A[i, j]'),
    ('B[0:2, 0] = 0', 1, 7, 10, 'slices stand only in T.reads and T.writes: loop over the elements'),
    ('B[0, 0] = A[0, :]', 1, 20, 21, 'slices stand only in T.reads and T.writes: loop over the elements'),
    ('B[0, 0] = N[0]', 1, 15, 19, 'B holds float32 and the value is int32: write T.cast(..., "float32")'),
    ('B[0, 0] = True', 1, 15, 19, 'B holds float32 and the value is bool: write T.cast(..., "float32")'),
    ('N[0] = 1.5', 1, 12, 15, 'N holds int32 and the value is float64: write T.cast(..., "int32")'),
    ('N[0] = 2147483648', 1, 12, 22, '2147483648 does not fit in int32 (-2147483648 to 2147483647)'),
    ('B[0, 0] = A[0, 0] and A[0, 1]', 1, 15, 34, '`and` takes two conditions, got float32'),
    ('B[0, 0] = -(A[0, 0] < 1)', 1, 15, 29, '`-` on a bool: cast it to an integer dtype first'),
    ('if N[0]:\n    pass', 1, 8, 12, 'a condition must be a bool, got int32: compare it'),
    ('while 1:\n    pass', 1, 11, 12, 'a condition must be a bool, got int64: compare it'),
    ('B[0, 0] = 1 if A[0, 0] else 2', 1, 20, 27, 'a condition must be a bool, got float32: compare it'),
    ('B[0, 0] = T.exp(N[0])', 1, 15, 26, 'exp takes a float, got int32: cast it first'),
    ('B[0, 0] = ~A[0, 0]', 1, 15, 23, '`~` takes an integer, got float32'),
    ('B[0, 0] = T.select((A[0, 0] < 1) & (A[0, 1] < 1), 1, 2)', 1, 24, 53, '`&` on conditions: write `and`'),
    ('if ~(A[0, 0] < 1):\n    pass', 1, 8, 22, '`~` on a condition: write `not`'),
    ('for i in range(1.5):\n    pass', 1, 20, 23, 'a bound must be an integer, got float32: use T.cast'),
    ('B[0, 0] = T.cast(N[0], "float33")', 1, 28, 37, "unknown dtype 'float33'; known are float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, bool"),
    ('B[0, 0] = T.int8(300)', 1, 15, 26, '300 does not fit in int8 (-128 to 127)'),
    ('B[0, 0] = T.int8("inf")', 1, 22, 27, 'inf is not a value of int8'),
    ('B[0, 0] = T.float32(A[0, 0])', 1, 15, 33, 'T.float32 takes a number; to convert write T.cast(..., "float32")'),
    ('B[0, 0] = T.expp(A[0, 0])', 1, 15, 21, 'T has no expp; did you mean T.exp?'),
    ('B[0, 0] = T.exp(A[0, 0], 1)', 1, 15, 32, 'T.exp: too many positional arguments; write T.exp(x)'),
    ('B[0, 0] = T.pow(A[0, 0])', 1, 15, 29, "T.pow: missing a required argument: 'b'; write T.pow(a, b)"),
    ('B[0, 0] = T.exp(x=A[0, 0])', 1, 15, 31, "T.exp: 'x' parameter is positional only, but was passed as a keyword; write T.exp(x)"),
    ('B[0, 0] = T.exp(*A)', 1, 21, 23, 'write the arguments one by one'),
    ('B[0, 0] = T.exp(**A)', 1, 15, 25, 'write the keyword arguments one by one'),
    ('B[0, 0] = T.grid(4)', 1, 15, 24, 'T.grid does not stand in an expression; write for i, j in T.grid(4, 8):'),
    ('B[0, 0] = T.exp', 1, 15, 20, 'an attribute is not part of the script: only words of T have a dot, and they are called'),
    ('B[0, 0] = sum(A)', 1, 15, 21, 'a script calls only words of T, such as T.exp(x), and the built-in min, max, abs'),
    ("B[0, 0] = __import__('os').system('true')", 1, 15, 46, 'a script calls only words of T, such as T.exp(x), and the built-in min, max, abs'),
    ('T.exp(A[0, 0])', 1, 5, 19, 'the value of this expression is not used: store it into a buffer'),
    ('T.grid(4)', 1, 5, 14, 'the value of this expression is not used; write for i, j in T.grid(4, 8):'),
    ('A[0, 0]', 1, 5, 12, 'the value of this expression is not used: store it into a buffer'),
    ("'text'\n1", 2, 5, 6, 'the value of this expression is not used: store it into a buffer'),
    ("B[0, 0] = 'text'", 1, 15, 21, "'text' is not a number"),
    ('B[0, 0] = [1 for i in range(4)]', 1, 15, 36, 'a comprehension is not part of the script: write a loop'),
    ('B[0, 0] = (lambda: 1)()', 1, 15, 28, 'a script calls only words of T, such as T.exp(x), and the built-in min, max, abs'),
    ('B[0, 0] = (y := 1)', 1, 16, 22, 'a walrus is not part of the script: store into a buffer made with T.alloc'),
    ('B[0, 0] = A.shape', 1, 15, 22, 'an attribute is not part of the script: only words of T have a dot, and they are called'),
    ('B[0, 0] = A[0, 0] @ A[0, 1]', 1, 15, 32, '`@` is not part of the script: write the loops'),
    ('B[0, 0] = A[0, 0] in A', 1, 15, 27, 'use <, <=, >, >=, == or != to compare numbers'),
    ('B[0, 0] = 1, 2', 1, 15, 19, 'a tuple is not part of the script: an expression is one value'),
    ('B[0, 0] = 1j', 1, 15, 17, '1j is not a number'),
    ('B[0, 0] = None', 1, 15, 19, 'None is not a number'),
    ('B[0, 0] = f"{A}"', 1, 15, 21, 'an f-string is not part of the script: only plain strings are read'),
    ('x = A[0, 0]', 1, 5, 6, 'a script has no local variables: write the expression where it is used, or store it into a buffer made with T.alloc'),
    ('x = y = 1', 1, 5, 14, 'store into one buffer at a time'),
    ('B = 1', 1, 5, 6, 'store to an element, as in B[i] = ...'),
    ('x: int = 1', 1, 5, 15, 'an annotated variable is not part of the script: store into a buffer made with T.alloc'),
    ('B[0, 0] = B[0, 1] = 1', 1, 5, 26, 'store into one buffer at a time'),
    ('B[0, 0], B[0, 1] = 1', 1, 5, 25, '2 targets need as many values, by commas'),
    ('B[0, 0], B[0, 1] = 1, 2, 3', 1, 5, 31, '2 targets need as many values, by commas'),
    ('B[0, 0] **= 2', 1, 5, 18, 'this operator has no assignment form here: write it out'),
    ('return B', 1, 5, 13, 'return is not part of the script: a program stores into its outputs'),
    ('def g():\n    pass', 1, 5, 13, 'a function is not part of the script: a program is one function'),
    ('import os', 1, 5, 14, 'import is not part of the script: nothing is executed'),
    ('raise ValueError', 1, 5, 21, 'raise is not part of the script: use assert'),
    ('for i in range(4):\n    break', 2, 9, 14, 'break is not part of the script: use while with a condition'),
    ('for i in range(4):\n    continue', 2, 9, 17, 'continue is not part of the script: use if'),
    ('global x', 1, 5, 13, 'global is not part of the script: everything is a buffer'),
    ('del B', 1, 5, 10, 'del is not part of the script: buffers live as long as their block'),
    ('try:\n    pass\nfinally:\n    pass', 1, 5, 9, 'try is not part of the script: use assert'),
    ('class C:\n    pass', 1, 5, 13, 'a class is not part of the script: a program is one function'),
    ('match N:\n    case 1:\n        pass', 1, 5, 13, 'match is not part of the script: use if and elif'),
    ('assert True, 3', 1, 18, 19, 'a message must be a string, got 3'),
    ('for i in A:\n    pass', 1, 14, 15, 'loop over range(n), T.grid(n, m), T.parallel(n) or the like'),
    ('for i in [1, 2]:\n    pass', 1, 14, 20, 'loop over range(n), T.grid(n, m), T.parallel(n) or the like'),
    ('for i in range(0, 4, 2):\n    pass', 1, 14, 28, 'write range(stop) or range(start, stop); scale the variable'),
    ('for i in range():\n    pass', 1, 14, 21, 'write range(stop) or range(start, stop); scale the variable'),
    ('for i, j in T.grid(4):\n    pass', 1, 9, 13, 'this loop needs 1 variable name(s)'),
    ('for i in T.grid(4, 4):\n    pass', 1, 9, 10, 'this loop needs 2 variable name(s)'),
    ('for i in T.grid():\n    pass', 1, 14, 22, 'T.grid needs an extent'),
    ('for B[0, 0] in range(4):\n    pass', 1, 9, 16, 'this loop needs 1 variable name(s)'),
    ('for i in range(4):\n    pass\nelse:\n    pass', 4, 9, 13, 'a loop has no else'),
    ('while True:\n    pass\nelse:\n    pass', 4, 9, 13, 'a loop has no else'),
    ('for i in T.bind(4, "threadIdx.w"):\n    pass', 1, 24, 37, "unknown axis 'threadIdx.w'; known are blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, vthread.x, vthread.y, vthread.z"),
    ('for i in T.bind(4):\n    pass', 1, 14, 23, 'T.bind: missing a required argument: \'axis\'; write for i in T.bind(32, "threadIdx.x"):'),
    ('for i in T.parallel(4, 5):\n    pass', 1, 28, 29, 'annotations are a dictionary with string keys'),
    ('for i in T.parallel(4, step=5):\n    pass', 1, 14, 35, "T.parallel: got an unexpected keyword argument 'step'; write for i in T.parallel(4):"),
    ('for i in T.parallel(4, annotations={1: 2}):\n    pass', 1, 40, 46, 'the keys must be strings'),
    ('for i in T.parallel(4, annotations={"a": A}):\n    pass', 1, 46, 47, 'expected plain data: numbers, strings, tuples or dictionaries'),
    ('for i in T.exp(4):\n    pass', 1, 14, 22, 'loop over range(n), T.grid(n, m), T.parallel(n) or the like'),
    ("with open('x'):\n    pass", 1, 10, 19, '`with` opens a block: write with T.block("name"):'),
    ('with T.block():\n    pass', 1, 10, 19, 'T.block: missing a required argument: \'name\'; write with T.block("C"):'),
    ('with T.block(3):\n    pass', 1, 18, 19, 'the name of a block must be a string, got 3'),
    ("with T.block('b') as b:\n    pass", 1, 26, 27, '`as` gives nothing here: leave it out'),
    ("with T.block('b'), T.block('c'):\n    pass", 1, 10, 22, '`with` opens a block: write with T.block("name"):'),
    ('with T.init():\n    B[0, 0] = 0', 1, 5, 19, 'T.init stands at the start of a block'),
    ('T.where(True)', 1, 5, 18, 'T.where stands at the start of a block'),
    ('vi = T.spatial(4, 0)', 1, 5, 25, 'T.spatial stands at the start of a block'),
    ('for i in range(4):\n    T.reads(A[0, 0])', 2, 9, 25, 'T.reads stands at the start of a block'),
    ("for i in range(4):\n    L = T.alloc((4,), 'float32')", 2, 9, 37, 'buffers are made in the program or in a block, not in a loop'),
    ('for i in range(4):\n    T.annotate({})', 2, 9, 23, 'T.annotate stands at the start of a block or program'),
    ("with T.block('b'):\n    B[0, 0] = 0\n    T.where(True)", 3, 9, 22, 'T.where stands at the start of a block'),
    ("with T.block('b'):\n    B[0, 0] = 0\n    T.annotate({})", 3, 9, 23, 'T.annotate stands at the start of a block or program'),
    ("with T.block('b'):\n    vi = T.spatial(4)", 2, 14, 26, "T.spatial: missing a required argument: 'binding'; write vi = T.spatial(4, i)"),
    ("with T.block('b'):\n    vi = T.spatial(4, 0.5)", 2, 27, 30, 'a binding must be an integer, got float32: use T.cast'),
    ("with T.block('b'):\n    vi, vj = T.spatial(4, 0)", 2, 9, 33, 'declare one name at a time'),
    ("with T.block('b'):\n    T.reads()\n    T.reads()", 3, 9, 18, 'T.reads is given twice'),
    ("with T.block('b'):\n    T.reads(A[0])", 2, 17, 21, 'A has 2 dimension(s), indexed with 1'),
    ("with T.block('b'):\n    T.reads(A[0, 0:8:2])", 2, 26, 27, 'a region has no step'),
    ("with T.block('b'):\n    T.reads(A[0, 0] + 1)", 2, 17, 28, 'expected a region of a buffer, as in A[i, 0 : T.size(8)]'),
    ("with T.block('b'):\n    T.reads(A[0, 0 : T.size(0.5)])", 2, 33, 36, 'a size must be an integer, got float32: use T.cast'),
    ("with T.block('b'):\n    T.where(1)", 2, 17, 18, 'a condition must be a bool, got int64: compare it'),
    ("with T.block('b'):\n    vk = T.reduce(4, 0)\n    with T.init():\n        pass", 3, 9, 23, 'T.init is empty: leave it out'),
    ("with T.block('b'):\n    T.annotate(3)", 2, 20, 21, 'annotations are a dictionary with string keys'),
    ("L = T.alloc((4, A), 'float32')", 1, 21, 22, 'expected plain data: numbers, strings, tuples or dictionaries'),
    ("L = T.alloc((-4,), 'float32')", 1, 17, 22, 'L: negative extent -4 in shape (-4,)'),
    ("L = T.alloc((4.5,), 'float32')", 1, 17, 23, 'L: every extent of a shape must be a known integer, got 4.5 in (4.5,); dynamic shapes are not supported: make one program per shape'),
    ("L = T.alloc((4,), 'float31')", 1, 23, 32, "unknown dtype 'float31'; known are float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, bool"),
    ('L = T.alloc((4,), 3)', 1, 23, 24, 'a dtype must be a string, got 3'),
    ("L = T.alloc((4,), scope='heap')", 1, 9, 36, "buffer L: unknown scope 'heap'; known: ('global', 'local', 'shared', 'warp')"),
    ('L = T.alloc((4,), constant=1)', 1, 32, 33, 'constant is True or False'),
    ('L = T.alloc()', 1, 9, 18, 'T.alloc: missing a required argument: \'shape\'; write B = T.alloc((4, 8), "float32", scope="local")'),
    ('L, M = T.alloc((4,))', 1, 5, 25, 'declare one name at a time'),
    ('L = T.table([1.0, 2.0], (3,))', 1, 17, 27, '2 values for shape (3,), which has 3'),
    ('L = T.table(3, (3,))', 1, 17, 18, 'the values of a table are a flat list of numbers'),
    ("L = T.table([1.5], (1,), 'int8')", 1, 18, 21, '1.5 is not an integer, and the constant is to be int8'),
    ("L = T.table([A], (1,), 'int8')", 1, 18, 19, 'expected plain data: numbers, strings, tuples or dictionaries'),
    ('L = T.alloc((2 ** 70,))', 1, 18, 25, 'expected plain data: numbers, strings, tuples or dictionaries'),
    ('L = T.alloc((4611686018427387904 * 4,))', 1, 18, 41, 'the constant does not fit in int64'),
]  # fmt: skip

# A whole script, line, first column, column after the last, message.
SCRIPTS = [
    ('', 1, 1, 2, 'a script is one function, this text has 0'),
    ('x = 1', 1, 1, 6, 'a script is one function decorated with @ms.program'),
    ('1 +', 1, 4, 4, 'invalid syntax'),
    ('def f(:', 1, 7, 8, 'invalid syntax'),
    ('import os\ndef f(): pass', 1, 1, 10, 'a script is one function decorated with @ms.program'),
    ('def f(): pass\ndef g(): pass', 2, 1, 14, 'a script is one function, this text has 2'),
    ('async def f(): pass', 1, 1, 20, 'a script is one function decorated with @ms.program'),
    ('@other\ndef f(): pass', 1, 2, 7, 'the only decorator of a script is @ms.program'),
    ('@ms.program()\ndef f(): pass', 1, 2, 14, 'the only decorator of a script is @ms.program'),
    ('def f(A): pass', 1, 7, 8, 'declare it as in A: T.Tensor((4, 8), "float32")'),
    ('def f(A: int): pass', 1, 10, 13, 'A must be a T.Tensor(...) or a T.Output(...)'),
    ('def f(A: T.alloc((4,))): pass', 1, 10, 23, 'A must be a T.Tensor(...) or a T.Output(...)'),
    ('def f(*A): pass', 1, 8, 9, 'parameters are plain: no *, / or ** among them'),
    ('def f(*, A: T.Tensor((4,))): pass', 1, 10, 27, 'parameters are plain: no *, / or ** among them'),
    ('def f() -> int: pass', 1, 12, 15, 'a program returns nothing: declare a parameter T.Output'),
    ('def f(B: T.Output((4,)), A: T.Tensor((4,))): pass', 1, 26, 43, 'inputs come before outputs: move this parameter'),
    ('def f(A: T.Tensor((N,))): pass', 1, 20, 21, 'N is not defined'),
    ("def f(A: T.Tensor(__import__('os').system('true'))): pass", 1, 19, 50, 'expected plain data: numbers, strings, tuples or dictionaries'),
    ('def f(A: T.Tensor((4,)) = 3): pass', 1, 7, 24, 'declare it as in A: T.Tensor((4, 8), "float32")'),
    ('lambda: 1', 1, 1, 10, 'a script is one function decorated with @ms.program'),
    ('def f(é: T.Tensor((4,)), B: T.Output((4,))):\n    B[0] = é[0] + ü', 2, 19, 20, 'ü is not defined'),
]  # fmt: skip


def refused(text: str) -> ScriptError:
    with pytest.raises(ScriptError) as caught:
        parse(text, "kernel.py")
    assert caught.value.filename == "kernel.py"
    return caught.value


@pytest.mark.parametrize(("body", "line", "start", "end", "message"), IN_A_PROGRAM)
def test_statements_are_refused(body: str, line: int, start: int, end: int, message: str) -> None:
    text = HEAD + textwrap.indent(body, "    ")
    error = refused(text)
    assert error.msg == message
    assert (error.lineno, error.offset, error.end_offset) == (line + 3, start, end)
    assert error.text == text.split("\n")[line + 2]


@pytest.mark.parametrize(("text", "line", "start", "end", "message"), SCRIPTS)
def test_scripts_are_refused(text: str, line: int, start: int, end: int, message: str) -> None:
    error = refused(text)
    assert error.msg == message
    assert (error.lineno, error.offset, error.end_offset) == (line, start, end)


def test_a_traceback_shows_the_place() -> None:
    error = refused(HEAD + "    for i in range(4):\n        B[i, 0] = T.exp(A[i, 0]) + beta * 2")
    assert "".join(traceback.format_exception_only(error)) == (
        '  File "kernel.py", line 5\n'
        "    B[i, 0] = T.exp(A[i, 0]) + beta * 2\n"
        "                               ^^^^\n"
        "metaschedule.errors.ScriptError: beta is not defined\n"
    )


BOMBS = {
    "parentheses": "(" * 100_000 + "1" + ")" * 100_000,
    "signs": "-" * 100_000 + "1",
    "nots": "not " * 100_000 + "True",
    "sum": " + ".join(["1"] * 100_000),
    "long sum": " + ".join(["A[0, 0]"] * 400),
    "indices": "A" + "[0]" * 100_000,
    "attributes": "A" + ".b" * 100_000,
    "conditionals": "1 if True else " * 50_000 + "1",
    "powers": "2 ** " * 50_000 + "1",
    "comparisons": " < ".join(["1"] * 100_000),
    "conjunctions": " and ".join(["True"] * 100_000),
    "arguments": "T.min(" + ", ".join(["1"] * 100_000) + ")",
    "calls": "T.exp(" * 90 + "1.0" + ")" * 90 + " + 1.0" * 130,
    "digits": "9" * 100_000,
    "huge number": "9" * 400,
    "null": "\0",
    "surrogate": "\ud800",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(name: str) -> None:
    refused(HEAD + "    B[0, 0] = " + BOMBS[name])


def test_nested_statements_are_refused() -> None:
    refused(HEAD + "".join("    " * (n + 1) + "if True:\n" for n in range(200)))
    refused(HEAD + "    if True:\n        pass\n" + "    elif True:\n        pass\n" * 1000)


def test_a_huge_text_is_refused() -> None:
    error = refused("#" * 5_000_000)
    assert error.msg == (
        "the script has 5,000,000 characters, and 4,000,000 is the limit: make large tables inputs "
        "of the program"
    )


def test_only_text_is_parsed() -> None:
    with pytest.raises(TypeError, match=r"ms\.parse takes the text of a program, got bytes"):
        parse(b"def f(): pass")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.executed = True",
        "def f(A: setattr(sys, 'executed', True)): pass",
        "def f(A=setattr(sys, 'executed', True)): pass",
        "@setattr(sys, 'executed', True)\ndef f(): pass",
        "def f():\n    setattr(__import__('sys'), 'executed', True)",
        "def f():\n    assert __import__('sys').exit()",
        "def f():\n    for i in __import__('sys').exit():\n        pass",
        "def f(A: T.Tensor((__import__('sys').exit(),))): pass",
        "def f():\n    T.annotate({'a': __import__('sys').exit()})",
        "def f(B: T.Output((1,))):\n    B[0] = __import__('os').system('true')",
    ],
)
def test_nothing_is_executed(text: str) -> None:
    refused(text)
    assert not hasattr(sys, "executed")
