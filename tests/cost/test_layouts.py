"""Features see where memory is: a layout counts as the access to dense memory that it is."""

from __future__ import annotations

import numpy as np

import metaschedule as ms
from metaschedule import te
from metaschedule.cost.table import Table
from metaschedule.ir import Layout
from metaschedule.space.block_predicates import find_vector_iterator


def reading(shape: tuple[int, int], layout: Layout | None, swapped: bool = False) -> Table:
    """Of a program of 24 x 40 elements."""
    x = te.placeholder(shape, name="x", layout=layout)
    y = te.compute((24, 40), lambda i, j: (x[j, i] if swapped else x[i, j]) * 2.0, name="y")
    return Table([te.program([x], [y])])


def check_same(a: Table, b: Table) -> None:
    for field in ("stride", "elements", "run"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field))
    assert a.rows.prod(axis=2).tolist() == b.rows.prod(axis=2).tolist()


def test_a_transposed_layout_is_the_transposed_matrix() -> None:
    check_same(reading((24, 40), Layout((1, 24))), reading((40, 24), None, swapped=True))


def test_padded_rows_are_the_first_columns_of_wide_rows() -> None:
    check_same(reading((24, 40), Layout((64, 1))), reading((24, 64), None))


def test_steps_leave_no_runs() -> None:
    table = reading((24, 40), Layout((80, 2)))
    assert table.stride[0, 1].tolist()[-2:] == [80, 2]
    assert (table.run[0, 1] == 1).all()
    assert reading((24, 40), None).run[0, 1].max() == 24 * 40


def test_the_vector_loop_is_the_contiguous_one() -> None:
    x = te.placeholder((24, 40), name="x", layout=Layout((1, 24)))
    y = te.compute((24, 40), lambda i, j: x[i, j] * 2.0, name="y", layout=Layout((1, 24)))
    sch = ms.Schedule(te.program([x], [y]))
    node = sch.get(sch.get_block("y"))
    along = find_vector_iterator(node)
    assert along is node.iters[0].var
