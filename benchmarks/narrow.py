"""Products of narrow numbers by hardware instructions, beside PyTorch (oneDNN) and beside the peak of the
instruction: a loop of nothing else, measured in the same run.

    python benchmarks/narrow.py [--trials 24] [--only "int8 512" conv] [--target x86-64-v3]

Weights are constant. Products: int8 (both signed) beside `torch._int_mm`, bfloat16 (also the results)
beside `torch.mm`. FDENSE is gelu(x @ w + b): uint8 by int8 with float32 results beside
`onednn.qlinear_pointwise`. Convolutions: uint8 by int8, rescaled to uint8, beside
`onednn.qconv2d_pointwise`; weights are packed beforehand. Ours untuned, ours tuned and PyTorch are called
from Python in alternating rounds; the fastest call counts. What PyTorch gives is compared first."""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import numpy_dtype
from metaschedule.measure.peak import instruction_peak
from metaschedule.target import resolve

ROUNDS, CALLS, LONGEST = 5, 60, 0.5  # seconds for the calls of a round
SCALE = 2.0**-7  # of results that are rescaled
PRODUCTS = [
    (128, 128, 128),
    (512, 512, 512),
    (1024, 1024, 1024),
    (109, 109, 109),
    (77, 253, 131),
    (1, 1024, 1024),
]
DENSE = [(128, 3072, 768), (1024, 4096, 1024)]
# Rows (and columns) of the image, channels before and after, kernel, stride, groups, whether channels are
# the last dimension.
CONVOLUTIONS = [
    (56, 64, 64, 3, 1, 1, True),
    (56, 64, 64, 3, 1, 1, False),
    (56, 64, 256, 1, 1, 1, True),
    (28, 128, 128, 3, 1, 1, True),
    (28, 128, 128, 3, 1, 1, False),
    (56, 128, 128, 3, 2, 1, True),
    (14, 256, 256, 3, 1, 1, True),
    (7, 512, 512, 3, 1, 1, True),
    (224, 3, 64, 7, 2, 1, True),
    (56, 128, 128, 3, 1, 128, True),
    (28, 256, 256, 3, 1, 32, True),
]


@dataclass
class Case:
    name: str
    program: ms.Program
    operations: int
    inputs: list[np.ndarray]
    constants: dict[str, np.ndarray]
    theirs: Callable[[], Any]
    tolerance: float = 0.0


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, low: int = -9) -> np.ndarray:
    return rng.integers(low, 10, shape).astype(numpy_dtype(dtype))


def tensor(a: np.ndarray) -> Any:
    import torch

    if a.dtype == numpy_dtype("bfloat16"):
        return torch.from_numpy(a.astype("float32")).to(torch.bfloat16)
    return torch.from_numpy(a)


def total_of(dtype: str) -> str:
    return "int32" if dtype.endswith("int8") else "float32"


def dense(m: int, n: int, k: int, dtype: str, first: str) -> tuple[Any, Any, Any]:
    a = te.placeholder((m, k), first, name="A")
    b = te.placeholder((k, n), dtype, name="B", constant=True)
    r, t = te.reduce_axis(k, name="k"), total_of(dtype)
    return (
        a,
        b,
        te.compute((m, n), lambda i, j: te.sum(a[i, r].astype(t) * b[r, j].astype(t), axis=r), name="C"),
    )


def product(m: int, n: int, k: int, dtype: str, rng: np.random.Generator) -> Case:
    import torch

    a, b, c = dense(m, n, k, dtype, dtype)
    if dtype != "int8":
        c = te.compute((m, n), lambda i, j: c[i, j].astype(dtype), name="D")
    x, w = numbers(rng, (m, k), dtype), numbers(rng, (k, n), dtype)
    left, right = tensor(x), tensor(w)
    theirs = torch.ops.aten._int_mm.default if dtype == "int8" else torch.mm
    name = f"{m}^3" if m == n == k else f"{m}x{n}x{k}"
    program = te.program([a, b], [c])
    return Case(name, program, 2 * m * n * k, [x], {"B": w}, lambda: theirs(left, right))


