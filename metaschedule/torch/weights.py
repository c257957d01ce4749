"""`Weights`: whether the weights that a graph was compiled with are still there, and as they were.

A model has hundreds and every call asks, so the answer is native and takes microseconds. Looked at are

- which Python objects they are: a weight may be replaced;
- the memory of torch's own objects behind them: a tensor and its storage hold address, shape, strides and
  dtype, and the counter of changes in place (`_version`) stands beside;
- samples of the values: fused optimizers, DLPack, NumPy and `weight.data` write without counting.

All that is compared is raw memory, so nothing has to be known of its layout, except where torch's counter is:
that is tried out once, and where it does not hold, or is not counted (tensors made in inference mode), each
tensor is asked. A change of a few elements behind torch's back can escape the samples: `refresh`.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ..runtime.watch import LINE, MemoryWatch, WatchedObjects

SAMPLES = 4  # cache lines of each weight
HEADER = 16  # bytes of one of torch's objects before what it says: its type, and how often it is referred to
VERSION_COUNTER = "_ZN5torch8autograd4impl15version_counterERKN2at6TensorE"

State = tuple[Any, ...]


class Weights:
    """The tensors at some places of the arguments, as they are now."""

    def __init__(self, args: Sequence[Any], places: Sequence[int]) -> None:
        self.places = list(places)
        self.tensors = [args[i] for i in places]
        self.kept = [t.detach() for t in self.tensors]  # the memory that is looked at must stay
        self.states = [state(t) for t in self.tensors]
        self.samples = [MemoryWatch(list(samples(t))) for t in self.tensors]
        self._contents: list[str] | None = None
        self.known = is_layout_known()
        headers = MemoryWatch([r for t in self.tensors for r in headers_of(t)] if self.known else [])
        every = MemoryWatch([region for watch in self.samples for region in watch.regions])
        self.objects = WatchedObjects(self.places, self.tensors, headers, every)

    def are_same(self, args: list[Any]) -> bool:
        """Whether the arguments have the same weights, unchanged."""
        if not self.known and [state(args[i]) for i in self.places] != self.states:
            return False
        return self.objects.are_same(args)

    def contents(self, digests: Callable[[Sequence[torch.Tensor]], list[str]]) -> list[str]:
        """Digests of the values, made once: they are the same as long as the weights are."""
        if self._contents is None:
            self._contents = digests(self.kept)
        return self._contents

    def find_changed(self, args: Sequence[Any]) -> list[int]:
        """The places of weights that are not as they were. Slow."""
        return [
            place
            for place, old, before, watch in zip(self.places, self.tensors, self.states, self.samples)
            if args[place] is not old or state(old) != before or not watch.is_same()
        ]


def state(tensor: torch.Tensor) -> State:
    """What torch says of a tensor, without looking at its values."""
    version = None if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), version, tensor.shape, tensor.stride(), tensor.dtype


def samples(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Regions that show a change of most elements: cache lines spread from the first to the last."""
    size, item = tensor.numel(), tensor.element_size()
    if not size or tensor.device.type != "cpu":  # changes on a device are seen if torch counts them
        return
    first = tensor.untyped_storage().data_ptr()
    end = first + tensor.untyped_storage().nbytes()
    if tensor.is_contiguous() and size * item <= SAMPLES * LINE:
        yield tensor.data_ptr(), size * item
        return
    lines: dict[int, None] = {}
    for n in range(SAMPLES):
        offset = offset_of(n * (size - 1) // (SAMPLES - 1), tensor.shape, tensor.stride())
        lines[(tensor.data_ptr() + item * offset) // LINE * LINE] = None
    for line in lines:
        start = max(line, first)
        yield start, min(line + LINE, end) - start


def offset_of(number: int, shape: Sequence[int], strides: Sequence[int]) -> int:
    """Where the element of this number, in row-major order, lies.

    >>> offset_of(4, (2, 3), (1, 2))
    3
    """
    offset = 0
    for n, stride in zip(reversed(shape), reversed(strides)):
        offset += number % n * stride
        number //= n
    return offset


def headers_of(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    """The memory of torch's objects that say what and where a tensor is, and how often it was changed."""
    for address in (tensor._cdata, tensor.untyped_storage()._cdata):
        yield address + HEADER, usable_size()(address) - HEADER
    if counter := version_counter(tensor):
        yield counter + HEADER, 4


def version_counter(tensor: torch.Tensor) -> int:
    """The address of torch's counter of changes of a tensor; 0 if there is none."""
    find = counter_of()
    if find is None or tensor.is_inference():
        return 0
    handle = ctypes.c_void_p(tensor._cdata)
    return ctypes.c_void_p.from_address(find(ctypes.addressof(handle))).value or 0


@cache
def usable_size() -> Callable[[int], int]:
    function: Any = ctypes.CDLL(None).malloc_usable_size
    function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_size_t
    return function


@cache
def counter_of() -> Callable[[int], int] | None:
    """torch's function that says where a tensor refers to its counter; None if it is not there."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        function: Any = getattr(library, VERSION_COUNTER)
    except (OSError, AttributeError):
        return None
    function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
    return function


@cache
def is_layout_known() -> bool:
    """Whether torch's objects change in memory exactly when a tensor is changed, as far as can be tried."""
    if counter_of() is None or not hasattr(ctypes.CDLL(None), "malloc_usable_size"):
        return False
    with torch.inference_mode(False), torch.no_grad():
        for make in (lambda: torch.zeros(3, 4), lambda: torch.nn.Parameter(torch.zeros(7))):
            for change in CHANGES:
                tensor = make()
                watch = MemoryWatch(list(headers_of(tensor)))
                other = [tensor, tensor.detach(), tensor.view(-1), tensor + 1, weakref.ref(tensor)]
                if not watch.is_same():
                    return False
                change(tensor)
                if watch.is_same():
                    return False
                del other
    return True


def _replace_data(tensor: torch.Tensor) -> None:
    tensor.data = torch.ones(tensor.shape)


def _resize(tensor: torch.Tensor) -> None:
    tensor.untyped_storage().resize_(0)


CHANGES: tuple[Callable[[torch.Tensor], object], ...] = (
    lambda t: t.add_(1),
    lambda t: t.view(-1)[0].mul_(2),
    _replace_data,
    _resize,
    lambda t: t.unsqueeze_(0),
)
