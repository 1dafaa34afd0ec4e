"""Workloads through Triton's interpreter, compared with eager; `python -m` prints JSON.

Run with GRADOF_BACKEND=triton and TRITON_INTERPRET=1: {workload: number of kernels that ran}.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.nn.functional as F

from gradof import differentiate
from gradof.codegen.triton.kernel import TritonKernel
from tests import sample
from tests.runtime.compare import check, tensors
from tests.runtime.test_half import close


def _black_scholes(s: Any, k: Any, t: Any) -> Any:
    d = (torch.log(s / k) + (0.03 + 0.02) * t) / (0.2 * torch.sqrt(t))
    cdf = 0.5 * (1.0 + torch.erf(d / 2**0.5))
    return s * cdf - k * torch.exp(-0.03 * t) * 0.5 * (1.0 + torch.erf((d - 0.2) / 2**0.5))


WORKLOADS = {
    "rms norm": lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w,
    "layer norm": lambda x, w: F.layer_norm(x, (x.shape[-1],), w, 0.5 * w),
    "softmax": lambda x, w: F.softmax(x * w, -1),
    "cross-entropy": lambda x, w: F.cross_entropy(
        x * w, torch.arange(x.shape[0], device=x.device) % x.shape[1]
    ),
    "bias-gelu": lambda x, w: F.gelu(x + w),
    "bias-gelu tanh": lambda x, w: F.gelu(x + w, approximate="tanh"),
    "mse": lambda x, w: F.mse_loss(x, w.expand_as(x)),
    "swiglu": lambda x, w: F.silu(x) * w,
    "black-scholes": lambda x, w: _black_scholes(x.exp(), w.exp(), (x * x) + 0.5),
    "shared, two outputs": lambda x, w: ((h := torch.tanh(x + w)) * h, h.sum(0), h.amax(-1)),
}
SHAPES = {"f32": ((6, 9), torch.float32), "f64": ((5, 3), torch.float64)}
HALVES = (torch.bfloat16, torch.float16)


def judge(fn: Any, half: torch.dtype) -> None:
    """Values and gradients in half precision, as near to float64 as eager's."""
    args = [torch.randn(s, dtype=half).requires_grad_() for s in ((6, 9), (9,))]
    wide = [a.detach().double().requires_grad_() for a in args]
    results = []
    for call, given in ((differentiate(fn), args), (fn, args), (fn, wide)):
        outs = tensors(call(*given))
        seeds = [torch.linspace(-1, 2, o.numel()).reshape(o.shape).to(o.dtype) for o in outs]
        grads = torch.autograd.grad(outs, given, seeds)
        results.append([*outs, *grads])
    for mine, theirs, exact in zip(*results, strict=True):
        close(mine, theirs, exact)


def main() -> None:
    """Run all of them; an exception where one is wrong."""
    runs = 0
    plain = TritonKernel.__call__

    def counted(self: TritonKernel, *tensors: Any) -> tuple[Any, ...]:
        nonlocal runs
        runs += 1
        return plain(self, *tensors)

    TritonKernel.__call__ = counted  # type: ignore[method-assign]
    torch.manual_seed(0)
    found = {}
    for name, fn in sample.part(WORKLOADS.items()):
        for dtype_name, (shape, dtype) in SHAPES.items():
            for strided in (False, True):
                x = torch.randn(*(reversed(shape) if strided else shape), dtype=dtype)
                x = (x.T if strided else x).requires_grad_()
                w = torch.randn(shape[-1], dtype=dtype, requires_grad=True)
                before = runs
                check(fn, x, w, order=2)
                found[f"{name} {dtype_name}{' strided' if strided else ''}"] = runs - before
        for half in HALVES:
            before = runs
            judge(fn, half)
            found[f"{name} {half}"] = runs - before
    check(lambda x: torch.tanh(x) * x, torch.randn((), requires_grad=True))
    check(lambda x: torch.tanh(x) * x, torch.randn(0, 3, requires_grad=True))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
