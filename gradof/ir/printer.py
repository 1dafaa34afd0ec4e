"""Graph → text that `gradof.ir.parser` reads back.

    graph f(%x : f32[3]):
      %0 : float = Constant[value=2.0]()
      %y : f32[3] = mul(%x, %0)  # model.py:4
      return (%y)

A node with blocks prints them below it, indented:

      %dx : f32[3] = GradOf[name='mul'](%dy)
        block():
          %1 : f32[3] = mul(%dy, %0)
          -> (%1)
"""

from __future__ import annotations

from collections.abc import Iterable

from gradof.ir.attrs import format_attr
from gradof.ir.core import Block, Graph, Node, Value


class Names:
    """Unique printed names: the hint, `hint.n` on a clash, a running number without a hint."""

    def __init__(self) -> None:
        self._of: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}
        self._counter = 0

    def __getitem__(self, value: Value) -> str:
        name = self._of.get(value)
        if name is None:
            name = self._fresh(value.hint)
            self._of[value] = name
            self._taken.add(name)
        return name

    def _fresh(self, hint: str | None) -> str:
        if hint is None:
            name = str(self._counter)
            self._counter += 1
            return name
        name, n = hint, self._last.get(hint, 0)
        while name in self._taken:
            n += 1
            name = f"{hint}.{n}"
        self._last[hint] = n
        return name


def _typed(names: Names, values: Iterable[Value]) -> str:
    return ", ".join(f"%{names[v]} : {v.type}" for v in values)


def _plain(names: Names, values: Iterable[Value]) -> str:
    return ", ".join(f"%{names[v]}" for v in values)


def format_node(node: Node, names: Names, *, locs: bool = True) -> str:
    """One line for a node, without its blocks."""
    attrs = ", ".join(f"{k}={format_attr(v)}" for k, v in node.attrs.items())
    head = f"{_typed(names, node.outputs)} = " if node.outputs else ""
    tail = f"  # {node.loc}" if locs and node.loc is not None else ""
    bracket = f"[{attrs}]" if attrs else ""
    return f"{head}{node.kind}{bracket}({_plain(names, node.inputs)}){tail}"


def _print_block(block: Block, names: Names, indent: str, locs: bool) -> Iterable[str]:
    for node in block.nodes():
        yield indent + format_node(node, names, locs=locs)
        for inner in node.blocks:
            yield f"{indent}  block({_typed(names, inner.params)}):"
            yield from _print_block(inner, names, indent + "    ", locs)
            yield f"{indent}    -> ({_plain(names, inner.results)})"


def print_graph(graph: Graph, *, locs: bool = True, names: Names | None = None) -> str:
    """The text of a graph; `locs=False` leaves the user's lines out. `names` are its values'."""
    names = Names() if names is None else names
    lines = [f"graph {graph.name}({_typed(names, graph.inputs)}):"]
    lines += _print_block(graph.block, names, "  ", locs)
    lines.append(f"  return ({_plain(names, graph.outputs)})")
    return "\n".join(lines) + "\n"
