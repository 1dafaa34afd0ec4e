"""A `custom_vjp` rule is judged by the forward it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradof
from gradof.testing import check


@pytest.mark.parametrize("good", [True, False])
def test_a_rule_of_the_users_own_is_judged_by_its_forward(good: bool) -> None:
    @gradof.custom_vjp
    def sine(x: Any) -> Any:
        return np.sin(x * 2.0)

    sine.defvjp(
        lambda x: (np.sin(x * 2.0), x * 2.0),
        lambda x, g: (g * np.cos(x) * (2.0 if good else 3.0),),
    )

    def fn(x: Any) -> Any:
        return np.sum(sine(x) * x)

    report = check(fn, (np.linspace(0.1, 1.0, 5),), per_op=True, raise_on_error=False)
    wrong = [row.op for row in report.ops if row.culprits]
    assert report.ok == good and wrong == ([] if good else ["CustomRule"])
