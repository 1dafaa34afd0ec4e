"""What a statement of a program can look like: text with places for what is drawn.

    Form("torch.softmax({x:1}, {dim})")         x is an array with one dim or more, dim one of its
    Form("torch.where({m}, {x}, {y})")          y can be broadcast with x, m is a mask of it
    Form("{v}[{slice}] = {num}", block=True)    statements; v is no input, so it may be changed

The first of `x` (real), `z` (complex), `k` (integers), `b` (booleans), `w` (any of them) and `v`
(an inexact result of the program) is the subject, on which all other places depend; what follows
the colon is the number of dims it has at least, or with `=` exactly. `new` stands for the names of
the results in a block. The other places are functions of `gradof.testing.fuzz.places`.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

SUBJECTS = frozenset("xzkbwv")


@dataclass(frozen=True)
class Form:
    """One form; `name` is what it is counted under. See the module."""

    text: str
    outputs: int = 1
    block: bool = False
    weight: float = 1.0
    name: str = ""
    squash: tuple[tuple[float, float], ...] = ()  # the domain of each array operand

    @cached_property
    def parts(self) -> Sequence[tuple[str, str | None, str]]:
        """Literal text, and the place that follows it with what is said of it."""
        return [
            (literal, place, spec or "")
            for literal, place, spec, _ in string.Formatter().parse(self.text)
        ]

    @cached_property
    def subject(self) -> tuple[str, str]:
        """The subject's place and the dims it needs; no place where there is none."""
        for _, place, spec in self.parts:
            if place in SUBJECTS and place is not None:
                return place, spec
        return "", ""

    @property
    def title(self) -> str:
        """The name it is counted under."""
        return self.name or self.text


def forms(*texts: str, weight: float = 1.0) -> tuple[Form, ...]:
    """Forms with one result each."""
    return tuple(Form(text, weight=weight) for text in texts)


def blocks(*texts: str, weight: float = 1.0) -> tuple[Form, ...]:
    """Forms that are statements."""
    return tuple(
        Form(text, outputs=int("{new}" in text), block=True, weight=weight) for text in texts
    )
