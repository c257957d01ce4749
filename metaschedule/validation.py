"""Arguments at the edge: checked once, by what is declared.

The annotations of a public function, or of the fields of a primitive, say what it takes; `check_arguments`
and `converters` make checks of them. An integer is an `int` or one of NumPy's that fits 64 bits, never a bool
or a float; a sequence is never a string; `Annotated[int, AtLeast(1)]` bounds a number. What fits is handed on
as plain Python (`np.int64(3)` as 3, a list for a tuple as a tuple); what does not is a `TypeError`, or a
`ValueError` if only the value is wrong, that names the parameter, what it takes and what it got:

>>> @check_arguments
... def repeat(text: str, times: Annotated[int, AtLeast(0)] = 1) -> str:
...     return text * times
>>> repeat("ab", np.int8(2))
'abab'
>>> repeat("ab", 2.0)
Traceback (most recent call last):
    ...
TypeError: repeat: times must be an integer, got 2.0
>>> repeat("ab", times=-1)
Traceback (most recent call last):
    ...
ValueError: repeat: times must be at least 0, got -1
"""

from __future__ import annotations

import functools
import inspect
import os
import random
import re
import reprlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import numpy as np

LOW, HIGH = -(2**63), 2**63 - 1  # of integers: what index arithmetic and SQLite hold
F = TypeVar("F", bound=Callable[..., Any])
Converter = Callable[[Any], Any]


@dataclass(frozen=True)
class AtLeast:
    """The number is not smaller."""

    least: float

    def __str__(self) -> str:
        return f"at least {self.least}"

    def holds(self, value: Any) -> bool:
        return value >= self.least


@dataclass(frozen=True)
class MoreThan:
    """The number is larger."""

    limit: float

    def __str__(self) -> str:
        return f"more than {self.limit}"

    def holds(self, value: Any) -> bool:
        return value > self.limit


@dataclass(frozen=True)
class Within:
    """The number is one of a range, both ends in it."""

    least: float
    most: float

    def __str__(self) -> str:
        return f"from {self.least} to {self.most}"

    def holds(self, value: Any) -> bool:
        return self.least <= value <= self.most


Count: TypeAlias = Annotated[int, AtLeast(0)]
Positive: TypeAlias = Annotated[int, AtLeast(1)]
Threads: TypeAlias = Annotated[int, Within(1, 4096)]
Randomness: TypeAlias = int | random.Random | np.random.Generator  # what `random_numbers` takes


def random_numbers(rng: Randomness) -> random.Random:
    """A source of random numbers: as given, of a seed, or seeded by NumPy's.

    >>> random_numbers(3).random() == random.Random(3).random()
    True
    """
    if isinstance(rng, random.Random):
        return rng
    return random.Random(rng if isinstance(rng, int) else int(rng.integers(HIGH)))


# --- errors ---------------------------------------------------------------------------------------


class Mismatch(Exception):
    """A value that is not what was declared: where in the argument, what was expected, what was got."""

    def __init__(self, expected: str, value: Any, kind: type[Exception] = TypeError) -> None:
        self.path, self.expected, self.value, self.kind = "", expected, value, kind

    def within(self, step: str) -> Mismatch:
        self.path = step + self.path
        return self

    def error(self, where: str, name: str) -> Exception:
        return self.kind(
            f"{where}: {name}{self.path} must be {self.expected}, got {describe_value(self.value)}"
        )


CREDENTIALS = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/?@]*):\S*@", re.IGNORECASE)
SECRETS = re.compile(r"\b((?:ssl)?password)=[^\s&]*", re.IGNORECASE)


def redact(text: str) -> str:
    """A text in a message, without the passwords of the URLs in it.

    >>> redact("postgresql://ann:s3cr/et@host/db"), redact("postgresql://host/db?user=ann&password=x")
    ('postgresql://ann:***@host/db', 'postgresql://host/db?user=ann&password=***')
    """
    return SECRETS.sub(r"\1=***", CREDENTIALS.sub(r"\1:***@", text))


class Short(reprlib.Repr):
    """Python refuses to print very long integers; passwords are nobody's business."""

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(redact(x), level)  # pyright: ignore

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if LOW <= x <= HIGH else f"an integer of {x.bit_length()} bits"


SHORT = Short()
SHORT.maxstring = SHORT.maxother = 60


