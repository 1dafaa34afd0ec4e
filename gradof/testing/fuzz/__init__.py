"""Random programs beside the library's own answers: what a parser's fuzzer is, for gradients.

    from gradof.testing.fuzz import search
    found = search("torch", minutes=10, seed=0, folder=Path("failures"))
    print(found.summary())

Each seed is a program: statements drawn from our table of ops, from torch's own and numpy's table
of cases, and from forms of syntax, over inputs of all dtypes and layouts, in a random setting (back
end, threads, memory budget, calls). It is compared to second order (Note [Fuzzing's bound] in
`gradof.testing.fuzz.torch_judge`); what is wrong is shrunk and written as a file that runs, and
fails as long as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.errors import GradientMismatchError
from gradof.testing.fuzz.generate import generate
from gradof.testing.fuzz.judges import judge_of
from gradof.testing.fuzz.program import FuzzProgram, Library, Setting
from gradof.testing.fuzz.search import Found, judge_program, search
from gradof.testing.fuzz.verdict import Verdict

__all__ = ["Found", "FuzzProgram", "Setting", "Verdict", "confirm", "generate", "judge_program",
           "search"]  # fmt: skip


def confirm(
    program: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]], setting: Setting,
    seed: int = 0, library: Library = "torch", subject: str = "gradof",
) -> Verdict:  # fmt: skip
    """Judge one program, as files written by the fuzzer do.

    `inputs()` gives fresh arguments each time; `subject` is who differentiates it. Raises
    GradientMismatchError with what is wrong.
    """
    verdict = judge_of(library, subject)(program, inputs, setting, seed)
    if verdict.wrong:
        raise GradientMismatchError("\n".join(verdict.wrong))
    return verdict
