"""The numpy table: every case, family by family."""

from __future__ import annotations

from gradof.testing import (
    numpy_cases_elementwise,
    numpy_cases_indexing,
    numpy_cases_linalg,
    numpy_cases_reductions,
    numpy_cases_shapes,
    numpy_cases_special,
)
from gradof.testing.numpy_samples import Case

CASES: tuple[Case, ...] = (
    *numpy_cases_elementwise.CASES,
    *numpy_cases_reductions.CASES,
    *numpy_cases_shapes.CASES,
    *numpy_cases_indexing.CASES,
    *numpy_cases_linalg.CASES,
    *numpy_cases_special.CASES,
)
