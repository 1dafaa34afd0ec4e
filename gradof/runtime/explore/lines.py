"""Lines of text with the nodes of the trace they come from, each kept once.

>>> lines = Lines()
>>> lines.add_text("def f(x):\n    y = np.tanh(x)  # mlp.py:7~3\n")
[0, 1]
>>> lines.rows
[['def f(x):', [], 0], ['    y = np.tanh(x)', [3], 1]]

The line of the user's is not kept: it is that of the first node. The 1 says that it stood there.
"""

from __future__ import annotations

import re
from typing import Any

from gradof.ir.core import Graph, Node, Value
from gradof.ir.origins import Origin, split
from gradof.ir.printer import Names

_LOC = re.compile(r"  # [^#\n]*:\d+$")  # of the user's, as every printer writes it


class Lines:
    """The table of all lines of a page; a view is a list of its indices."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self._at: dict[tuple[str, tuple[int, ...]], int] = {}

    def add(self, text: str, origins: tuple[int, ...] = ()) -> int:
        """The index of a line."""
        key = text, origins
        at = self._at.get(key)
        if at is None:
            at = self._at[key] = len(self.rows)
            plain = _LOC.sub("", text) if origins else text
            self.rows.append([plain, list(origins), int(plain != text)])
        return at

    def add_text(self, text: str) -> list[int]:
        """The indices of the lines of a text; see `with_origins`."""
        return [self.add(line, origins) for line, origins in with_origins(text)]


def with_origins(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Each line without its mark, and where it comes from.

    A line without a mark that is further in than one with a mark belongs to that one, and `del`
    to the statement before it.
    """
    found: list[tuple[str, tuple[int, ...]]] = []
    around: list[tuple[int, tuple[int, ...]]] = []  # indent and origins of the lines around
    for marked in text.rstrip("\n").split("\n"):
        origins, line = split(marked)
        indent = len(line) - len(line.lstrip())
        if not origins and line.lstrip().startswith("del "):
            origins = found[-1][1] if found else ()
        while around and around[-1][0] >= indent and line.strip():
            around.pop()
        if not origins and around and line.strip():
            origins = around[-1][1]
        if origins:
            around.append((indent, origins))
        found.append((line, origins))
    return found


def llvm_lines(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Lines of LLVM IR with notes: what follows a note comes from it, up to a label."""
    found: list[tuple[str, tuple[int, ...]]] = []
    now: tuple[int, ...] = ()
    for marked in text.rstrip("\n").split("\n"):
        origins, line = split(marked)
        if line.lstrip().startswith(";"):
            now = origins
        elif line.endswith(":") or not line.startswith(" "):
            now = ()
        found.append((line, now))
    return found


class SteadyNames(Names):
    """Names that a value keeps from one graph of a compilation to the next, copies included.

    A copy is known by what made it: kind, type and origins, and how many like it came before.
    """

    def __init__(self, known: dict[Any, str], counter: list[int]) -> None:
        super().__init__()
        self._known = known
        self._next = counter
        self._mine: dict[Value, str] = {}
        self._used: set[str] = set()
        self._like: dict[Any, int] = {}

    def __getitem__(self, value: Value) -> str:
        name = self._mine.get(value)
        if name is None:
            key = self._key(value)
            name = self._known.get(value) or self._known.get(key)
            if name is None or name in self._used:
                name = self._unused(value.hint)
            self._mine[value] = self._known[key] = self._known[value] = name
            self._used.add(name)
        return name

    def _key(self, value: Value) -> Any:
        made: Any = "input"
        if value.node is not None:
            made = value.node.kind, value.index, origins_of(value.node)
        key = made, str(value.type), value.hint
        count = self._like[key] = self._like.get(key, 0) + 1
        return (*key, count)

    def _unused(self, hint: str | None) -> str:
        taken = self._used.union(self._known.values()) if hint is not None else ()
        name, n = hint or "", 0
        while hint is None or name in taken:
            if hint is None:
                self._next[0] += 1
                return str(self._next[0])
            n += 1
            name = f"{hint}.{n}"
        return name


def origins_of(node: Node) -> tuple[int, ...]:
    """The nodes of the trace that a node comes from."""
    return node.loc.nodes if isinstance(node.loc, Origin) else ()


def readers_of(graph: Graph, value: Value) -> tuple[int, ...]:
    """The nodes of a trace that read a value."""
    return tuple(dict.fromkeys(n for use in value.uses for n in origins_of(use.node)))
