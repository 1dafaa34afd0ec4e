"""torch.compile as the one that is judged: `gradof fuzz --subject torch.compile`.

It has no second derivative, so programs are compared to first order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from gradof.testing.fuzz.program import FuzzProgram
from gradof.testing.fuzz.torch_judge import judge
from gradof.testing.fuzz.verdict import Verdict


def judge_compiled(program: FuzzProgram) -> Verdict:
    """A program compiled by torch.compile, beside eager and float64."""
    setting = replace(program.setting, order=1, prepare=False, numerics="eager")
    torch._dynamo.reset()
    return judge(
        program.function(), program.arguments, setting, program.seed, subject=_compiled
    )


def _compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(fn, backend="inductor", dynamic=False)
    return compiled
