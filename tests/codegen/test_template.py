"""Kernels that differ in numbers alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.codegen import generate
from metaschedule.codegen.template import NUMBERS, Template, Text
from metaschedule.ir.annotations import SIZED
from metaschedule.runtime import Executable, Kernel
from metaschedule.target import resolve

TARGET = resolve("native").with_cores(2)
SCRIPT = """
@ms.program
def scale(X: T.Tensor(({n}, 3), "float32"), Y: T.Output(({n}, 3), "float32")):
    for i0 in T.parallel({tiles}, annotations={{"sized": True}}):
        for i1 in T.unrolled(4):
            for j in range(3):
                with T.block("scale"):
                    i = T.spatial({n}, i0 * 4 + i1)
                    k = T.spatial(3, j)
                    T.where(i0 * 4 + i1 < {n})
                    Y[i, k] = X[i, k] / {n}.0
"""


def kernel(n: int) -> Kernel:
    return generate(ms.parse(SCRIPT.format(n=n, tiles=-(-n // 4))), TARGET)


def run(template: Template, n: int) -> None:
    own = kernel(n)
    numbers = template.numbers_of(own)
    assert numbers is not None
    fitted = replace(template.fit(own), llvm=template.kernel.llvm)
    x = np.random.default_rng(n).standard_normal((n, 3)).astype("float32")
    found = Executable(fitted, constants={NUMBERS: np.array(numbers)})(x)
    np.testing.assert_allclose(found, x / n, rtol=1e-6)


def test_one_kernel_for_sizes_that_divide_and_others() -> None:
    template = Template([kernel(17), kernel(30)])
    for n in (5, 16, 17, 30, 31, 32, 1001):
        run(template, n)


def test_a_number_that_was_the_same_is_fixed() -> None:
    template = Template([kernel(17), kernel(18)])  # of as many tiles
    assert template.numbers_of(kernel(19)) is not None
    assert template.numbers_of(kernel(30)) is None
    assert Template([kernel(17), kernel(18), kernel(30)]).numbers_of(kernel(99)) is not None


def test_other_code_does_not_match() -> None:
    x = te.placeholder((8,), name="X")
    other = generate(te.program([x], [te.compute((8,), lambda i: x[i] + 1.0)]), TARGET)
    assert Template([kernel(17), kernel(30)]).numbers_of(other) is None
    with pytest.raises(ValueError, match="more than numbers"):
        Template([kernel(17), other])


def test_a_text_is_its_parts_and_numbers() -> None:
    llvm = kernel(17).llvm
    text = Text.of(llvm)
    numbers = [f"splat ({n.kind} {n.text})" if n.lanes > 1 else n.text for n in text.numbers]
    assert "".join([a + b for a, b in zip(text.parts, [*numbers, ""])]) == llvm


def test_nothing_is_concluded_from_a_sized_extent() -> None:
    assert SIZED.key in SCRIPT
    assert Text.of(kernel(16).llvm).parts == Text.of(kernel(17).llvm).parts
    exact = SCRIPT.replace(', annotations={{"sized": True}}', "")
    both = [generate(ms.parse(exact.format(n=n, tiles=-(-n // 4))), TARGET).llvm for n in (16, 17)]
    assert Text.of(both[0]).parts != Text.of(both[1]).parts
