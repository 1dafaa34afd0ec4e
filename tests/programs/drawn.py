"""Programs that are drawn: parts of functions that have state, and what happens to it.

A part is a few lines of a function, what they need to be there, and what may be done to that
between calls (`drawn_torch_*.py`, `drawn_numpy_parts.py`):

    --- counter
    . self.n = 0                  in torch of the module's __init__; lines with @ come before it
    self.n += 1
    h = h * self.n
    ! m.n = 2.5                   between calls
    ! m.n = True

A seed is a choice of parts and of steps: something done, a call and what is done with its result.
What is wrong is made smaller by leaving out steps and parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

MOST = 60  # runs that are made to find a smaller program


@dataclass(frozen=True)
class Part:
    """Some lines of a function, and what may be done to what they read; see the module docstring.

    `before` and `init` come before the function, `body` is of the function.
    """

    before: str
    init: str
    body: str
    actions: tuple[str, ...]


def parsed(text: str) -> dict[str, Part]:
    """Parts by their names."""
    parts = {}
    for block in text.strip().removeprefix("--- ").split("\n--- "):
        name, *lines = block.split("\n")
        of: dict[str, list[str]] = {"@": [], ".": [], "!": [], "": []}
        for line in lines:
            kind = line[0] if line[:2] in ("@ ", ". ", "! ") else ""
            of[kind].append(line[2:] if kind else line)
        before, init, body = ("\n".join(of[kind]) for kind in ("@", ".", ""))
        parts[name] = Part(before, init, body, tuple(of["!"]))
    return parts


Step = tuple[tuple[str, ...], str, str]  # what is done before a call, the call, and after it


@dataclass(frozen=True)
class Drawn:
    """A program: names of parts, steps, and what is called: a module, its method or a function."""

    parts: tuple[str, ...]
    steps: tuple[Step, ...]
    called: str = "module"

    def smaller(self) -> Iterator[Drawn]:
        """Programs with one thing less."""
        for i, (actions, call, after) in enumerate(self.steps):
            if len(self.steps) > 1:
                yield self._with(i)
            for j in range(len(actions)):
                yield self._with(i, ((*actions[:j], *actions[j + 1 :]), call, after))
        for name in self.parts if len(self.parts) > 1 else ():
            yield replace(self, parts=tuple(p for p in self.parts if p != name))

    def plainer(self, call: str, after: str) -> Iterator[Drawn]:
        """Programs with a step that is called as by default."""
        for i, (actions, *how) in enumerate(self.steps):
            if how != [call, after]:
                yield self._with(i, (actions, call, after))

    def _with(self, i: int, *steps: Step) -> Drawn:
        return replace(self, steps=(*self.steps[:i], *steps, *self.steps[i + 1 :]))

    def __str__(self) -> str:
        lines = [f"{self.called} of {', '.join(self.parts)}"]
        for actions, call, after in self.steps:
            lines.append("  " + "; ".join(part for part in (*actions, call, after) if part))
        return "\n".join(lines)


Judge = Callable[[Drawn], tuple[str, str]]


def smallest(drawn: Drawn, kind: str, judge: Judge, plain: tuple[str, str]) -> Drawn:
    """A program that is wrong in the same way, of which nothing can be left out."""
    runs, tried = 0, True
    while tried and runs < MOST:
        tried = False
        for other in (*drawn.smaller(), *drawn.plainer(*plain)):
            runs += 1
            if judge(other)[0] == kind:
                drawn, tried = other, True
                break
    return drawn
