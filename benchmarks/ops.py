"""Torch's functions one by one, with their gradients: gradof beside eager, the slowest first.

    python benchmarks/ops.py                    # every one, a line each
    python benchmarks/ops.py softmax gather     # these

Arrays are 1024x1024 of float32, but where it is said. Both sides run in this process, in turns, on
the same arrays; the ratio is of medians. Gradients are compared before anything is measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

import gradof

Function = Callable[[Any, Any], Any]
ROUNDS = 11
_RNG = torch.Generator().manual_seed(0)
CELLS = torch.randint(0, 1024, (1024, 1024), generator=_RNG)
ROWS = torch.randint(0, 1024, (4096,), generator=_RNG)
LABELS = torch.randint(0, 2, (1024, 1024), generator=_RNG).float()


def _images(x: Any) -> Any:
    return x.view(16, 64, 32, 32)


ELEMENTWISE: dict[str, Function] = {
    name: lambda x, y, name=name: getattr(torch, name)(x) * y
    for name in ("sin", "tanh", "sigmoid", "erf", "expm1", "atan", "square", "abs", "floor", "exp2")
}
POSITIVE: dict[str, Function] = {  # of x in (0.05, 0.95)
    name: lambda x, y, name=name: getattr(torch, name)(x) * y
    for name in ("log", "log1p", "sqrt", "rsqrt", "asin", "atanh", "logit", "lgamma", "digamma",
                 "erfinv")
}  # fmt: skip
BINARY: dict[str, Function] = {
    "hypot": torch.hypot, "atan2": torch.atan2, "logaddexp": torch.logaddexp,
    "maximum": torch.maximum, "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "fmod": lambda x, y: torch.fmod(x, 1.3) * y, "remainder": lambda x, y: (x % 1.0) * y,
    "where": lambda x, y: torch.where(x > 0, x * x, y),
}  # fmt: skip
LOSSES: dict[str, Function] = {
    "mse": F.mse_loss, "l1": F.l1_loss, "huber": F.huber_loss,
    "bce with logits": lambda x, y: F.binary_cross_entropy_with_logits(x, LABELS) + 0 * y.sum(),
    "kl": lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"),
    "gaussian nll": lambda x, y: F.gaussian_nll_loss(x, y, torch.exp(x)),
    "cross entropy": lambda x, y: F.cross_entropy(x, CELLS[0]) + F.cross_entropy(y, y.softmax(-1)),
    "cosine": lambda x, y: F.cosine_similarity(x, y, dim=-1),
    "focal": lambda x, y: (1 - torch.sigmoid(x)) ** 2 * F.softplus(-x) * y,
}  # fmt: skip
NORMS: dict[str, Function] = {
    "softmax": lambda x, y: torch.softmax(x, -1) * y,
    "softmax of columns": lambda x, y: torch.softmax(x, 0) * y,
    "log softmax": lambda x, y: torch.log_softmax(x, -1) * y,
    "normalize": lambda x, y: F.normalize(x, dim=-1) * y,
    "standardize columns": lambda x, y: (x - x.mean(0)) / x.std(0) * y,
    "batch norm": lambda x, y: F.batch_norm(_images(x), None, None, training=True) * _images(y),
    "group norm": lambda x, y: F.group_norm(_images(x), 4) * _images(y),
    "instance norm": lambda x, y: F.instance_norm(_images(x)) * _images(y),
    "logsumexp": lambda x, y: torch.logsumexp(x, -1) + torch.logsumexp(y, 0),
    "mish": lambda x, y: F.mish(x) * y, "gelu": lambda x, y: F.gelu(x) * y,
    "silu": lambda x, y: F.silu(x) * y, "elu": lambda x, y: F.elu(x) * y,
}  # fmt: skip
PLACES: dict[str, Function] = {
    "embedding": lambda x, y: F.embedding(ROWS, x) + y.sum(),
    "rows": lambda x, y: x[ROWS].square() + y.sum(),
    "gather": lambda x, y: x.gather(1, CELLS) * y,
    "scatter_add": lambda x, y: x.scatter_add(1, CELLS, y).square(),
    "index_add": lambda x, y: x.index_add(0, ROWS[:1024], y).square(),
    "cat": lambda x, y: torch.cat([x, y], 1).square(),
    "stack": lambda x, y: torch.stack([x, y], -1).square(),
    "roll": lambda x, y: x.roll(1, 0) * y, "flip": lambda x, y: x.flip(0) * y,
    "transpose": lambda x, y: x.t() * y, "tril": lambda x, y: x.tril() * y,
    "pad": lambda x, y: F.pad(x, (1, 1, 1, 1)).square() + y.sum(),
    "unfold": lambda x, y: x.unfold(1, 4, 4).square().sum(-1) * y[:, :256],
    "cumsum": lambda x, y: x.cumsum(-1) * y,
    "cumprod": lambda x, y: (1 + 0.01 * x).cumprod(-1) * y,
    "prod": lambda x, y: (1 + 0.01 * x).prod(-1) * y.sum(-1),
    "sort": lambda x, y: x.sort(-1).values * y, "topk": lambda x, y: x.topk(8).values * y[:, :8],
    "max": lambda x, y: x.max(-1).values * y.amax(0), "var": lambda x, y: x.var(-1) * y.var(0),
}  # fmt: skip
LIBRARY: dict[str, Function] = {
    "matmul": torch.matmul, "rfft": lambda x, y: torch.fft.rfft(x).abs() * y[:, :513],
    "conv2d": lambda x, y: F.conv2d(x.view(4, 16, 128, 128), y[:16, :144].reshape(16, 16, 3, 3)),
    "max pool": lambda x, y: F.max_pool2d(x.view(1, 4, 512, 512), 2) + y.sum(),
    "bilinear x2": lambda x, y: F.interpolate(
        x.view(1, 1, 1024, 1024), scale_factor=2, mode="bilinear") * y[0, 0],
    "attention": lambda x, y: F.scaled_dot_product_attention(
        x.view(2, 8, 1024, 64), y.view(2, 8, 1024, 64), x.view(2, 8, 1024, 64)),
}  # fmt: skip
FUNCTIONS = {**ELEMENTWISE, **POSITIVE, **BINARY, **LOSSES, **NORMS, **PLACES, **LIBRARY}


def measure(name: str, rounds: int = ROUNDS) -> tuple[float, float]:
    """Seconds that gradof and eager take for the sum and its gradients, medians."""
    rng = torch.Generator().manual_seed(1)
    x, y = (torch.randn(1024, 1024, generator=rng) for _ in range(2))
    if name in POSITIVE:
        x = torch.rand(1024, 1024, generator=rng) * 0.9 + 0.05
    leaves = [x.requires_grad_(), y.requires_grad_()]
    function = FUNCTIONS[name]
    compiled = gradof.differentiate(lambda x, y: function(x, y).sum())

    def ours() -> Any:
        return torch.autograd.grad(compiled(*leaves), leaves, allow_unused=True)

    def eagers() -> Any:
        return torch.autograd.grad(function(*leaves).sum(), leaves, allow_unused=True)

    for have, want in zip(ours(), eagers(), strict=True):
        if want is not None:
            size = float(want.abs().max())
            torch.testing.assert_close(have, want, rtol=2e-3, atol=1e-3 * size)
    times: dict[Any, list[float]] = {ours: [], eagers: []}
    for _ in range(rounds):
        for side, found in times.items():
            start = time.perf_counter()
            result = side()
            found.append(time.perf_counter() - start)
            del result
    return float(np.median(times[ours])), float(np.median(times[eagers]))


def main(names: list[str]) -> None:
    """Print the table of some functions, or of all."""
    unknown = sorted(set(names) - set(FUNCTIONS))
    if unknown:
        known = ", ".join(FUNCTIONS)
        raise SystemExit(f"no such function: {', '.join(unknown)}; there are {known}")
    rows = sorted((*measure(name), name) for name in names or FUNCTIONS)
    rows.sort(key=lambda row: row[1] / row[0])
    table = Table("function", "gradof, ms", "eager, ms", "eager / gradof")
    for mine, eager, name in rows:
        table.add_row(name, f"{mine * 1e3:.2f}", f"{eager * 1e3:.2f}", f"{eager / mine:.2f}")
    Console(width=80).print(table)
    ratios = np.array([eager / mine for mine, eager, _ in rows])
    print(f"{len(rows)} functions: geometric mean {np.exp(np.log(ratios).mean()):.2f}, "
          f"{int((ratios < 0.9).sum())} below 0.9")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
