"""Tensors of ONNX and NumPy as torch's and back; dtypes by ONNX's numbers; what of a tensor is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from .errors import InvalidModel, Unsupported, ValueNeeded

DTYPES: dict[int, torch.dtype] = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.DOUBLE: torch.float64,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.INT8: torch.int8,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    TensorProto.UINT8: torch.uint8,
    TensorProto.UINT16: torch.uint16,
    TensorProto.UINT32: torch.uint32,
    TensorProto.UINT64: torch.uint64,
    TensorProto.BOOL: torch.bool,
    TensorProto.FLOAT8E4M3FN: torch.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: torch.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}

# NumPy's dtypes that torch does not share memory with: the same bits under another name.
FOREIGN: dict[torch.dtype, np.dtype] = {
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float8_e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
    torch.float8_e4m3fnuz: np.dtype(ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
    torch.float8_e5m2fnuz: np.dtype(ml_dtypes.float8_e5m2fnuz),
}
TORCH_OF_FOREIGN = {theirs: ours for ours, theirs in FOREIGN.items()}
BITS = {1: (np.uint8, torch.uint8), 2: (np.uint16, torch.uint16)}
FLOAT8 = frozenset(d for d in DTYPES.values() if d.is_floating_point and d.itemsize == 1)


def dtype_of(number: int) -> torch.dtype:
    """
    >>> dtype_of(TensorProto.FLOAT)
    torch.float32
    """
    if number not in DTYPES:
        raise Unsupported(f"tensors of {number_name(number)} are not supported")
    return DTYPES[number]


def number_name(number: int) -> str:
    try:
        return TensorProto.DataType.Name(number)
    except ValueError:
        return f"dtype {number}"


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def from_numpy(array: np.ndarray) -> torch.Tensor:
    """A tensor with the elements of an array; shares its memory where the array is contiguous."""
    array = np.asarray(array)
    if array.dtype.byteorder not in ("=", "|") or any(stride < 0 for stride in array.strides):
        array = array.astype(array.dtype.newbyteorder("="))
    array = array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(array.shape)
    if not array.flags.writeable:  # torch warns of such memory; nothing of ours writes to it
        array = array.copy()
    if array.dtype in TORCH_OF_FOREIGN:
        bits, ours = BITS[array.dtype.itemsize]
        return torch.from_numpy(array.view(bits)).view(TORCH_OF_FOREIGN[array.dtype])
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise Unsupported(f"arrays of {array.dtype} are not supported") from None


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().contiguous()
    if tensor.dtype in FOREIGN:
        return tensor.view(BITS[tensor.dtype.itemsize][1]).numpy().view(FOREIGN[tensor.dtype])
    return tensor.numpy()


def from_proto(proto: onnx.TensorProto, directory: str = "") -> torch.Tensor:
    """An initialiser or a constant; external data are read from `directory`."""
    dtype_of(proto.data_type)
    try:
        return from_numpy(numpy_helper.to_array(proto, directory))
    except (ValueError, OSError, TypeError, RuntimeError, onnx.checker.ValidationError) as why:
        raise InvalidModel(f"the tensor {proto.name!r} cannot be read: {why}") from why


def from_sparse(proto: onnx.SparseTensorProto) -> torch.Tensor:
    """A sparse constant, written out."""
    values, indices = from_proto(proto.values), from_proto(proto.indices)
    dense = torch.zeros(list(proto.dims), dtype=values.dtype)
    if indices.ndim == 2:
        dense[tuple(indices.T)] = values
    else:
        dense.view(-1)[indices] = values
    return dense


def is_known(value: Any) -> bool:
    """Whether the values of a tensor, or of all in a sequence, are known now."""
    if isinstance(value, (list, tuple)):
        return all(map(is_known, value))
    return not isinstance(value, FakeTensor)


def read(tensor: torch.Tensor, what: str) -> Any:
    """The values of a tensor as Python's numbers: nested lists, or one number of a scalar."""
    if not is_known(tensor):
        raise ValueNeeded(tensor, what)
    with _disable_current_modes():
        return tensor.tolist()


def constant(values: Any, dtype: torch.dtype) -> torch.Tensor:
    """A tensor that is known, also while a model is traced."""
    with _disable_current_modes():
        return (
            torch.tensor(values, dtype=dtype)
            if not isinstance(values, np.ndarray)
            else (from_numpy(values).to(dtype))
        )


def ints(tensor: torch.Tensor, what: str) -> list[int]:
    """The values of a vector, or of a scalar, as integers."""
    found = read(tensor, what)
    return [int(n) for n in found] if isinstance(found, list) else [int(found)]


def number(tensor: torch.Tensor, what: str) -> Any:
    """The value of a tensor with one element."""
    found = read(tensor, what)
    while isinstance(found, list):
        if len(found) != 1:
            raise InvalidModel(f"{what} must be one number, not {found}")
        found = found[0]
    return found


def axes_of(axes: Sequence[int], rank: int) -> list[int]:
    """Axes counted from the front.

    >>> axes_of([-1, 0], 3)
    [2, 0]
    """
    for axis in axes:
        if not -rank <= axis < rank:
            raise InvalidModel(f"axis {axis} of a tensor with {rank} dimensions")
    return [axis % rank for axis in axes]
