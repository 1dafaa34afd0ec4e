"""What the drawing needs of numpy: arrays of all dtypes and layouts, and whether values are fit."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

import gradof
from gradof.runtime.thread import calling_plain
from gradof.testing.closeness import largest
from gradof.testing.fuzz.program import Library, twins

DTYPES: dict[str, tuple[tuple[str, float], ...]] = {
    "f": (("np.float64", 75), ("np.float32", 25)), "c": (("np.complex128", 1),),
    "i": (("np.int64", 7), ("np.int32", 2), ("np.uint8", 1)), "b": (("np.bool_", 1),),
}  # fmt: skip


class NumpyWorld:
    """See `gradof.testing.fuzz.draw.World`."""

    library: Library = "numpy"

    def __init__(self) -> None:
        self.space: dict[str, Any] = {
            "np": np, "math": math, "inf": math.inf, "nan": math.nan, "gradof": gradof,
        }
        try:
            from scipy import special
        except ModuleNotFoundError:
            return  # then no program has its functions
        self.space["special"] = special

    def is_array(self, value: Any) -> bool:
        """Whether it is an array, or a number of numpy's."""
        return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "fciub"

    def kind(self, value: Any) -> str:
        """f, c, i or b."""
        return str(value.dtype.kind).replace("u", "i")

    def shape(self, value: Any) -> tuple[int, ...]:
        """Its shape."""
        return tuple(value.shape)

    def dtype(self, value: Any) -> str:
        """Its dtype as source."""
        return "np.bool_" if value.dtype.kind == "b" else f"np.{value.dtype.name}"

    def make(self, drawn: Any, dtype: str) -> Any:
        """An array of these numbers."""
        drawn = np.asarray(drawn)
        return (np.abs(drawn) if dtype == "np.uint8" else drawn).astype(getattr(np, dtype[3:]))

    def laid_out(self, value: Any, rng: random.Random) -> Any:
        """The same shape, and most of the numbers, in another layout of memory."""
        if not value.ndim or not value.size:
            return value
        axis = rng.randrange(value.ndim)
        way = rng.choice(("gaps", "transposed", "backwards"))  # repeated numbers would be ties
        if way == "gaps":
            return np.repeat(value, 2, axis)[(slice(None),) * axis + (slice(None, None, 2),)]
        if way == "transposed":
            return np.array(value, order="F")
        return np.flip(np.flip(value, axis).copy(), axis)

    def live(self, value: Any) -> Any:
        """A copy to run the program on."""
        return twins([value], "numpy")[0]

    def kept(self, value: Any) -> Any:
        """A copy of a value as it is now."""
        return np.array(value)

    def fit(self, value: Any) -> bool:
        """Whether there is anything to go on with: finite numbers that are not too large."""
        if value.dtype.kind == "c":
            return bool(np.all(np.isfinite(value))) and largest(np.abs(value)) < 1e4
        return bool(np.all(np.isfinite(value))) and largest(value) < 1e4

    def owned(self, value: Any, inputs: Sequence[Any]) -> bool:
        """Whether no input would be changed with it, and it can be changed."""
        return (isinstance(value, np.ndarray) and value.flags.writeable
                and not any(np.shares_memory(value, x) for x in inputs))  # fmt: skip

    def dtypes(self, kind: str) -> Sequence[tuple[str, float]]:
        """Dtypes of a kind, by weight."""
        return DTYPES[kind]

    def run(self, code: Any, space: dict[str, Any]) -> None:
        """Run a statement in plain numpy."""
        with calling_plain(), np.errstate(all="ignore"):
            exec(code, space)
