"""Tensors: placeholders, embedded tables and the results of stages.

A `Tensor` is an `ir.Buffer` that knows the stage computing it, so `A[i, j]` is an ordinary
`ir.Load` and every operator and function on expressions works on it. `te.program` replaces tensors
by plain buffers: a finished program knows nothing of tensor expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from .. import ir
from ..validation import check_arguments

if TYPE_CHECKING:
    from .reduction import Reduction


class Bounds(NamedTuple):
    """A variable that a stage reduces over: `extent` values from `low`."""

    var: ir.Var
    low: ir.Expr
    extent: ir.Expr


@dataclass(eq=False, slots=True)
class Stage:
    """One block to be: `values` for every point of `indices`, combined over `axes` by `reduction`.

    `tensors` are its results, one per value. The values hold plain `ir` expressions only.
    """

    name: str
    indices: tuple[ir.Var, ...]
    shape: tuple[int, ...]
    values: tuple[ir.Expr, ...]
    axes: tuple[Bounds, ...] = ()
    reduction: Reduction | None = None
    tensors: tuple[Tensor, ...] = ()


class Tensor(ir.Buffer):
    """What `placeholder`, `table` and `compute` give: read an element with `A[i, j]`."""

    __slots__ = ("stage",)

    def __init__(
        self,
        name: str,
        shape: Any,
        dtype: str = "float32",
        constant: bool = False,
        data: np.ndarray | None = None,
        stage: Stage | None = None,
        layout: ir.Layout | None = None,
    ) -> None:
        super().__init__(name, shape, dtype, "global", constant, data, layout)
        self.stage = stage

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_placeholder(self) -> bool:
        return self.stage is None and self.data is None

    def __getitem__(self, indices: Any) -> ir.Load:
        element = ir.load(self, indices)
        return ir.Load(self, tuple([ir.cast(index, ir.INDEX) for index in element.indices]))

    def __repr__(self) -> str:
        return f"<tensor {self.name}: {self.dtype}{list(self.shape)}, elements are {self.element}>"

    @property
    def element(self) -> str:
        """How to read one element, for messages: `A[i0, i1]`."""
        return f"{self.name}[{', '.join(f'i{n}' for n in range(self.ndim)) or '()'}]"

    def _forgot_index(self, *_: Any) -> NoReturn:
        raise TypeError(
            f"{self.name} is a tensor of {self.ndim} dimension(s), and expressions are made of its "
            f"elements: index it, {self.element}"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _forgot_index
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _forgot_index
    __pow__ = __rpow__ = __neg__ = __abs__ = __and__ = __or__ = __xor__ = __invert__ = _forgot_index
    __lt__ = __le__ = __gt__ = __ge__ = __iter__ = _forgot_index


def check_extents(shape: Any, name: str) -> tuple[int, ...]:
    """A shape of known integers; anything else is refused with what to do instead."""
    if isinstance(shape, (int, np.integer, ir.Const)) and not isinstance(shape, bool):
        shape = (shape,)
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"{name}: the shape must be a tuple of integers{dynamic(shape)}")
    return tuple([check_extent(extent, f"{name}: an extent") for extent in shape])


def check_extent(extent: Any, what: str) -> int:
    if isinstance(extent, ir.Const):
        extent = extent.value
    if isinstance(extent, bool) or not isinstance(extent, (int, np.integer)):
        raise TypeError(f"{what} must be a known integer{dynamic(extent)}")
    if extent < 0:
        raise ValueError(f"{what} must not be negative, got {extent}")
    return int(extent)


def dynamic(got: Any) -> str:
    text = f"`{got}`" if isinstance(got, ir.Expr) else repr(got)
    return f", got {text}; dynamic shapes are not supported: make one program per shape"


@check_arguments
def placeholder(
    shape: Any,
    dtype: str = "float32",
    name: str = "x",
    constant: bool = False,
    *,
    layout: ir.Layout | None = None,
) -> Tensor:
    """A parameter of the program; `constant` if its values are known at build time (weights).

    Arrays with the strides of `layout` are then passed as they are: parts of others, transposed ones. Its
    offset is not part of the program: the array says where it begins.

    >>> placeholder((4, 8), name="A")
    <tensor A: float32[4, 8], elements are A[i0, i1]>
    >>> placeholder(("n", 784), name="A")
    Traceback (most recent call last):
        ...
    TypeError: A: an extent must be a known integer, got 'n'; dynamic shapes are not supported: \
make one program per shape
    """
    return Tensor(name, check_extents(shape, name), ir.check_dtype(dtype), constant, layout=layout)


@check_arguments
def table(values: Any, dtype: str | None = None, name: str = "table") -> Tensor:
    """A small array whose values are part of the program.

    >>> print(table([2, 3, 5], "int32", name="primes")[1] + 1)
    primes[1] + 1
    """
    kind = None if dtype is None else ir.numpy_dtype(ir.check_dtype(dtype))
    try:
        array = np.asarray(values, kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"table {name}: values must be an array of numbers: {error}") from None
    if dtype is None and array.dtype == np.float64 and not isinstance(values, np.ndarray):
        array = array.astype(np.float32)  # as for a bare float: see ir.dtypes.literal_dtype
    array = np.array(array, order="C")  # ours: later changes of the caller's array do not count
    array.setflags(write=False)
    return Tensor(name, array.shape, ir.check_dtype(array.dtype), data=array)


@check_arguments
def constant(value: Any, dtype: str | None = None, name: str = "table") -> Any:
    """A constant: of a number an expression, of a sequence or array an embedded table.

    >>> constant(1, "float16").dtype, constant([1.0, 2.0]).shape
    ('float16', (2,))
    """
    if isinstance(value, (bool, int, float, np.generic)):
        return ir.const(value, dtype)
    return table(value, dtype, name)
