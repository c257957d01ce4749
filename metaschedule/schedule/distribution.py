"""Distributions: the unit of randomness. A sampling primitive *is* one, with its parameters as fields.

A decision is plain data (a number or a list of numbers). A distribution can draw one, say whether one is
valid, propose a neighbour, count and list its support. Tracing, mutation, counting, exhaustive search and
serialisation all go through these five methods, so a new distribution is one small class:

    @distribution("sample_power_of_two")
    class PowerOfTwo(Distribution):
        most: int
        def support(self): return [1 << n for n in range(self.most.bit_length())]

and `sch.sample(PowerOfTwo(64))`. Fields may hold handles: before use, `at(state)` puts in the number that a
drawn value stands for and the extent of a loop.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from ..errors import ScheduleError
from ..validation import describe_value
from .primitive.base import Handle, LoopRV, Primitive, map_handles, primitive
from .state import State

Decision = Any  # plain data: a number or a list of numbers, in what users add also strings, bools and None
MOST_FACTORS = 10  # of a tiling
MOST_DIVIDED = 2**32  # an extent whose divisors are listed
MOST_LISTED = 1_000_000  # tilings of a space that is drawn from by listing it
MOST_COMPARED = 20_000  # decisions, of which the nearest to another is taken
MOST_NESTED = 8  # lists in lists, of a decision


def as_decision(value: Any, depth: int = 0) -> Decision:
    """A decision as plain data, with lists for sequences; `TypeError` if it is something else."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (tuple, list)) and depth < MOST_NESTED:
        return [as_decision(v, depth + 1) for v in value]
    if value is not None and type(value) not in (bool, int, float, str):
        raise TypeError(f"decision must be a number or a list of numbers, got {describe_value(value)}")
    return value


class Distribution(Primitive):
    """Base: the support is what `support()` lists, all equally likely, neighbours next to each other."""

    __slots__ = ()

    def at(self, s: State) -> Any:
        """This distribution with numbers instead of handles."""

        def value(h: Handle) -> Any:
            if not isinstance(h, LoopRV):
                return s.number(h)
            extent = s.fixed_extent(s.loop(h).var)
            if extent is None:
                raise ScheduleError("the extent of the loop is not a constant", marks={s.loop(h).var: "here"})
            return extent

        concrete: Any = type(self)(*[map_handles(v, value) for v in self.operands()])
        if why := concrete.problem():
            raise ScheduleError(why)
        return concrete

    def check(self, s: State) -> Any:
        return self.at(s)

    def problem(self) -> str | None:
        """What is wrong with the parameters, if anything."""
        return None

    def support(self) -> Sequence[Decision]:
        raise NotImplementedError

    def draw(self, rng: random.Random) -> Decision:
        support = self.support()
        if not support:
            raise ScheduleError(f"{self.op} has nothing to draw from")
        return support[rng.randrange(len(support))]

    def valid(self, decision: Decision) -> bool:
        return any(same_decision(decision, other) for other in self.support())

    def neighbour(self, decision: Decision, rng: random.Random) -> Decision:
        """Another decision close to this one; the same if there is no other."""
        support = list(self.support())
        at = support.index(decision)
        options = [n for n in (at - 1, at + 1) if 0 <= n < len(support)]
        return support[rng.choice(options)] if options else decision

    def repair(self, decision: Decision, rng: random.Random) -> Decision:
        """A decision in the place of one that was valid for other operands; close to it if that is easy."""
        return self.draw(rng)

    def nearest(self, decision: Decision) -> Decision:
        """The valid decision that is nearest to one that was made for other operands: of numbers by their
        ratios, of the first of equals. The same every time."""
        options = islice(self.enumerate(), MOST_COMPARED)  # none: then the replay refuses the decision
        return min(options, key=lambda option: difference(option, decision), default=decision)

    def count(self) -> int:
        return len(self.support())

    def enumerate(self) -> Iterator[Decision]:
        yield from self.support()

    def outcome(self, s: State, decision: Decision) -> tuple[Any, ...]:
        """What the output handles stand for: by default the numbers of the decision."""
        return tuple(decision) if isinstance(decision, (list, tuple)) else (decision,)


