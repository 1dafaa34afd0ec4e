"""The scipy table: every case, family by family; scipy.special stands in the numpy table."""

from __future__ import annotations

from gradof.testing import (
    scipy_cases_distributions,
    scipy_cases_fft,
    scipy_cases_grids,
    scipy_cases_integrate,
    scipy_cases_interpolate,
    scipy_cases_linalg,
    scipy_cases_ndimage,
    scipy_cases_optimize,
    scipy_cases_rotations,
    scipy_cases_signal,
    scipy_cases_sparse,
    scipy_cases_statistics,
    scipy_cases_systems,
)
from gradof.testing.numpy_samples import Case

CASES: tuple[Case, ...] = (
    *scipy_cases_linalg.CASES,
    *scipy_cases_fft.CASES,
    *scipy_cases_signal.CASES,
    *scipy_cases_systems.CASES,
    *scipy_cases_ndimage.CASES,
    *scipy_cases_statistics.CASES,
    *scipy_cases_grids.CASES,
    *scipy_cases_integrate.CASES,
    *scipy_cases_optimize.CASES,
    *scipy_cases_interpolate.CASES,
    *scipy_cases_sparse.CASES,
    *scipy_cases_rotations.CASES,
    *scipy_cases_distributions.CASES,
)
