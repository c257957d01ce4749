"""What a kernel can fail at, and the exceptions that say so.

A kernel checks what could not be proved when it was compiled. When a check fails it stops, touches no memory
that is not its own, and returns the number of the check; what its outputs hold then is undefined.
`except KernelError` catches every such failure.
"""

from __future__ import annotations

from dataclasses import dataclass

ASSERTION, INDEX, DIVISION = "assertion", "index", "division"


class KernelError(RuntimeError):
    """A kernel could not go on: these inputs have no result. `kernel` is its name."""

    kernel: str = ""


class KernelAssertion(KernelError, AssertionError):
    """An assertion of the program did not hold while the kernel ran."""


class KernelIndexError(KernelError, IndexError):
    """An index that the kernel loaded or computed is outside of a buffer. `index` is its value."""

    index: int = 0


class KernelDivisionError(KernelError, ZeroDivisionError):
    """An integer was divided by zero."""


EXCEPTIONS = {ASSERTION: KernelAssertion, INDEX: KernelIndexError, DIVISION: KernelDivisionError}


@dataclass(frozen=True)
class Failure:
    """A check of a kernel: its kind, and what is the matter where it fails.

    >>> str(Failure("out of range for axis 0 of W, which has extent 5: W[I[i], j]", "index"))
    'an index is out of range for axis 0 of W, which has extent 5: W[I[i], j]'
    """

    message: str
    kind: str = ASSERTION

    def __post_init__(self) -> None:
        if self.kind not in EXCEPTIONS:
            raise ValueError(f"the kind of a failure is one of {', '.join(EXCEPTIONS)}, got {self.kind!r}")

    def __str__(self) -> str:
        if self.kind == INDEX:
            return f"an index is {self.message}"
        return self.message or "an assertion failed"

    def exception(self, kernel: str, value: int) -> KernelError:
        """What the caller of a kernel of this name gets. `value` is the index, of a wrong one."""
        if self.kind == INDEX:
            error: KernelError = KernelIndexError(f"{kernel}: index {value} is {self.message}")
            assert isinstance(error, KernelIndexError)
            error.index = value
        else:
            error = EXCEPTIONS[self.kind](f"{kernel}: {self}")
        error.kernel = kernel
        return error