def describe_value(value: Any) -> str:
    """A value in a message: short, whatever it is, and on one line.

    >>> describe_value([1] * 1000), describe_value(np.zeros((100, 100)))
    ('[1, 1, 1, 1, 1, 1, ...]', 'ndarray of shape (100, 100)')
    """
    if isinstance(value, np.ndarray):
        return f"ndarray of shape {value.shape}"
    return " ".join(SHORT.repr(value).split())


# --- from annotations to checks --------------------------------------------------------------------


def converter(hint: Any) -> Converter:
    """The check of one annotation: gives the value as it is handed on, or raises `Mismatch`."""
    if hint is Any or isinstance(hint, (TypeVar, str)):
        return lambda value: value
    if hint is None:
        hint = type(None)
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(hint, arguments)
    if origin is Annotated:
        return _bounds_converter(converter(arguments[0]), arguments[1:])
    if origin is Literal:
        return _choice(arguments)
    return _structure_converter(hint, origin or hint, arguments)


def _structure_converter(hint: Any, origin: Any, arguments: tuple[Any, ...]) -> Converter:
    if origin is tuple:
        return _tuple(hint, arguments)
    if origin in (list, Sequence, Iterable):
        return _sequence(hint, origin, converter(arguments[0]) if arguments else None)
    if origin in (dict, Mapping):
        return _mapping(hint, *map(converter, arguments))
    if origin is Callable:
        return _instance(hint, callable)
    if getattr(origin, "_is_protocol", False) and not getattr(origin, "_is_runtime_protocol", False):
        return lambda value: value
    if isinstance(origin, type):
        return _instance(hint, lambda value: isinstance(value, origin))
    return lambda value: value