class Sizes(Distribution):
    """Base of lists of sizes, whose neighbours are those of similar sizes."""

    __slots__ = ()

    def neighbour(self, decision: list[int], rng: random.Random) -> list[int]:
        """One of the closest others."""
        near = [sizes for sizes in self.by_distance(decision) if sizes != list(decision)]
        return rng.choice(near[:8]) if near else decision

    def repair(self, decision: list[int], rng: random.Random) -> list[int]:
        return self.by_distance(decision)[0]

    def by_distance(self, sizes: list[int]) -> list[list[int]]:
        """All, those of similar sizes first."""
        return sorted(self.support(), key=lambda t: sum(abs(math.log(a / b)) for a, b in zip(t, sizes)))


def are_factors(decision: Decision, n: int) -> bool:
    """Whether a decision is n integers, all but the first positive."""
    if not isinstance(decision, (list, tuple)) or len(decision) != n or set(map(type, decision)) != {int}:
        return False
    return n == 1 or min(decision[1:]) >= 1


def same_decision(a: Decision, b: Decision) -> bool:
    """Unlike ==, tells 1 from True and 1.0."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same_decision, a, b))
    return type(a) is type(b) and a == b


def difference(a: Decision, b: Decision) -> float:
    """How far two decisions are apart: the inner factors of a tile, the later ones, count more.

    >>> difference([8, 2], [8, 2]), difference([8, 2], [4, 4]) < difference([8, 2], [1, 16])
    (0.0, True)
    """
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return math.inf
        return sum(n * difference(x, y) for n, (x, y) in enumerate(zip(a, b), 1))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and a >= 0 and b >= 0:
        return abs(math.log((a + 1) / (b + 1)))
    return 0.0 if same_decision(a, b) else 1.0


def distribution(op: str) -> Any:
    """Register a class as the sampling primitive `op`."""
    return primitive(op)


@distribution("sample_categorical")
class Categorical(Distribution):
    """One of some numbers, with given probabilities. The decision is the position in the list."""

    candidates: tuple[int, ...]
    probabilities: tuple[float, ...]

    def problem(self) -> str | None:
        if len(self.candidates) != len(self.probabilities):
            return f"{len(self.candidates)} candidates and {len(self.probabilities)} probabilities"
        if not all(p >= 0 for p in self.probabilities) or not 0 < sum(self.probabilities) < math.inf:
            return "probabilities must not be negative, and one of them positive"
        return None

    def support(self) -> Sequence[int]:
        return [n for n, p in enumerate(self.probabilities) if p > 0]

    def draw(self, rng: random.Random) -> int:
        return rng.choices(range(len(self.candidates)), self.probabilities)[0]

    def outcome(self, s: State, decision: int) -> tuple[Any, ...]:
        return (self.candidates[decision],)


@lru_cache(maxsize=4096)
def divisors(n: int) -> tuple[int, ...]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return tuple(small + [n // d for d in reversed(small) if d * d != n])


@lru_cache(maxsize=65536)
def tilings(extent: int, n: int, most: int) -> int:
    """How many ways to write `extent` as n factors, the last at most `most`."""
    if n == 1:
        return int(extent <= most)
    if n == 2:
        return sum(d <= most for d in divisors(extent))
    return sum(tilings(extent // d, n - 1, most) for d in divisors(extent))


@distribution("sample_perfect_tile")
class PerfectTile(Distribution):
    """n factors whose product is the extent of a loop, the last at most `max_innermost_factor` (0: any);
    every tiling equally likely."""

    loop: LoopRV | int
    n: int
    max_innermost_factor: int = 0

    def problem(self) -> str | None:
        if self.n < 1 or self.max_innermost_factor < 0:
            return f"n must be positive and max_innermost_factor not negative, got {self!r}"
        if self.n > MOST_FACTORS or self.extent > MOST_DIVIDED:
            return f"n must be at most {MOST_FACTORS} and the extent {MOST_DIVIDED}, got {self!r}"
        return None

    @property
    def most(self) -> int:
        free = self.n == 1 or not self.max_innermost_factor  # a single factor has no choice
        return max(1, self.extent) if free else self.max_innermost_factor

    @property
    def extent(self) -> int:
        assert isinstance(self.loop, int)
        return self.loop

    def count(self) -> int:
        return tilings(self.extent, self.n, self.most) if self.extent else 1

    def support(self) -> list[list[int]]:
        return list(self.enumerate())

    def enumerate(self) -> Iterator[list[int]]:
        if not self.extent:
            yield [0] + [1] * (self.n - 1)
            return

        def rest(extent: int, n: int) -> Iterator[list[int]]:
            if n == 1:
                if extent <= self.most:
                    yield [extent]
                return
            for d in divisors(extent):
                for tail in rest(extent // d, n - 1):
                    yield [d, *tail]

        yield from rest(self.extent, self.n)

    def draw(self, rng: random.Random) -> list[int]:
        extent, factors = self.extent, []
        if not extent:
            return [0] + [1] * (self.n - 1)
        for left in range(self.n, 1, -1):
            options = divisors(extent)
            weights = [tilings(extent // d, left - 1, self.most) for d in options]
            d = rng.choices(options, weights)[0]
            factors.append(d)
            extent //= d
        return [*factors, extent]

    def valid(self, decision: Decision) -> bool:
        return (
            are_factors(decision, self.n) and math.prod(decision) == self.extent and decision[-1] <= self.most
        )

    def neighbour(self, decision: list[int], rng: random.Random) -> list[int]:
        """Move a prime factor from one place to another."""
        for _ in range(16):
            new = list(decision)
            a, b = rng.sample(range(self.n), 2) if self.n > 1 else (0, 0)
            primes = [p for p in divisors(new[a])[1:] if len(divisors(p)) == 2] if new[a] else []
            if primes:
                p = rng.choice(primes)
                new[a] //= p
                new[b] *= p
                if new != list(decision) and self.valid(new):
                    return new
        return decision


@distribution("sample_partitioned_tile")
class PartitionedTile(PerfectTile):
    """A perfect tiling in which the product of the factors from `partition_pos` on is a multiple of
    `innerpart_factor` (so that the inner part fills a fixed tile)."""

    partition_pos: int = 0
    innerpart_factor: int = 1

    def count(self) -> int:
        return sum(1 for _ in self.enumerate())

    def enumerate(self) -> Iterator[list[int]]:
        for factors in PerfectTile.enumerate(self):
            if self.fits(factors):
                yield factors

    def problem(self) -> str | None:
        if not 0 <= self.partition_pos < max(1, self.n) or self.innerpart_factor < 1:
            return f"partition_pos must be a position and innerpart_factor positive, got {self!r}"
        why = PerfectTile.problem(self)
        if why is None and PerfectTile.count(self) > MOST_LISTED:
            why = f"there are more than {MOST_LISTED} tilings, got {self!r}"
        return why

    def fits(self, factors: Sequence[int]) -> bool:
        return math.prod(factors[self.partition_pos :]) % self.innerpart_factor == 0

    def draw(self, rng: random.Random) -> list[int]:
        return Distribution.draw(self, rng)

    def valid(self, decision: Decision) -> bool:
        return PerfectTile.valid(self, decision) and self.fits(decision)


@distribution("sample_tile")
class Tile(Distribution):
    """n factors that need not divide the extent of a loop: the last n - 1 are free, the first is what covers
    the rest, rounded up.

    The innermost factor is at most `max_innermost_factor` (0: the extent) and, where the extent allows it, a
    multiple of `innermost_multiple` (a vector width); what overhangs is at most `max_waste` of the tiles'
    size. Small factors are more likely than large ones: each factor is drawn from a list that is dense
    below 16 and thins out above.
    """

    loop: LoopRV | int
    n: int
    max_innermost_factor: int = 0
    innermost_multiple: int = 1
    max_waste: float = 0.25

    @property
    def extent(self) -> int:
        assert isinstance(self.loop, int)
        return self.loop

    def problem(self) -> str | None:
        least = self.n, self.max_innermost_factor + 1, self.innermost_multiple
        if min(least) < 1 or not self.max_waste >= 0:  # also if it is NaN
            return f"n and innermost_multiple must be positive, the others not negative, got {self!r}"
        if self.n > MOST_FACTORS:
            return f"n must be at most {MOST_FACTORS}, got {self!r}"
        return None

    def inner_candidates(self) -> list[int]:
        most = min(self.max_innermost_factor or self.extent, self.extent)
        options = [f for f in tile_sizes(max(1, most)) if f % self.innermost_multiple == 0]
        return options or [1]

    def fits(self, inner: Sequence[int]) -> bool:
        """Whether the inner factors cover the extent without too much waste."""
        size = math.prod(inner)
        covered = -(-self.extent // size) * size
        return covered == self.extent or (
            size <= self.extent and covered - self.extent <= self.max_waste * covered
        )

    def support(self) -> list[list[int]]:
        return list(self.enumerate())

    def count(self) -> int:
        return sum(1 for _ in self.enumerate())

    def enumerate(self) -> Iterator[list[int]]:
        def rest(size: int, n: int) -> Iterator[list[int]]:
            if n == 0:
                yield []
                return
            options = self.inner_candidates() if n == 1 else tile_sizes(max(1, self.extent // size))
            for f in options:
                if size * f <= max(1, self.extent):
                    for tail in rest(size * f, n - 1):
                        yield [f, *tail]

        for inner in rest(1, self.n - 1):
            if self.fits(inner):
                yield self.whole(inner)

    def whole(self, inner: Sequence[int]) -> list[int]:
        return [-(-self.extent // math.prod(inner)), *inner]

    def draw(self, rng: random.Random) -> list[int]:
        for _ in range(64):
            inner: list[int] = [rng.choice(self.inner_candidates())] if self.n > 1 else []
            while len(inner) < self.n - 1:
                inner.insert(0, rng.choice(tile_sizes(max(1, self.extent // math.prod(inner)))))
            if self.fits(inner):
                return self.whole(inner)
        return self.whole([1] * (self.n - 1))

    def valid(self, decision: Decision) -> bool:
        return (
            are_factors(decision, self.n)
            and list(decision) == self.whole(decision[1:])
            and (self.n == 1 or decision[-1] in self.inner_candidates() or decision[-1] == 1)
            and self.fits(decision[1:])
        )

    def repair(self, decision: list[int], rng: random.Random) -> list[int]:
        """The same inner factors, or the largest that fit, around which the outermost covers the rest."""
        inner = list(decision[1:]) if len(decision) == self.n else []
        while inner and max(inner) > 1:
            new = self.whole(inner)
            if self.valid(new):
                return new
            at = inner.index(max(inner))
            inner[at] -= 1
        return self.draw(rng)

    def nearest(self, decision: Decision) -> list[int]:
        whole = isinstance(decision, (list, tuple)) and all(type(f) is int for f in decision)
        return self.repair(list(decision) if whole else [], random.Random(0))

    def neighbour(self, decision: list[int], rng: random.Random) -> list[int]:
        """One inner factor moved to the next size up or down that fits; another may give or take a factor
        of two to make room."""
        for _ in range(16):
            inner = list(decision[1:])
            if not inner:
                break
            at, step = rng.randrange(len(inner)), rng.choice((-1, 1))
            if len(inner) > 1 and rng.random() < 0.5:
                other = rng.choice([n for n in range(len(inner)) if n != at])
                inner[other] = max(1, inner[other] // 2 if step > 0 else inner[other] * 2)
            last = at == len(inner) - 1
            options = self.inner_candidates() if last else list(tile_sizes(max(1, self.extent)))
            sizes = [f for f in options if f * step > inner[at] * step][::step]
            for size in sizes:
                inner[at] = size
                new = self.whole(inner)
                if new != list(decision) and self.valid(new):
                    return new
        return decision


@lru_cache(maxsize=4096)
def tile_sizes(most: int) -> tuple[int, ...]:
    """Every size up to 16, then eight per doubling."""
    sizes: list[int] = []
    f = 1
    while f <= most:
        sizes.append(f)
        f += max(1, 1 << max(0, f.bit_length() - 4))
    return tuple(sizes)
