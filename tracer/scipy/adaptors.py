"""Every adaptor of scipy's functions: importing this registers them. Loaded where scipy is."""

from __future__ import annotations

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
    operators,
    optimize,
    polynomials,
    signals,
    sparse,
    sparse_makers,
    sparse_systems,
    special,
    special_functions,
    statistics,
    structured,
)
from gradof.tracer.scipy.calls import caught

ADAPTORS = (
    convolve, distances, distributions, fourier, grids, images, integrals, interpolation, labels,
    linalg, matrices, multivariate, odes, operators, optimize, polynomials, signals, sparse,
    sparse_makers, sparse_systems, special, special_functions, statistics, structured,
)  # fmt: skip


__all__ = ["ADAPTORS", "caught"]
