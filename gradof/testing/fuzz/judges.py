"""Who judges a program: by its library and by who differentiates it. None is loaded before."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradof.errors import InputError
from gradof.testing.fuzz.program import Library, Setting
from gradof.testing.fuzz.verdict import Verdict

Judge = Callable[[Callable[..., Any], Callable[[], tuple[Any, ...]], Setting, int], Verdict]
SUBJECTS: dict[str, Library | None] = {  # and whose programs they run; None: both
    "gradof": None, "torch.compile": "torch", "torch.compile.aot": "torch", "jax": "numpy",
}  # fmt: skip


def judge_of(library: Library, subject: str = "gradof") -> Judge:
    """The judge; InputError where the subject does not run such programs."""
    if SUBJECTS[subject] not in (None, library):
        raise InputError(f"{subject} runs {SUBJECTS[subject]} programs",
                         hint=f"--library {SUBJECTS[subject]}")  # fmt: skip
    if subject == "jax":
        from gradof.testing.fuzz.jax_subject import judge_jax

        return judge_jax
    if subject != "gradof":
        from gradof.testing.fuzz.torch_subject import judge_compiled

        return functools.partial(judge_compiled, subject=subject)
    if library == "torch":
        from gradof.testing.fuzz.torch_judge import judge

        return judge
    from gradof.testing.fuzz.numpy_judge import judge as judge_numpy

    return judge_numpy
