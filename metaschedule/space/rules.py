"""Rules for some blocks only: by name, by a predicate, or by an annotation of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ir import Block
from ..ir.annotations import CLAIMED, SCHEDULE_RULE
from ..schedule import BlockRV, Schedule
from ..target import Target
from .space import name_of

Rule = Callable[..., Any]


@dataclass(frozen=True)
class For:
    """A schedule of the user's own for the blocks that are meant; the space does the rest of the program.

    `blocks` is a name or a predicate over `Block`. The rule, `f(sch, block)` or `f(sch, block, target)`,
    transforms the schedule, or returns a list of schedules. The other modules then leave the block alone.

    >>> def rule(sch, block):
    ...     sch.parallel(sch.get_loops(block)[0])
    >>> For("matmul", rule)
    For('matmul', rule)
    """

    blocks: str | Callable[[Block], bool]
    rule: Rule

    @property
    def name(self) -> str:
        return f"For({self._which}, {name_of(self.rule)})"

    @property
    def _which(self) -> str:
        return repr(self.blocks) if isinstance(self.blocks, str) else name_of(self.blocks)

    def __repr__(self) -> str:
        return self.name

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        node: Block = sch.get(block)
        meant = node.name == self.blocks if isinstance(self.blocks, str) else self.blocks(node)
        return apply_rule(self.rule, sch, block, target) if meant else [sch]


@dataclass(frozen=True)
class ApplyCustomRule:
    """The rules that a program asks for: a block annotated with `schedule_rule` gets the one of that name."""

    rules: Mapping[str, Rule] = field(default_factory=dict)

    def __call__(self, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        wanted = SCHEDULE_RULE.get(sch.get(block))
        if wanted is None:
            return [sch]
        if wanted not in self.rules:
            known = ", ".join(self.rules) or "none"
            name = sch.get(block).name
            raise ValueError(
                f"block {name!r} asks for the rule {wanted!r}, and there is none: known are {known}"
            )
        return apply_rule(self.rules[wanted], sch, block, target)


def apply_rule(rule: Rule, sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
    takes_target = getattr(getattr(rule, "__code__", None), "co_argcount", 3) > 2
    made = rule(sch, block, target) if takes_target else rule(sch, block)
    found: list[Schedule] = [sch] if made is None else made
    for one in found:
        name = one.get(block).name if one.state.values[block] in one.state.nodes else None
        if name is not None and not CLAIMED.is_on(one.get(block)):
            one.annotate(block, CLAIMED.key, name_of(rule))
    return found
