"""An instruction of one's own: what it computes, what it is called, and the search uses it.

Sums of absolute differences find the nearest of many patterns, as video encoders do for blocks of an image.
x86 has an instruction for them, `vpsadbw`: eight bytes in each lane of 64 bits. Nothing here knows it. The
few lines between the marks describe it; the default space then tries it wherever a program computes that.

python examples/04_own_instruction.py [--trials 16]
"""

from __future__ import annotations

import argparse

import numpy as np

import metaschedule as ms
from metaschedule import te

# --- the instruction ---

DIFFERENCES = """
def differences(A: T.Tensor(({lanes}, 8), "uint8"), B: T.Tensor(({lanes}, 8), "uint8"),
                C: T.Output(({lanes},), "int64")):
    for i, k in T.grid({lanes}, 8):
        C[i] = C[i] + T.abs(T.cast(A[i, k], "int64") - T.cast(B[i, k], "int64"))
"""
CODE = """
declare <{lanes} x i64> @{name}(<{bytes} x i8>, <{bytes} x i8>)
%sum = call <{lanes} x i64> @{name}(<{bytes} x i8> %A, <{bytes} x i8> %B)
add <{lanes} x i64> %C, %sum
"""


def register() -> None:
    """`vpsadbw` of 128, 256 and 512 bits, and what a machine must have for each."""
    for lanes, name, feature in (
        (2, "llvm.x86.sse2.psad.bw", "sse2"),
        (4, "llvm.x86.avx2.psad.bw", "avx2"),
        (8, "llvm.x86.avx512.psad.bw.512", "avx512bw"),
    ):
        ms.schedule.register_intrinsic(
            f"example.psadbw.{64 * lanes}",
            description=ms.parse(DIFFERENCES.format(lanes=lanes)),
            instruction=CODE.format(lanes=lanes, bytes=8 * lanes, name=name),
            features=(feature,),
        )


# --- a program that it fits ---


def distances(blocks: int, patterns: int, size: int) -> ms.Program:
    """How far every block of an image is from every pattern."""
    x = te.placeholder((blocks, size), "uint8", name="blocks")
    y = te.placeholder((patterns, size), "uint8", name="patterns", constant=True)
    k = te.reduce_axis(size, name="k")
    far = te.compute(
        (blocks, patterns),
        lambda i, j: te.sum(te.abs(x[i, k].astype("int64") - y[j, k].astype("int64")), axis=k),
        name="distance",
    )
    return te.program([x, y], [far])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=16)
    trials = parser.parse_args().trials
    program = distances(96, 64, 256)
    before = ms.tune(program, trials=trials)
    register()
    after = ms.tune(program, trials=trials)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 256, b.shape).astype("uint8") for b in program.inputs)
    want = np.abs(x[:, None].astype("int64") - y[None].astype("int64")).sum(axis=2)
    assert np.array_equal(after.build()(x, y), want)
    used = [line for line in str(after.trace).splitlines() if "tensorize" in line]
    print(used[0] if used else "this machine has no such instruction, or it does not pay")
    for how, result in (("without", before), ("with", after)):
        print(f"{how} {(result.latency or 0) * 1e6:.1f} us")


if __name__ == "__main__":
    main()
