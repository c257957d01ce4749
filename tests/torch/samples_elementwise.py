"""Calls of the element-wise operators."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from tests.torch.agreement import Sample, call, ints, special, t

aten = torch.ops.aten
f16, bf16, f64 = torch.float16, torch.bfloat16, torch.float64
i32, i64, i8, u8, boolean = torch.int32, torch.int64, torch.int8, torch.uint8, torch.bool


def unary() -> Iterator[Sample]:
    anywhere = (
        *("exp", "exp2", "expm1", "sqrt", "rsqrt", "erf", "sigmoid", "sin", "cos", "atan", "sinh", "cosh"),
        *("tanh", "asinh", "reciprocal"),
    )
    above_zero = ("log", "log2", "log10", "log1p", "acosh")
    within_one = ("asin", "acos", "atanh", "tan", "logit")
    for names, low, high in ((anywhere, -3, 3), (above_zero, 0.1, 4), (within_one, -0.95, 0.95)):
        for name in names:
            overload = getattr(aten, name).default
            yield call(overload, t(3, 5, low=low, high=high))
            for dtype in (f64, f16, bf16):
                yield call(overload, t(7, dtype=dtype, low=low, high=high))
            yield call(overload, ints(4, low=0, high=1, dtype=i32))
            yield call(overload, special())
    yield call(aten.logit.default, t(5, low=0, high=1), 0.3)
    for name in ("floor", "ceil", "trunc", "fix", "round", "abs", "sign", "sgn", "neg", "square", "relu"):
        overload = getattr(aten, name).default
        for dtype in (torch.float32, f64, bf16, i64, i8):
            yield call(overload, t(3, 4, dtype=dtype))
        yield call(overload, special())
        yield call(overload, t(0, 3))
    yield call(aten.abs.default, ints(4, low=0, dtype=u8))
    yield call(aten.sign.default, ints(4, low=0, dtype=u8))
    yield call(aten.sign.default, t(4, dtype=boolean))
    yield call(aten.round.default, torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5]))
    for decimals in (0, 2, -1):
        yield call(aten.round.decimals, t(9, low=-30, high=30), decimals=decimals)
    yield call(aten.frac.default, t(5))
    yield call(aten.asinh.default, torch.tensor([1e-6, 1e15, -1e30, 3e38]))
    yield call(aten.acosh.default, torch.tensor([1.0, 1.0001, 1e15, 3e38]))
    yield call(aten.nan_to_num.default, special())
    yield call(aten.nan_to_num.default, special(f64), 1.0, 2.0, -3.0)
    yield call(aten.nan_to_num.default, ints(4))
    yield from (call(aten.nan_to_num.default, special(dtype)) for dtype in (f16, bf16))
    pairs = torch.cartesian_prod(special(), special())
    yield call(aten.hypot.default, pairs[:, 0], pairs[:, 1])
    for alpha in (0.5, -2.7):
        yield call(aten.addcmul.default, ints(5), ints(5), ints(5), value=alpha)
    yield call(aten.add.Tensor, t(9, dtype=boolean), t(9, dtype=boolean), alpha=False)


def activations() -> Iterator[Sample]:
    yield from (call(aten.relu.default, ints(4)), call(aten.relu.default, t(2, 1, 3, dtype=f16)))
    for name in (
        *(
            "hardtanh",
            "relu6",
            "gelu",
            "silu",
            "hardsigmoid",
            "hardswish",
            "leaky_relu",
            "elu",
            "celu",
            "selu",
        ),
        *("softplus", "mish", "log_sigmoid", "hardshrink", "softshrink"),
    ):
        overload = getattr(aten, name).default
        yield call(overload, t(3, 7, low=-8, high=8))
        yield call(overload, t(1, dtype=f64))
        yield call(overload, t(5, dtype=bf16))
    for name in ("hardtanh", "relu6", "leaky_relu", "hardshrink", "softshrink", "elu"):
        yield call(getattr(aten, name).default, special())
    yield call(aten.gelu.default, t(3, 7), approximate="tanh")
    yield call(aten.hardtanh.default, t(9), -0.5, 2)
    yield call(aten.hardtanh.default, ints(9), -2, 2)
    yield call(aten.leaky_relu.default, t(9), 0.3)
    yield call(aten.elu.default, t(9), 0.7, 1.5, 2.0)
    yield call(aten.celu.default, t(9), 0.7)
    yield call(aten.softplus.default, t(9), 2.0, 3.0)
    yield call(aten.hardshrink.default, t(9), 1.0)
    yield call(aten.softshrink.default, t(9), 1.0)
    yield call(aten.threshold.default, t(9), 1.0, -7.0)
    yield call(aten.threshold.default, ints(9), 1, 7)
    yield call(aten.threshold.default, special(), 0, 2)
    yield call(aten._prelu_kernel.default, t(2, 3, 4), t(1, 3, 1))


def arithmetic() -> Iterator[Sample]:
    for name in ("add", "sub", "rsub", "mul", "div", "remainder", "fmod"):
        packet = getattr(aten, name)
        yield call(packet.Tensor, t(3, 5), t(5))
        yield call(packet.Tensor, t(3, 1, dtype=f64), t(1, 4))
        yield call(packet.Tensor, t(4, dtype=f16), t(dtype=f16))
        yield call(packet.Tensor, ints(7), ints(7, low=1, dtype=i32))
        yield call(packet.Tensor, ints(7), ints(7, low=-5, high=-1))
        yield call(packet.Tensor, t(2, 0), t(1, 1))
        yield call(packet.Tensor, special(), t(1))
        yield call(packet.Scalar, t(3), 2.5)
        yield call(packet.Scalar, ints(5), 3)
        yield call(packet.Scalar, ints(5, dtype=i8), 2.5)
        yield call(packet.Scalar, t(3, dtype=bf16), -2)
    for name in ("add", "mul"):
        yield call(getattr(aten, name).Tensor, t(9, dtype=boolean), t(9, dtype=boolean))
        yield call(getattr(aten, name).Tensor, t(9, dtype=boolean), ints(9))
    for name in ("add", "sub", "rsub"):
        yield call(getattr(aten, name).Tensor, t(3), t(3), alpha=0.5)
        yield call(getattr(aten, name).Scalar, ints(3), 4, 3)
    yield call(aten.mul.Tensor, ints(9, low=-128, high=127, dtype=i8), ints(9, low=-128, high=127, dtype=i8))
    yield call(aten.true_divide.Tensor, ints(4), ints(4, low=1))
    for mode in (None, "floor", "trunc"):
        yield call(aten.div.Tensor_mode, t(3, 5), t(5), rounding_mode=mode)
        yield call(aten.div.Tensor_mode, ints(99), ints(99, low=1), rounding_mode=mode)
        yield call(aten.div.Tensor_mode, ints(99), ints(99, low=-5, high=-1), rounding_mode=mode)
        yield call(aten.div.Scalar_mode, t(5), -0.7, rounding_mode=mode)
        yield call(aten.div.Scalar_mode, ints(5), 2, rounding_mode=mode)
    yield call(aten.floor_divide.default, t(9), t(9))
    yield call(aten.floor_divide.default, ints(9), ints(9, low=1))
    yield call(aten.floor_divide.Scalar, t(9), 0.7)
    yield call(aten.floor_divide.Scalar, ints(9), -3)
    for x in (t(5), t(5, dtype=f16), t(5, low=0), special()):
        yield call(aten.pow.Tensor_Tensor, x, t(1, low=0))
        for exponent in (2, 3, 0.5, -0.5, -1, 2.7, 0, -2):
            yield call(aten.pow.Tensor_Scalar, x, exponent)
    for dtype in (f16, bf16, f64):
        yield from (
            call(aten.pow.Tensor_Scalar, special(dtype), exponent) for exponent in (0.5, -0.5, -1, -2)
        )
        x = t(99, dtype=dtype, low=-50, high=50)
        for divisor in (t(99, dtype=dtype), t(dtype=dtype), t(1, dtype=dtype), special(dtype)[:, None]):
            yield call(aten.floor_divide.default, x, divisor)
            for mode in ("floor", "trunc"):
                yield call(aten.div.Tensor_mode, x, divisor, rounding_mode=mode)
        for mode in ("floor", "trunc"):
            yield call(aten.div.Scalar_mode, x, 0.3, rounding_mode=mode)
    for exponent in (0, 1, 2, 3, 5):
        yield call(aten.pow.Tensor_Scalar, ints(5), exponent)
    yield call(aten.pow.Tensor_Scalar, ints(5, low=0), 0.5)
    yield call(aten.pow.Scalar, 2, t(5))
    yield call(aten.pow.Scalar, 10000.0, t(5))
    for name in ("maximum", "minimum", "fmax", "fmin"):
        overload = getattr(aten, name).default
        yield call(overload, t(3, 5), t(1, 5))
        yield call(overload, special(), special().flip(0))
        yield call(overload, ints(4), ints(4, dtype=i32))
        yield call(overload, t(8, dtype=boolean), t(8, dtype=boolean))
    for low, high in ((-1, 1), (None, 0.5), (-0.5, None)):
        yield call(aten.clamp.default, t(3, 5), low, high)
        yield call(aten.clamp.default, special(), low, high)
        yield call(aten.clamp.default, ints(9), low, high)
    yield call(aten.clamp.Tensor, t(3, 5), t(5), t(3, 1))
    yield call(aten.clamp.Tensor, t(3, 5), None, t(1))
    yield from (call(aten.clamp_min.default, t(5), 0), call(aten.clamp_min.default, ints(5), 1.5))
    yield from (call(aten.clamp_max.default, t(5), 0), call(aten.clamp_max.default, ints(5), 2))
    yield from (call(aten.clamp_min.Tensor, t(5), t(1)), call(aten.clamp_max.Tensor, t(5), t(5)))
    yield call(aten.clamp_min.Tensor, t(5, dtype=boolean), t(5, dtype=boolean))
    for overload in (aten.addcmul.default, aten.addcdiv.default):
        yield call(overload, t(3, 4), t(4), t(3, 1))
        yield call(overload, t(3, 4), t(4), t(3, 1), value=0.3)
        yield call(overload, t(4, dtype=f64), t(4, dtype=f64), t(4, dtype=f64))
    yield call(aten.addcmul.default, ints(4), ints(4), ints(4), value=2)
    yield from (call(aten.lerp.Scalar, t(5), t(5), weight) for weight in (0.2, 0.5, 0.9))
    yield call(aten.lerp.Tensor, t(3, 5), t(5), t(3, 1))
    yield call(aten.atan2.default, special()[:, None], special())
    yield call(aten.atan2.default, t(9), t(9))
    yield call(aten.atan2.default, ints(9), ints(9))
    yield from (call(aten.hypot.default, t(9), t(9)), call(aten.hypot.default, special(), special().flip(0)))
    yield call(aten.logaddexp.default, t(3, 1), t(4))
    yield call(aten.logaddexp.default, special()[:, None], special())
    yield call(aten.xlogy.Tensor, t(9, low=0), t(9, low=0.1))
    yield call(aten.xlogy.Tensor, special()[:, None], special())
    yield from (call(aten.xlogy.Scalar_Self, 2, t(4, low=0.1)), call(aten.xlogy.Scalar_Other, t(4), 0.5))


def logic() -> Iterator[Sample]:
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        packet = getattr(aten, name)
        yield call(packet.Tensor, ints(3, 5), ints(5, dtype=i32))
        yield call(packet.Tensor, special()[:, None], special())
        yield call(packet.Tensor, t(9, dtype=boolean), t(9, dtype=boolean))
        yield call(packet.Tensor, ints(4), t(4, 1))
        yield call(packet.Scalar, ints(9), 2)
        yield call(packet.Scalar, t(9, dtype=f16), 0.1)
        yield call(packet.Scalar, ints(9), 1.5)
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield call(getattr(aten, name).default, t(3, 5, dtype=boolean), t(5, dtype=boolean))
        yield call(getattr(aten, name).default, ints(9, low=-1, high=1), t(9, dtype=boolean))
        yield call(getattr(aten, name).default, special(), ints(1, low=0, high=1))
    yield from (call(aten.logical_not.default, x) for x in (t(5, dtype=boolean), ints(5), special()))
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__"):
        packet = getattr(aten, name)
        yield call(packet.Tensor, ints(3, 5), ints(5))
        yield call(packet.Tensor, ints(5, low=0, high=200, dtype=u8), ints(5, dtype=i8))
        yield call(packet.Tensor, t(9, dtype=boolean), t(9, dtype=boolean))
        yield call(packet.Scalar, ints(5), 3)
        yield call(packet.Scalar, t(5, dtype=boolean), True)
    yield from (
        call(aten.bitwise_not.default, x) for x in (ints(5), ints(5, low=0, dtype=u8), t(5, dtype=boolean))
    )
    for packet in (aten.bitwise_left_shift, aten.bitwise_right_shift):
        yield call(packet.Tensor, ints(3, 5, dtype=i32), ints(5, low=0, dtype=i32))
        yield call(packet.Tensor_Scalar, ints(5), 2)
        for dtype, amount in itertools.product((i8, u8, i32, i64), (7, 8, 31, 32, 63, 64, 100)):
            yield call(packet.Tensor_Scalar, ints(5, low=0 if dtype is u8 else -9, dtype=dtype), amount)
        yield call(packet.Tensor, ints(40), ints(40, low=-5, high=70))
    for packet in (aten.__lshift__, aten.__rshift__):
        yield call(packet.Tensor, ints(3, 5, dtype=i32), ints(5, low=0, dtype=i32))
        yield call(packet.Scalar, ints(5), 2)
    for name in ("isnan", "isinf", "isfinite"):
        yield from (call(getattr(aten, name).default, x) for x in (special(), special(bf16), ints(3)))
    yield from (call(aten.signbit.default, x) for x in (special(), ints(5), ints(5, low=0, dtype=u8)))
    condition = t(3, 5, dtype=boolean)
    yield call(aten.where.self, condition, t(5), t(3, 1))
    yield call(aten.where.self, condition, ints(5), t(dtype=f64))
    yield call(aten.where.self, condition, special()[:5], t(dtype=f16))
    yield call(aten.where.ScalarSelf, condition, 2.0, t(5))
    yield call(aten.where.ScalarOther, condition, ints(5), 0)
    yield call(aten.where.Scalar, condition, 2.0, 1.0)
    yield call(aten.masked_fill.Scalar, t(3, 5), condition, float("-inf"))
    yield call(aten.masked_fill.Scalar, ints(5), condition, 7)
    yield call(aten.masked_fill.Scalar, t(5, dtype=boolean), condition, 7)
    yield call(aten.masked_fill.Tensor, t(3, 5, dtype=f16), condition[:, :1], t())


def special_functions() -> Iterator[Sample]:
    for dtype in (torch.float32, f64, f16, bf16):
        x = torch.cat([t(20, dtype=dtype, low=-12, high=12), t(20, dtype=dtype), special(dtype)])
        for packet in (aten.lgamma, aten.digamma, aten.erfc, aten.i0, aten.special_i0e):
            yield call(packet.default, x)
        if dtype.itemsize > 2:
            for packet in (aten.special_erfcx, aten.special_i1, aten.special_i1e):
                yield call(packet.default, x)
        positive = t(20, dtype=dtype, low=0.1, high=30)
        yield from (call(aten.polygamma.default, n, positive) for n in (0, 2, 3, 4))
    below = torch.tensor([-0.5, -3.3, -7.6, 0.0, float("nan")])
    yield from (call(aten.polygamma.default, n, below) for n in (1, 2, 3))
    yield call(aten.lgamma.default, torch.tensor([1e10, 1e35, -1e5, -0.0]))
    for dtype in (torch.float32, f64):
        x = torch.cat(
            [t(200, dtype=dtype, low=0, high=60), special(dtype), t(9, dtype=dtype, low=0, high=0.01)]
        )
        names = ["modified_bessel_k", "scaled_modified_bessel_k", "modified_bessel_i"]
        if dtype == torch.float32:  # eager's in float64 are good for 5 digits near 5
            names += ["bessel_j", "bessel_y"]
        for name, order in itertools.product(names, (0, 1)):
            yield call(getattr(aten, f"special_{name}{order}").default, x[x != torch.inf])
        yield call(aten.special_spherical_bessel_j0.default, x)
        y = torch.cat(
            [t(200, dtype=dtype, low=-1, high=1), special(dtype), t(9, dtype=dtype, low=-1e-5, high=0)]
        )
        yield from (call(aten.erfinv.default, y), call(aten.special_ndtri.default, y))
        yield call(aten.special_ndtri.default, torch.tensor([1e-30, 1e-8, 0.25, 0.75], dtype=dtype))
    for kind, shifted, dtype in itertools.product("tuvw", (False, True), (torch.float32, f64)):
        packet = getattr(aten, f"special_{'shifted_' * shifted}chebyshev_polynomial_{kind}")
        grid = torch.cartesian_prod(
            torch.linspace(-1.5, 1.5, 13, dtype=dtype), torch.arange(-1, 13).to(dtype)
        )
        yield call(packet.default, grid[:, 0], grid[:, 1])
        yield from (call(packet.n_scalar, grid[:, 0], 5), call(packet.x_scalar, 0.3, grid[:14, 1]))
    yield from (call(packet.default, ints(9)) for packet in (aten.lgamma, aten.digamma, aten.erfc))
    pairs = torch.cartesian_prod(special(), special())
    yield call(aten.copysign.Tensor, pairs[:, 0], pairs[:, 1])
    yield from (call(aten.copysign.Scalar, x, -2) for x in (special(f64), ints(5)))


def samples() -> Iterator[Sample]:
    yield from unary()
    yield from activations()
    yield from arithmetic()
    yield from logic()
    yield from special_functions()
