"""Ordered checks of printed graphs, after LLVM's FileCheck and torch's.

>>> text = "%a = mul(%x, %y)\\n%b = mul(%a, %x)\\n%c = add(%b, %y)\\n"
>>> FileCheck(text).count("= mul(", 2).check("= add(").check_next("%y").check_not("= mul(")

Each positive check searches from the end of the last match, so the order of the calls is the order
in the text. A step that fails raises at once (TextCheckError), with what was sought and the text
around where the search began: there is no final `run` that could be forgotten. Therefore
`check_not` says itself how far it reaches: to the first `before`, or to the end of the text.
torch's `check_not(a).check(b)` is `check_not(a, before=b).check(b)` here.
"""

from __future__ import annotations

from gradof.errors import TextCheckError


class FileCheck:
    """A text and a position in it; every method returns the object itself."""

    def __init__(self, text: object) -> None:
        self.text = str(text)
        self.position = 0

    def check(self, wanted: str) -> FileCheck:
        """`wanted` occurs at or after the position, which moves behind it."""
        return self._move(wanted, self.text.find(wanted, self.position), "not found")

    def check_same(self, wanted: str) -> FileCheck:
        """`wanted` occurs in the rest of the current line."""
        return self._move(wanted, self.text.find(wanted, self.position, self._line_end()),
                          "not found in the rest of the line")  # fmt: skip

    def check_next(self, wanted: str) -> FileCheck:
        """`wanted` occurs in the line after the current one."""
        start = self._line_end() + 1
        end = self.text.find("\n", start)
        at = self.text.find(wanted, start, len(self.text) if end < 0 else end)
        return self._move(wanted, at, "not found in the next line")

    def check_not(self, unwanted: str, *, before: str | None = None) -> FileCheck:
        """`unwanted` does not occur from the position up to `before`; the position stays.

        Raises TextCheckError if it does, or if `before` itself is missing.
        """
        end = len(self.text) if before is None else self.text.find(before, self.position)
        if end < 0:
            raise self._error(f"{before!r} not found, up to which {unwanted!r} was to be absent")
        found = self.text.find(_nonempty(unwanted), self.position, end)
        if found >= 0:
            line = self.text.count("\n", 0, found) + 1
            raise self._error(f"{unwanted!r} found, in line {line}")
        return self

    def count(self, wanted: str, times: int, *, exactly: bool = False) -> FileCheck:
        """`wanted` occurs at least `times` times; `exactly`: and not once more up to the end."""
        for done in range(times):
            self._move(wanted, self.text.find(wanted, self.position),
                       f"found {done} times, not {times}")  # fmt: skip
        return self.check_not(wanted) if exactly else self

    def _line_end(self) -> int:
        end = self.text.find("\n", self.position)
        return len(self.text) if end < 0 else end

    def _move(self, wanted: str, at: int, problem: str) -> FileCheck:
        if at < 0:
            raise self._error(f"{wanted!r} {problem}")
        self.position = at + len(_nonempty(wanted))
        return self

    def _error(self, message: str) -> TextCheckError:
        line = self.text.count("\n", 0, self.position) + 1
        shown = "\n".join(
            f"{'>' if n == line else ' '} {n:3} {text}"
            for n, text in enumerate(self.text.splitlines(), 1)
        )
        return TextCheckError(f"{message}\nsearched from line {line}:\n{shown}")


def _nonempty(wanted: str) -> str:
    if not wanted:
        raise TextCheckError("an empty text occurs everywhere", hint="name what to look for")
    return wanted
