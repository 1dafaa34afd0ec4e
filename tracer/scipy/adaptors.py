"""Every adaptor of scipy's functions: importing this registers them. Loaded where scipy is."""

from __future__ import annotations

from collections.abc import Callable

from gradof.tracer.numpy.active import SURROUNDINGS
from gradof.tracer.scipy import (
    convolve,
    distances,
    distributions,
    fourier,
    grids,
    images,
    integrals,
    interpolation,
    labels,
    linalg,
    matrices,
    multivariate,
    odes,
    optimize,
    signals,
    sparse,
    sparse_systems,
    special,
    special_functions,
    statistics,
    structured,
)
from gradof.tracer.scipy.calls import scipy_calls
from gradof.tracer.scipy.transforms import Transforms, set_transforms

ADAPTORS = (
    convolve, distances, distributions, fourier, grids, images, integrals, interpolation, labels,
    linalg, matrices, multivariate, odes, optimize, signals, sparse, sparse_systems, special,
    special_functions, statistics, structured,
)  # fmt: skip


def catch_calls(make: Callable[[], Transforms]) -> None:
    """From now on, what traces do with scipy's functions is recorded.

    `make` gives the compiler's transformations.
    """
    if scipy_calls not in SURROUNDINGS:
        SURROUNDINGS.append(scipy_calls)
        set_transforms(make())
