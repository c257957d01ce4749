"""What every cost model must do, whoever wrote it: subclass `CostModelContract` and say how to make one."""

from __future__ import annotations

import math

import numpy as np

import metaschedule as ms
from metaschedule.cost import CostModel


def matmul(tile: int, name: str = "matmul", loop: str = "k") -> ms.Program:
    """Scaled rows of a matrix product, `tile` columns at a time."""
    return ms.parse(f"""
@ms.program
def {name}(A: T.Tensor((64, 32), "float32"), B: T.Tensor((32, 64), "float32"),
           C: T.Output((64, 64), "float32")):
    for i, j0, {loop} in T.grid(64, {64 // tile}, 32):
        for j1 in T.vectorized({tile}):
            C[i, j0 * {tile} + j1] = C[i, j0 * {tile} + j1] + A[i, {loop}] * B[{loop}, j0 * {tile} + j1]
""")


def programs() -> list[ms.Program | ms.Schedule]:
    return [
        matmul(1),
        matmul(8),
        matmul(16),
        ms.workloads.create("SFM"),
        ms.Schedule(ms.workloads.create("CBR")),
    ]


class CostModelContract:
    def make(self) -> CostModel:
        raise NotImplementedError

    def taught(self) -> CostModel:
        """A model that has learnt from measurements, some of which failed."""
        model = self.make()
        known = [matmul(2**n) for n in range(6)] * 3
        seconds = [1e-3 / (1 + n % 6) for n in range(len(known))]
        model.update([*known, matmul(4), matmul(4)], [*seconds, None, math.inf])
        return model

    def test_one_finite_positive_number_each(self) -> None:
        for model in (self.make(), self.taught()):
            seconds = model.predict(programs())
            assert seconds.shape == (len(programs()),)
            assert np.isfinite(seconds).all()
            assert (seconds > 0).all()

    def test_nothing_to_predict_or_learn(self) -> None:
        model = self.taught()
        model.update([], [])
        model.update([matmul(4)], [None])
        assert model.predict([]).shape == (0,)

    def test_depends_on_the_program_alone(self) -> None:
        model = self.taught()
        together = model.predict(programs())
        alone = np.array([model.predict([p])[0] for p in programs()])
        np.testing.assert_allclose(together, alone, rtol=1e-6)
        np.testing.assert_allclose(model.predict(programs()[::-1])[::-1], together, rtol=1e-6)

    def test_a_schedule_is_as_good_as_its_program(self) -> None:
        sch = ms.Schedule(ms.workloads.create("GMM"))
        block = sch.get_block("matmul")
        _, i, j, _ = sch.get_loops(block)
        sch.parallel(sch.fuse(i, sch.split(j, [8, 16])[0]))
        both = self.taught().predict([sch, sch.program])
        np.testing.assert_allclose(both[0], both[1], rtol=1e-6)

    def test_repeatable(self) -> None:
        np.testing.assert_array_equal(self.taught().predict(programs()), self.taught().predict(programs()))

    def test_names_do_not_matter(self) -> None:
        one, other = self.taught().predict([matmul(8), matmul(8, name="product", loop="depth")])
        assert one == other
