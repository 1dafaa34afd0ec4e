"""Every adaptor of scipy's functions: importing this registers them. Loaded where scipy is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.tracer.numpy.active import SURROUNDINGS
from gradof.tracer.scipy import (
    convolve,
    distances,
    distributions,
    fourier,
    grids,
    images,
    interpolation,
    labels,
    linalg,
    matrices,
    multivariate,
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

ADAPTORS = (
    convolve, distances, distributions, fourier, grids, images, interpolation, labels, linalg,
    matrices, multivariate, optimize, signals, sparse, sparse_systems, special, special_functions,
    statistics, structured,
)  # fmt: skip


def catch_calls(gradient: Callable[..., Any]) -> None:
    """From now on, what traces do with scipy's functions is recorded.

    `gradient(f)` is a function that gives the gradient of f, within a trace, too.
    """
    if scipy_calls not in SURROUNDINGS:
        SURROUNDINGS.append(scipy_calls)
        optimize.GRADIENT.append(gradient)
