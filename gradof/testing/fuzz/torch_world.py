"""What the drawing needs of torch: arrays of all dtypes and layouts, and whether values are fit."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import torch

import gradof
from gradof.runtime.thread import calling_plain
from gradof.testing.closeness import largest
from gradof.testing.fuzz.program import Library, twins

LARGEST = {torch.float16: 60.0, torch.bfloat16: 300.0}  # of values to go on with
DTYPES: dict[str, tuple[tuple[str, float], ...]] = {
    "f": (("torch.float32", 56), ("torch.float64", 20), ("torch.bfloat16", 12),
          ("torch.float16", 12)),
    "c": (("torch.complex64", 5), ("torch.complex128", 5)),
    "i": (("torch.int64", 7), ("torch.int32", 2), ("torch.uint8", 1), ("torch.int16", 1)),
    "b": (("torch.bool", 1),),
}  # fmt: skip


class TorchWorld:
    """See `gradof.testing.fuzz.draw.World`."""

    library: Library = "torch"

    def __init__(self) -> None:
        self.space: dict[str, Any] = {
            "torch": torch, "math": math, "inf": math.inf, "nan": math.nan, "gradof": gradof,
        }

    def is_array(self, value: Any) -> bool:
        """Whether it is a dense tensor."""
        return isinstance(value, torch.Tensor) and value.layout is torch.strided

    def kind(self, value: Any) -> str:
        """f, c, i or b."""
        if value.is_complex():
            return "c"
        if value.is_floating_point():
            return "f"
        return "b" if value.dtype is torch.bool else "i"

    def shape(self, value: Any) -> tuple[int, ...]:
        """Its shape."""
        return tuple(value.shape)

    def dtype(self, value: Any) -> str:
        """Its dtype as source."""
        return str(value.dtype)

    def make(self, drawn: Any, dtype: str) -> torch.Tensor:
        """A tensor of these numbers."""
        made = torch.as_tensor(drawn)
        if dtype == "torch.uint8":
            made = made.abs()
        return made.to(getattr(torch, dtype.removeprefix("torch.")))

    def laid_out(self, value: torch.Tensor, rng: random.Random) -> torch.Tensor:
        """The same shape, and most of the numbers, in another layout of memory."""
        rank = value.dim()
        if not rank or not value.numel():
            return value
        ways = ["gaps", "transposed", "offset", "expanded", "overlapping"]
        way = rng.choice(ways[: 4 if rng.random() < 0.8 else 5])
        dim = rng.randrange(rank)
        if way == "gaps":
            return value.repeat_interleave(2, dim).narrow(dim, 0, 2 * value.shape[dim])[
                (slice(None),) * dim + (slice(None, None, 2),)
            ]
        if way == "transposed" and rank > 1:
            other = rng.randrange(rank)
            return value.transpose(dim, other).contiguous().transpose(dim, other)
        if way == "offset":
            return torch.cat([value.narrow(dim, 0, 1), value], dim).narrow(dim, 1, value.shape[dim])
        if way == "expanded":
            return value.narrow(dim, 0, 1).clone().expand(value.shape)
        if way == "overlapping":
            n, flat = value.shape[-1], value.reshape(-1)
            strides = [1] * rank
            for d in range(rank - 2, -1, -1):
                strides[d] = strides[d + 1] + (n > 2)
            if _inside(value, strides):
                return flat.clone().as_strided(value.shape, strides)
        return value

    def live(self, value: torch.Tensor) -> torch.Tensor:
        """A copy to run the program on."""
        copy: torch.Tensor = twins([value], "torch")[0]
        return copy

    def kept(self, value: torch.Tensor) -> torch.Tensor:
        """A copy of a value as it is now."""
        return value.detach().clone()

    def fit(self, value: torch.Tensor) -> bool:
        """Whether there is anything to go on with: finite numbers that are not too large."""
        if value.is_complex():
            value = torch.view_as_real(value.resolve_conj())
        if not value.is_floating_point() or not value.numel():
            return not value.numel() or largest(value.double().numpy()) < 1e6
        size = float(value.detach().abs().max())
        return size <= LARGEST.get(value.dtype, 1e4)

    def owned(self, value: torch.Tensor, inputs: Sequence[Any]) -> bool:
        """Whether no input that requires grad would be changed with it, nor one in two places."""
        memory = value.untyped_storage().data_ptr()
        of = [x for x in inputs if x.untyped_storage().data_ptr() == memory]
        return not of or (len(of) == 1 and not of[0].requires_grad and 0 not in of[0].stride())

    def dtypes(self, kind: str) -> Sequence[tuple[str, float]]:
        """Dtypes of a kind, by weight."""
        return DTYPES[kind]

    def run(self, code: Any, space: dict[str, Any]) -> None:
        """Run a statement eagerly."""
        torch.default_generator.manual_seed(0)
        with calling_plain():
            exec(code, space)


def _inside(value: torch.Tensor, strides: Sequence[int]) -> bool:
    last = sum((n - 1) * s for n, s in zip(value.shape, strides, strict=True))
    return last < value.numel()