def fdense(m: int, n: int, k: int, dtype: str, rng: np.random.Generator) -> Case:
    import torch

    first = "uint8" if dtype == "int8" else dtype  # oneDNN has a reference for signed ones, 10^4 times slower
    a, b, c = dense(m, n, k, dtype, first)
    bias = te.placeholder((n,), "float32", name="bias", constant=True)
    y = te.compute((m, n), lambda i, j: c[i, j].astype("float32") * SCALE + bias[j], name="biased")
    root = 1 / math.sqrt(2)
    out = te.compute((m, n), lambda i, j: y[i, j] * 0.5 * (1.0 + te.erf(y[i, j] * root)), name="gelu")
    if dtype != "int8":
        out = te.compute((m, n), lambda i, j: out[i, j].astype(dtype), name="D")
    x, w, shift = numbers(rng, (m, k), first, 0), numbers(rng, (k, n), dtype), numbers(rng, (n,), "float32")
    left, right, added = tensor(x), tensor(w).T.contiguous(), tensor(shift)
    if dtype == "int8":
        packed = torch.ops.onednn.qlinear_prepack(right, list(left.shape))
        scales, zeros = torch.full((n,), SCALE), torch.zeros(n, dtype=torch.int64)

        def theirs() -> Any:
            return torch.ops.onednn.qlinear_pointwise(
                left, 1.0, 0, packed, scales, zeros, added, 1.0, 0, torch.float32, "gelu", [], "none"
            )
    else:
        scaled, narrow = (right.float() * SCALE).to(torch.bfloat16), added.to(torch.bfloat16)

        def theirs() -> Any:
            return torch.nn.functional.gelu(torch.nn.functional.linear(left, scaled, narrow))

    program = te.program([a, b, bias], [out])
    constants = {"B": w, "bias": shift}
    return Case(f"FDENSE {m}x{n}x{k}", program, 2 * m * n * k, [x], constants, theirs, 0.1)


def convolution(
    size: int, inner: int, outer: int, kernel: int, step: int, groups: int, last: bool, dtype: str,
    rng: np.random.Generator,
) -> Case:  # fmt: skip
    """Padded so that the size stays; relu, and results as narrow as the inputs."""
    import torch

    edge, before, after = kernel // 2, inner // groups, outer // groups
    results, total, first = (size - 1) // step + 1, total_of(dtype), "uint8" if dtype == "int8" else dtype

    def order(y: Any, z: Any, c: Any) -> tuple[Any, ...]:
        """Indices, or sizes, in the order of dimensions; the same puts them back where channels are last."""
        return (y, z, c) if last else (c, y, z)

    x = te.placeholder(order(size, size, inner), first, name="X")
    w = te.placeholder((kernel, kernel, before, outer), dtype, name="W", constant=True)
    whole = size + 2 * edge

    def padded(*i: Any) -> Any:
        y, z, c = i if last else (i[1], i[2], i[0])
        inside = te.all_of([y >= edge, y < size + edge, z >= edge, z < size + edge])
        return te.select(inside, x[order(y - edge, z - edge, c)], 0)

    p = te.compute(order(whole, whole, inner), padded, name="pad") if edge else x
    ry, rx = te.reduce_axis(kernel, name="ry"), te.reduce_axis(kernel, name="rx")
    rc = te.reduce_axis(before, name="rc")

    def element(*i: Any) -> Any:
        y, z, o = i if last else (i[1], i[2], i[0])
        channel = rc if groups == 1 else o // after * before + rc
        read = p[order(y * step + ry, z * step + rx, channel)].astype(total)
        return te.sum(read * w[ry, rx, rc, o].astype(total), axis=[ry, rx, rc])

    shape = order(results, results, outer)
    conv = te.compute(shape, element, name="conv")

    def rescaled(*i: Any) -> Any:
        value = te.maximum(conv[i].astype("float32") * SCALE, 0.0)
        return (te.minimum(te.round(value), 255.0) if dtype == "int8" else value).astype(first)

    program = te.program([x, w], [te.compute(shape, rescaled, name="out")])
    data = numbers(rng, order(size, size, inner), first, 0)
    weights = numbers(rng, (kernel, kernel, before, outer), dtype)
    image = tensor(data)[None].permute(0, 3, 1, 2) if last else tensor(data)[None]
    filters = tensor(weights).permute(3, 2, 0, 1).contiguous()
    steps, edges, ones = [step, step], [edge, edge], [1, 1]
    if dtype == "int8":
        scales, zeros = torch.full((outer,), SCALE), torch.zeros(outer, dtype=torch.int64)
        packed = torch.ops.onednn.qconv_prepack(
            filters, scales, 1.0, 0, steps, edges, ones, groups, list(image.shape)
        )

        def theirs() -> Any:
            return torch.ops.onednn.qconv2d_pointwise(
                image, 1.0, 0, packed, scales, zeros, None, steps, edges, ones, groups, 1.0, 0, torch.uint8,
                "relu", [], "",
            )[0]  # fmt: skip
    else:
        scaled = (filters.float() * SCALE).to(torch.bfloat16)
        scaled = scaled.to(memory_format=torch.channels_last) if last else scaled
        convolve = torch.nn.functional.conv2d

        def theirs() -> Any:
            return torch.relu(convolve(image, scaled, None, steps, edges, ones, groups))[0]

    operations = 2 * results**2 * outer * before * kernel**2
    grouped = f" groups {groups}" if groups > 1 else ""
    name = f"conv {size}x{size}x{inner}-{outer} {kernel}x{kernel}/{step}{grouped}{'' if last else ' NCHW'}"

    def seen() -> Any:
        return theirs().permute(1, 2, 0) if last else theirs()

    return Case(name, program, operations, [data], {"W": weights}, seen, 1.0 if dtype == "int8" else 0.1)


