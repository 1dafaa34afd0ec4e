"""A trace does not load torch._dynamo, and leaves torch's meta kernels as they were."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, torch, gradof
from gradof.tracer.torch.meta_kernels import _MARK, _marked_kernels
F = torch.nn.functional
x = torch.rand(3).requires_grad_()
for change in (
    lambda y: y.exp_(), lambda y: y.neg_(), lambda y: y.clamp_(0.0, 1.0), lambda y: y.pow_(2),
    lambda y: F.hardswish(y, inplace=True), lambda y: F.elu(y, inplace=True),
    lambda y: torch.quantile(y, 0.3), lambda y: y.tril_() if y.dim() > 1 else y.sqrt_(),
):
    gradof.differentiate(lambda x: change(x * 1).sum(), strict=True)(x).backward()
assert "torch._dynamo" not in sys.modules
assert len(_marked_kernels()) > 50
assert not any(_MARK in vars(kernel) for kernel in _marked_kernels())
"""


def test_changes_in_place_do_not_load_dynamo() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
