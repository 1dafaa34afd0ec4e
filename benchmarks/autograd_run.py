"""Runs one of autograd's examples in this process, quickly, and printing what it plots.

    python benchmarks/autograd_run.py FILE STEPS SOURCES [nudged]

Of what is plotted the sums of squares are printed. scipy's optimizers take STEPS steps, pictures
that the sources have not are random, and so are the images of MNIST, which are not downloaded. An
example that reads text files of its own folder is given those of SOURCES, so that autograd's and
ours learn from the same text. With `nudged`, autograd differentiates at points that are an ulp off:
how far its own results then move says what a difference means.
"""

from __future__ import annotations

import builtins
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np

_PLOTS = ("matplotlib", "matplotlib.pyplot", "matplotlib.animation", "matplotlib.image",
          "matplotlib.mlab", "matplotlib.cm")  # fmt: skip
_IMAGES = 600  # in place of MNIST's


class Plots(MagicMock):
    """All of matplotlib."""

    def subplots(self, *args: Any, **kwargs: Any) -> Any:
        """A figure and its axes."""
        return Plots(), Plots()

    def imread(self, path: str) -> Any:
        """A picture of the same noise each time."""
        shape = (100, 100) if "skull" in path else (50, 50, 3)
        return np.random.RandomState(0).rand(*shape)

    def plot(self, *given: Any, **kwargs: Any) -> None:
        """Print the sums of squares of what is plotted."""
        print(*(np.sum(np.square(a)) for a in given if not isinstance(a, str)))


def mnist() -> tuple[Any, ...]:
    """Random images and labels, in place of a download."""
    rs = np.random.RandomState(0)
    images = [rs.randint(0, 256, (n, 28, 28)).astype(np.uint8) for n in (_IMAGES, 100)]
    labels = [rs.randint(0, 10, n).astype(np.uint8) for n in (_IMAGES, 100)]
    return images[0], labels[0], images[1], labels[1]


def stand_ins(steps: int, folder: Path, sources: Path) -> None:
    """Put the stand-ins of this module into the modules that examples import."""
    for module in _PLOTS:
        sys.modules[module] = Plots()
    data: Any = types.ModuleType("data_mnist")
    data.mnist = mnist
    sys.modules["data_mnist"] = data
    import scipy.optimize

    minimize = scipy.optimize.minimize

    def few(*args: Any, options: Any = None, **rest: Any) -> Any:
        return minimize(*args, options={**(options or {}), "maxiter": steps}, **rest)

    scipy.optimize.minimize = few
    read = builtins.open

    def same_text(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str) and Path(file).parent == folder and file.endswith(".py"):
            file = sources / Path(file).name
        return read(file, *args, **kwargs)

    builtins.open = same_text
    os.system = lambda command: 0  # type: ignore[assignment]  # pictures are made into films


def nudge_autograd() -> None:
    """Let autograd differentiate at points whose numbers are an ulp off, or as they were."""
    import autograd.differential_operators as operators
    from autograd.misc.flatten import flatten
    from autograd.tracer import isbox

    rs, make_vjp = np.random.RandomState(1), operators._make_vjp

    def nudged(fun: Any, x: Any) -> Any:
        if isbox(x):
            return make_vjp(fun, x)
        vector, unflatten = flatten(x)
        if any(map(isbox, vector)):
            return make_vjp(fun, x)
        ulps = rs.choice([-1.0, 0.0, 1.0], size=np.shape(vector)) * np.finfo(float).eps
        return make_vjp(fun, unflatten(vector * (1.0 + ulps)))

    operators._make_vjp = nudged


def main() -> None:
    """Run the example."""
    file, steps, sources, *rest = sys.argv[1:]
    folder = Path(file).parent
    sys.path[0] = str(folder)
    stand_ins(int(steps), folder, Path(sources))
    if rest:
        nudge_autograd()
    sys.argv = [file]
    np.random.seed(0)
    runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    main()
