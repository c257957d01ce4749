"""A search space by hand: the ReLU and dense-ReLU illustrations of the paper, step by step.

`e0` is the program as written. Sampled splits and a sampled place for ReLU make it a space of equivalent
programs; parallel and vectorised loops make the fast ones `e*`. Everything is shown and run.
"""

import numpy as np

import metaschedule as ms
from metaschedule import te
from metaschedule.schedule import Distribution, LoopRV, distribution

# --- ReLU ------------------------------------------------------------------------------------------

a = te.placeholder((1024,), name="A")
e0 = te.program([a], [te.compute((1024,), lambda i: te.maximum(a[i], 0.0), name="B")], name="relu")
print("e0:", e0, sep="\n", end="\n\n")

sch = ms.Schedule(e0, seed=0)
(i,) = sch.get_loops(sch.get_block("B"))
factors = sch.sample_perfect_tile(i, n=3, max_innermost_factor=64)  # theta_0, theta_1, theta_2
i0, i1, i2 = sch.split(i, factors)
print(f"e1, with factors {[sch.get(f) for f in factors]}:", sch.program, sep="\n", end="\n\n")

sch.parallel(i0)
sch.vectorize(i2)
print("e*:", sch.program, sep="\n", end="\n\n")
print("its trace:", sch.trace, sep="\n", end="\n\n")

x = np.random.default_rng(0).standard_normal(1024, dtype="float32")
assert np.array_equal(ms.build(sch)(x), np.maximum(x, 0))
for seed in range(3):  # the same trace with other decisions is another candidate
    other = sch.trace.apply(e0, rng=seed)
    assert np.array_equal(ms.build(other)(x), np.maximum(x, 0))
    print("decisions", *other.trace.decisions.values(), "give the same result")

# --- dense, then ReLU: where is ReLU computed? ------------------------------------------------------

n, m, k = 60, 96, 64
xs, w = te.placeholder((n, k), name="x"), te.placeholder((k, m), name="w")
r = te.reduce_axis(k, name="r")
dense = te.compute((n, m), lambda i, j: te.sum(xs[i, r] * w[r, j], axis=r), name="dense")
relu = te.compute((n, m), lambda i, j: te.maximum(dense[i, j], 0.0), name="relu")
e0 = te.program([xs, w], [relu], name="dense_relu")


def space(sch: ms.Schedule) -> None:
    """A probabilistic program: draws tiles, branches on where ReLU goes, then fixes loop kinds."""
    block = sch.get_block("dense")
    i, j, r = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, sch.sample_tile(i, n=3, max_innermost_factor=6))  # need not divide 60
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, n=2, max_innermost_factor=32))
    r0, r1 = sch.split(r, sch.sample_perfect_tile(r, n=2, max_innermost_factor=16))
    sch.reorder(i0, j0, i1, r0, r1, i2, j1)
    place = sch.sample_categorical([0, 1, 2], [0.3, 0.4, 0.3])
    if sch.get(place):  # 0: ReLU stays in a loop nest of its own
        sch.reverse_compute_at(sch.get_block("relu"), (j0, i1)[sch.get(place) - 1])
        sch.vectorize(sch.get_loops(sch.get_block("relu"))[-1])
    sch.decompose_reduction(block, r0)
    sch.vectorize(sch.get_loops(sch.get_block("dense_init"))[-1])
    sch.parallel(i0)
    sch.unroll(i2)
    sch.vectorize(j1)


rng = np.random.default_rng(1)
data = rng.standard_normal((n, k), dtype="float32"), rng.standard_normal((k, m), dtype="float32")
expected = np.maximum(data[0] @ data[1], 0)
print(f"\n{'ReLU at':10} {'tiles':36} {'us':>8}")
for seed in range(6):
    sch = ms.Schedule(e0, seed=seed)
    space(sch)
    exe = ms.build(sch)
    np.testing.assert_allclose(exe(*data), expected, rtol=1e-4, atol=1e-4)
    *tiles, place = sch.trace.decisions.values()
    where = ("root", "j0", "i1")[place]
    print(f"{where:10} {' '.join(map(str, tiles)):36} {exe.benchmark(*data).median * 1e6:8.1f}")
print("\nthe last one:", sch.program, sep="\n")

# --- a distribution of one's own --------------------------------------------------------------------


@distribution("sample_power_of_two")
class PowerOfTwo(Distribution):
    """A power of two that is at most the extent of a loop."""

    loop: LoopRV | int

    def support(self) -> list[int]:
        assert isinstance(self.loop, int)
        return [1 << n for n in range(self.loop.bit_length())]


sch = ms.Schedule(e0, seed=2)
i, j, r = sch.get_loops(sch.get_block("dense"))
(factor,) = sch.sample(PowerOfTwo(j))
sch.split(j, [None, factor])
print("\nwith a distribution of our own:", sch.trace, sep="\n")
assert str(ms.Trace.from_json(sch.trace.to_json()).apply(e0).program) == str(sch.program)
