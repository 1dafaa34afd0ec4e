"""The smallest part of a random program that is still wrong, in the same way.

The statements are left out by the shrinker of the harness (Note [Shrinking]); then its setting is
made the default one as far as that is wrong, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from gradof.testing.fuzz.program import FuzzProgram, Setting
from gradof.testing.fuzz.verdict import Verdict
from gradof.testing.report import Report
from gradof.testing.shrinking import Program, Shrinker

SECONDS = 40.0


def smaller(
    program: FuzzProgram, verdict: Verdict, judge: Callable[[FuzzProgram], Verdict],
    seconds: float = SECONDS,
) -> FuzzProgram:  # fmt: skip
    """The smallest one; the program itself where no part of it is wrong."""
    shrinker = _Shrinker(program, verdict, judge, seconds)
    found = shrinker.smallest(program)
    program = found if isinstance(found, FuzzProgram) else program
    return shrinker.plainer(program)


class _Shrinker(Shrinker):
    def __init__(
        self, program: FuzzProgram, verdict: Verdict, judge: Callable[[FuzzProgram], Verdict],
        seconds: float,
    ) -> None:  # fmt: skip
        super().__init__(Report(program.name, nodes=0), program.seed, seconds)
        self.kinds = verdict.kinds
        self.first = " ".join(verdict.wrong[0].split()[:2])
        self._judge = judge

    def judge(self, program: Program) -> Program | None:
        """The program with what is wrong, None where nothing is, or something else."""
        assert isinstance(program, FuzzProgram)
        if not program.outputs or time.monotonic() > self.until:
            return None
        try:
            verdict = self._judge(program)
        except Exception:  # a candidate may be no program at all: Note [Shrinking]
            return None
        if not verdict.kinds & self.kinds:
            return None
        if self.kinds == {"error"} and " ".join(verdict.wrong[0].split()[:2]) != self.first:
            return None
        return replace(program, says=tuple(verdict.wrong))

    def plainer(self, program: FuzzProgram) -> FuzzProgram:
        """The same program in the plainest setting that is wrong."""
        plain: dict[str, Any] = vars(Setting())
        for each in fields(Setting):
            if getattr(program.setting, each.name) == plain[each.name] or each.name == "order":
                continue
            setting = replace(program.setting, **{each.name: plain[each.name]})
            found = self.judge(replace(program, setting=setting))
            if isinstance(found, FuzzProgram):
                program = found
        return program
