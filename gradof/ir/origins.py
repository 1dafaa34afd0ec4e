"""Which nodes of a trace a node comes from, told by its line, through every pass and emitter.

    stamp(graph)                          each node's Loc says `mlp.py:7~3`: node 3 of this graph
    ...passes, fusion, loops, emitted source: whatever keeps the line keeps the origin
    split("h = np.tanh(x)  # mlp.py:7~3~5")           (3, 5), "h = np.tanh(x)  # mlp.py:7"

Only `explore` stamps graphs; the lines of others are plain.

Note [Lines carry origins]
A pass gives a node the line of what it stands for, and where it stands for several, `joined` of
their lines: the first of them, with the origins of all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gradof.ir.core import Graph, Loc

_MARK = re.compile(r"((?:~\d+)+)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Origin(Loc):
    """A line, and the nodes of the trace that were made there, by number."""

    nodes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}{''.join(f'~{n}' for n in self.nodes)}"


NOWHERE = "?"  # the file of a node that no line of the user's made


def stamp(graph: Graph) -> None:
    """Number the nodes of a trace, those of blocks included, in their lines."""
    for number, node in enumerate(graph.walk()):
        at = node.loc or Loc(NOWHERE, 0)
        node.loc = Origin(at.file, at.line, (number,))


def joined(*locs: Loc | None) -> Loc | None:
    """The first line there is, with the origins of all."""
    found = [loc for loc in locs if loc is not None]
    if not found:
        return None
    if not any(isinstance(loc, Origin) for loc in found):
        return found[0]
    nodes = dict.fromkeys(n for loc in found if isinstance(loc, Origin) for n in loc.nodes)
    return Origin(found[0].file, found[0].line, tuple(nodes))


def split(line: str) -> tuple[tuple[int, ...], str]:
    """The origins at the end of a line of text, and the line without them."""
    match = _MARK.search(line)
    if match is None:
        return (), line
    numbers = tuple(int(n) for n in match.group(1)[1:].split("~"))
    return numbers, line[: match.start()].removesuffix(f"  # {NOWHERE}:0")
