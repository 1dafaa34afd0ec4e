"""Every elementwise op at every pair of special values: value, gradient and second gradient.

What differs from eager stands in `DIFFERS` with the reason, by op and by what differs: `y`, `da`
and `db` (gradients), `dda` and `ddb` (gradients of their sum). An op that agrees again fails.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from gradof import differentiate
from gradof.ops.registry import all_ops

INF, NAN = math.inf, math.nan
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
Function = Callable[..., Any]


def special_values(dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    tiny, large, least = info.tiny, info.max, info.tiny * info.eps  # the last is subnormal
    return torch.tensor(
        [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, tiny, -tiny, least, -least, large, -large,
         INF, -INF, NAN], dtype=dtype)  # fmt: skip


def _named(module: Any, names: str) -> dict[str, Function]:
    return {name: getattr(module, name) for name in names.split()}


def _power(k: float) -> Function:
    return lambda x: x**k


UNARY: dict[str, Function] = {
    **_named(torch, "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc"
             " erfinv exp exp2 expm1 floor frac i0 lgamma log log10 log1p log2 logit nan_to_num neg"
             " reciprocal relu round rsqrt sgn sigmoid sign sin sinc sinh sqrt square tan"
             " tanh trunc"),
    **_named(torch.special, "entr erfcx expit i0e i1 i1e log_ndtr ndtr ndtri"),
    **_named(functional, "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu"
             " logsigmoid mish relu6 selu silu softplus softshrink softsign tanhshrink"),
    **{f"x**{k}": _power(k) for k in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.5, 2.5)},
    "gelu tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "threshold": lambda x: functional.threshold(x, 0.5, 2.0),
    "0**x": lambda x: 0.0**x, "2**x": lambda x: 2.0**x, "2/x": lambda x: 2 / x,
    "x%3": lambda x: x % 3, "x//2": lambda x: x // 2, "fmod 2": lambda x: torch.fmod(x, 2),
    "logit eps": lambda x: torch.logit(x, 0.1),
    "clamp": lambda x: x.clamp(-1, 0.5), "clamp to one": lambda x: x.clamp(0.5, 0.5),
    "clamp from below": lambda x: x.clamp(min=0), "clamp crossed": lambda x: x.clamp(1, -1),
    "clamp by nan": lambda x: x.clamp(NAN, 1.0),
}  # fmt: skip


def _unreduced(name: str, **options: Any) -> Function:
    return lambda a, b: getattr(functional, name)(a, b, reduction="none", **options)


BINARY: dict[str, Function] = {
    **_named(torch, "add sub mul div atan2 copysign fmax fmin fmod hypot logaddexp logaddexp2"
             " maximum minimum pow remainder xlogy floor_divide heaviside ldexp float_power"),
    "xlog1py": torch.special.xlog1py, "where": lambda a, b: torch.where(a > b, a, b),
    "prelu": lambda a, b: functional.prelu(a[None], b),
    "mse": _unreduced("mse_loss"), "l1": _unreduced("l1_loss"),
    "smooth_l1": _unreduced("smooth_l1_loss"),
    "smooth_l1 2": _unreduced("smooth_l1_loss", beta=2.0),
    "huber": _unreduced("huber_loss"), "huber 3": _unreduced("huber_loss", delta=3.0),
    "bce": _unreduced("binary_cross_entropy_with_logits"), "kl_div": _unreduced("kl_div"),
    "soft_margin": _unreduced("soft_margin_loss"), "poisson": _unreduced("poisson_nll_loss"),
    "clamp min": lambda a, b: torch.clamp(a, min=b),
    "clamp max": lambda a, b: torch.clamp(a, max=b),
    "clamp both": lambda a, b: torch.clamp(a, b, b + 1),
    "clamp tie": lambda a, b: torch.clamp(a, b, b), "clamp self": lambda a, b: torch.clamp(a, a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3), "lerp far": lambda a, b: torch.lerp(a, b, 0.7),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.5),
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}  # fmt: skip

NAN_THERE = "eager's formula is nan or infinite there: an intermediate overflows, or inf * 0"
KINK = "at a kink eager's second derivative is of another side than its first"
AT_NAN = "at nan eager's answer depends on the dtype, and on where in its vectors the number is"
NEAR = "sums that cancel, in another order"
ZERO = "eager takes sqrt for x**0.5 in its value alone, or in some vectors: signs at -0, -inf"
EXACT = "a large quotient's remainder is exact, eager's nan"
DIFFERS: dict[str, dict[str, str]] = {
    "asinh": {"dda": NAN_THERE}, "atanh": {"dda": NAN_THERE}, "erf": {"dda": NAN_THERE},
    "erfc": {"dda": NAN_THERE}, "ndtr": {"dda": NAN_THERE}, "gelu": {"dda": NAN_THERE},
    "gelu tanh": {"dda": NEAR}, "mish": {"dda": NEAR}, "hypot": {"dda": NEAR, "ddb": NEAR},
    "sinc": {"da": NAN_THERE, "dda": NAN_THERE}, "i0": {"dda": AT_NAN},
    "erfcx": {"da": NAN_THERE, "dda": NAN_THERE},
    "i1": {"da": AT_NAN, "dda": AT_NAN}, "i1e": {"da": AT_NAN, "dda": AT_NAN},
    "log_ndtr": {"da": NAN_THERE, "dda": NAN_THERE},
    "celu": {"da": AT_NAN, "dda": AT_NAN}, "elu": {"da": AT_NAN, "dda": AT_NAN},
    "selu": {"da": AT_NAN, "dda": AT_NAN}, "prelu": {"dda": KINK, "ddb": KINK},
    "hardswish": {"y": "x * 6 / 6 overflows in eager", "da": AT_NAN,
                  "dda": AT_NAN},
    "hardshrink": {"da": AT_NAN}, "hardtanh": {"da": AT_NAN}, "relu6": {"da": AT_NAN},
    "x**0.5": {"y": ZERO, "da": ZERO, "dda": ZERO}, "x**-0.5": {"y": ZERO}, "x**1.5": {"dda": ZERO},
    "0**x": {"dda": NAN_THERE},
    "atan2": {"dda": NAN_THERE, "ddb": NAN_THERE},
    "copysign": {"da": NAN_THERE, "dda": NAN_THERE},
    "fmod": {"y": EXACT}, "remainder": {"y": EXACT},
    "logaddexp": {"dda": NEAR, "ddb": NEAR}, "logaddexp2": {"y": NEAR, "dda": NEAR, "ddb": NEAR},
    "pow": {"dda": NAN_THERE, "ddb": NAN_THERE},
    "float_power": {"dda": NAN_THERE, "ddb": NAN_THERE},
    "addcmul": {"y": "an FMA of eager's does not round a product that overflows"},
    "addcdiv": {"db": NAN_THERE, "ddb": NAN_THERE}, "bce": {"da": NEAR},
    "ldexp": {"db": NAN_THERE, "ddb": NAN_THERE},
}  # fmt: skip
FLAT = ("floor_divide", "div floor", "div trunc", "heaviside")  # zero without a run of ours


def _orders(fn: Function, args: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor | None]:
    """The value and both gradients, by their labels."""
    names = "ab"[: len(args)]
    value = fn(*args)
    found: dict[str, torch.Tensor | None] = {"y": value}
    if not value.requires_grad:
        return found
    first = torch.autograd.grad(
        value, args, torch.ones_like(value), create_graph=True, allow_unused=True
    )
    found |= {f"d{n}": g for n, g in zip(names, first, strict=True)}
    again = [g for g in first if g is not None and g.requires_grad]
    if again:
        ones = [torch.ones_like(g) for g in again]
        second = torch.autograd.grad(again, args, ones, allow_unused=True)
        found |= {f"dd{n}": g for n, g in zip(names, second, strict=True)}
    return found


def _agree(got: torch.Tensor | None, want: torch.Tensor | None) -> bool:
    if got is None or want is None:  # of what is zero everywhere eager may say None, and we, too
        other = want if got is None else got
        return other is None or bool((other == 0).all())
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    size = want.abs() + torch.finfo(want.dtype).tiny * 8
    floor = 1e-14 if want.dtype == torch.float64 else 1e-6
    near = (got - want).abs() <= TOLERANCES[want.dtype] * (size + floor)
    near &= got.isfinite() & want.isfinite()
    return bool(((got == want) | (got.isnan() & want.isnan()) | near).all())


def _table() -> list[Any]:
    """Every op; all but one in six, and what has mended a mistake, are for `make long`."""
    always = {"pow", "fmod", "div trunc", "log_ndtr", "xlogy"}
    return [
        name if i % 6 == 0 or name in always else pytest.param(name, marks=pytest.mark.long)
        for i, name in enumerate([*UNARY, *BINARY])
    ]


# Of truths and of copies, which have no values of their own at the edges.
WITHOUT_A_ROW = {
    "bitwise_not", "conj", "copy", "isfinite", "isinf", "isnan", "logical_not", "signbit",
}  # fmt: skip


def test_every_elementwise_op_of_aten_has_a_row() -> None:
    rows = {name.split()[0] for name in (*UNARY, *BINARY)}
    missing = set()
    for op in all_ops():
        names = {n.split(".")[1].replace("special_", "") for n in op.names if n[:5] == "aten."}
        if "elementwise" in op.traits and len(op.inputs) <= 2 and names:
            missing.update([] if (names | {op.name}) & rows else [op.name])
    assert missing == WITHOUT_A_ROW


@pytest.mark.parametrize("name", _table())
def test_special_values(name: str) -> None:
    differs = set()
    for dtype in DTYPES:
        values = special_values(dtype)
        base = [values]
        if name in BINARY:
            base = [values.repeat_interleave(len(values)), values.repeat(len(values))]
        fn = {**UNARY, **BINARY}[name]
        mine, theirs = (tuple(v.clone().requires_grad_() for v in base) for _ in range(2))
        compiled = differentiate(fn)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of complex parts and the like
            try:
                want = _orders(fn, theirs)
            except (RuntimeError, NotImplementedError):
                continue  # torch has no such gradient, or op, in half precision
            got = _orders(compiled, mine)
        ran = compiled.cache_info()
        assert ran.forward_runs and (ran.backward_runs or name in FLAT)
        differs |= {k for k in want.keys() | got.keys() if not _agree(got.get(k), want.get(k))}
    assert differs == DIFFERS.get(name, {}).keys()
