"""What a primitive is: a small class whose fields are its operands.

`check` reads the state and raises `ScheduleError` or gives a plan; `apply` carries the plan out and
cannot fail. Everything else comes from the fields: the text and the JSON of an instruction, replay,
`Schedule.can`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from operator import is_
from types import FunctionType
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from ...validation import check_arguments, convert, converters, describe_value
from ..state import State


class Handle:
    """Stands for a loop, a block or a drawn number in every schedule that made it."""

    __slots__ = ("number",)
    letter: ClassVar[str] = "x"

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"{self.letter}{self.number}"


class LoopRV(Handle):
    __slots__ = ()
    letter = "l"


class BlockRV(Handle):
    __slots__ = ()
    letter = "b"


class ExprRV(Handle):
    """A number drawn by a sampling primitive."""

    __slots__ = ()
    letter = "v"


class Primitive:
    """Base of all primitives. `op` is the name in traces and of the method of `Schedule`."""

    __slots__ = ()
    op: ClassVar[str]
    names: ClassVar[tuple[str, ...]]  # of the fields
    defaults: ClassVar[dict[str, Any]]  # of those that have one
    is_query: ClassVar[bool]  # it changes nothing

    def check(self, s: State) -> Any:
        """What `apply` needs to know; raises `ScheduleError` if the step would be wrong."""
        raise NotImplementedError

    def apply(self, s: State, plan: Any) -> tuple[Any, ...]:
        """Edit the state; gives what the output handles stand for."""
        raise NotImplementedError

    def operands(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.names])

    def check_operands(self) -> Self:
        """The same with operands of the types that the fields declare; `TypeError` or `ValueError` if they
        are not."""
        checks, before = converters(type(self)), self.operands()
        after = [convert(checks[n], v, self.op, n) for n, v in zip(self.names, before)]
        return self if all(map(is_, before, after)) else type(self)(*after)

    def given_operands(self) -> dict[str, Any]:
        """The operands that are not what they are by default."""
        every = zip(self.names, self.operands())
        known = self.defaults
        return {n: v for n, v in every if n not in known or type(v) is not type(known[n]) or v != known[n]}

    def __repr__(self) -> str:
        return (
            f"{self.op}({', '.join(f'{n}={print_operand(v)}' for n, v in zip(self.names, self.operands()))})"
        )


class Steps:
    """Base of the families of methods that make up `Schedule`: one typed method per primitive, whose
    arguments are checked by their types."""

    state: State

    def __init_subclass__(cls) -> None:
        if Steps in cls.__bases__:  # a family; `Schedule` itself has methods that replays call
            for name, method in list(vars(cls).items()):
                if isinstance(method, FunctionType) and not name.startswith("_"):
                    setattr(cls, name, check_arguments(method))

    def run(self, primitive: Primitive) -> tuple[Any, ...]:
        """Check a primitive, carry it out, record it; gives the handles of its results."""
        raise NotImplementedError

    def sample(self, distribution: Any, decision: Any = None) -> tuple[Any, ...]:
        """Draw from a distribution, or take a decision; gives the handles of the numbers."""
        raise NotImplementedError


REGISTRY: dict[str, type[Primitive]] = {}
P = TypeVar("P", bound=type)


@dataclass_transform()
def primitive(op: str) -> Callable[[P], P]:
    """Register a class as the primitive `op`: the one place where its name is spelled."""

    def register(cls: P) -> P:
        made: Any = dataclass(slots=True, eq=False, repr=False)(cls)
        made.op, made.is_query = op, op.startswith("get_")
        made.names = tuple(f.name for f in fields(made))
        made.defaults = {f.name: f.default for f in fields(made) if f.default is not MISSING}
        if op in REGISTRY:
            raise ValueError(f"primitive {op!r} is registered already")
        REGISTRY[op] = made
        return made

    return register


def print_operand(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return describe_value(value)


def map_handles(value: Any, f: Callable[[Handle], Any]) -> Any:
    """An operand with its handles replaced."""
    if isinstance(value, Handle):
        return f(value)
    if isinstance(value, (tuple, list)):
        return tuple([map_handles(v, f) for v in value])
    return value
