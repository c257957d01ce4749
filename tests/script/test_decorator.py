"""`@program`: text of a Python function, constants from around it, places in its file."""

# pyright: reportInvalidTypeForm=false, reportGeneralTypeIssues=false

from __future__ import annotations

import inspect
import linecache

import pytest

from metaschedule import ir
from metaschedule.errors import ScriptError, VerifyError
from metaschedule.script import T, parse, program

N = 8
SHAPE = (N, 4)
DTYPE = "float32"
SCALE = 0.5
WHOLE = False


@program
def scale(A: T.Tensor(SHAPE, DTYPE), B: T.Output((N, SHAPE[1]), DTYPE)):
    """Constants of the module."""
    for i, j in T.grid(N, SHAPE[1]):
        B[i, j] = A[i, j] * SCALE + -N if WHOLE else A[N // 2 - 1, SHAPE[1] - 1]


def test_module_constants() -> None:
    assert str(scale) == (
        "@ms.program\n"
        'def scale(A: T.Tensor((8, 4), "float32"), B: T.Output((8, 4), "float32")):\n'
        "    for i, j in T.grid(8, 4):\n"
        "        B[i, j] = T.select(False, A[i, j] * 0.5 + -8.0, A[3, 3])"
    )
    assert isinstance(scale, ir.Program)
    assert ir.structural_equal(parse(str(scale)), scale)


def make(n: int, values: tuple[float, ...]) -> ir.Program:
    @program
    def inner(A: T.Tensor((n * 2,), "float32"), B=T.Output((n,), "float32")):  # noqa: B008
        W = T.table(values, (len_values,), "float32")
        for i in range(n // 2, n):
            B[i] = A[i + n] * W[0] + max(n, 3)

    return inner


len_values = 2


def test_closure_constants() -> None:
    assert str(make(4, (1.5, 2.5))) == (
        "@ms.program\n"
        'def inner(A: T.Tensor((8,), "float32"), B: T.Output((4,), "float32")):\n'
        '    W = T.table([1.5, 2.5], (2,), "float32")\n'
        "    for i in range(2):\n"
        "        B[i + 2] = A[i + 2 + 4] * W[0] + 4.0"
    )


def test_the_body_never_runs() -> None:
    ran: list[int] = []

    def body(B: T.Output((1,), "float32")):
        ran.append(1)

    with pytest.raises(ScriptError, match="not used"):
        program(body)
    assert not ran


def test_errors_have_the_line_and_column_of_the_file() -> None:
    def wrong(A: T.Tensor((4,), "float32"), B: T.Output((4,), "float32")):
        for i in range(4):
            B[i] = A[i] + "é" * unknown  # noqa: F821  # pyright: ignore

    with pytest.raises(ScriptError) as caught:
        program(wrong)
    error = caught.value
    first = inspect.getsourcelines(wrong)[1]
    assert (error.filename, error.lineno) == (__file__, first + 2)
    assert error.text == linecache.getline(__file__, first + 2).rstrip("\n")
    assert error.text is not None
    assert error.offset is not None
    assert error.text[error.offset - 1 :].startswith('"é"')
    assert error.msg == "'é' is not a number"


def test_verification_errors_say_where() -> None:
    def wrong(A: T.Tensor((4,), "float32"), B: T.Output((4,), "float32")):
        for i in range(4):
            B[i] = A[i + 1]

    with pytest.raises(VerifyError) as caught:
        program(wrong)
    assert str(caught.value).startswith("A[i + 1] is out of bounds")
    assert f"{__file__}, line {inspect.getsourcelines(wrong)[1] + 2}, column 13" in str(caught.value)
    assert program(check=False)(wrong).name == "wrong"


def test_what_can_be_captured() -> None:
    table = [1.0]

    def wrong(B: T.Output((4,), "float32")):
        B[0] = table

    with pytest.raises(ScriptError) as caught:
        program(wrong)
    assert caught.value.msg == (
        "table is of type list: from outside a program only int, float, bool, str and tuples of "
        "them can be used"
    )


def test_only_functions_with_source_are_decorated() -> None:
    with pytest.raises(TypeError, match="decorates a function, got int"):
        program(3)  # pyright: ignore
    space: dict[str, object] = {"T": T}
    exec('def f(B: T.Output((4,), "float32")):\n    B[0] = 1', space)
    with pytest.raises(ScriptError, match="the source of f cannot be read"):
        program(space["f"])  # pyright: ignore


def test_words_refuse_to_run() -> None:
    message = (
        "T.exp means something only inside a program: decorate the function with @ms.program, or "
        "pass its text to ms.parse; the body is read, not run"
    )
    with pytest.raises(TypeError) as caught:
        T.exp(1.0)
    assert str(caught.value) == message
    for name, word in T.WORDS.items():
        assert word.__doc__, name
        assert f"T.{name}" in T.form(name)
        if name in ("Tensor", "Output"):
            continue
        required = [
            p for p in inspect.signature(word).parameters.values()
            if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
        ]  # fmt: skip
        with pytest.raises(TypeError, match=f"T.{name} means something only inside a program"):
            word(*[1] * len(required))
    with pytest.raises(TypeError, match="only inside a program"):
        T.Tensor((4,), "float32")[0]


def test_every_function_and_dtype_has_a_word() -> None:
    assert set(ir.FUNCTIONS) <= set(T.WORDS)
    assert set(ir.DTYPES) <= set(T.WORDS)