def cases(dtype: str, rng: np.random.Generator, wanted: list[str]) -> Iterator[Case]:
    """The cases whose names have one of the given parts."""
    makers: list[tuple[str, Callable[[], Case]]] = []
    makers += [
        (f"{m}x{n}x{k} {m}^3", lambda m=m, n=n, k=k: product(m, n, k, dtype, rng)) for m, n, k in PRODUCTS
    ]
    makers += [
        (f"FDENSE {m}x{n}x{k}", lambda m=m, n=n, k=k: fdense(m, n, k, dtype, rng)) for m, n, k in DENSE
    ]
    for c in CONVOLUTIONS:
        name = f"conv {c[0]}x{c[0]}x{c[1]}-{c[2]} {c[3]}x{c[3]}/{c[4]} groups {c[5]}{'' if c[6] else ' NCHW'}"
        makers.append((name, lambda c=c: convolution(*c, dtype, rng)))
    for name, make in makers:
        if not wanted or any(part in f"{dtype} {name}" for part in wanted):
            yield make()


def fastest(call: Callable[[], Any]) -> float:
    times: list[float] = []
    end = time.perf_counter() + LONGEST
    while len(times) < CALLS and (not times or time.perf_counter() < end):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def instruction_of(kernel: ms.Executable) -> str | None:
    found = re.search(r'T\.instruction\("([^"]+)"', kernel.source("script"))
    return found[1] if found else None


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--only", nargs="+", default=[], help="parts of names of cases")
    parser.add_argument("--types", nargs="+", default=["int8", "bfloat16"])
    parser.add_argument("--target", default="native")
    parser.add_argument("--db", help="records; with --trials 0 nothing new is tuned")
    options = parser.parse_args()
    options.db = ms.database.open(options.db or f"{tempfile.mkdtemp()}/narrow.db")
    target = resolve(options.target)
    torch.set_num_threads(target.cores)
    table = Table("", "PyTorch, us", "untuned, us", "tuned, us", "times PyTorch", "share of peak", "by")
    rng = np.random.default_rng(0)
    for dtype in options.types:
        for case in cases(dtype, rng, options.only):
            if options.trials:
                ms.tune(case.program, trials=options.trials, database=options.db, target=target)
            tuned = ms.build(case.program, constants=case.constants, database=options.db, target=target)
            plain = ms.build(case.program, constants=case.constants, target=target)
            calls = {
                "PyTorch": case.theirs,
                "untuned": lambda f=plain, x=case.inputs: f(*x),
                "tuned": lambda f=tuned, x=case.inputs: f(*x),
            }
            want, got, again = (np.asarray(tensor_values(call())) for call in calls.values())
            assert np.allclose(got, again, rtol=1e-2, atol=case.tolerance)
            assert np.allclose(want, got, rtol=2e-2, atol=case.tolerance), abs(want - got).max()
            best = dict.fromkeys(calls, float("inf"))
            for _ in range(ROUNDS):
                best = {name: min(best[name], fastest(call)) for name, call in calls.items()}
            name = instruction_of(tuned)
            rate = case.operations / best["tuned"] / 1e9
            row = (
                f"{dtype} {case.name}",
                *[f"{1e6 * seconds:.1f}" for seconds in best.values()],
                f"{best['PyTorch'] / best['tuned']:.2f}",
                f"{rate / instruction_peak(name, target):.0%}" if name else "",
                name or "no instruction",
            )
            table.add_row(*row)
            print(*row, sep="  ", file=sys.stderr, flush=True)  # as it comes
    Console(width=130).print(table)


def tensor_values(a: Any) -> np.ndarray:
    return np.asarray(a).astype("float32") if isinstance(a, np.ndarray) else a.float().numpy()


if __name__ == "__main__":
    main()
