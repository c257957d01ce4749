"""Convolutions, channels last: one builder for any number of spatial dimensions, and its relatives.

Padding is a stage of its own (`pad`, only where there is some), the convolution reads it without
conditions.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import te
from ..ir import Expr, Program
from ..te import Tensor

SPATIAL = {1: ("l",), 2: ("h", "w"), 3: ("d", "h", "w")}


def pad(x: Tensor, padding: int, spatial: int) -> Tensor:
    """`x` with `padding` zeros around dimensions 1 to `spatial`; `x` itself if there are none."""
    if padding == 0:
        return x
    dims = range(1, 1 + spatial)
    shape = [n + 2 * padding if d in dims else n for d, n in enumerate(x.shape)]

    def element(*i: Expr) -> Expr:
        at = [v - padding if d in dims else v for d, v in enumerate(i)]
        inside = [c for d in dims for c in (i[d] >= padding, i[d] < x.shape[d] + padding)]
        return te.select(te.all_of(inside), x[tuple(at)], 0)

    return te.compute(shape, element, name="pad", axes=names(spatial, len(shape)))


def names(spatial: int, rank: int, last: str = "c") -> list[str]:
    """Loop names: batch, spatial dimensions, what is between, channels."""
    middle = [f"m{n}" for n in range(rank - spatial - 2)]
    return ["n", *SPATIAL[spatial], *middle, last]


def kernel_axes(kernel: Sequence[int]) -> list[Expr]:
    return [te.reduce_axis(n, name=f"r{d}") for n, d in zip(kernel, SPATIAL[len(kernel)], strict=True)]


def out_extents(x: Tensor, kernel: Sequence[int], s: int, p: int, dilation: int) -> list[int]:
    extents = [
        (n + 2 * p - dilation * (k - 1) - 1) // s + 1 for n, k in zip(x.shape[1:], kernel, strict=False)
    ]
    if any(n < 1 for n in extents):
        raise ValueError(
            f"the kernel {tuple(kernel)} with dilation {dilation} does not fit in the input "
            f"{x.shape[1 : 1 + len(kernel)]} padded by {p}"
        )
    return extents


def convolve(x: Tensor, w: Tensor, s: int, p: int, dilation: int = 1, groups: int = 1) -> Tensor:
    """X(n, spatial.., ci) with W(k.., ci/groups, co), giving (n, spatial.., co)."""
    spatial = x.ndim - 2
    kernel, (ci, co) = w.shape[:spatial], w.shape[spatial:]
    out = out_extents(x, kernel, s, p, dilation)
    padded = pad(x, p, spatial)
    rk, rc = kernel_axes(kernel), te.reduce_axis(ci, name="rc")

    def element(*i: Expr) -> Expr:
        n, c = i[0], i[-1]
        at = [i[d + 1] * s + r * dilation for d, r in enumerate(rk)]
        channel = rc if groups == 1 else c // (co // groups) * ci + rc
        return te.sum(padded[n, *at, channel] * w[*rk, rc, c], axis=[*rk, rc])

    axes = names(spatial, x.ndim, "co")
    return te.compute((x.shape[0], *out, co), element, name="conv", axes=axes)


def convolution(
    spatial: Sequence[int], n: int, ci: int, co: int, k: int, s: int, p: int, dilation: int = 1,
    groups: int = 1, dtype: str = "float32",
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Placeholders X and W, and their convolution."""
    if ci % groups or co % groups:
        raise ValueError(f"groups={groups} must divide the channels, ci={ci} and co={co}")
    x = te.placeholder((n, *spatial, ci), dtype, name="X")
    w = te.placeholder((*[k] * len(spatial), ci // groups, co), dtype, name="W")
    return x, w, convolve(x, w, s, p, dilation, groups)


def c1d(n: int, l: int, ci: int, co: int, k: int, s: int, p: int, dtype: str) -> Program:  # noqa: E741
    """1-D convolution: X(n, l, ci), W(k, ci, co)."""
    x, w, y = convolution((l,), n, ci, co, k, s, p, dtype=dtype)
    return te.program([x, w], [y], name="C1D")


def c2d(n: int, h: int, w: int, ci: int, co: int, k: int, s: int, p: int, dtype: str) -> Program:
    """2-D convolution: X(n, h, w, ci), W(k, k, ci, co)."""
    x, weight, y = convolution((h, w), n, ci, co, k, s, p, dtype=dtype)
    return te.program([x, weight], [y], name="C2D")


def c3d(n: int, d: int, h: int, w: int, ci: int, co: int, k: int, s: int, p: int, dtype: str) -> Program:
    """3-D convolution: X(n, d, h, w, ci), W(k, k, k, ci, co)."""
    x, weight, y = convolution((d, h, w), n, ci, co, k, s, p, dtype=dtype)
    return te.program([x, weight], [y], name="C3D")


def dil(
    n: int, h: int, w: int, ci: int, co: int, k: int, s: int, p: int, dilation: int, dtype: str
) -> Program:
    """Dilated 2-D convolution: X(n, h, w, ci), W(k, k, ci, co)."""
    x, weight, y = convolution((h, w), n, ci, co, k, s, p, dilation, dtype=dtype)
    return te.program([x, weight], [y], name="DIL")


def grp(n: int, h: int, w: int, ci: int, co: int, k: int, s: int, p: int, groups: int, dtype: str) -> Program:
    """Grouped 2-D convolution: X(n, h, w, ci), W(k, k, ci/groups, co)."""
    x, weight, y = convolution((h, w), n, ci, co, k, s, p, groups=groups, dtype=dtype)
    return te.program([x, weight], [y], name="GRP")


def cbr(n: int, h: int, w: int, ci: int, co: int, k: int, s: int, p: int, dtype: str) -> Program:
    """relu((conv + bias) * scale + offset), the bias and the normalisation each a stage."""
    x, weight, conv = convolution((h, w), n, ci, co, k, s, p, dtype=dtype)
    bias, scale, offset = (
        te.placeholder((co,), dtype, name=name) for name in ("bias", "bn_scale", "bn_offset")
    )
    shape = conv.shape
    biased = te.compute(shape, lambda n, h, w, co: conv[n, h, w, co] + bias[co], name="bias_add")
    normal = te.compute(shape, lambda n, h, w, co: biased[n, h, w, co] * scale[co] + offset[co], name="bn")
    y = te.compute(shape, lambda n, h, w, co: te.maximum(normal[n, h, w, co], 0), name="relu")
    return te.program([x, weight, bias, scale, offset], [y], name="CBR")


def dep(n: int, h: int, w: int, c: int, k: int, s: int, p: int, dtype: str) -> Program:
    """Depthwise 2-D convolution: X(n, h, w, c), W(k, k, c)."""
    x = te.placeholder((n, h, w, c), dtype, name="X")
    weight = te.placeholder((k, k, c), dtype, name="W")
    out = out_extents(x, (k, k), s, p, 1)
    padded = pad(x, p, 2)
    rh, rw = kernel_axes((k, k))
    y = te.compute(
        (n, *out, c),
        lambda n, h, w, c: te.sum(padded[n, h * s + rh, w * s + rw, c] * weight[rh, rw, c], axis=[rh, rw]),
        name="depthwise",
    )
    return te.program([x, weight], [y], name="DEP")


def t2d(n: int, h: int, w: int, ci: int, co: int, k: int, s: int, p: int, dtype: str) -> Program:
    """Transposed 2-D convolution: X(n, h, w, ci), W(k, k, ci, co), output (h - 1) * s - 2p + k.

    The input is spread out, `s` apart and with zeros around, and convolved with flipped weights.
    """
    x = te.placeholder((n, h, w, ci), dtype, name="X")
    weight = te.placeholder((k, k, ci, co), dtype, name="W")
    out = [(extent - 1) * s - 2 * p + k for extent in (h, w)]
    if min(out) < 1:
        raise ValueError(f"p={p} leaves nothing of the output: {out[0]} x {out[1]}")
    edge = k - 1 - p  # negative where the padding cuts into the input
    spread = te.compute(
        (n, *[extent + k - 1 for extent in out], ci),
        lambda n, h, w, c: te.select(
            te.all_of(
                *(h >= edge, h < edge + (x.shape[1] - 1) * s + 1, (h - edge) % s == 0),
                *(w >= edge, w < edge + (x.shape[2] - 1) * s + 1, (w - edge) % s == 0),
            ),
            x[n, (h - edge) // s, (w - edge) // s, c],
            0,
        ),
        name="spread",
    )
    rh, rw = kernel_axes((k, k))
    rc = te.reduce_axis(ci, name="rc")
    y = te.compute(
        (n, *out, co),
        lambda n, h, w, co: te.sum(
            spread[n, h + rh, w + rw, rc] * weight[k - 1 - rh, k - 1 - rw, rc, co],
            axis=[rh, rw, rc],
        ),
        name="conv_transpose",
    )
    return te.program([x, weight], [y], name="T2D")


def cap(n: int, h: int, w: int, ci: int, co: int, k: int, s: int, p: int, cap: int, dtype: str) -> Program:
    """Convolution of cap x cap matrices: X(n, h, w, cap, cap, ci), W(k, k, cap, cap, ci, co)."""
    x = te.placeholder((n, h, w, cap, cap, ci), dtype, name="X")
    weight = te.placeholder((k, k, cap, cap, ci, co), dtype, name="W")
    out = out_extents(x, (k, k), s, p, 1)
    padded = pad(x, p, 2)
    rh, rw = kernel_axes((k, k))
    rm, rc = te.reduce_axis(cap, name="rm"), te.reduce_axis(ci, name="rc")
    y = te.compute(
        (n, *out, cap, cap, co),
        lambda n, h, w, i, j, co: te.sum(
            padded[n, h * s + rh, w * s + rw, i, rm, rc] * weight[rh, rw, rm, j, rc, co],
            axis=[rh, rw, rm, rc],
        ),
        name="capsule",
    )
    return te.program([x, weight], [y], name="CAP")
