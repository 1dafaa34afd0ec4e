"""Every adaptor of scipy's functions: importing this registers them. Loaded where scipy is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gradof.tracer.scipy import (
    bsplines,
    convolve,
    density,
    distances,
    distributions,
    elementwise,
    fitpack,
    fourier,
    grids,
    images,
    integrals,
    interpolation,
    labels,
    least_squares,
    linalg,
    linear_maps,
    matrices,
    moments,
    morphology,
    multivariate,
    odes,
    operators,
    optimize,
    peaks,
    piecewise_roots,
    polyint,
    polynomials,
    programs,
    radial,
    ranks,
    regular_grids,
    roots,
    rotations,
    signals,
    sparse,
    sparse_makers,
    sparse_systems,
    spatial,
    special,
    special_functions,
    statistics,
    structured,
)
from gradof.tracer.scipy.calls import caught as _caught_calls
from gradof.tracer.scipy.in_c import wrapped

ADAPTORS = (
    bsplines, convolve, density, distances, distributions, elementwise, fitpack, fourier, grids,
    images, integrals, interpolation, labels, least_squares, linalg, linear_maps, matrices,
    moments, morphology, multivariate, odes, operators, optimize, peaks, piecewise_roots, polyint,
    polynomials, programs, radial, ranks, regular_grids, roots, rotations, signals, sparse,
    sparse_makers, sparse_systems, spatial, special, special_functions, statistics, structured,
)  # fmt: skip


@contextmanager
def caught() -> Iterator[None]:
    """Within it, the functions of scipy that are loaded and have an adaptor record."""
    with _caught_calls(), wrapped():
        yield


__all__ = ["ADAPTORS", "caught"]
