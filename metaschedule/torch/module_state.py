"""`ModuleState`: whether a model still is what it was when it was traced.

A model is a tree of modules, and all that a module holds stands in dictionaries: its attributes, parameters,
buffers, children and hooks, and those of its class. Attributes may be lists, dictionaries and objects in turn
(a configuration), which hold something themselves. CPython counts the changes of a dictionary in the
dictionary itself, and a list is its length and an array; so "nothing has been replaced, switched to training
or hooked" is a native comparison of a few bytes for each of them. A difference (somebody has set some
attribute) is then looked into by comparing what they hold.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from ..runtime.watch import MemoryWatch, WatchedObjects

COUNT = 16  # where a dictionary has its length and the number of its last change, a list length and address
COUNTED = 16  # bytes of both
CONTENTS = ("_parameters", "_buffers", "_modules")  # replaced only where there is something
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
TORCHS = frozenset(vars(torch.nn.Module())) - {"training"}  # attributes that every module has
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
OPAQUE = (type, torch.Tensor, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
LONGEST = 1024  # list, dictionary or set that is looked into
NOTHING: Mapping[int, Any] = {}
MOST = 20_000  # lists, dictionaries and objects


class Plain:
    """Has attributes and nothing else."""


Holding = tuple[str, dict[Any, Any]]  # of what kind, and what it has: by name, or by place


class ModuleState:
    """What the modules of a model hold now. What is neither plain, nor a list, dictionary, set or object with
    attributes is taken to be what it is: only another one in its place is noticed.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    >>> state = ModuleState(model)
    >>> state.is_same()
    True
    >>> _ = model.eval()
    >>> state.is_same()
    False
    >>> state.changes()
    ['training']
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self._remember(Walk(model))

    def _remember(self, walk: Walk) -> None:
        self.held, self.sets = walk.held, walk.sets
        found = {id(v): v for _, had in self.held for v in had.values() if isinstance(v, torch.Tensor)}
        self.tensors: list[torch.Tensor] = list(found.values())
        self._holders = [*walk.dictionaries, *walk.lists]  # the memory that is looked at must stay
        headers = MemoryWatch([(id(one) + COUNT, COUNTED) for one in self._holders])
        items = MemoryWatch([items_of(one) for one in walk.lists])
        self._watch = WatchedObjects([], [], headers, items) if is_change_counted() else None

    def is_same(self) -> bool:
        unchanged = self._watch is not None and self._watch.are_same([])
        if unchanged and all(set(one) == had for one, had in self.sets):
            return True
        walk = Walk(self.model)
        if next(differences(walk.held, self.held), None) is not None:
            return False
        self._remember(walk)  # something was set to what it was
        return True

    def changes(self, stands_for: Mapping[int, Any] = NOTHING) -> list[str]:
        """The names of what is other than it was, if objects are taken for what they stand for, by id
        (weights, while a model is traced). Weak references hold nothing."""
        now, before = without_weak(Walk(self.model).held), without_weak(self.held)
        return list(dict.fromkeys(map(str, differences(now, before, stands_for))))

    def forget(self) -> None:
        """Be different from now on."""
        self.held, self._watch = [], None


