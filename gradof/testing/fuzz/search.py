"""Programs one after the other, for some time or so many, with counts of what came of them."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradof.testing.fuzz.generate import generate
from gradof.testing.fuzz.judges import judge_of
from gradof.testing.fuzz.program import FuzzProgram, Library
from gradof.testing.fuzz.reach import Reach
from gradof.testing.fuzz.smaller import smaller
from gradof.testing.fuzz.verdict import Verdict

LARGE = 32_768  # elements: from here on kernels, threads and streams are used


@dataclass
class Found:
    """What a search found: counts, mismatches with their files, and what was reached."""

    library: Library
    first: int
    programs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    eager: Counter[str] = field(default_factory=Counter)  # why ours ran eagerly
    refused: Counter[str] = field(default_factory=Counter)  # why a program is none of a subject's
    wrong: list[tuple[int, str, Path | None]] = field(default_factory=list)  # seed, what, file
    reach: Reach = field(default_factory=Reach)
    seconds: float = 0.0
    shrinking: int | None = None  # the seed of what is being made smaller

    def summary(self) -> str:
        """The counts in a few lines."""
        c = self.counts
        lines = [
            f"{self.programs} {self.library} programs, seeds {self.first} to "
            f"{self.first + self.programs - 1}, in {self.seconds:.0f} s: {c['second']} right to "
            f"second order, {c['first']} to first, {c['value']} in their values, "
            f"{len(self.wrong)} wrong",
            f"{c['large']} of them have more than {LARGE} elements; eagerly, and so not counted as "
            f"right, ran {c['eager']}; the library itself refused {c['refused']}; with opaque ops "
            f"{c['opaque']}; second derivatives at a kink, right beside it, {c['kink']}",
            *(f"  eagerly, {n} times: {why}" for why, n in self.eager.most_common(8)),
            *(f"  refused, {n} times: {why}" for why, n in self.refused.most_common(12)),
            *(f"  wrong, seed {seed}: {what}" + (f" ({path})" if path else "")
              for seed, what, path in self.wrong),
        ]  # fmt: skip
        return "\n".join(lines)

    def unreached(self) -> str:
        """Ops of the table and kernels that no program had."""
        kernels = ", ".join(f"{name} {n}" for name, n in self.reach.emitters.most_common())
        missing = self.reach.missing()
        return (f"kernels: {kernels}\n{len(self.reach.ops)} kinds of nodes were reached; of the "
                f"table {len(missing)} ops were not: {', '.join(missing)}")  # fmt: skip


def judge_program(program: FuzzProgram) -> Verdict:
    """One program beside the library's own answers."""
    judge = judge_of(program.library, program.subject)
    return judge(program.function(), program.arguments, program.setting, program.seed)


def search(
    library: Library, *, minutes: float | None = None, programs: int | None = None, seed: int = 0,
    folder: Path | None = None, size: str | None = None, subject: str = "gradof",
    progress: Callable[[Found], None] | None = None,
) -> Found:  # fmt: skip
    """Try the programs of the seeds from `seed` on, for some minutes or so many.

    What is wrong is shrunk and written into `folder`, if there is one. `subject` is who is judged:
    gradof, torch.compile, torch.compile.aot, or jax.
    """
    found = Found(library, seed)
    start = time.monotonic()
    until = math.inf if minutes is None else start + 60 * minutes
    while time.monotonic() < until and (programs is None or found.programs < programs):
        program = replace(generate(library, seed + found.programs, size), subject=subject)
        verdict = judge_program(program)
        found.programs += 1
        found.seconds = time.monotonic() - start
        _count(found, program, verdict)
        if verdict.wrong:
            found.shrinking = program.seed
            if progress is not None:
                progress(found)
            _keep(found, program, verdict, folder)
            found.shrinking = None
        if progress is not None:
            progress(found)
    return found


def _count(found: Found, program: FuzzProgram, verdict: Verdict) -> None:
    counts = found.counts
    if max((math.prod(v.shape) for v in program.values.values()), default=0) > LARGE:
        counts["large"] += 1
    if verdict.refused:
        counts["refused"] += 1
        if program.subject == "jax":  # of whom it is asked what were no programs
            found.refused[_without_names(verdict.refused)] += 1
    elif verdict.eager:
        counts["eager"] += 1
        reason = verdict.eager.splitlines()[0].split("autograd: ")[-1]
        found.eager[re.sub(r"\[[\d,]*\]", "[…]", reason)] += 1
    elif verdict.passed:
        counts[("value", "first", "second")[min(verdict.orders, 2)]] += 1
        counts["opaque"] += bool(verdict.opaque)
        counts["kink"] += verdict.at_kink
        found.reach.add(verdict.compiled)


def _without_names(reason: str) -> str:
    return re.sub(r"['`].*?['`]|\[[\d, ]*\]|\([\d, ]*\)|\d+", "…", reason)


def _keep(found: Found, program: FuzzProgram, verdict: Verdict, folder: Path | None) -> None:
    least = smaller(program, verdict, judge_program)
    path = None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"fuzz_{program.library}_{program.seed}.py"
        path.write_text(least.source())
    found.wrong.append((program.seed, (least.says or tuple(verdict.wrong))[0], path))