def _integer(value: Any) -> int:
    if type(value) is not int:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise Mismatch("an integer", value)
        value = int(value)
    if not LOW <= value <= HIGH:
        raise Mismatch("an integer from -2**63 to 2**63 - 1", value, ValueError)
    return value


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise Mismatch("a number", value)
    return _integer(value) if isinstance(value, (int, np.integer)) else float(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise Mismatch("True or False", value)
    return bool(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Mismatch("a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: neither files nor databases take it
        raise Mismatch("a string that UTF-8 can hold", value, ValueError) from None
    return str(value)


def _none(value: Any) -> None:
    if value is not None:
        raise Mismatch("None", value)


_PLAIN: dict[Any, Converter] = {
    int: _integer, float: _float, bool: _bool, str: _string, type(None): _none, object: lambda value: value
}  # fmt: skip


def _union(hint: Any, options: tuple[Any, ...]) -> Converter:
    checks = [(option, converter(option)) for option in options]
    exact = {option: check for option, check in checks if isinstance(option, type)}
    names_files = any((get_origin(option) or option) is os.PathLike for option in options)

    def convert(value: Any) -> Any:
        if names_files and isinstance(value, str) and "\0" in value:
            raise Mismatch("a path, which holds no NUL", value, ValueError)
        if (check := exact.get(type(value))) is not None:
            return check(value)
        closest: Mismatch | None = None
        for _, check in checks:
            try:
                return check(value)
            except Mismatch as mismatch:
                if mismatch.kind is ValueError or mismatch.path:  # the right kind, but for a part of it
                    closest = mismatch
        raise closest or Mismatch(describe_hint(hint), value)

    return convert


def _bounds_converter(inner: Converter, bounds: tuple[Any, ...]) -> Converter:
    limits = [bound for bound in bounds if hasattr(bound, "holds")]

    def convert(value: Any) -> Any:
        value = inner(value)
        for limit in limits:
            if value is not None and not limit.holds(value):
                raise Mismatch(str(limit), value, ValueError)
        return value

    return convert


def _choice(options: tuple[Any, ...]) -> Converter:
    def convert(value: Any) -> Any:
        if not any(type(value) is type(option) and value == option for option in options):
            raise Mismatch("one of " + ", ".join(map(repr, options)), value, ValueError)
        return value

    return convert


def _items(hint: Any, value: Any) -> Sequence[Any]:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return value.tolist()
    if isinstance(value, (str, bytes, bytearray)) or not isinstance(value, (tuple, list, Sequence)):
        raise Mismatch(describe_hint(hint), value)
    return value


def _tuple(hint: Any, arguments: tuple[Any, ...]) -> Converter:
    every = converter(arguments[0]) if len(arguments) == 2 and arguments[1] is Ellipsis else None
    single = [] if every else list(map(converter, arguments))

    def convert(value: Any) -> tuple[Any, ...]:
        items = _items(hint, value)
        if every is _float and set(map(type, items)) == {float}:  # hundreds, in each record
            return tuple(items)
        if every is None and arguments and len(items) != len(single):
            raise Mismatch(describe_hint(hint), value)
        checks = [every] * len(items) if every else single or [lambda item: item] * len(items)
        return tuple([_item(check, item, at) for at, (check, item) in enumerate(zip(checks, items))])

    return convert


def _sequence(hint: Any, origin: Any, check: Converter | None) -> Converter:
    def convert(value: Any) -> Any:
        if origin is Iterable and not isinstance(value, (str, bytes, Mapping)):
            try:
                value = list(value)
            except TypeError:
                raise Mismatch(describe_hint(hint), value) from None
        items = _items(hint, value)
        return list(items) if check is None else [_item(check, item, at) for at, item in enumerate(items)]

    return convert


def _mapping(hint: Any, key: Converter | None = None, item: Converter | None = None) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Mismatch(describe_hint(hint), value)
        if key is None or item is None:
            return value
        return {_item(key, k, k): _item(item, v, k) for k, v in value.items()}

    return convert


def _item(check: Converter, item: Any, at: Any) -> Any:
    try:
        return check(item)
    except Mismatch as mismatch:
        raise mismatch.within(f"[{describe_value(at)}]") from None


def _instance(hint: Any, holds: Callable[[Any], bool]) -> Converter:
    def convert(value: Any) -> Any:
        if not holds(value):
            raise Mismatch(describe_hint(hint), value)
        return value

    return convert


WORDS = {int: "an integer", float: "a number", bool: "True or False", str: "a string", type(None): "None"}


def describe_hint(hint: Any) -> str:
    """An annotation in words.

    >>> describe_hint(tuple[int | None, ...]), describe_hint(Annotated[int, AtLeast(1)] | None)
    ('a sequence of (an integer or None)', 'an integer or None')
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in WORDS:
        return WORDS[hint]
    if origin in (Union, types.UnionType):
        *first, last = [describe_hint(option) for option in arguments]
        return f"{', '.join(first)} or {last}"
    if origin is Annotated:
        return describe_hint(arguments[0])
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return f"{len(arguments)} values, ({', '.join(map(describe_hint, arguments))})"
    if origin in (tuple, list, Sequence, Iterable):
        inner = describe_hint(arguments[0])
        return f"a sequence of {f'({inner})' if ' or ' in inner else inner}"
    if origin in (dict, Mapping):
        return f"a mapping of {describe_hint(arguments[0])} to {describe_hint(arguments[1])}"
    if origin is Callable:
        return "a function"
    return "anything" if hint is Any else getattr(origin or hint, "__name__", str(hint))


# --- functions and classes --------------------------------------------------------------------------


@functools.cache
def converters(owner: Any) -> dict[str, Converter]:
    """The checks of a function's parameters, or of a class's fields, by name."""
    classes = reversed(owner.__mro__) if isinstance(owner, type) else [owner]
    return {
        name: converter(evaluate_hint(hint, one))
        for one in classes
        for name, hint in inspect.get_annotations(one).items()
        if name != "return"
    }


def evaluate_hint(hint: Any, owner: Any) -> Any:
    """An annotation, of which most are text; `Any` if it speaks of names that are not there when programs
    run, as those of a function that the class is defined in."""
    try:
        return eval(hint, vars(sys.modules[owner.__module__])) if isinstance(hint, str) else hint
    except NameError:
        return Any


def convert(check: Converter, value: Any, where: str, name: str) -> Any:
    """A value as it is handed on; raises `TypeError` or `ValueError`."""
    try:
        return check(value)
    except Mismatch as mismatch:
        raise mismatch.error(where, name) from None


def check_arguments(function: F) -> F:
    """The function with its arguments checked against its annotations."""
    parameters = inspect.signature(function).parameters.values()
    single = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    several = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    named = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
    where = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        checks = converters(function)
        given: list[Any] = []
        for at, value in enumerate(args):
            name = single[at] if at < len(single) else several
            check = checks.get(name) if name is not None else None
            if check is not None:
                try:
                    value = check(value)
                except Mismatch as mismatch:
                    place = name if at < len(single) else f"{name}[{at - len(single)}]"
                    raise mismatch.error(where, str(place)) from None
            given.append(value)
        for name, value in kwargs.items():
            check = checks.get(name) or (checks.get(named) if named else None)
            if check is not None:
                kwargs[name] = convert(check, value, where, name)
        return function(*given, **kwargs)

    return call  # pyright: ignore[reportReturnType]
