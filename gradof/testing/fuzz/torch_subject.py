"""torch.compile as the one that is judged: `gradof fuzz --subject torch.compile`.

It has no second derivative, so programs are compared to first order. With `torch.compile.aot` its
code generator is left out: what captures, decomposes, differentiates and partitions remains, at ten
times as many programs a minute.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from gradof.testing.fuzz.program import Setting
from gradof.testing.fuzz.torch_judge import judge
from gradof.testing.fuzz.verdict import Verdict

# Of a subject's name the backend of torch.compile.
BACKENDS = {"torch.compile": "inductor", "torch.compile.aot": "aot_eager_decomp_partition"}


def judge_compiled(
    fn: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]], setting: Setting, seed: int,
    subject: str,
) -> Verdict:  # fmt: skip
    """A program compiled by torch.compile, beside eager and float64."""
    setting = replace(setting, order=1, prepare=False, numerics="eager")
    torch._dynamo.reset()
    return judge(
        fn, inputs, setting, seed, subject=functools.partial(_compiled, BACKENDS[subject])
    )


def _compiled(backend: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(fn, backend=backend, dynamic=False)
    return compiled
