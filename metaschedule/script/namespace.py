"""The words of the script, as `T`. Each is documented here and has its arguments checked against
the signature given here, but none does anything: a program is read from its text and never run.

Only `Tensor` and `Output` can be evaluated, because Python evaluates the annotations (or defaults)
of the parameters when it defines a decorated function.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

Shape = int | Sequence[int]


def _refuse(name: str) -> NoReturn:
    raise TypeError(
        f"T.{name} means something only inside a program: decorate the function with @ms.program, "
        "or pass its text to ms.parse; the body is read, not run"
    )


class Tensor:
    """`A: T.Tensor((4, 8), "float32")` declares an input (`constant=True`: fixed at build). It is dense and
    row-major, or as far apart as `strides=(16, 2)` says, in elements; it begins where the caller says."""

    def __init__(
        self,
        shape: Shape,
        dtype: str = "float32",
        scope: str = "global",
        constant: builtins.bool = False,
        strides: Shape | None = None,
    ) -> None:
        self.shape, self.dtype, self.scope, self.constant, self.strides = (
            shape,
            dtype,
            scope,
            constant,
            strides,
        )

    def __getitem__(self, indices: Any) -> Any:
        _refuse("Tensor")

    def __setitem__(self, indices: Any, value: Any) -> None:
        _refuse("Tensor")


class Output(Tensor):
    """`C: T.Output((4, 8), "float32")` declares an output; outputs follow all inputs."""


# --- declarations -------------------------------------------------------------------------------


def alloc(
    shape: Shape,
    dtype: str = "float32",
    scope: str = "global",
    constant: builtins.bool = False,
    strides: Shape | None = None,
    offset: int = 0,
) -> Any:
    """`B = T.alloc((4, 8), "float32", scope="local")` makes a buffer for one call, or in a
    block for one instance of it. `strides=(16, 2), offset=3` puts its elements so far apart, the first
    three elements behind the start of its memory."""
    _refuse("alloc")


def table(
    values: Sequence[Any],
    shape: Shape,
    dtype: str = "float32",
    scope: str = "global",
    constant: builtins.bool = False,
) -> Any:
    """`W = T.table([1.0, 2.0], (2,), "float32")` embeds values (flat, row-major) in the program."""
    _refuse("table")


# --- loops --------------------------------------------------------------------------------------


def grid(*extents: Any) -> Iterator[Any]:
    """`for i, j in T.grid(4, 8):` is nested serial loops, outermost first."""
    _refuse("grid")


def serial(extent: Any, annotations: Mapping[str, Any] = {}) -> Iterator[Any]:
    """`for i in T.serial(4, annotations={"hint": 1}):` is `range` with annotations."""
    _refuse("serial")


def parallel(extent: Any, annotations: Mapping[str, Any] = {}) -> Iterator[Any]:
    """`for i in T.parallel(4):` may run its iterations on several threads."""
    _refuse("parallel")


def vectorized(extent: Any, annotations: Mapping[str, Any] = {}) -> Iterator[Any]:
    """`for i in T.vectorized(8):` may run its iterations as lanes of a vector."""
    _refuse("vectorized")


def unrolled(extent: Any, annotations: Mapping[str, Any] = {}) -> Iterator[Any]:
    """`for i in T.unrolled(4):` is written out iteration by iteration."""
    _refuse("unrolled")


def bind(extent: Any, axis: str, annotations: Mapping[str, Any] = {}) -> Iterator[Any]:
    """`for i in T.bind(32, "threadIdx.x"):` runs its iterations along a GPU axis."""
    _refuse("bind")


# --- blocks -------------------------------------------------------------------------------------


def block(name: str) -> AbstractContextManager[None]:
    """`with T.block("C"):` isolates a computation from the loops around it."""
    _refuse("block")


def spatial(extent: Any, binding: Any) -> Any:
    """`vi = T.spatial(4, i)` is an iterator of the block whose values give separate results."""
    _refuse("spatial")


def reduce(extent: Any, binding: Any) -> Any:
    """`vk = T.reduce(4, k)` is an iterator of the block whose values give terms of one result."""
    _refuse("reduce")


def where(condition: Any) -> None:
    """`T.where(i < 7)` runs only the instances of the block for which the condition holds."""
    _refuse("where")


def reads(*regions: Any) -> None:
    """`T.reads(A[vi, 0 : T.size(8)])` says what an instance reads; inferred if left out."""
    _refuse("reads")


def writes(*regions: Any) -> None:
    """`T.writes(C[vi, vj])` says what an instance writes; inferred if left out."""
    _refuse("writes")


def size(extent: Any) -> Any:
    """`A[i : T.size(4)]` in T.reads or T.writes is the 4 indices from i on."""
    _refuse("size")


def annotate(annotations: Mapping[str, Any]) -> None:
    """`T.annotate({"key": 1})` annotates the block or program: plain data under string keys."""
    _refuse("annotate")


def init() -> AbstractContextManager[None]:
    """`with T.init():` runs before the first term of a reduction."""
    _refuse("init")


# --- expressions --------------------------------------------------------------------------------


def select(condition: Any, a: Any, b: Any) -> Any:
    """`T.select(i < 4, a, b)` is `a if i < 4 else b`: only the branch taken is evaluated."""
    _refuse("select")


def cast(a: Any, dtype: str) -> Any:
    """`T.cast(a, "int32")` converts as `ndarray.astype` does."""
    _refuse("cast")


def instruction(name: str, *args: Any) -> Any:
    """`T.instruction("x86.vpdpbusd.512", C[j], A[0], ..., B[j, 3])` is one lane of a hardware instruction."""
    _refuse("instruction")


def neg(a: Any) -> Any:
    """`T.neg(1.0)` is a negation that is computed, where `-1.0` is a constant."""
    _refuse("neg")


def min(a: Any, b: Any, *more: Any) -> Any:
    """`T.min(a, b)` is the smaller; NaN if either is."""
    _refuse("min")


def max(a: Any, b: Any, *more: Any) -> Any:
    """`T.max(a, b)` is the larger; NaN if either is."""
    _refuse("max")


class _Function(Protocol):
    def __call__(self, x: Any, /) -> Any: ...


def _function(name: str, what: str) -> _Function:
    def stub(x: Any, /) -> Any:
        _refuse(name)

    stub.__name__ = stub.__qualname__ = name
    stub.__doc__ = f"`T.{name}(x)` is {what}."
    return stub


def pow(a: Any, b: Any) -> Any:
    """`T.pow(a, b)` is a to the power b."""
    _refuse("pow")


exp = _function("exp", "e to the power x")
exp2 = _function("exp2", "2 to the power x")
expm1 = _function("expm1", "exp(x) - 1, exact near 0")
log = _function("log", "the natural logarithm")
log2 = _function("log2", "the logarithm to base 2")
log10 = _function("log10", "the logarithm to base 10")
log1p = _function("log1p", "log(1 + x), exact near 0")
sqrt = _function("sqrt", "the square root")
rsqrt = _function("rsqrt", "1 / sqrt(x)")
sin = _function("sin", "the sine")
cos = _function("cos", "the cosine")
tan = _function("tan", "the tangent")
asin = _function("asin", "the inverse sine")
acos = _function("acos", "the inverse cosine")
atan = _function("atan", "the inverse tangent")
sinh = _function("sinh", "the hyperbolic sine")
cosh = _function("cosh", "the hyperbolic cosine")
tanh = _function("tanh", "the hyperbolic tangent")
erf = _function("erf", "the error function")
sigmoid = _function("sigmoid", "1 / (1 + exp(-x))")
floor = _function("floor", "x rounded down")
ceil = _function("ceil", "x rounded up")
round = _function("round", "x rounded to the nearest integer, ties to even")
trunc = _function("trunc", "x rounded towards 0")
abs = _function("abs", "the magnitude, of integers too")
isnan = _function("isnan", "whether x is NaN")
isinf = _function("isinf", "whether x is infinite")


def _constant(name: str, example: str) -> Callable[[Any], Any]:
    def stub(value: Any, /) -> Any:
        _refuse(name)

    stub.__name__ = stub.__qualname__ = name
    stub.__doc__ = f"`T.{name}({example})` is a constant of that dtype."
    return stub


float16 = _constant("float16", "1.0")
bfloat16 = _constant("bfloat16", "1.0")
float32 = _constant("float32", '"inf"')
float64 = _constant("float64", "1.0")
int8 = _constant("int8", "1")
int16 = _constant("int16", "1")
int32 = _constant("int32", "1")
int64 = _constant("int64", "1")
uint8 = _constant("uint8", "1")
bool = _constant("bool", "True")

WORDS: dict[str, Callable[..., Any]] = {
    name: word
    for name, word in list(globals().items())
    if callable(word) and getattr(word, "__doc__", None) and (word.__doc__ or "").startswith("`")
}


def form(name: str) -> str:
    """How a word is written, from its documentation: the text between its first backticks."""
    return (WORDS[name].__doc__ or "").split("`")[1]
