"""The numpy table: every case, family by family."""

from __future__ import annotations

from gradof.testing import (
    numpy_cases_elementwise,
)
from gradof.testing.numpy_samples import Case

CASES: tuple[Case, ...] = (
    numpy_cases_elementwise.CASES
)
