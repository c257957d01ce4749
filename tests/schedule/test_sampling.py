"""Distributions: what each promises, checked by enumeration; and one that a user adds."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule.schedule import Distribution, LoopRV, Schedule, Trace, distribution
from metaschedule.schedule.distribution import Categorical, PartitionedTile, PerfectTile, Tile
from tests.schedule.checks import check
from tests.schedule.refusals import refusal

extents = st.sampled_from([1, 2, 7, 12, 16, 55, 64, 97, 109, 128])
distributions = st.one_of(
    st.builds(PerfectTile, extents, st.integers(1, 4), st.sampled_from([0, 1, 16])),
    st.builds(PartitionedTile, extents, st.integers(2, 3), st.just(0), st.integers(0, 1), st.just(1)),
    st.builds(
        Tile, extents, st.integers(1, 3), st.sampled_from([0, 8, 64]), st.sampled_from([1, 8]), st.just(0.25)
    ),
    st.builds(Categorical, st.just((3, 5, 7)), st.sampled_from([(0.2, 0.3, 0.5), (0.0, 1.0, 0.0)])),
)


@given(distributions, st.integers(0, 100))
def test_every_distribution_keeps_its_promises(d: Any, seed: int) -> None:
    rng = random.Random(seed)
    support = list(d.enumerate())
    assert len(support) == d.count() > 0
    assert all(d.valid(decision) for decision in support)
    drawn = d.draw(rng)
    assert d.valid(drawn)
    assert drawn in support
    near = d.neighbour(drawn, rng)
    assert d.valid(near)
    assert d.draw(random.Random(seed)) == drawn


@pytest.mark.parametrize("d", [PerfectTile(12, 2), Tile(109, 2, 64), Categorical((1, 2, 3), (0.2, 0.3, 0.5))])
def test_neighbours_reach_the_whole_support(d: Any) -> None:
    rng = random.Random(0)
    decision = d.draw(rng)
    seen = {str(decision)}
    for _ in range(4000):
        decision = d.neighbour(decision, rng)
        seen.add(str(decision))
    assert seen == {str(x) for x in d.enumerate()}


def test_perfect_tiles_are_equally_likely() -> None:
    d = PerfectTile(12, 2, 0)
    rng = random.Random(0)
    counts = Counter(str(d.draw(rng)) for _ in range(6000))
    assert len(counts) == d.count() == 6
    assert all(abs(n / 6000 - 1 / 6) < 0.03 for n in counts.values())


def test_tiles_need_not_divide() -> None:
    support = [tuple(x) for x in Tile(109, 2, 64).enumerate()]
    assert (19, 6) in support  # 19 * 6 = 114
    assert all(math.prod(x) >= 109 for x in support)


def split_by(sch: Schedule, factors: Sequence[Any]) -> None:
    sch.split(sch.get_loops(sch.get_block("matmul"))[1], factors)


def matmul() -> ms.Program:
    return ms.workloads.create("GMM", b=1, n=12, m=5, k=3)


def test_sample_perfect_tile_same_results() -> None:
    sch = Schedule(matmul(), seed=3)
    split_by(sch, sch.sample_perfect_tile(sch.get_loops(sch.get_block("matmul"))[1], 3, 4))
    check(sch, matmul())


def test_sample_partitioned_tile_same_results() -> None:
    sch = Schedule(matmul(), seed=3)
    loop = sch.get_loops(sch.get_block("matmul"))[1]
    factors = sch.sample_partitioned_tile(loop, 3, partition_pos=1, innerpart_factor=6)
    assert math.prod(sch.get(f) for f in factors[1:]) % 6 == 0
    split_by(sch, factors)
    check(sch, matmul())


def test_sample_tile_same_results() -> None:
    for seed in range(5):
        sch = Schedule(matmul(), seed=seed)
        split_by(sch, sch.sample_tile(sch.get_loops(sch.get_block("matmul"))[1], 2, 8))
        check(sch, matmul())


def test_sample_categorical_same_results() -> None:
    sch = Schedule(matmul(), seed=1)
    split_by(sch, [None, sch.sample_categorical([2, 3, 5], [0.3, 0.3, 0.4])])
    check(sch, matmul())


def test_sample_perfect_tile_refuses_other_products() -> None:
    sch = Schedule(matmul())
    loop = sch.get_loops(sch.get_block("matmul"))[1]
    assert "is no decision of" in refusal(sch.sample_perfect_tile, loop, 2, decision=[5, 2])


def test_sample_partitioned_tile_refuses_other_products() -> None:
    sch = Schedule(matmul())
    loop = sch.get_loops(sch.get_block("matmul"))[1]
    assert "is no decision of" in refusal(sch.sample_partitioned_tile, loop, 2, 1, 4, decision=[6, 2])


def test_sample_tile_refuses_too_little() -> None:
    sch = Schedule(matmul())
    loop = sch.get_loops(sch.get_block("matmul"))[1]
    assert "is no decision of" in refusal(sch.sample_tile, loop, 2, decision=[1, 5])


def test_sample_categorical_refuses_positions_outside() -> None:
    sch = Schedule(matmul())
    assert "is no decision of" in refusal(sch.sample_categorical, [1, 2], [0.5, 0.5], decision=2)


@distribution("sample_power_of_two")
class PowerOfTwo(Distribution):
    """A power of two that is at most the extent of a loop."""

    loop: LoopRV | int

    def support(self) -> list[int]:
        assert isinstance(self.loop, int)
        return [1 << n for n in range(self.loop.bit_length())]


@pytest.mark.parametrize(
    ("distribution", "reason"),
    [
        (Categorical((1, 2), (1.0,)), "2 candidates and 1 probabilities"),
        (Categorical((1, 2), (0.0, 0.0)), "probabilities must not be negative, and one of them positive"),
        (PerfectTile(12, 0), "n must be positive and max_innermost_factor not negative"),
        (PartitionedTile(12, 2, 0, 2), "partition_pos must be a position and innerpart_factor positive"),
        (Tile(12, 2, -1), "n and innermost_multiple must be positive, the others not negative"),
    ],
)
def test_sampling_refuses_parameters(distribution: Distribution, reason: str) -> None:
    assert refusal(Schedule(matmul()).sample, distribution).startswith(reason)


def test_sampling_refuses_to_draw_from_nothing() -> None:
    sch = Schedule(matmul())
    assert refusal(sch.sample, PowerOfTwo(0)) == "sample_power_of_two has nothing to draw from"


def test_a_users_distribution_is_traced_mutated_counted_and_stored() -> None:
    sch = Schedule(matmul(), seed=0)
    loop = sch.get_loops(sch.get_block("matmul"))[1]
    (factor,) = sch.sample(PowerOfTwo(loop))
    sch.split(loop, [None, factor])
    assert sch.get(factor) in (1, 2, 4, 8)
    trace = Trace.from_json(sch.trace.to_json())
    assert f"sch.sample(PowerOfTwo(loop=l1), decision={sch.get(factor)})" in str(trace)
    ((position, decision),) = trace.decisions.items()
    site = PowerOfTwo(12)
    assert site.count() == 4
    moved = trace.with_decisions({position: site.neighbour(decision, random.Random(0))})
    assert moved != trace
    assert moved.apply(matmul()).trace.decisions == moved.decisions
