"""One row of the numpy table: a name, an expression, and the operands it is tried on.

    case("numpy.linalg.solve", "np.linalg.solve(x, y)", matrix(3), R(3, 2))

The operands are called x, y, z, u, v in turn. `np` is numpy, `special` is scipy.special; what a
source names as `scipy.linalg` or the like is loaded when it is compiled. A source of several lines
is a function's body.
"""

from __future__ import annotations

import importlib
import linecache
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import UnsupportedOpError

Array = NDArray[Any]
Sample = Callable[[np.random.Generator], Array]
_NAMES = ("x", "y", "z", "u", "v")


@dataclass(frozen=True)
class Case:
    """A name of numpy's or scipy.special's, and one way to use it."""

    name: str
    source: str
    samples: tuple[Sample, ...]

    @property
    def title(self) -> str:
        """The name and the source in one line."""
        return f"{self.name}: {'; '.join(self.source.split(chr(10)))}"

    def arguments(self, seed: int = 0) -> tuple[Array, ...]:
        """Operands in float64 that float32 holds exactly."""
        rng = np.random.default_rng(seed)
        drawn = [sample(rng) for sample in self.samples]
        return tuple(
            a.astype(np.float32).astype(np.float64) if a.dtype.kind == "f" else a for a in drawn
        )

    def compile(self) -> Callable[..., Any]:
        """The function of the operands; UnsupportedOpError where scipy is needed and missing."""
        names = ", ".join(_NAMES[: len(self.samples)])
        body = self.source if "return " in self.source else f"return {self.source}"
        text = f"def sample({names}):\n{textwrap.indent(body, '    ')}\n"
        file = f"<numpy table: {self.title}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        space: dict[str, Any] = {"np": np, "__name__": "numpy_table"}
        if "special." in text:
            space["special"] = _scipy("scipy.special")
        inner = r"scipy\.(?:sparse\.linalg|spatial\.distance|optimize\.elementwise|\w+)"
        for module in set(re.findall(inner, text)):
            _scipy(module)
            space["scipy"] = _scipy("scipy")
        exec(compile(text, file, "exec"), space)
        function: Callable[..., Any] = space["sample"]
        return function


def _scipy(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise UnsupportedOpError("scipy is not installed", hint="pip install scipy") from None


def case(name: str, source: str, *samples: Sample) -> Case:
    """A case; its source may be indented as the table is."""
    return Case(name, textwrap.dedent(source).strip(), samples)


class Of:
    """`Of("scipy.fft", R(6))("fft", "x", "x, 4")`: cases of a module's function, one per call."""

    def __init__(self, module: str, *on: Sample, written: str | None = None) -> None:
        self.module, self.on, self.written = module, on, written or module

    def __call__(
        self, name: str, *calls: str, on: tuple[Sample, ...] | None = None
    ) -> tuple[Case, ...]:
        """The cases; `on`: other operands than those of the module."""
        return tuple(
            case(f"{self.module}.{name}", f"{self.written}.{name}({call})", *(on or self.on))
            for call in calls
        )


# --- operands ---------------------------------------------------------------------------------


def R(*shape: int, low: float = -2.0, high: float = 2.0) -> Sample:
    """Floats spread over an interval: no ties, none near zero or the ends, none on an integer."""

    def draw(rng: np.random.Generator) -> Array:
        n = int(np.prod(shape))
        gap = (high - low) / max(n, 1)
        places = low + gap * (np.arange(n) + 0.5 + 0.2 * (n % 2))
        moved = places + gap * rng.uniform(-0.12, 0.12, n)
        return np.asarray(rng.permutation(moved).reshape(shape))

    return draw


def positive(*shape: int, low: float = 0.3, high: float = 3.0) -> Sample:
    """Positive floats."""
    return R(*shape, low=low, high=high)


def unit(*shape: int) -> Sample:
    """Floats inside (0, 1)."""
    return R(*shape, low=0.08, high=0.92)


def matrix(n: int, *batch: int) -> Sample:
    """Well-conditioned square matrices, not symmetric."""

    def draw(rng: np.random.Generator) -> Array:
        spread = np.diag(np.linspace(1.5, 3.5, n))
        return np.asarray(spread + rng.uniform(-0.6, 0.6, (*batch, n, n)))

    return draw


def definite(n: int, *batch: int) -> Sample:
    """Symmetric positive definite matrices with separate eigenvalues."""

    def draw(rng: np.random.Generator) -> Array:
        a = matrix(n, *batch)(rng)
        return np.asarray(a @ np.swapaxes(a, -1, -2))

    return draw


def holes(*shape: int) -> Sample:
    """Floats with a few nans among them, none of them a whole row or column."""

    def draw(rng: np.random.Generator) -> Array:
        a = R(*shape)(rng)
        np.fill_diagonal(a if a.ndim == 2 else a[:1, None], np.nan)
        return a

    return draw


def rising(*shape: int) -> Sample:
    """Floats in rising order along the last dim."""
    return lambda rng: np.sort(R(*shape)(rng), axis=-1)


def exactly(values: Any) -> Sample:
    """These values: indices, masks, counts, or floats where the place matters."""
    return lambda rng: np.array(values)
