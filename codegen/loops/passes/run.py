"""Passes over a nest in their order, verified between where GRADOF_CHECK=1.

    passes = [NestPass("pick-columns", with_picks, "Pick one cell of a row ...")]
    nest = run_nest_passes(nest, passes, "llvm")

`intermediate_nests` gives each pass's name and its nest, for people and for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gradof.codegen.loops.instructions import Target
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.verify import checked


class NestPass(NamedTuple):
    """A pass by its name: a nest of the same meaning, or the nest itself.

    `about` says in one line what it does, for `gradof opt --list`.
    """

    name: str
    run: Callable[[LoopNest], LoopNest]
    about: str


def run_nest_passes(nest: LoopNest, passes: Sequence[NestPass], target: Target) -> LoopNest:
    """The nest after all passes; VerifyError, where GRADOF_CHECK=1, names the pass at fault."""
    made = [nest, *(found for _, found in intermediate_nests(nest, passes, target))]
    return made[-1]


def intermediate_nests(
    nest: LoopNest, passes: Sequence[NestPass], target: Target
) -> Iterator[tuple[str, LoopNest]]:
    """The name of each pass, and the nest after it."""
    for name, run, _ in passes:
        nest = checked(run(nest), target, after=name)
        yield name, nest