class Walk:
    """All that holds something, in the order in which it is met: `held` says what."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.held: list[Holding] = []
        self.dictionaries: list[dict[Any, Any]] = []
        self.lists: list[list[Any]] = []
        self.sets: list[tuple[set[Any], set[Any]]] = []
        self.seen: dict[int, Any] = {}  # by id, which is theirs as long as they are here
        for module in model.modules():
            self.add_module(module)
        for _, had in self.held:  # which grows
            for name, value in list(had.items()):
                if name not in TORCHS:
                    self.add(value)

    def add_module(self, module: torch.nn.Module) -> None:
        if self.is_known(module):
            return
        attributes = vars(module)
        self.add_dictionary(attributes)
        for name in (*CONTENTS, *HOOKS):
            if attributes[name] or name in HOOKS:
                self.add_dictionary(attributes[name])
        for one in type(module).__mro__[:-1]:
            if not self.is_known(one):
                self.dictionaries.append(dictionary_of(one))
                shown = {k: v for k, v in vars(one).items() if k == "__call__" or not k.startswith("__")}
                self.held.append((one.__name__, shown))

    def add(self, value: Any) -> None:
        """What an attribute has, if it may change within."""
        if isinstance(value, tuple):
            for item in value:
                self.add(item)
        elif isinstance(value, torch.nn.Module):
            for module in value.modules() if id(value) not in self.seen else ():
                self.add_module(module)
        elif len(self.held) < MOST and is_looked_into(value) and not self.is_known(value):
            if isinstance(value, dict):
                self.add_dictionary(value)
            elif isinstance(value, list):
                self.lists.append(value)
                self.held.append(("list", dict(enumerate(value))))
            elif isinstance(value, set):
                self.sets.append((value, set(value)))
                self.held.append(("set", dict.fromkeys(value)))
            else:
                self.add_dictionary(vars(value))

    def add_dictionary(self, one: dict[Any, Any]) -> None:
        self.seen[id(one)] = one
        self.dictionaries.append(one)
        self.held.append(("dict", dict(one)))

    def is_known(self, value: Any) -> bool:
        known = id(value) in self.seen
        self.seen[id(value)] = value
        return known


def is_looked_into(value: Any) -> bool:
    if isinstance(value, (dict, list, set)):
        return type(value).__module__ != "torch" and len(value) <= LONGEST
    if isinstance(value, (*PLAIN, *OPAQUE)):
        return False
    small = type(value).__basicsize__ <= Plain.__basicsize__  # no slots, no state of C
    own = type(value).__module__ != "builtins"
    return small and own and isinstance(getattr(value, "__dict__", None), dict)


def without_weak(held: list[Holding]) -> list[Holding]:
    return [(kind, {k: v for k, v in had.items() if not isinstance(v, weakref.ref)}) for kind, had in held]


def differences(
    now: list[Holding], before: list[Holding], stands_for: Mapping[int, Any] = NOTHING
) -> Iterator[Any]:
    """The names of what is not the same."""
    if len(now) != len(before):
        yield "how much there is"
    for (kind, has), (old_kind, had) in zip(now, before):
        if kind != old_kind or has.keys() != had.keys():
            yield from has.keys() ^ had.keys() or [kind]
        for name in has.keys() & had.keys():
            if not is_same_value(has[name], had[name], name, stands_for):
                yield name


def is_same_value(a: Any, b: Any, name: Any = "", stands_for: Mapping[int, Any] = NOTHING) -> bool:
    """Whether two values are the same object, or equal. Lists, dictionaries and objects may be others, since
    what they hold is compared by itself: exporting puts equal ones in their places.

    >>> is_same_value(1.5, 3 / 2), is_same_value(1, True), is_same_value((1, 2), (1, 3))
    (True, False, False)
    >>> is_same_value([1], [2])
    True
    """
    a, b = stands_for.get(id(a), a), stands_for.get(id(b), b)
    if a is b:
        return True
    if type(a) is not type(b) or name in TORCHS:
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(is_same_value(x, y, "", stands_for) for x, y in zip(a, b))
    if isinstance(a, PLAIN):
        return a == b and (a != 0 or str(a) == str(b))  # zeros have signs
    return not isinstance(a, torch.nn.Module) and is_looked_into(a) and is_looked_into(b)


def dictionary_of(owner: type) -> dict[str, Any]:
    """That behind the mapping which a class shows."""
    return next(one for one in gc.get_referents(vars(owner)) if isinstance(one, dict))


def items_of(one: list[Any]) -> tuple[int, int]:
    """The memory of a list's references."""
    return ctypes.c_void_p.from_address(id(one) + COUNT + 8).value or 0, 8 * len(one)


@cache
def is_change_counted() -> bool:
    """Whether dictionaries and lists change in memory exactly when what they hold does, as far as can be
    tried."""

    class Holder:
        def __init__(self) -> None:
            self.a = 1

    class Other:
        a = 1

    for one in ({"a": 1}, OrderedDict(a=1), vars(Holder())):
        if not is_noticed(lambda value, one=one: one.update(a=value), one):
            return False
    several: list[Any] = [1, 2]
    return is_noticed(lambda value: setattr(Other, "a", value), dictionary_of(Other)) and is_noticed(
        lambda value: several.__setitem__(0, value), several
    )


def is_noticed(change: Any, one: dict[Any, Any] | list[Any]) -> bool:
    def look() -> WatchedObjects:
        items = [items_of(one)] if isinstance(one, list) else []
        return WatchedObjects([], [], MemoryWatch([(id(one) + COUNT, COUNTED)]), MemoryWatch(items))

    watch = look()
    _ = list(one), len(one), one.copy()
    if not watch.are_same([]):
        return False
    for value in (2, 1):
        change(value)
        if watch.are_same([]):
            return False
        watch = look()
    return True
