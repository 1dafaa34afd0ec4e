"""What is measured on a GPU: functions of tensors, as their users write them, with the sizes.

    w = by_name("softmax")
    args = w.arguments(w.sizes[0], torch.bfloat16, "cuda")     # leaves that require grad, and data
    y = w.fn(*args)                                            # a tensor, or one for each output

Note [Bytes]
What a pass must move, each tensor once: the forward reads its arguments and writes its outputs; the
backward reads what its formula needs of both (`reads`) and the cotangents, and writes the
gradients. Both together are the sum of the two, because the cotangent comes from outside, after
the forward has returned. What a side moves beyond that, such as values it saved, counts against
it. For workloads with products the bytes are a lower bound that arithmetic does not let them reach.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gpu_blocks import (
    attention,
    attention_inputs,
    mlp_block,
    mlp_inputs,
    transformer_block,
    transformer_inputs,
)
from torch.nn import functional as F
from workloads import prices

Size = tuple[int, ...]
Draw = Callable[..., torch.Tensor]  # draw(*shape, grad=True, scale=1.0, like="normal")
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
DROPPED = 0.1


@dataclass(frozen=True)
class GpuWorkload:
    """One workload; `reads` names what the backward cannot do without; see Note [Bytes]."""

    name: str
    fn: Callable[..., Any]
    make: Callable[..., list[torch.Tensor]]  # make(draw, *size)
    sizes: tuple[Size, ...]
    tiny: tuple[Size, ...]  # of the dry run; then of tests on a device, which reads long rows fast
    reads: tuple[str, ...]
    outputs: tuple[str, ...] = ("y",)
    dtypes: tuple[str, ...] = ("bf16", "f32")
    products: bool = False  # bound by matrix products, not by memory
    judged: bool = False  # among those that are to reach 85 % of a copy
    exact: Callable[..., Any] | None = None  # exact(results, *args): fn with the draws it made

    def arguments(self, size: Size, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
        """Fresh arguments, the same ones each time."""
        generator = torch.Generator(device).manual_seed(0)

        def draw(
            *shape: int, grad: bool = True, scale: float = 1.0, like: str = "normal",
            dtype: torch.dtype = dtype,
        ) -> torch.Tensor:  # fmt: skip
            made = torch.rand if like == "uniform" else torch.randn
            values = made(shape, generator=generator, device=device, dtype=torch.float32)
            return (values * scale).to(dtype).requires_grad_(grad)

        torch.manual_seed(0)  # for integers
        return self.make(draw, *size)

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Those of the function."""
        return tuple(inspect.signature(self.fn).parameters)

    def traffic(self, args: Sequence[torch.Tensor]) -> dict[str, list[str]]:
        """Names of the tensors each pass must move; a gradient or cotangent of x is `dx`."""
        names = self.argument_names
        wanted = [f"d{n}" for n, a in zip(names, args, strict=True) if a.requires_grad]
        forward = [*names, *self.outputs]
        backward = [*self.reads, *(f"d{n}" for n in self.outputs), *wanted]
        return {"forward": forward, "backward": backward, "together": forward + backward}

    def formulas(self, args: Sequence[torch.Tensor]) -> dict[str, str]:
        """The traffic as text, such as `y + dy + dx`."""
        return {key: " + ".join(names) for key, names in self.traffic(args).items()}

    def nbytes(
        self, args: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> dict[str, int]:
        """Bytes each pass must move; see Note [Bytes]."""
        named = dict(zip(self.argument_names, args, strict=True))
        named |= dict(zip(self.outputs, outputs, strict=True))
        sizes = {name: t.numel() * t.element_size() for name, t in named.items()}
        sizes |= {f"d{name}": n for name, n in sizes.items()}
        return {key: sum(sizes[n] for n in names) for key, names in self.traffic(args).items()}


def softmax(x: Any) -> Any:
    """Over rows."""
    return F.softmax(x, -1)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    """Over rows."""
    return F.layer_norm(x, (x.shape[-1],), w, b)


def rms_norm(x: Any, w: Any) -> Any:
    """Over rows."""
    return F.rms_norm(x, (x.shape[-1],), w, 1e-6)


def group_norm(x: Any, w: Any, b: Any) -> Any:
    """Over groups of eight channels."""
    return F.group_norm(x, x.shape[1] // 8, w, b)


def cross_entropy(x: Any, t: Any) -> Any:
    """The mean over rows."""
    return F.cross_entropy(x, t)


def bias_gelu(x: Any, b: Any) -> Any:
    """Pointwise, with a gradient that is a sum over rows."""
    return F.gelu(x + b, approximate="tanh")


def dropout_norm(x: Any, b: Any, r: Any, w: Any, c: Any) -> Any:
    """Bias, dropout, residual and layer norm; the residual stream goes on beside the norm."""
    h = F.dropout(x + b, DROPPED) + r
    return F.layer_norm(h, (h.shape[-1],), w, c), h


def dropout_norm_exact(results: Sequence[Any], x: Any, b: Any, r: Any, w: Any, c: Any) -> Any:
    """The same with the mask that these results show."""
    kept = (results[1].to(x.dtype) - r).abs() > 0.5 * (x + b).abs()
    h = (x + b) * kept / (1 - DROPPED) + r
    return F.layer_norm(h, (h.shape[-1],), w, c), h


def swiglu(a: Any, b: Any) -> Any:
    """Two streams."""
    return F.silu(a) * b


def rope(q: Any, cos: Any, sin: Any) -> Any:
    """Rotary embedding, halves turned against each other."""
    low, high = q.chunk(2, -1)
    return q * cos + torch.cat((-high, low), -1) * sin


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    """An update and its moments; the backward is what meta-learning differentiates."""
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    step = 1e-3 * (m / 0.1) / (torch.sqrt(v / 0.001) + 1e-8)
    return p - step.to(p.dtype), m, v


def _rows(*widths: str) -> Callable[..., list[torch.Tensor]]:
    """Arguments of rows and columns: "full" matrices, and "row" vectors."""
    return lambda draw, n, m: [draw(n, m) if w == "full" else draw(m) for w in widths]


def _classes(draw: Draw, n: int, m: int) -> list[torch.Tensor]:
    x = draw(n, m)
    return [x, torch.randint(m, (n,)).to(x.device)]


def _dropout_inputs(draw: Draw, n: int, m: int) -> list[torch.Tensor]:
    """As `_rows`; x + b is away from 0, so that results show what was dropped."""
    x, b = draw(n, m), draw(m, scale=0.05)
    with torch.no_grad():
        x.copy_(x.sign() * (0.5 + x.abs().clamp(max=1.5)))
        b.clamp_(-0.2, 0.2)
    return [x, b, draw(n, m), draw(m), draw(m)]


def _images(draw: Draw, n: int, c: int, h: int, w: int) -> list[torch.Tensor]:
    return [draw(n, c, h, w), draw(c), draw(c)]


def _turned(draw: Draw, b: int, h: int, n: int, d: int) -> list[torch.Tensor]:
    q = draw(b, h, n, d)
    places = torch.arange(n, device=q.device)
    turns = 10000.0 ** (-2 * torch.arange(d // 2, device=q.device) / d)
    angles = torch.outer(places, turns).repeat(1, 2)
    return [q, angles.cos().to(q.dtype), angles.sin().to(q.dtype)]


def _moments(draw: Draw, n: int) -> list[torch.Tensor]:
    """Parameters and gradients; the moments are always f32. v is away from the kink of sqrt."""
    v = draw(n, like="uniform", dtype=torch.float32)
    with torch.no_grad():
        v.add_(0.1)
    return [draw(n), draw(n), draw(n, dtype=torch.float32), v]


def _options(draw: Draw, n: int) -> list[torch.Tensor]:
    ranges = ((80, 120), (80, 120), (0.1, 2), (0.1, 0.5))
    made = [draw(n, like="uniform") for _ in ranges]
    with torch.no_grad():
        for values, (low, high) in zip(made, ranges, strict=True):
            values.mul_(high - low).add_(low)
    return made


# Rows of 1k to 16k; each matrix is several times an L2 cache.
WIDE = ((65536, 1024), (16384, 4096), (4096, 16384))
FEW = ((5, 96), (2, 16384))
WORKLOADS = (
    GpuWorkload("softmax", softmax, _rows("full"), WIDE, FEW, ("y",), judged=True),
    GpuWorkload("layer norm", layer_norm, _rows("full", "row", "row"), WIDE, FEW, ("x", "w"),
                judged=True),
    GpuWorkload("RMS norm", rms_norm, _rows("full", "row"), WIDE, FEW, ("x", "w"), judged=True),
    GpuWorkload("group norm", group_norm, _images, ((64, 256, 64, 64),), ((2, 16, 4, 5),),
                ("x", "w")),
    GpuWorkload("cross-entropy", cross_entropy, _classes, ((4096, 32768), (2048, 131072)),
                ((5, 200), (2, 131072)), ("x", "t"), judged=True),
    GpuWorkload("bias-gelu", bias_gelu, _rows("full", "row"), WIDE[1:], FEW, ("x", "b"),
                judged=True),
    GpuWorkload("bias-dropout-residual-layernorm", dropout_norm, _dropout_inputs, (WIDE[1],),
                FEW, ("w", "h"), ("y", "h"), exact=dropout_norm_exact),
    GpuWorkload("swiglu", swiglu, _rows("full", "full"), (WIDE[1],), FEW[:1], ("a", "b")),
    GpuWorkload("rope", rope, _turned, ((8, 32, 2048, 128),), ((1, 2, 6, 8),), ("cos", "sin")),
    GpuWorkload("attention", attention, attention_inputs, ((4, 16, 2048, 128),), ((1, 2, 8, 16),),
                ("q", "k", "v"), products=True),
    GpuWorkload("Adam update", adam, _moments, ((1 << 26,),), ((300,),), ("g", "m2", "v2"),
                ("p2", "m2", "v2")),
    GpuWorkload("Black-Scholes", prices, _options, ((1 << 25,),), ((300,),), ("s", "k", "t", "v"),
                dtypes=("f32",)),
    GpuWorkload("MLP block", mlp_block, mlp_inputs, ((8192, 2048, 8192),), ((4, 16, 32),),
                ("x", "w1", "b1", "w2"), products=True),
    GpuWorkload("transformer block", transformer_block, transformer_inputs, ((8, 1024, 1024),),
                ((1, 6, 128),), ("x", "wqkv", "wo", "w1", "w2", "n1", "n2"), products=True),
)  # fmt: skip


def by_name(name: str) -> GpuWorkload:
    """The workload of this name."""
    (found,) = (w for w in WORKLOADS if w.name == name)
    return found


def selected(only: str) -> list[GpuWorkload]:
    """Those whose name contains one of the words between commas; SystemExit where none does."""
    words = [word.strip() for word in only.split(",") if word.strip()]
    unknown = [word for word in words if not any(word in w.name for w in WORKLOADS)]
    if unknown:
        names = ", ".join(w.name for w in WORKLOADS)
        raise SystemExit(f"no workload has {', '.join(map(repr, unknown))} in its name: {names}")
    return [w for w in WORKLOADS if not words or any(word in w.name for word in words)]


def as_tuple(found: Any) -> tuple[Any, ...]:
    """One output as a tuple of one."""
    return found if isinstance(found, tuple) else (found,)


def label(size: Iterable[int]) -> str:
    """Such as 16384x4096."""
    return "x".join(map(str, size))
