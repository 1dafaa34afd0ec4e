"""Dropout that kernels draw: torch's masks and states, bit for bit."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from gradof import differentiate

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_dropout_that_kernels_draw(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_DROPOUT", "kernel")
    for shape in ((4,), (64, 33), (7, 5, 12), (3000, 4096)):
        x = torch.ones(shape, device="cuda", dtype=dtype, requires_grad=True)
        compiled = differentiate(lambda x: F.dropout(x, 0.3) * x, strict=True)
        for seed in (1, 2):
            found = []
            for call in (compiled, lambda x: F.dropout(x, 0.3) * x):
                torch.manual_seed(seed)
                y = call(x)
                state = torch.cuda.get_rng_state()
                (dx,) = torch.autograd.grad(y.sum(), x)
                found.append((y != 0, dx != 0, state))
            for a, b in zip(*found, strict=True):
                assert torch.equal(a, b)
        assert compiled.cache_info().backward_runs == 2
        assert "philox_state(" in compiled.explain(x).source
