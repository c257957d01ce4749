"""A program from tensor expressions: shown, interpreted, compiled, timed."""

import numpy as np

import metaschedule as ms
from metaschedule import te

# A dense layer with ReLU, the running example of the paper.
n, m, k = 64, 96, 128
x = te.placeholder((n, k), name="x")
w = te.placeholder((k, m), name="w")
r = te.reduce_axis(k, name="r")
dense = te.compute((n, m), lambda i, j: te.sum(x[i, r] * w[r, j], axis=r), name="dense")
relu = te.compute((n, m), lambda i, j: te.maximum(dense[i, j], 0.0), name="relu")
program = te.program([x, w], [relu], name="dense_relu")

print(program)
print()
print("structural hash:", ms.structural_hash(program))
print("reads back the same:", ms.structural_equal(program, ms.parse(str(program))))

rng = np.random.default_rng(0)
a = rng.standard_normal((n, k), dtype="float32")
b = rng.standard_normal((k, m), dtype="float32")
expected = np.maximum(a @ b, 0)

interpreted = ms.interpret(program, a, b)
print("interpreter against NumPy, largest difference:", np.abs(interpreted - expected).max())

# The same computation with its loops tiled by hand: 4x16 accumulators that stay in registers, in parallel.
tiled = ms.parse("""
@ms.program
def dense_relu(x: T.Tensor((64, 128), "float32"), w: T.Tensor((128, 96), "float32"),
               relu: T.Output((64, 96), "float32")):
    dense = T.alloc((64, 96), "float32")
    for i0 in T.parallel(16):
        for j0 in range(6):
            for i1 in T.unrolled(4):
                for j1 in T.vectorized(16):
                    dense[i0 * 4 + i1, j0 * 16 + j1] = 0.0
            for r in range(128):
                for i1 in T.unrolled(4):
                    for j1 in T.vectorized(16):
                        dense[i0 * 4 + i1, j0 * 16 + j1] += x[i0 * 4 + i1, r] * w[r, j0 * 16 + j1]
            for i1 in T.unrolled(4):
                for j1 in T.vectorized(16):
                    relu[i0 * 4 + i1, j0 * 16 + j1] = T.max(dense[i0 * 4 + i1, j0 * 16 + j1], 0.0)
""")
kernels = {
    "as written": ms.build(ms.Schedule(program)),
    "untuned": ms.build(program),  # the most plausible schedule of the default space, without measuring
    "tiled by hand": ms.build(ms.Schedule(tiled)),
}
print()
print(f"{'loops':16} {'microseconds':>12} {'GFLOPS':>8} {'largest difference from NumPy':>32}")
for name, exe in kernels.items():
    difference = np.abs(exe(a, b) - expected).max()
    seconds = exe.benchmark(a, b).median
    print(f"{name:16} {seconds * 1e6:12.1f} {2 * n * m * k / seconds / 1e9:8.1f} {difference:32.1e}")
