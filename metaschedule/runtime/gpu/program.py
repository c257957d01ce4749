"""`DeviceProgram`: what the code generator for GPUs hands to the runtime. Pure data; it crosses processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from metaschedule.target import Target

from ..failure import Failure, KernelError
from ..kernel import ArgSpec, Values

ALIGNMENT = 512  # bytes, of memory for kernels within larger memory: no OpenCL device asks for more
Place = tuple[str, int]  # ("argument", n) of inputs and outputs, or ("temporary", n)


def align(n: int) -> int:
    """`n` rounded up to the alignment.

    >>> align(0), align(1), align(512)
    (0, 512, 512)
    """
    return -(-n // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Temporary:
    """Memory of the device that kernels of one call pass values through."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class Launch:
    """One kernel: how many blocks of how many threads, and what its parameters are. The last parameter of
    every kernel besides these is `status`, four integers of 32 bits: the number of the check that failed, and
    from the third on the index that it was about, in 64."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    places: tuple[Place, ...]
    shared_bytes: int = 0


@dataclass(frozen=True, repr=False)
class DeviceProgram:
    """A program as text of kernels in every dialect ("opencl", "cuda"), and the launches in order."""

    name: str
    target: Target
    inputs: tuple[ArgSpec, ...]
    outputs: tuple[ArgSpec, ...]
    sources: Mapping[str, str]
    launches: tuple[Launch, ...]
    temporaries: tuple[Temporary, ...] = ()
    failures: tuple[Failure, ...] = ()
    values: tuple[tuple[str, Values], ...] = ()

    @property
    def params(self) -> tuple[ArgSpec, ...]:
        return self.inputs + self.outputs

    @property
    def offsets(self) -> list[int]:
        """Where temporaries lie, if they are one behind the other."""
        return list(accumulate([align(t.nbytes) for t in self.temporaries], initial=0))[:-1]

    def workspace_bytes(self, threads: int = 1) -> int:
        """The bytes of all temporaries."""
        return sum([align(t.nbytes) for t in self.temporaries])

    def error_of(self, status: int, value: int) -> Exception:
        """What it means that a call left this status and value."""
        if 0 < status <= len(self.failures):
            return self.failures[status - 1].exception(self.name, value)
        return KernelError(f"{self.name}: a kernel left status {status}, which means nothing")

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values, for `json.dumps`."""
        return asdict(self) | {"target": self.target.to_json(), "sources": dict(self.sources)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> DeviceProgram:
        """The program that `to_json` wrote."""
        try:
            launches = tuple(
                Launch(
                    entry["kernel"],
                    tuple(entry["grid"]),
                    tuple(entry["block"]),
                    tuple((kind, n) for kind, n in entry["places"]),
                    entry["shared_bytes"],
                )
                for entry in data["launches"]
            )
            values = dict(data) | {
                "inputs": tuple(ArgSpec(**entry) for entry in data["inputs"]),
                "outputs": tuple(ArgSpec(**entry) for entry in data["outputs"]),
                "target": Target.from_json(data["target"]),
                "launches": launches,
                "temporaries": tuple(Temporary(**entry) for entry in data["temporaries"]),
                "failures": tuple(Failure(**entry) for entry in data["failures"]),
                "values": tuple((name, Values(**entry)) for name, entry in data["values"]),
            }
            return DeviceProgram(**values)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a program for a GPU: {error}") from error
