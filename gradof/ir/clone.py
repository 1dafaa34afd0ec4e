"""Copying graphs and blocks, and comparing them by structure.

Given  graph f(%x): %y = tanh(%x); return (%y) `clone_graph(f)` is an equal graph that shares no
node with it; `inline(f.block, [a], builder block, anchor)` copies the nodes of `f` before
`anchor`, with `%x` replaced by `a`, and returns what `%y` became.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from gradof.ir.attrs import same_attr
from gradof.ir.core import Block, Graph, Node, Value


def clone_node(node: Node, mapping: dict[Value, Value]) -> Node:
    """An uninserted copy.

    Operands missing in `mapping` are kept. Extends `mapping` with the outputs.
    """
    copy = Node(node.kind, (mapping.get(v, v) for v in node.inputs), node.attrs, node.loc)
    for inner in node.blocks:
        target = copy.add_block()
        for param in inner.params:
            mapping[param] = target.add_param(param.type, param.hint)
        copy_nodes(inner, target, target.returns, mapping)
        target.returns.set_inputs([mapping.get(v, v) for v in inner.results])
    for out in node.outputs:
        mapping[out] = copy.add_output(out.type, out.hint)
    return copy


def copy_nodes(
    source: Block, target: Block, anchor: Node, mapping: dict[Value, Value],
    only: Container[Node] | None = None,
) -> None:  # fmt: skip
    """Insert copies of the nodes of `source`, or `only` of these, before `anchor` in `target`.

    Extends `mapping`.
    """
    for node in source.nodes():
        if only is None or node in only:
            target.insert_before(anchor, clone_node(node, mapping))


def inline(
    source: Block, arguments: Sequence[Value], target: Block, anchor: Node
) -> list[Value]:
    """Copy `source` before `anchor` with its params bound to `arguments`; returns its results."""
    assert len(source.params) == len(arguments)
    mapping = dict(zip(source.params, arguments, strict=True))
    copy_nodes(source, target, anchor, mapping)
    return [mapping.get(v, v) for v in source.results]


def clone_graph(
    graph: Graph, name: str | None = None, mapping: dict[Value, Value] | None = None, *,
    only: Container[Node] | None = None, results: Sequence[Value] | None = None,
) -> Graph:  # fmt: skip
    """A deep copy. `mapping` gets each value's copy.

    With `only`, of its nodes those alone; with `results`, these in place of its own.
    """
    copy = Graph(graph.name if name is None else name)
    copy.nan_safe, copy.small_kernels = graph.nan_safe, graph.small_kernels
    copy.whole = graph.whole
    mapping = {} if mapping is None else mapping
    for param in graph.inputs:
        mapping[param] = copy.block.add_param(param.type, param.hint)
    copy_nodes(graph.block, copy.block, copy.block.returns, mapping, only)
    copy.set_outputs([mapping[v] for v in (graph.outputs if results is None else results)])
    return copy


def same_structure(a: Block, b: Block, *, names: bool = True) -> bool:
    """Whether two blocks are equal up to renaming; with `names`, hints and lines must match too."""
    return _Comparison(names).blocks(a, b)


class _Comparison:
    def __init__(self, names: bool) -> None:
        self.names = names
        self.pairs: dict[Value, Value] = {}

    def bind(self, xs: Sequence[Value], ys: Sequence[Value]) -> bool:
        if len(xs) != len(ys):
            return False
        for x, y in zip(xs, ys, strict=True):
            if x.type != y.type or (self.names and x.hint != y.hint):
                return False
            self.pairs[x] = y
        return True

    def wired(self, xs: Sequence[Value], ys: Sequence[Value]) -> bool:
        return len(xs) == len(ys) and all(
            self.pairs.get(x, x) is y for x, y in zip(xs, ys, strict=True)
        )

    def node(self, a: Node, b: Node) -> bool:
        return (
            a.kind == b.kind
            and a.attrs.keys() == b.attrs.keys()
            and all(same_attr(a.attrs[k], b.attrs[k]) for k in a.attrs)
            and (not self.names or a.loc == b.loc)
            and self.wired(a.inputs, b.inputs)
            and len(a.blocks) == len(b.blocks)
            and all(self.blocks(x, y) for x, y in zip(a.blocks, b.blocks, strict=True))
            and self.bind(a.outputs, b.outputs)
        )

    def blocks(self, a: Block, b: Block) -> bool:
        xs, ys = list(a.nodes()), list(b.nodes())
        return (
            self.bind(a.params, b.params)
            and len(xs) == len(ys)
            and all(self.node(x, y) for x, y in zip(xs, ys, strict=True))
            and self.wired(a.results, b.results)
        )
