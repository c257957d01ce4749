"""`ModuleState`: whether a model still is what it was when it was traced.

A model is a tree of modules, and all that a module holds stands in dictionaries: its attributes, parameters,
buffers, children and hooks. CPython counts the changes of a dictionary in the dictionary itself, so "nothing
has been replaced, switched to training or hooked" is a native comparison of 16 bytes for each of them; a
difference (somebody has set some attribute) is then looked into by comparing what they hold.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from ..runtime.watch import Watch

USED = 16  # where CPython has a dictionary's length, and behind it the number of its last change
COUNTED = 16  # bytes of both
CONTENTS = ("_parameters", "_buffers", "_modules")  # replaced only where there is something
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


class ModuleState:
    """What the modules of a model hold now. Lists, dictionaries and objects that are attributes are taken to
    be what they are: only another one in their place is noticed.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    >>> state = ModuleState(model)
    >>> state.is_same()
    True
    >>> _ = model.eval()
    >>> state.is_same()
    False
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.held = [dict(one) for one in dictionaries(model)]
        self.watch = self._watch()

    def _watch(self) -> Watch | None:
        if not is_change_counted():
            return None
        return Watch([(id(one) + USED, COUNTED) for one in dictionaries(self.model)])

    def is_same(self) -> bool:
        if self.watch is not None and self.watch.is_same():
            return True
        now = list(dictionaries(self.model))
        if len(now) != len(self.held) or not all(map(hold_same, now, self.held)):
            return False
        self.watch = self._watch()  # something was set to what it was
        return True

    def tensors(self) -> list[torch.Tensor]:
        """Every parameter and buffer, and every tensor that is a plain attribute, once."""
        found = {id(v): v for one in self.held for v in one.values() if isinstance(v, torch.Tensor)}
        return list(found.values())


def dictionaries(model: torch.nn.Module) -> Iterator[dict[str, Any]]:
    for module in model.modules():
        attributes = vars(module)
        yield attributes
        yield from (attributes[name] for name in CONTENTS if attributes[name])
        yield from (attributes[name] for name in HOOKS)


def hold_same(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether two dictionaries hold the same objects, or equal ones that cannot change.

    >>> hold_same({"a": 1.5}, {"a": 3 / 2}), hold_same({"a": []}, {"a": []})
    (True, False)
    >>> hold_same({"stride": tuple([1, 1])}, {"stride": (1, 1)})  # export copies those of convolutions
    True
    """
    return now.keys() == before.keys() and all(is_same_value(now[name], before[name]) for name in before)


def is_same_value(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(map(is_same_value, a, b))
    return isinstance(a, PLAIN) and a == b


@cache
def is_change_counted() -> bool:
    """Whether dictionaries change in memory exactly when what they hold does, as far as can be tried."""

    class Holder:
        def __init__(self) -> None:
            self.a = 1

    for one in ({"a": 1}, OrderedDict(a=1), vars(Holder())):
        watch = Watch([(id(one) + USED, COUNTED)])
        _ = one["a"], one.get("b"), list(one), dict(one)
        if not watch.is_same():
            return False
        for value in (2, 1):
            one["a"] = value
            if watch.is_same():
                return False
            watch = Watch([(id(one) + USED, COUNTED)])
    return True
